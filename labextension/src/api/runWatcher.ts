/**
 * The watcher of the server's runs: receives events and, as a safety net, lists runs every 45 s.
 *
 * The watcher has one immutable state and one signal, sent within a moment of a change. While the
 * server is unreachable, the watcher keeps its last state and the time of this state. The watcher
 * changes no run.
 */
import { Event, ServiceManager } from '@jupyterlab/services';
import { Poll, Throttler } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';
import { RunCache } from './runCache';
import { listed, nameOf } from './runs';
import { isMissing, Lookup } from './lookup';
import { ServerProblem } from './problem';
import * as rest from './rest';
import type { IClustersState, IFailure, ITransition } from './state';
import {
  type IProblem,
  type IRun,
  type IRunEvent,
  type IRunList,
  RUN_EVENT
} from './types';

/** The poll while events arrive; it notices events that were lost with the network. */
const QUIET = { interval: 45_000, backoff: false, max: 45_000 };
/** The poll while no events arrive: after an outage, events may return later than the routes. */
const SETTLING = { interval: 5_000, backoff: false, max: 5_000 };
const SETTLED_AFTER = 30_000;
const AWAY = { interval: 2_000, backoff: 1.7, max: 15_000 };
/** Milliseconds in which changes are collected before the signal is sent. */
const TOGETHER = 60;

export abstract class RunWatcher {
  constructor(
    readonly caller: rest.ICaller,
    private readonly _services: ServiceManager.IManager
  ) {
    this._lookup = new Lookup(caller);
    this._poll = new Poll({
      name: 'tfcluster-labextension:runs',
      factory: () => this._fetch(),
      frequency: QUIET,
      standby: 'when-hidden',
      auto: false
    });
    this._notify = new Throttler(() => this._emit(), {
      limit: TOGETHER,
      edge: 'trailing'
    });
  }

  /** Start: request the list once, then listen and poll. */
  start(): void {
    this._services.events.stream.connect(this._onEvent, this);
    this._services.connectionFailure.connect(this._onConnectionFailure, this);
    void this._poll.start();
  }

  get state(): IClustersState {
    return this._state;
  }

  get changed(): ISignal<this, IClustersState> {
    return this._changed;
  }

  get transitioned(): ISignal<this, ITransition> {
    return this._transitioned;
  }

  get failed(): ISignal<this, IFailure> {
    return this._failed;
  }

  find(name: string): IRun | undefined {
    return this._cache.find(name);
  }

  /** Look a run up again, because lists do not show a removal that this page missed. */
  private async _ensureAgain(name: string): Promise<void> {
    try {
      await this._answered(this._lookup.get(name));
    } catch (error) {
      if (isMissing(error)) {
        this._drop(name);
      }
    }
  }

  async showAll(all: boolean): Promise<void> {
    this._all = all;
    await this.refresh();
  }

  /** Request the list now. Never rejects; an error is in the state. */
  async refresh(): Promise<void> {
    await this._poll.refresh();
    await this._poll.tick.catch(() => undefined);
  }

  /** Store a verb's response, unless a newer state of that run was pushed before it arrived. */
  protected async _answered<T extends IRun | undefined>(
    call: Promise<T>
  ): Promise<T> {
    const meanwhile = new Map<string, IRunEvent>();
    this._listening.add(meanwhile);
    try {
      const run = await call;
      if (run && !meanwhile.has(nameOf(run))) {
        this._put(run);
      }
      return run;
    } finally {
      this._listening.delete(meanwhile);
    }
  }

  private async _fetch(): Promise<void> {
    const meanwhile = new Map<string, IRunEvent>();
    this._listening.add(meanwhile);
    try {
      const answer = await rest.listRuns(this.caller, this._all);
      this._take(answer, meanwhile);
      this._recovered(answer.problem ?? null);
    } catch (error) {
      if (!(error instanceof ServerProblem)) {
        throw error;
      }
      this._problem = error;
      this._missed = true;
      this._poll.frequency = AWAY;
      this._emit();
      throw error; // so that the poll backs off
    } finally {
      this._listening.delete(meanwhile);
    }
    this._emit();
  }

  private _take(
    answer: IRunList,
    meanwhile: ReadonlyMap<string, IRunEvent>
  ): void {
    const kept = this._cache.merge(answer, meanwhile);
    this._missed ||= this._sequence.receiveList(answer, meanwhile.size > 0);
    if (this._missed) {
      this._missed = false;
      this._lookup.reset();
      kept.forEach(name => void this._ensureAgain(name));
    }
  }

  /**
   * Record that the server answers again. `deaf` is the reason why no events arrive; null if events
   * arrive.
   */
  private _recovered(deaf: IProblem | null): void {
    const now = Date.now();
    if (this._problem !== null) {
      this._settledAt = now + SETTLED_AFTER;
    }
    this._problem = deaf && new ServerProblem(deaf);
    this._at = now;
    const isUnsure = deaf || this._sequence.isLagging || now < this._settledAt;
    this._poll.frequency = isUnsure ? SETTLING : QUIET;
  }

  private _onConnectionFailure(): void {
    if (this._problem === null) {
      void this._poll.refresh();
    }
  }

  private _onEvent(_: Event.IManager, emission: Event.Emission): void {
    if (emission.schema_id !== RUN_EVENT) {
      return;
    }
    const event = emission as unknown as IRunEvent;
    if (event.type === 'failed' && event.run && event.problem) {
      // report this even if a list already has the run's later state: a list does not say what
      // failed
      const problem = new ServerProblem(event.problem);
      this._failed.emit({ run: event.run, problem });
    }
    const order = this._sequence.receive(event);
    if (order === 'seen') {
      return; // a list that has arrived includes this event
    }
    this._missed ||= order === 'gap';
    if (event.type === 'unavailable') {
      this._problem = event.problem ? new ServerProblem(event.problem) : null;
      this._poll.frequency = SETTLING;
      this._emit();
      return;
    }
    if (order === 'gap' || this._problem !== null) {
      void this._poll.refresh();
    }
    if (event.type === 'available') {
      return;
    }
    for (const meanwhile of this._listening) {
      meanwhile.set(event.name, event);
    }
    this._at = Date.now();
    if (event.run === null) {
      this._drop(event.name);
    } else {
      this._put(event.run);
    }
  }

  private _put(run: IRun): void {
    this._cache.put(run);
    void this._notify.invoke();
  }

  protected _drop(name: string): void {
    this._cache.remove(name);
    this._lookup.forget(name);
    void this._notify.invoke();
  }

  private _emit(): void {
    this._state = {
      state: this._problem ? 'stale' : this._at ? 'live' : 'loading',
      runs: listed(this._cache.all, this._all),
      all: this._all,
      problem: this._problem,
      at: this._at
    };
    this._changed.emit(this._state);
  }

  private _state: IClustersState = {
    state: 'loading',
    runs: [],
    all: false,
    problem: null,
    at: 0
  };
  /** For each request without a response yet, the events that have arrived since it was sent. */
  private readonly _listening = new Set<Map<string, IRunEvent>>();
  /** Whether this page may have missed a removal. */
  private _missed = false;
  private _all = false;
  private _problem: ServerProblem | null = null;
  private _at = 0;
  private _settledAt = 0;
  private readonly _sequence = new EventSequence();
  protected readonly _cache = new RunCache(transition =>
    this._transitioned.emit(transition)
  );
  protected readonly _lookup: Lookup;
  private readonly _poll: Poll;
  private readonly _notify: Throttler;
  private readonly _changed = new Signal<this, IClustersState>(this);
  private readonly _transitioned = new Signal<this, ITransition>(this);
  private readonly _failed = new Signal<this, IFailure>(this);
}

/**
 * `seen`: an earlier list includes the event; `gap`: the event is new, and events before it were
 * lost.
 */
type EventOrder = 'seen' | 'next' | 'gap';

/**
 * The sequence numbers of the server's events, to detect lost events.
 *
 * A gap in the numbers means that events were lost. So does a list that includes later events than
 * were received, for example because a proxy passes requests but no events. The tracker makes no
 * requests.
 */
class EventSequence {
  /** Whether a list included later events than were received, and no event has arrived since. */
  get isLagging(): boolean {
    return this._isLagging;
  }

  receive({ stream, sequence }: IRunEvent): EventOrder {
    this._isLagging = false;
    const isSame = stream === this._stream;
    if (isSame && sequence <= this._sequence) {
      return 'seen';
    }
    const isGap = !isSame || sequence > this._sequence + 1;
    this._stream = stream;
    this._sequence = sequence;
    return isGap ? 'gap' : 'next';
  }

  /**
   * Record a list. Return whether the list includes events that were lost; false if an event
   * arrived while the list was on its way.
   */
  receiveList({ stream, sequence }: IRunList, isReceiving: boolean): boolean {
    const isSame = stream === this._stream;
    const isLost = isSame && sequence > this._sequence && !isReceiving;
    this._isLagging ||= isLost;
    this._stream = stream;
    this._sequence = isSame ? Math.max(sequence, this._sequence) : sequence;
    return isLost;
  }

  private _stream = '';
  private _sequence = 0;
  private _isLagging = false;
}
