/**
 * Lets outputs of `%tfcluster` be drawn live wherever outputs are drawn: JupyterLab, Notebook 7, consoles.
 */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IClusters } from '../api/state';
import { DOMAIN, IClustersToken } from '../tokens';
import { rendererFactory } from './renderer';

export const outputPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:output',
  description: 'Runs in the outputs of notebooks, as they are now.',
  autoStart: true,
  requires: [IClustersToken, IRenderMimeRegistry],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    clusters: IClusters,
    registry: IRenderMimeRegistry,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    registry.addFactory(
      rendererFactory({ clusters, commands: app.commands, trans })
    );
  }
};
