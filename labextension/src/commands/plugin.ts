/**
 * The commands on runs, in the palette, and the settings that all plugins of this extension read.
 */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IClusters } from '../api/clusters';
import { languageOf } from '../api/rest';
import { Settings, SETTINGS_ID } from '../settings';
import { CommandIDs, DOMAIN, IClustersToken, ISettingsToken } from '../tokens';
import { addVerbs } from './verbs';

export const commandsPlugin: JupyterFrontEndPlugin<Settings> = {
  id: SETTINGS_ID,
  description: 'Commands on the runs of TFCluster, and its settings.',
  autoStart: true,
  provides: ISettingsToken,
  requires: [IClustersToken],
  optional: [ICommandPalette, INotebookTracker, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IClusters,
    palette: ICommandPalette | null,
    notebooks: INotebookTracker | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): Settings => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands } = app;
    const settings = new Settings();
    if (registry) {
      // without a schema, for example an unreadable one, the defaults are used
      const translated = !languageOf(translator).startsWith('en');
      settings.follow(registry, translated).catch(() => undefined);
    }
    const verbs = { commands, model, settings, notebooks, trans };
    for (const command of [
      ...addVerbs(verbs),
      CommandIDs.logs,
      CommandIDs.top
    ]) {
      palette?.addItem({ command, category: trans.__('TFCluster') });
    }
    return settings;
  }
};
