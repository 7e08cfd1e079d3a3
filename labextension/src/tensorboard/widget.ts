/**
 * One TensorBoard in a tab: its page in a frame, and a notice until it has loaded.
 *
 * A tab that is restored behind others starts nothing until it is shown. The page is dropped with
 * its board, because it would keep requesting data. While a run is active, and twice after its end,
 * the page reloads its data, as its own button does; the user's settings on the page stay. If the
 * page cannot show new curves in this way, the whole page is loaded again. The theme follows
 * JupyterLab unless the user has chosen one on the page.
 */
import {
  IFrame,
  IThemeManager,
  MainAreaWidget,
  ToolbarButton
} from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { launchIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import { Panel, Widget } from '@lumino/widgets';
import { IClusters, isActive } from '../api/clusters';
import { boardIcon } from '../icons';
import { BoardModel, BoardState } from './model';
import { Notice } from './notice';
import { IBoardRequest, keyOf, runsOf, titleOf } from './request';

/** The permissions of TensorBoard's page; its origin is ours, behind the server's sign-in. */
const SANDBOX: IFrame.SandboxExceptions[] = [
  'allow-scripts',
  'allow-same-origin',
  'allow-forms',
  'allow-popups',
  'allow-downloads'
];

/**
 * Milliseconds for which a loaded page waits for its board. Its pending requests use the browser's
 * connections to this server, which JupyterLab needs too.
 */
const PATIENCE = 3_000;

/**
 * Milliseconds for which a page that has not loaded waits: its own data requests may block its
 * scripts.
 */
const LONG_PATIENCE = 15_000;

/** Milliseconds between two reloads of a page's data. */
export const RELOAD = 10_000;

/** Milliseconds between two checks for the first curves. */
const LOOK = 2_000;

/** Reloads after the end of a run: TensorBoard reads the last data up to five seconds later. */
const LAST_RELOADS = 2;

/** The button of TensorBoard's page that reloads its data; absent while the page reloads. */
const RELOAD_BUTTON = '.reload-button:not(.loading)';

/** The title of the dashboard with curves, which is hidden until the page knows of curves. */
const CURVES = '[data-plugin-id="timeseries"]';

/** The parameter in the address of TensorBoard's page with the default theme. */
const DARK = 'darkMode';

export class BoardWidget extends Panel {
  constructor(
    private readonly _clusters: IClusters,
    request: IBoardRequest,
    private readonly _trans: TranslationBundle,
    layoutRestored: Promise<unknown>,
    private readonly _themes: IThemeManager | null = null
  ) {
    super();
    const clusters = _clusters;
    this.addClass('tfc-Board');
    this.model = new BoardModel(clusters, request);
    this._notice = new Notice(this.model, _trans);
    this._notice.node.tabIndex = -1;
    this.addWidget(this._notice);
    this.model.changed.connect(this._onState, this);
    clusters.changed.connect(this._onClusters, this);
    _themes?.themeChanged.connect(this._onTheme, this);
    this._timer = window.setInterval(() => this._onTime(), LOOK);
    this.title.icon = boardIcon;
    this.title.closable = true;
    this._name();
    // while a layout is restored, each tab is in front for a moment
    void layoutRestored.then(() => {
      this._mayBegin = true;
      this._begin();
    });
  }

  readonly model: BoardModel;

  /** Whether the page reloads its data automatically, because a run that it shows is active. */
  get reloads(): boolean {
    return this._reloads;
  }

  get reloadsChanged(): ISignal<this, boolean> {
    return this._reloadsChanged;
  }

  override dispose(): void {
    if (!this.isDisposed) {
      window.clearInterval(this._timer);
      Signal.clearData(this);
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
    this._onClusters();
    const waits = state.kind === 'open' && state.waits;
    if (state.kind === 'open' && !waits && this._frame) {
      return; // the page was loaded while the board started
    }
    const { activeElement } = document;
    // the stop button can no longer have the focus
    const part = state.kind === 'stopped' ? this.parent : this;
    this._letGo(part?.node.contains(activeElement) ?? false);
    if (!waits && 'url' in state && state.url) {
      this._load(state.url);
    }
  }

  private _onClusters(): void {
    const { request, state } = this.model;
    const reloads =
      state.kind === 'open' &&
      runsOf(request, this._clusters.state.runs).some(run => isActive(run));
    if (reloads !== this._reloads) {
      this._reloads = reloads;
      this._reloadsChanged.emit(reloads);
    }
  }

  private _onTime(): void {
    const { state } = this.model;
    if (state.kind !== 'open' || !this.isVisible || document.hidden) {
      return;
    }
    if (state.waits) {
      void this.model.look();
      return;
    }
    this._time += LOOK;
    if (this._reloads) {
      this._reloadsLeft = LAST_RELOADS;
    }
    if (this._reloadsLeft > 0 && this._time >= RELOAD) {
      this._time = 0;
      this._reloadsLeft -= 1;
      void this._reload();
    }
  }

  /** Reload the data of the page; load the page again if its dashboard does not reload. */
  private async _reload(): Promise<void> {
    const frame = this._frame;
    const page = pageOf(frame);
    const button =
      page?.contentDocument?.querySelector<HTMLButtonElement>(RELOAD_BUTTON);
    if (!page || !button) {
      return;
    }
    if (!button.disabled) {
      button.click();
    } else if (
      !page.contentDocument?.querySelector(CURVES)?.getClientRects().length &&
      (await this.model.hasCurves()) &&
      frame === this._frame
    ) {
      if (this._isUsed) {
        // the chosen dashboard is part of the page's address and stays
        page.contentWindow?.location.reload();
      } else {
        const url = new URL(page.contentWindow!.location.href);
        url.hash = '';
        page.contentWindow?.location.replace(url);
      }
    }
  }

  /** Return a page's address with JupyterLab's theme; the rest stays. */
  private _themed(address: string): string {
    const theme = this._themes?.theme;
    if (!theme) {
      return address;
    }
    const url = new URL(address, document.baseURI);
    url.searchParams.set(DARK, String(!this._themes.isLight(theme)));
    return url.href;
  }

  private _onTheme(): void {
    // the page reads the theme only once, so load it again; the rest of its address, such as the
    // chosen dashboard, stays
    const page = pageOf(this._frame)?.contentWindow;
    if (page && this.model.state.kind === 'open') {
      page.location.replace(this._themed(page.location.href));
    }
  }

  private _load(url: string): void {
    const frame = new IFrame({ sandbox: SANDBOX });
    const page = pageOf(frame)!;
    page.addEventListener('load', () => {
      if (frame === this._frame) {
        const hasFocus = this._notice.node.contains(document.activeElement);
        this._notice.hide();
        for (const event of ['pointerdown', 'keydown']) {
          page.contentDocument?.addEventListener(event, () => {
            this._isUsed = true;
          });
        }
        if (hasFocus) {
          page.focus();
        }
        window.setTimeout(() => this._onWaiting(frame), PATIENCE);
      }
    });
    window.setTimeout(() => this._onWaiting(frame), LONG_PATIENCE);
    this._frame = frame;
    this._isUsed = false;
    this._reloadsLeft = Math.max(this._reloadsLeft, 1); // a new board may not have read all data yet
    this._name();
    // the frame has its address before it is inserted, because without one it loads an empty page
    frame.url = this._themed(url);
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
      // from the notice, the Tab key leads to its button, or into the next page that is loaded
      this._notice.node.focus();
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
  private readonly _timer: number;
  private readonly _reloadsChanged = new Signal<this, boolean>(this);
  private _mayBegin = false;
  private _reloads = false;
  private _isUsed = false;
  private _time = 0;
  private _reloadsLeft = 0;
}

const pageOf = (frame: IFrame | null): HTMLIFrameElement | null =>
  frame?.node.querySelector('iframe') ?? null;

/** Return the tab with its toolbar. */
export function tabOf(
  clusters: IClusters,
  request: IBoardRequest,
  trans: TranslationBundle,
  layoutRestored: Promise<unknown>,
  themes: IThemeManager | null = null
): MainAreaWidget<BoardWidget> {
  const content = new BoardWidget(
    clusters,
    request,
    trans,
    layoutRestored,
    themes
  );
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
    tooltip: trans.__('Stop this TensorBoard; the runs stay'),
    onClick: () => void model.stop()
  });
  tab.toolbar.addItem('reload', reload);
  tab.toolbar.addItem('outside', outside);
  tab.toolbar.addItem('stop', stop);
  const said = new Widget();
  said.addClass('tfc-Board-reloads');
  said.node.setAttribute('role', 'status');
  tab.toolbar.addItem('reloads', said);
  const say = (): void => {
    said.node.textContent =
      model.state.kind !== 'open'
        ? model.state.kind === 'starting'
          ? trans.__('Loading…')
          : ''
        : model.state.waits
          ? ''
          : content.reloads
            ? trans.__(
                'Reloads every %1 s while a run is active',
                RELOAD / 1000
              )
            : trans.__('Not reloading: no run shown here is active');
  };
  content.reloadsChanged.connect(say);
  const able = (): void => {
    const open = model.state.kind === 'open';
    outside.enabled = open;
    stop.enabled = open;
    say();
  };
  able();
  model.changed.connect(able);
  return tab;
}
