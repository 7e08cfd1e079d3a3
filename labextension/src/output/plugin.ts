/**
 * Draws outputs of `%tfcluster` live in JupyterLab, Notebook 7 and consoles, and updates the
 * outputs in the files of notebooks.
 */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import type { CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IClusters } from '../api/state';
import { DOMAIN, IClustersToken } from '../tokens';
import { OutputKeeper } from './keeper';
import { rendererFactory } from './renderer';

export const outputPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:output',
  description: 'Runs in the outputs of notebooks, as they are now.',
  autoStart: true,
  requires: [IClustersToken, IRenderMimeRegistry],
  optional: [INotebookTracker, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    clusters: IClusters,
    registry: IRenderMimeRegistry,
    notebooks: INotebookTracker | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    // false outside of notebooks: only notebooks store output that may lack lines
    const isExecuting = (node: HTMLElement): boolean => {
      const panel = notebooks?.find(each => each.node.contains(node));
      const cell = panel?.content.widgets.find(each =>
        each.node.contains(node)
      ) as CodeCell | undefined;
      const future = cell?.outputArea?.future;
      return !cell || (future != null && !future.isDisposed);
    };
    const { commands } = app;
    registry.addFactory(
      rendererFactory({ clusters, commands, trans, isExecuting })
    );
    const keep = (panel: NotebookPanel): void => {
      const { contents } = app.serviceManager;
      const keeper = new OutputKeeper(clusters, panel.context, contents);
      panel.disposed.connect(() => keeper.dispose());
    };
    notebooks?.forEach(keep);
    notebooks?.widgetAdded.connect((_, panel) => keep(panel));
  }
};
