/**
 * The tab "Launch a TFCluster" and the parts of the page that it uses: file dialog, active cell,
 * clipboard.
 */
import {
  MainAreaWidget,
  Notification,
  ReactWidget
} from '@jupyterlab/apputils';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import { FileDialog } from '@jupyterlab/filebrowser';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import type { ITranslator, TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import { Poll } from '@lumino/polling';
import { nameOf } from '../api/runs';
import { clusterIcon } from '../icons';
import { CommandIDs } from '../tokens';
import { copyOnceMade } from './clipboard';
import type { ICellProgram } from './draft';
import { LaunchForm } from './form';
import type { LaunchModel } from './model';
import { programOfCell } from '../run/commandLine';

/** The intervals of retries in milliseconds, the same as for a list of runs that may be stale. */
const RETRY = { interval: 5_000, backoff: false, max: 5_000 };

export interface ILaunchWidgetOptions {
  readonly model: LaunchModel;
  readonly commands: CommandRegistry;
  readonly documents: IDocumentManager;
  readonly notebooks: INotebookTracker | null;
  readonly translator: ITranslator;
  readonly trans: TranslationBundle;
}

/** The form as a widget; disposes its model. */
export class LaunchContent extends ReactWidget {
  constructor(private readonly _options: ILaunchWidgetOptions) {
    super();
    this.addClass('tfc-Launch');
    this.node.tabIndex = -1;
    this._retryPoll = new RetryPoll(
      () => this.model.retryRefused(),
      () => this.isVisible
    );
  }

  get model(): LaunchModel {
    return this._options.model;
  }

  override dispose(): void {
    this._retryPoll.dispose();
    this.model.dispose();
    super.dispose();
  }

  /**
   * Focus the first input only at the first activation: later clicks activate the widget too, and
   * must not move the focus.
   */
  protected override onActivateRequest(): void {
    if (this.node.contains(document.activeElement) && this._entered) {
      return;
    }
    const first = this.node.querySelector<HTMLElement>('input:checked');
    (this._entered ? this.node : (first ?? this.node)).focus({
      preventScroll: this._entered
    });
    this._entered = first !== null;
  }

  /** A refused launch may be allowed by the time the tab is shown again. */
  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._retryPoll.now();
  }

  protected override render(): React.JSX.Element {
    const { model, commands, notebooks, trans } = this._options;
    return (
      <WithNotebook notebooks={notebooks}>
        {hasNotebook => (
          <LaunchForm
            model={model}
            commands={commands}
            trans={trans}
            places={{
              browse: () => this._browse(),
              cell: () => activeCell(notebooks)
            }}
            insert={hasNotebook ? () => void this._insert() : null}
            copy={() => void this._copy()}
            launch={() => void this._launch()}
            save={() => void this._options.model.saveSchedule()}
          />
        )}
      </WithNotebook>
    );
  }

  private _entered = false;
  private readonly _retryPoll: RetryPoll;

  private async _browse(): Promise<string | null> {
    const { documents, translator, trans } = this._options;
    const { button, value } = await FileDialog.getOpenFiles({
      manager: documents,
      title: trans.__('Choose a program'),
      label: trans.__(
        'A .py or .sh file, or a folder with run.sh or tfcluster.yaml'
      ),
      filter: item =>
        item.type === 'directory' || /\.(py|sh)$/i.test(item.name) ? {} : null,
      translator
    });
    const path = button.accept ? value?.[0]?.path : undefined;
    return path === undefined
      ? null
      : documents.services.contents.localPath(path);
  }

  private async _copy(): Promise<void> {
    const { model, trans } = this._options;
    try {
      await copyOnceMade(model.line(), trans);
      Notification.info(trans.__('Copied'), { autoClose: 1500 });
    } catch (error) {
      Notification.error((error as Error).message, { autoClose: 10_000 });
    }
  }

  private async _insert(): Promise<void> {
    const { model, notebooks } = this._options;
    const panel = notebooks?.currentWidget;
    if (!panel) {
      return;
    }
    const { content: notebook, context } = panel;
    try {
      const line = await model.line(context.localPath);
      const mode = model.state.draft.mode;
      NotebookActions.insertBelow(notebook);
      notebook.activeCell?.model.sharedModel.setSource(
        mode === 'in-graph' ? `cluster = ${line}` : line
      );
    } catch (error) {
      Notification.error(String((error as Error).message));
    }
  }

  private async _launch(): Promise<void> {
    const { model, commands } = this._options;
    const run = await model.launch();
    if (run && commands.hasCommand(CommandIDs.openSidebar)) {
      await commands.execute(CommandIDs.openSidebar, { name: nameOf(run) });
    }
  }
}

/** Return the tab. */
export function launchTab(
  options: ILaunchWidgetOptions
): MainAreaWidget<LaunchContent> {
  const { trans } = options;
  const tab = new MainAreaWidget({ content: new LaunchContent(options) });
  tab.id = 'tfcluster-launch';
  tab.title.label = trans.__('Launch a TFCluster');
  tab.title.icon = clusterIcon;
  tab.title.closable = true;
  tab.toolbar.hide(); // the toolbar would be empty
  return tab;
}

/** Return the program in the active cell of the notebook. */
export function activeCell(
  notebooks: INotebookTracker | null
): ICellProgram | null {
  const panel = notebooks?.currentWidget;
  const cell = notebooks?.activeCell;
  if (!panel || !cell) {
    return null;
  }
  return {
    text: programOfCell(cell.model.sharedModel.getSource()),
    notebook: panel.context.localPath
  };
}

/** Redraws its children when the first notebook opens or the last one closes. */
function WithNotebook({
  notebooks,
  children
}: {
  readonly notebooks: INotebookTracker | null;
  children(hasNotebook: boolean): React.ReactNode;
}): React.JSX.Element {
  const [has, setHas] = React.useState(Boolean(notebooks?.currentWidget));
  React.useEffect(() => {
    const look = (): void => setHas(Boolean(notebooks?.currentWidget));
    notebooks?.currentChanged.connect(look);
    return () => void notebooks?.currentChanged.disconnect(look);
  }, [notebooks]);
  return <>{children(has)}</>;
}

/**
 * A poll that retries a refused form: when the form or its window becomes visible, and every few
 * seconds while the form is visible. The model decides what is retried.
 */
class RetryPoll implements IDisposable {
  constructor(
    ask: () => Promise<void>,
    private readonly _isSeen: () => boolean
  ) {
    this._poll = new Poll({
      name: 'tfcluster-labextension:launch',
      factory: ask,
      frequency: RETRY,
      standby: () => !_isSeen() || 'when-hidden'
    });
    window.addEventListener('focus', this.now);
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    window.removeEventListener('focus', this.now);
    this._poll.dispose();
  }

  /** Retry now if the form is visible. */
  readonly now = (): void => {
    if (this._isSeen()) {
      void this._poll.refresh();
    }
  };

  private readonly _poll: Poll<void>;
}
