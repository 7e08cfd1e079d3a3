/**
 * One TensorBoard as its tab knows it: asked for, there, refused, or ended.
 *
 * Promises one immutable state and one signal, and that a tab whose server was away asks again when
 * the server is back. It owns no process: the server starts the board, shares and ends it.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { IClusters } from '../api/clusters';
import { ServerProblem } from '../api/problem';
import * as rest from '../api/rest';
import type { IBoard } from '../api/types';
import { IBoardRequest, requestOfBoard } from './request';

/** With a `url` one that is starting has its page already, whose data wait for it. */
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

  /** Tells also when the same board is to be loaded again. */
  get changed(): ISignal<this, BoardState> {
    return this._changed;
  }

  /** What is shown; with the names that the server gave. */
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

  /** Have the board started if need be, and loaded (again). Never rejects. */
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
        board = await rest.openBoard(caller, request); // says why when it does not start
      }
      this._set({ kind: 'open', board, url });
    } catch (error) {
      this._refuse(error);
    }
  }

  /** End the board, for everybody who looks at it. Never rejects. */
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

  /** Ask a server that is there again; one that only lacked something, once each time it comes back. */
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
