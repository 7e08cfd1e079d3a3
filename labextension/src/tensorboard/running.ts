/**
 * The running TensorBoards in JupyterLab's Running panel.
 *
 * Boards may be started by a shell and end automatically, without an event. The boards are
 * requested when the panel becomes visible, after a tab has opened or stopped a board, and on
 * request, but never periodically.
 */
import { Notification } from '@jupyterlab/apputils';
import type {
  IRunningSessions,
  IRunningSessionSidebar
} from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import { stopIcon } from '@jupyterlab/ui-components';
import { MessageLoop } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import { ServerProblem } from '../api/problem';
import * as rest from '../api/rest';
import type { IBoard } from '../api/types';
import { boardIcon } from '../icons';
import { IBoardRequest, requestOfBoard, titleOf } from './request';

/** The tabs that show boards. */
export interface IBoardTabs {
  open(request: IBoardRequest): void;
  /** End the board of an open tab, so that the tab says so; null if no tab shows it. */
  stop(id: string): Promise<void> | null;
}

export class RunningBoards implements IRunningSessions.IManager {
  constructor(
    private readonly _caller: rest.ICaller,
    private readonly _tabs: IBoardTabs,
    private readonly _panel: IRunningSessionSidebar | null,
    private readonly _trans: TranslationBundle
  ) {
    this.name = _trans.__('TensorBoards');
    this.shutdownLabel = _trans.__('Stop this TensorBoard; the runs stay');
    this.shutdownAllLabel = _trans.__('Stop All');
    this.shutdownAllConfirmationText = _trans.__(
      'This stops all TensorBoards for everyone who uses them. The runs stay.'
    );
    if (_panel) {
      MessageLoop.installMessageHook(_panel.toolbar, (_, { type }) => {
        if (type === 'after-show' || type === 'after-attach') {
          queueMicrotask(() => this.look()); // the panel becomes visible after this message
        }
        return true;
      });
    }
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly shutdownItemIcon = stopIcon;

  get runningChanged(): ISignal<this, void> {
    return this._changed;
  }

  running(): IRunningSessions.IRunningItem[] {
    return this._boards.map(board => {
      const request = requestOfBoard(board);
      return {
        icon: () => boardIcon,
        label: () => titleOf(request, this._trans),
        open: () => this._tabs.open(request),
        shutdown: () => void this._stop([board])
      };
    });
  }

  refreshRunning(): void {
    void this.refresh();
  }

  shutdownAll(): void {
    void this._stop(this._boards);
  }

  /** Request the running boards, but only if the panel is visible. */
  look(): void {
    if (!this._panel || this._panel.toolbar.isVisible) {
      void this.refresh();
    }
  }

  /**
   * Request the running boards. Never rejects: while the server is unreachable, the last response
   * stays.
   */
  async refresh(): Promise<void> {
    const asked = ++this._asked;
    try {
      const boards = await rest.listBoards(this._caller);
      if (asked === this._asked) {
        this._boards = boards;
        this._changed.emit();
      }
    } catch (error) {
      if (!(error instanceof ServerProblem)) {
        throw error;
      }
    }
  }

  private async _stop(boards: ReadonlyArray<IBoard>): Promise<void> {
    const ends = boards.map(async ({ id }) => {
      try {
        await (this._tabs.stop(id) ?? rest.closeBoard(this._caller, id));
      } catch (error) {
        if (!(error instanceof ServerProblem)) {
          throw error;
        }
        Notification.error(error.message, { autoClose: 10_000 });
      }
    });
    await Promise.all(ends);
    await this.refresh();
  }

  private _boards: ReadonlyArray<IBoard> = [];
  private _asked = 0;
  private readonly _changed = new Signal<this, void>(this);
}
