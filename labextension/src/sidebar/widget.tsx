/** The sidebar as a JupyterLab widget. */
import { ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';
import { clusterIcon } from '../icons';
import { ISidebarProps, Sidebar } from './Sidebar';

/** A widget for the left or right area. */
export class SidebarWidget extends ReactWidget {
  constructor(
    private readonly _props: Omit<
      ISidebarProps,
      'filterRef' | 'revealed' | 'onRevealed' | 'onDrawn'
    >
  ) {
    super();
    const { trans } = this._props;
    this.id = 'tfcluster-sidebar';
    this.addClass('tfc-Sidebar');
    this.title.icon = clusterIcon;
    this.title.caption = trans.__('TFCluster');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('TFCluster'));
  }

  /** Give the focus to the filter, not the list, at the next activation. */
  wantFilter(): void {
    this._wantsFilter = true;
  }

  /** Open the row of a run, even if the sidebar is drawn only later. */
  reveal(name: string): void {
    this._revealed = { name };
    this.update();
  }

  protected override render(): React.JSX.Element {
    return (
      <Sidebar
        {...this._props}
        filterRef={this._filter}
        revealed={this._revealed}
        onRevealed={() => (this._revealed = null)}
        onDrawn={() => this._wantsFocus && this.activate()}
      />
    );
  }

  protected override onActivateRequest(): void {
    const filter = this._wantsFilter ? this._filter.current : null;
    this._wantsFilter = false;
    const find = (selector: string): HTMLElement | null =>
      this.node.querySelector<HTMLElement>(selector);
    const first = filter ?? find('.tfc-RunRow[tabindex="0"]') ?? find('button');
    first?.focus();
    this._wantsFocus = first === null; // nothing is drawn yet
  }

  private _wantsFocus = false;
  private _wantsFilter = false;
  private _revealed: { readonly name: string } | null = null;
  private readonly _filter = React.createRef<HTMLInputElement>();
}
