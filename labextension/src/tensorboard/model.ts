/**
 * The state of one TensorBoard tab: starting, open, refused, or stopped.
 *
 * It has one immutable state and one signal. After the server was away, the tab asks again. It owns
 * no process: the server starts, shares and ends boards.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { IClusters } from '../api/clusters';
import { ServerProblem } from '../api/problem';
import * as rest from '../api/rest';
import type { IBoard } from '../api/types';
import { IBoardRequest, requestOfBoard } from './request';

/** A starting board with a `url` already has its page, whose data requests wait for the board. */
export type BoardState =
  | { readonly kind: 'new' }
  | { readonly kind: 'starting'; readonly url?: string }
  | { readonly kind: 'open'; readonly board: IBoard; readonly url: string }
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

  /** Also emitted when the same board must be reloaded. */
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
        this._set({ kind: 'starting', url });
        board = await rest.openBoard(caller, request); // reports why if it does not start
      }
      this._set({ kind: 'open', board, url });
    } catch (error) {
      this._refuse(error);
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
  private _wasLive: boolean;
  private readonly _changed = new Signal<this, BoardState>(this);
}
