/**
 * One TensorBoard as a tab: its page in a frame, and what stands there until it has loaded.
 *
 * A tab that is restored behind others starts nothing before it is looked at. A page is let go with its board: it would
 * go on asking for data that nobody has.
 */
import { IFrame, MainAreaWidget, ToolbarButton } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { launchIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Panel } from '@lumino/widgets';
import type { IClusters } from '../api/clusters';
import { boardIcon } from '../icons';
import { BoardModel, BoardState } from './model';
import { Notice } from './notice';
import { IBoardRequest, keyOf, titleOf } from './request';

/** What TensorBoard's page needs; its origin is ours, behind the server's sign-in. */
const SANDBOX: IFrame.SandboxExceptions[] = [
  'allow-scripts',
  'allow-same-origin',
  'allow-forms',
  'allow-popups',
  'allow-downloads'
];

/**
 * Milliseconds that a page which has loaded waits for its board: its requests for data take the connections that a
 * browser has for this server, and JupyterLab needs them, too.
 */
const PATIENCE = 3_000;

/** The same for a page that has not loaded: its own requests for data may keep its scripts from coming. */
const LONG_PATIENCE = 15_000;

export class BoardWidget extends Panel {
  constructor(
    clusters: IClusters,
    request: IBoardRequest,
    private readonly _trans: TranslationBundle,
    layoutRestored: Promise<unknown>
  ) {
    super();
    this.addClass('tfc-Board');
    this.model = new BoardModel(clusters, request);
    this._notice = new Notice(this.model, _trans);
    this._notice.node.tabIndex = -1;
    this.addWidget(this._notice);
    this.model.changed.connect(this._onState, this);
    this.title.icon = boardIcon;
    this.title.closable = true;
    this._name();
    // while a layout is restored, each of its tabs is in front for a moment
    void layoutRestored.then(() => {
      this._mayBegin = true;
      this._begin();
    });
  }

  readonly model: BoardModel;

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._begin();
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this._begin();
  }

  protected override onActivateRequest(): void {
    if (this._notice.isHidden) {
      pageOf(this._frame)?.focus();
    } else {
      (this._notice.node.querySelector('button') ?? this._notice.node).focus();
    }
  }

  private _begin(): void {
    const { kind } = this.model.state;
    if (this._mayBegin && this.isVisible && kind === 'new') {
      void this.model.open();
    }
  }

  private _onState(_: BoardModel, state: BoardState): void {
    if (state.kind === 'open' && this._frame) {
      return; // it was loaded while the board started
    }
    const { activeElement } = document;
    // the button that stops can have no focus any more
    const part = state.kind === 'stopped' ? this.parent : this;
    this._letGo(part?.node.contains(activeElement) ?? false);
    if ('url' in state && state.url) {
      this._load(state.url);
    }
  }

  private _load(url: string): void {
    const frame = new IFrame({ sandbox: SANDBOX });
    const page = pageOf(frame)!;
    page.addEventListener('load', () => {
      if (frame === this._frame) {
        const hasFocus = this._notice.node.contains(document.activeElement);
        this._notice.hide();
        if (hasFocus) {
          page.focus();
        }
        window.setTimeout(() => this._onWaiting(frame), PATIENCE);
      }
    });
    window.setTimeout(() => this._onWaiting(frame), LONG_PATIENCE);
    this._frame = frame;
    this._name();
    frame.url = url; // first: a frame without an address loads an empty page
    this.insertWidget(0, frame);
  }

  private _onWaiting(frame: IFrame): void {
    if (frame === this._frame && this.model.state.kind === 'starting') {
      this._letGo(this.node.contains(document.activeElement));
    }
  }

  private _letGo(hasFocus: boolean): void {
    this._frame?.dispose();
    this._frame = null;
    this._notice.show();
    if (hasFocus) {
      this._notice.node.focus(); // the way from there leads to its button, or to the next page
    }
  }

  private _name(): void {
    const title = titleOf(this.model.request, this._trans);
    this.title.label = title;
    this.title.caption = title;
    const page = pageOf(this._frame);
    if (page) {
      page.title = title;
    }
  }

  private _frame: IFrame | null = null;
  private readonly _notice: Notice;
  private _mayBegin = false;
}

const pageOf = (frame: IFrame | null): HTMLIFrameElement | null =>
  frame?.node.querySelector('iframe') ?? null;

/** The tab with its toolbar. */
export function tabOf(
  clusters: IClusters,
  request: IBoardRequest,
  trans: TranslationBundle,
  layoutRestored: Promise<unknown>
): MainAreaWidget<BoardWidget> {
  const content = new BoardWidget(clusters, request, trans, layoutRestored);
  const { model } = content;
  const tab = new MainAreaWidget({ content });
  tab.id = `tfcluster-tensorboard-${keyOf(request)}`;
  const reload = new ToolbarButton({
    icon: refreshIcon,
    tooltip: trans.__('Load this TensorBoard again'),
    onClick: () => void model.open()
  });
  const outside = new ToolbarButton({
    icon: launchIcon,
    tooltip: trans.__('Open in a tab of the browser'),
    onClick: () => {
      if (model.state.kind === 'open') {
        window.open(model.state.url, '_blank', 'noopener');
      }
    }
  });
  const stop = new ToolbarButton({
    icon: stopIcon,
    tooltip: trans.__('Stop this TensorBoard; its runs stay'),
    onClick: () => void model.stop()
  });
  tab.toolbar.addItem('reload', reload);
  tab.toolbar.addItem('outside', outside);
  tab.toolbar.addItem('stop', stop);
  const able = (): void => {
    const open = model.state.kind === 'open';
    outside.enabled = open;
    stop.enabled = open;
  };
  able();
  model.changed.connect(able);
  return tab;
}
