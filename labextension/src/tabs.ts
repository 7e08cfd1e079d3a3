/**
 * Tabs of one kind, which JupyterLab restores with its layout, and plugins whose command opens one.
 *
 * The layout knows a tab by a name. The tab's command, with the stored arguments, opens it again.
 */
import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  MainAreaWidget,
  ReactWidget,
  WidgetTracker
} from '@jupyterlab/apputils';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import type { IClusters } from './api/state';
import { DOMAIN, IClustersToken } from './tokens';

/** A model that makes requests only while its widget is visible. */
interface ISeenModel extends IDisposable {
  isSeen: boolean;
}

/** A widget that tells its model whether the widget is visible, and that disposes the model. */
export abstract class SeenWidget<M extends ISeenModel> extends ReactWidget {
  constructor(readonly model: M) {
    super();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.model.isSeen = true;
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.model.isSeen = false;
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.model.isSeen = this.isVisible;
  }
}

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

export interface ITabPluginOptions<W extends Widget> {
  /** The plugin's name after `tfcluster-labextension:`. */
  readonly plugin: string;
  readonly description: string;
  /** The layout's name for this kind of tabs, and the beginning of their ids. */
  readonly namespace: string;
  readonly command: string;
  readonly args: (content: W) => ReadonlyPartialJSONObject;
  /** Returns the text by which tabs of this kind differ, such as the name of a run. */
  readonly key: (content: W) => string;
}

/** The functions that a plugin's commands use to open its tabs. */
export interface ITabPage<W extends Widget> {
  readonly app: JupyterFrontEnd;
  readonly clusters: IClusters;
  readonly trans: TranslationBundle;
  /** Whether the page is JupyterLab, which has room for several documents. */
  readonly isLab: boolean;
  /**
   * Return the tab with this key. If there is no such tab, or if it `isOld`, put a new tab into the
   * page. Whenever the signal `changes` of a new tab is emitted, the tab is stored again with its
   * current arguments.
   */
  open(
    key: string,
    content: () => W,
    more?: {
      readonly isOld?: (content: W) => boolean;
      readonly changes?: (content: W) => ISignal<unknown, unknown>;
    }
  ): Promise<MainAreaWidget<W>>;
}

/** Return a plugin with restored tabs, whose commands `addCommands` adds. */
export function tabPlugin<W extends Widget>(
  { plugin, description, namespace, command, args, key }: ITabPluginOptions<W>,
  addCommands: (page: ITabPage<W>) => void
): JupyterFrontEndPlugin<void> {
  return {
    id: `tfcluster-labextension:${plugin}`,
    description,
    autoStart: true,
    requires: [IClustersToken],
    optional: [ITranslator, ILayoutRestorer, ILabShell],
    activate: (
      app: JupyterFrontEnd,
      clusters: IClusters,
      translator: ITranslator | null,
      restorer: ILayoutRestorer | null,
      lab: ILabShell | null
    ): void => {
      const tabs = new RestoredTabs<MainAreaWidget<W>>(app.shell, restorer, {
        namespace,
        command,
        args: ({ content }) => args(content),
        name: ({ content }) => key(content)
      });
      addCommands({
        app,
        clusters,
        trans: (translator ?? nullTranslator).load(DOMAIN),
        isLab: lab !== null,
        open: async (wanted, content, { isOld, changes } = {}) => {
          const found = tabs.find(tab => key(tab.content) === wanted);
          if (found && !isOld?.(found.content)) {
            return found;
          }
          found?.dispose();
          const tab = new MainAreaWidget({ content: content() });
          tab.toolbar.hide(); // each content has its own toolbar
          tab.id = `${namespace}-${wanted}`;
          let saved = JSON.stringify(args(tab.content));
          changes?.(tab.content).connect(() => {
            const now = JSON.stringify(args(tab.content));
            if (saved !== now) {
              saved = now;
              tabs.save(tab);
            }
          });
          // a page of Notebook 7 has one document, and room below it
          await tabs.add(tab, lab ? 'main' : 'down');
          return tab;
        }
      });
    }
  };
}

/** Return the name of the run for which a command is called; empty if there is none. */
export const nameIn = ({ name }: ReadonlyPartialJSONObject): string =>
  typeof name === 'string' ? name : '';
