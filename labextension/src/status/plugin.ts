/**
 * Information outside the sidebar: a count in the status bar, a notification at the end of a run.
 */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IClusters } from '../api/clusters';
import type { Settings } from '../settings';
import { DOMAIN, IClustersToken, ISettingsToken } from '../tokens';
import { notifyEnds } from './notifications';
import { StatusItem } from './StatusItem';

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:status',
  description: 'Clusters in the status bar, and notifications at their end.',
  autoStart: true,
  requires: [IClustersToken, ISettingsToken],
  optional: [IStatusBar, ITranslator],
  activate: (
    { commands }: JupyterFrontEnd,
    model: IClusters,
    settings: Settings,
    bar: IStatusBar | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    notifyEnds({ model, settings, commands, trans });
    const item = new StatusItem({ model, commands, trans });
    bar?.registerStatusItem('tfcluster-labextension:status', {
      item,
      align: 'left',
      rank: 10,
      isActive: () => item.isNeeded,
      activeStateChanged: item.neededChanged
    });
  }
};
