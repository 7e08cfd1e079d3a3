/**
 * The current tasks of one run, loaded in one request, and again when an event reports a changed
 * task.
 *
 * The last printed line of a task changes without an event, so an active run is also polled, less
 * often the more tasks it has. A hidden page makes no requests. The rows stay while the server is
 * unreachable.
 */
import type { IDisposable } from '@lumino/disposable';
import { type IPoll, Poll, Throttler } from '@lumino/polling';
import { type ISignal, Signal } from '@lumino/signaling';
import { ServerProblem } from './problem';
import { isActive, isSame, nameOf, uidOf } from './runs';
import type { IClusters } from './state';
import type { IRun, ITaskRow } from './types';

/**
 * Minimum milliseconds between two requests if no event arrives, and milliseconds to add for each
 * task.
 */
const LOOK = 5_000;
const LOOK_EACH = 20;
/**
 * Minimum milliseconds between two requests after events, and milliseconds to add for each task.
 */
const PAUSE = 500;
const PAUSE_EACH = 10;

/** Return the data of a run that change when a task changes, as text; progress is not included. */
const tasksOf = ({ cluster: { status } }: IRun): string =>
  JSON.stringify([
    status.phase,
    status.counts,
    status.attention,
    status.restarts
  ]);

export interface ITaskRowsState {
  /** The rows; null before the first response. */
  readonly rows: ReadonlyArray<ITaskRow> | null;
  /** Why the rows are not current. */
  readonly problem: ServerProblem | null;
}

export class TaskRows implements IDisposable {
  constructor(
    private readonly _clusters: IClusters,
    private _run: IRun
  ) {
    this._poll = new Poll({
      name: `tfcluster-labextension:tasks-${nameOf(_run)}`,
      factory: () => this._fetch(),
      frequency: frequencyOf(0),
      standby: 'when-hidden',
      auto: false
    });
    this._soon = this._throttler(0);
    _clusters.changed.connect(this._onChanged, this);
    void this._poll.start();
  }

  get state(): ITaskRowsState {
    return this._state;
  }

  get changed(): ISignal<this, ITaskRowsState> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    this._clusters.changed.disconnect(this._onChanged, this);
    this._soon.dispose();
    this._poll.dispose();
    Signal.clearData(this);
  }

  private _onChanged(): void {
    const run = this._clusters.find(nameOf(this._run));
    if (run && run !== this._run && isSame(this._run, run)) {
      const before = this._run;
      this._run = run;
      if (tasksOf(before) !== tasksOf(run)) {
        void this._soon.invoke();
      }
    }
  }

  private async _fetch(): Promise<void> {
    const run = this._run;
    try {
      const found = await this._clusters.tasks(nameOf(run));
      if (found?.uid === uidOf(run)) {
        this._set({ rows: found.tasks, problem: null });
        this._setPauses(found.tasks.length);
      }
    } catch (error) {
      if (!(error instanceof ServerProblem)) {
        throw error;
      }
      this._set({ ...this._state, problem: error });
      throw error; // so that the poll backs off
    }
    if (this.isDisposed) {
      return;
    }
    if (tasksOf(run) !== tasksOf(this._run)) {
      void this._soon.invoke(); // the run changed while the response was on its way
    } else if (!isActive(run)) {
      void this._poll.stop();
    }
  }

  /**
   * Set the pauses by the number of tasks: hundreds of tasks change all the time during a start,
   * and would cause too many requests.
   */
  private _setPauses(tasks: number): void {
    if (tasks !== this._paced && !this.isDisposed) {
      this._paced = tasks;
      this._poll.frequency = frequencyOf(tasks);
      this._soon.dispose();
      this._soon = this._throttler(tasks);
    }
  }

  private _throttler(tasks: number): Throttler {
    return new Throttler(() => this._poll.refresh(), {
      limit: Math.max(PAUSE, PAUSE_EACH * tasks),
      edge: 'trailing'
    });
  }

  private _set(state: ITaskRowsState): void {
    if (!this.isDisposed) {
      this._state = state;
      this._changed.emit(state);
    }
  }

  private _state: ITaskRowsState = { rows: null, problem: null };
  /** The number of tasks for which the pauses are set. */
  private _paced = 0;
  private _soon: Throttler;
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, ITaskRowsState>(this);
}

const frequencyOf = (tasks: number): IPoll.Frequency => ({
  interval: Math.max(LOOK, LOOK_EACH * tasks),
  backoff: true,
  max: 15_000
});
