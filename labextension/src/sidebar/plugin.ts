/**
 * Adds the sidebar on the side that the user prefers, with commands to open, filter and refresh it.
 */
import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { filterIcon, refreshIcon } from '@jupyterlab/ui-components';
import type { Contents } from '@jupyterlab/services';
import type { IClusters } from '../api/clusters';
import { clusterIcon } from '../icons';
import type { Settings } from '../settings';
import { CommandIDs, DOMAIN, IClustersToken, ISettingsToken } from '../tokens';
import { runningClusters } from './running';
import { SidebarWidget } from './widget';

const EXAMPLES = 'examples';
const RANK = 600;

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:sidebar',
  description: 'The list of runs beside the documents.',
  autoStart: true,
  requires: [IClustersToken, ISettingsToken],
  optional: [
    ILayoutRestorer,
    ICommandPalette,
    ITranslator,
    IRunningSessionManagers
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IClusters,
    settings: Settings,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
    running: IRunningSessionManagers | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, serviceManager, shell } = app;
    const findExamples = async (): Promise<(() => void) | null> =>
      (await hasExamples(serviceManager.contents))
        ? () =>
            void commands.execute('filebrowser:go-to-path', { path: EXAMPLES })
        : null;
    const sidebar = new SidebarWidget({ model, commands, trans, findExamples });

    running?.add(runningClusters(model, commands, trans));

    let { side } = settings.current;
    shell.add(sidebar, side, { rank: RANK, type: 'TFCluster' });
    restorer?.add(sidebar, sidebar.id);
    settings.changed.connect((_, { side: wanted }) => {
      if (wanted !== side) {
        side = wanted;
        shell.add(sidebar, side, { rank: RANK, type: 'TFCluster' });
      }
    });

    /**
     * Bring the sidebar to the front later, because after a command the palette returns the focus
     * to the document.
     */
    const show = (then: () => void): void => {
      shell.activateById(sidebar.id);
      requestAnimationFrame(then);
    };

    commands.addCommand(CommandIDs.openSidebar, {
      label: trans.__('Show Clusters'),
      caption: trans.__('Show the sidebar of TFCluster'),
      icon: clusterIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: {
            name: {
              type: 'string',
              description: trans.__('The run whose row the sidebar expands')
            }
          }
        }
      },
      execute: ({ name }) => {
        show(() =>
          typeof name === 'string' ? sidebar.reveal(name) : sidebar.activate()
        );
      }
    });
    commands.addCommand(CommandIDs.filter, {
      label: trans.__('Filter Clusters'),
      caption: trans.__('Focus the filter of the sidebar'),
      icon: filterIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => {
        show(() => {
          sidebar.wantFilter();
          sidebar.activate();
        });
      }
    });
    commands.addCommand(CommandIDs.refresh, {
      label: trans.__('Refresh Clusters'),
      caption: trans.__('Load the list of runs again'),
      icon: refreshIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => model.refresh()
    });
    for (const command of [
      CommandIDs.openSidebar,
      CommandIDs.filter,
      CommandIDs.refresh
    ]) {
      palette?.addItem({ command, category: trans.__('TFCluster') });
    }
  }
};

/** Return whether the top folder has examples; avoids a request that would log "not found". */
async function hasExamples(contents: Contents.IManager): Promise<boolean> {
  try {
    const top = await contents.get('', { content: true });
    const files = top.content as ReadonlyArray<Contents.IModel>;
    return files.some(f => f.type === 'directory' && f.name === EXAMPLES);
  } catch {
    return false; // an unreachable server is reported elsewhere
  }
}
