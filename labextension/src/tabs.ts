/**
 * Tabs of one kind, which JupyterLab restores with its layout.
 *
 * The layout knows a tab by a name. The tab's command, with the stored arguments, opens it again.
 */
import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Widget } from '@lumino/widgets';

export interface ITabsOptions<T extends Widget> {
  /** The layout's name for this kind of tabs. */
  readonly namespace: string;
  /** The command that opens a tab. */
  readonly command: string;
  readonly args?: (tab: T) => ReadonlyPartialJSONObject;
  readonly name: (tab: T) => string;
}

export class RestoredTabs<T extends Widget> {
  constructor(
    private readonly _shell: JupyterFrontEnd.IShell,
    restorer: ILayoutRestorer | null,
    { namespace, ...options }: ITabsOptions<T>
  ) {
    this._tracker = new WidgetTracker<T>({ namespace });
    void restorer?.restore(this._tracker, options);
  }

  find(fits: (tab: T) => boolean): T | undefined {
    return this._tracker.find(fits);
  }

  /** Put a new tab into an area of the page. */
  async add(
    tab: T,
    area: 'main' | 'down' = 'main',
    options?: DocumentRegistry.IOpenOptions
  ): Promise<void> {
    await this._tracker.add(tab);
    this._shell.add(tab, area, options);
  }

  /** Store the changed arguments of a tab. */
  save(tab: T): void {
    void this._tracker.save(tab);
  }

  private readonly _tracker: WidgetTracker<T>;
}
