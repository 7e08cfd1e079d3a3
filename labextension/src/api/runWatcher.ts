/**
 * Watches the runs of the server: receives what it pushes and, as a safety net, lists them every 45 s.
 *
 * Promises one immutable state and one signal for it, within a moment of a change. What it knows it keeps while the
 * server is away, and says since when. It changes no run.
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

/** So that a network that is gone for a minute is noticed before it is back. */
const QUIET = { interval: 45_000, backoff: false, max: 45_000 };
/** While nothing is heard: after the server was away its pushes may come back later than its routes do. */
const SETTLING = { interval: 5_000, backoff: false, max: 5_000 };
const SETTLED_AFTER = 30_000;
const AWAY = { interval: 2_000, backoff: 1.7, max: 15_000 };
/** Milliseconds in which changes become one. */
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

  /** Begin: ask once, listen, and go on. */
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

  /** What was removed while this page heard nothing is not in a list either. */
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

  /** Ask now. Never rejects: what went wrong is in the state. */
  async refresh(): Promise<void> {
    await this._poll.refresh();
    await this._poll.tick.catch(() => undefined);
  }

  /** Take a verb's answer, unless a newer state of that run was pushed before it came. */
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
      throw error; // the poll backs off
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

  /** The server answers; `deaf` says why it hears nothing of its runs. */
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
      // also where a list has the run as it is since: it does not say what failed
      const problem = new ServerProblem(event.problem);
      this._failed.emit({ run: event.run, problem });
    }
    const order = this._sequence.receive(event);
    if (order === 'seen') {
      return; // the list that came meanwhile knows it
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
  /** What is pushed while an answer is on its way, for each such answer. */
  private readonly _listening = new Set<Map<string, IRunEvent>>();
  /** Whether something may have been removed that this page did not hear of. */
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

/** `seen`: an earlier list includes the event; `gap`: it is new, and others before it were lost. */
type EventOrder = 'seen' | 'next' | 'gap';

/**
 * The sequence numbers of the server's events, so that a lost event is noticed.
 *
 * A gap in the numbers is a loss; so is a list that includes later events than were received, as where a proxy lets
 * requests through and no pushes. It asks nobody.
 */
class EventSequence {
  /** Whether a list included later events than were received, and none was received since. */
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

  /** Take a list and return whether it includes events that were lost; not if one was received while it came. */
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
