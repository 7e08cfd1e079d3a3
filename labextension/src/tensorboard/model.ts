/**
 * The state of one TensorBoard tab: starting, open, refused, or stopped.
 *
 * The model has one immutable state and one signal. When the server is reachable again, the tab
 * repeats its request. While an active run has no curves, the tab waits for the first point:
 * otherwise TensorBoard would choose another dashboard, stay there, and not reload. The tab owns no
 * process: the server starts, shares and ends boards.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { IClusters } from '../api/clusters';
import { ServerProblem } from '../api/problem';
import * as rest from '../api/rest';
import type { IBoard } from '../api/types';
import {
  expectsCurves,
  IBoardRequest,
  requestOfBoard,
  runsOf
} from './request';

/**
 * Number of checks for curves after the end of a run; TensorBoard reads new data every five
 * seconds.
 */
const LAST_LOOKS = 5;

/**
 * A starting board with a `url` already has its page, whose data requests wait for the board. An
 * open board that `waits` has no page until there are curves.
 */
export type BoardState =
  | { readonly kind: 'new' }
  | { readonly kind: 'starting'; readonly url?: string }
  | {
      readonly kind: 'open';
      readonly board: IBoard;
      readonly url: string;
      readonly waits: boolean;
    }
  | { readonly kind: 'refused'; readonly problem: ServerProblem }
  | { readonly kind: 'stopped' };

export class BoardModel implements IDisposable {
  constructor(
    private readonly _clusters: IClusters,
    request: IBoardRequest
  ) {
    this._request = request;
    this._wasLive = _clusters.state.state === 'live';
    _clusters.changed.connect(this._onClusters, this);
  }

  get state(): BoardState {
    return this._state;
  }

  /** The changes of the state; also emitted when the same board must be reloaded. */
  get changed(): ISignal<this, BoardState> {
    return this._changed;
  }

  /** The current request, with names as the server completed them. */
  get request(): IBoardRequest {
    return this._request;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    Signal.clearData(this);
  }

  /** Start the board if needed, and load it (again). Never rejects. */
  async open(): Promise<void> {
    if (this._state.kind === 'starting') {
      return;
    }
    this._set({ kind: 'starting' });
    const { caller } = this._clusters;
    const { refs, folder } = this._request;
    try {
      const request = refs.length
        ? { refs }
        : folder === null
          ? {}
          : { folder };
      let board = await rest.openBoard(caller, { ...request, wait: false });
      this._request = requestOfBoard(board);
      const url = URLExt.join(caller.settings.baseUrl, board.path);
      if (!board.running) {
        this._set(
          this._mayWait ? { kind: 'starting' } : { kind: 'starting', url }
        );
        // waits for the board; the response says why a board does not start
        board = await rest.openBoard(caller, request);
      }
      this._looksLeft = LAST_LOOKS;
      const waits =
        this._expectsCurves && !(await rest.hasCurves(caller, board));
      this._set({ kind: 'open', board, url, waits });
    } catch (error) {
      this._refuse(error);
    }
  }

  /** Return whether the board has curves; false if it is not open. Never rejects. */
  async hasCurves(): Promise<boolean> {
    const { state } = this;
    return (
      state.kind === 'open' &&
      (await rest.hasCurves(this._clusters.caller, state.board))
    );
  }

  /** Stop waiting if there are curves, or if the run has ended without curves. Never rejects. */
  async look(): Promise<void> {
    if (this._isLooking) {
      return;
    }
    this._isLooking = true;
    this._looksLeft = this._expectsCurves ? LAST_LOOKS : this._looksLeft - 1;
    const found = await this.hasCurves();
    this._isLooking = false;
    if (found || this._looksLeft <= 0) {
      this.show();
    }
  }

  /** Show the page without waiting for curves. */
  show(): void {
    if (this._state.kind === 'open' && this._state.waits) {
      this._set({ ...this._state, waits: false });
    }
  }

  /** End the board for all its viewers. Never rejects. */
  async stop(): Promise<void> {
    if (this._state.kind !== 'open') {
      return;
    }
    try {
      await rest.closeBoard(this._clusters.caller, this._state.board.id);
      this._set({ kind: 'stopped' });
    } catch (error) {
      this._refuse(error);
    }
  }

  private get _expectsCurves(): boolean {
    return expectsCurves(this._request, this._clusters.state.runs);
  }

  /**
   * Whether the board, once it runs, may have no curves, because none of its runs has progress yet.
   */
  private get _mayWait(): boolean {
    const { runs } = this._clusters.state;
    return (
      this._expectsCurves &&
      runsOf(this._request, runs).every(run => run.progress === null)
    );
  }

  private _refuse(error: unknown): void {
    if (!(error instanceof ServerProblem)) {
      throw error;
    }
    this._set({ kind: 'refused', problem: error });
  }

  /**
   * Retry when the server is back. After any other problem, retry once each time the server
   * returns.
   */
  private _onClusters(): void {
    const isLive = this._clusters.state.state === 'live';
    const isBack = isLive && !this._wasLive;
    this._wasLive = isLive;
    if (this._state.kind !== 'refused' || !isLive) {
      return;
    }
    const { problem } = this._state;
    if (problem.status === 0 || (problem.isAway && isBack)) {
      void this.open();
    }
  }

  private _set(state: BoardState): void {
    if (!this._isDisposed) {
      this._state = state;
      this._changed.emit(state);
    }
  }

  private _request: IBoardRequest;
  private _state: BoardState = { kind: 'new' };
  private _isDisposed = false;
  private _isLooking = false;
  private _looksLeft = LAST_LOOKS;
  private _wasLive: boolean;
  private readonly _changed = new Signal<this, BoardState>(this);
}
