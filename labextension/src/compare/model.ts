/**
 * The data of a comparison tab: loaded when the tab is visible, and again when one of the runs
 * changes.
 *
 * The model has one immutable state and one signal. While the server is unreachable, it keeps the
 * last state, with the reason.
 */
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { IClusters } from '../api/clusters';
import { ServerProblem } from '../api/problem';
import * as rest from '../api/rest';
import type { IComparison, IRun } from '../api/types';

export interface IComparisonState {
  /** The comparison; null until it has been loaded. */
  readonly comparison: IComparison | null;
  /** Why the comparison could not be updated. */
  readonly problem: ServerProblem | null;
}

/**
 * Minimum milliseconds between two requests; otherwise each step of a training would cause a
 * request.
 */
const PACE = 2_000;

export class ComparisonModel implements IDisposable {
  constructor(
    private readonly _clusters: IClusters,
    readonly names: ReadonlyArray<string>
  ) {
    this._seen = this._runs();
    _clusters.changed.connect(this._onClusters, this);
  }

  get state(): IComparisonState {
    return this._state;
  }

  get changed(): ISignal<this, IComparisonState> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Whether the tab is visible; changes in a hidden tab are loaded when it is shown. */
  set isSeen(isSeen: boolean) {
    this._isSeen = isSeen;
    this._refresh();
  }

  dispose(): void {
    this._isDisposed = true;
    window.clearTimeout(this._timer);
    Signal.clearData(this);
  }

  private _runs(): ReadonlyArray<IRun | undefined> {
    return this.names.map(name => this._clusters.find(name));
  }

  private _onClusters(): void {
    const now = this._runs();
    const { problem } = this._state;
    const isBack = problem !== null && this._clusters.state.state === 'live';
    if (isBack || now.some((run, place) => run !== this._seen[place])) {
      this._seen = now;
      this._isOld = true;
      this._refresh();
    }
  }

  /**
   * Load the comparison if needed and allowed now. Changes during a request are loaded after it.
   */
  private _refresh(): void {
    if (this._isAsking || !this._isOld || !this._isSeen || this._isDisposed) {
      return;
    }
    this._isAsking = true;
    const wait = Math.max(0, this._askedAt + PACE - Date.now());
    this._timer = window.setTimeout(() => void this._ask(), wait);
  }

  private async _ask(): Promise<void> {
    this._isOld = false;
    this._askedAt = Date.now();
    try {
      const { caller } = this._clusters;
      const comparison = await rest.compareRuns(caller, this.names);
      this._set({ comparison, problem: null });
    } catch (error) {
      if (!(error instanceof ServerProblem)) {
        throw error;
      }
      this._set({ ...this._state, problem: error });
    } finally {
      this._isAsking = false;
    }
    this._refresh();
  }

  private _set(state: IComparisonState): void {
    if (!this.isDisposed) {
      this._state = state;
      this._changed.emit(state);
    }
  }

  private _state: IComparisonState = { comparison: null, problem: null };
  private _seen: ReadonlyArray<IRun | undefined>;
  private _isSeen = false;
  private _isOld = true;
  private _isAsking = false;
  private _isDisposed = false;
  private _askedAt = 0;
  private _timer = 0;
  private readonly _changed = new Signal<this, IComparisonState>(this);
}
