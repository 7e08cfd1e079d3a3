/**
 * The data of a Resources tab. While the tab is visible, it is loaded repeatedly until the run has
 * ended.
 *
 * The model has one immutable state and one signal. While the server is unreachable, it keeps the
 * last state, with the reason.
 */
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { type ISignal, Signal } from '@lumino/signaling';
import { ServerProblem } from '../api/problem';
import * as rest from '../api/rest';
import { isActive } from '../api/runs';
import type { IClusters } from '../api/state';
import type { IRun, IRunGraphs } from '../api/types';
import { replicaCounts } from '../run/words';

export interface IResourcesState {
  /** The graphs; null until they have been loaded. */
  readonly graphs: IRunGraphs | null;
  /** Why the graphs could not be loaded. */
  readonly problem: ServerProblem | null;
}

/** Maximum number of values in a line. */
const VALUES = 120;
/** Minimum milliseconds between two requests, and milliseconds to add for each task. */
const LOOK = 5_000;
const LOOK_EACH = 20;

export class ResourcesModel implements IDisposable {
  constructor(
    readonly clusters: IClusters,
    readonly name: string
  ) {
    this._poll = new Poll({
      name: `tfcluster-labextension:resources-${name}`,
      factory: () => this._fetch(),
      frequency: { interval: LOOK, backoff: true, max: 30_000 },
      standby: () => document.hidden || !this._isSeen || this._isComplete,
      auto: false
    });
    clusters.changed.connect(this._onChanged, this);
  }

  get run(): IRun | undefined {
    return this.clusters.find(this.name);
  }

  get state(): IResourcesState {
    return this._state;
  }

  get changed(): ISignal<this, IResourcesState> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  /** Whether the tab is visible. */
  set isSeen(isSeen: boolean) {
    const isNew = isSeen && !this._isSeen;
    this._isSeen = isSeen;
    if (isNew && !this._isComplete && !this.isDisposed) {
      void this._poll.refresh();
    }
  }

  dispose(): void {
    this.clusters.changed.disconnect(this._onChanged, this);
    this._poll.dispose();
    Signal.clearData(this);
  }

  /** Load the graphs once more when the run ends, and when its name belongs to another run. */
  private _onChanged(): void {
    const { run } = this;
    const now = run && `${run.cluster.metadata.uid} ${isActive(run)}`;
    if (now !== this._was) {
      this._was = now;
      this._isComplete = false;
      if (this._isSeen && !this.isDisposed) {
        void this._poll.refresh();
      }
    }
  }

  private async _fetch(): Promise<void> {
    try {
      const { caller } = this.clusters;
      const run = this.run ?? (await this.clusters.ensure(this.name));
      const found = await rest.usageGraphs(caller, this.name, VALUES);
      this._set({ graphs: found.graphs ?? null, problem: null });
      // not complete at once, because the last samples of a run are written a moment after its end
      const { releasedAt } = run.cluster.status;
      this._isComplete =
        found.usage.ended && (releasedAt ?? Infinity) < Date.now() / 1000 - 30;
      const tasks = replicaCounts(run).reduce(
        (sum, [, count]) => sum + count,
        0
      );
      const interval = Math.max(LOOK, LOOK_EACH * tasks);
      if (!this.isDisposed && this._poll.frequency.interval !== interval) {
        this._poll.frequency = { ...this._poll.frequency, interval };
      }
    } catch (error) {
      if (!(error instanceof ServerProblem)) {
        throw error;
      }
      this._set({ ...this._state, problem: error });
      throw error; // so that the poll backs off
    }
  }

  private _set(state: IResourcesState): void {
    if (!this.isDisposed) {
      this._state = state;
      this._changed.emit(state);
    }
  }

  private _state: IResourcesState = { graphs: null, problem: null };
  private _isSeen = false;
  /** Whether the graphs of the ended run are complete, so that they no longer change. */
  private _isComplete = false;
  private _was: string | undefined;
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, IResourcesState>(this);
}
