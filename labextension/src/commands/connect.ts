/** The lines that connect a notebook to an In-Graph cluster, and their insertion. */
import { Clipboard, Notification } from '@jupyterlab/apputils';
import {
  INotebookTracker,
  NotebookActions,
  NotebookPanel
} from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

/** The client's API: TensorFlow 2's strategy, or TensorFlow 1's session. */
export type Client = 'strategy' | 'session';

/**
 * `fit()` of Keras 3 does not work on a cluster. This variable selects Keras 2; TensorFlow reads
 * the variable when it is imported.
 */
const KERAS = [
  'import os',
  '',
  'os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # for model.fit: before TensorFlow',
  ''
];

/** Return the source of the connecting cell; `magic` means that the notebook uses `%tfcluster`. */
export const connectLines = (
  name: string,
  client: Client,
  magic: boolean
): string =>
  [
    ...(client === 'strategy' ? KERAS : []),
    ...(magic
      ? [`cluster = %tfcluster connect ${name}`]
      : [
          'from tfcluster_magic import Cluster',
          '',
          `cluster = Cluster("${name}")`
        ]),
    `${client} = cluster.${client}()`
  ].join('\n');

/**
 * Insert the connecting cell below the active cell of the current notebook; without a notebook,
 * copy its source.
 */
export async function insertConnect(
  name: string,
  client: Client,
  notebooks: INotebookTracker | null,
  trans: TranslationBundle
): Promise<void> {
  const panel = notebooks?.currentWidget;
  if (!panel || !panel.isVisible) {
    Clipboard.copyToSystem(connectLines(name, client, false));
    Notification.info(
      trans.__(
        'Open a notebook and paste: the lines that connect to %1 were copied.',
        name
      ),
      { autoClose: 8000 }
    );
    return;
  }
  await panel.context.ready;
  const { content } = panel;
  const uses = usesMagic(panel);
  NotebookActions.insertBelow(content);
  const cell = content.activeCell;
  cell?.model.sharedModel.setSource(connectLines(name, client, uses));
  await content.scrollToItem(content.activeCellIndex, 'auto');
  content.activate();
}

/** Return whether a cell of this notebook uses the magic; then the magic is already loaded. */
function usesMagic(panel: NotebookPanel): boolean {
  const cells = panel.content.model?.sharedModel.cells ?? [];
  return cells.some(cell => /%tfcluster\b/.test(cell.getSource()));
}
