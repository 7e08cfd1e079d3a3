/** Provides the model of all runs to every other plugin of this extension. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { DOMAIN, IClustersToken } from '../tokens';
import { ClustersModel, IClusters } from './clusters';
import { languageOf } from './rest';

export const clustersPlugin: JupyterFrontEndPlugin<IClusters> = {
  id: 'tfcluster-labextension:clusters',
  description: 'The runs of TFCluster, as this page knows them.',
  autoStart: true,
  provides: IClustersToken,
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null
  ): IClusters => {
    const { serviceManager } = app;
    const model = new ClustersModel(
      {
        settings: serviceManager.serverSettings,
        trans: (translator ?? nullTranslator).load(DOMAIN),
        language: languageOf(translator)
      },
      serviceManager
    );
    // JupyterLab starts first; it does not wait for the model
    void app.restored.then(() => model.start());
    return model;
  }
};
