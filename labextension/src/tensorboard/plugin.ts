/**
 * `tfcluster:tensorboard`: a TensorBoard in a tab, one for each board, restored with the layout.
 */
import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  ICommandPalette,
  IThemeManager,
  MainAreaWidget
} from '@jupyterlab/apputils';
import { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import {
  IRunningSessionManagers,
  IRunningSessionSidebar
} from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IClusters } from '../api/clusters';
import { boardIcon } from '../icons';
import { RestoredTabs } from '../tabs';
import { CommandIDs, DOMAIN, IClustersToken } from '../tokens';
import { addFolderMenu } from './folder';
import type { BoardState } from './model';
import { type IBoardTabs, RunningBoards } from './running';
import { BoardWidget, tabOf } from './widget';
import { argsOf, IBoardRequest, keyOf, requestOf } from './request';

type Tab = MainAreaWidget<BoardWidget>;

export const tensorboardPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:tensorboard',
  description: 'TensorBoard on runs and folders as a tab.',
  autoStart: true,
  requires: [IClustersToken],
  optional: [
    ITranslator,
    ILayoutRestorer,
    ICommandPalette,
    ILauncher,
    IFileBrowserFactory,
    IThemeManager,
    IRunningSessionManagers,
    IRunningSessionSidebar
  ],
  activate: (
    app: JupyterFrontEnd,
    clusters: IClusters,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    browsers: IFileBrowserFactory | null,
    themes: IThemeManager | null,
    running: IRunningSessionManagers | null,
    panel: IRunningSessionSidebar | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, shell } = app;
    const tabs = new RestoredTabs<Tab>(shell, restorer, {
      namespace: 'tfcluster-tensorboard',
      command: CommandIDs.tensorboard,
      args: ({ content }) => argsOf(content.model.request),
      name: ({ content }) => keyOf(content.model.request)
    });

    const boardTabs: IBoardTabs = {
      open: request =>
        void commands.execute(CommandIDs.tensorboard, argsOf(request)),
      stop: id => {
        const tab = tabs.find(({ content }) =>
          isBoard(content.model.state, id)
        );
        return tab ? tab.content.model.stop() : null;
      }
    };
    const boards =
      running && new RunningBoards(clusters.caller, boardTabs, panel, trans);
    if (boards) {
      running.add(boards);
      void app.restored.then(() => boards.look());
    }

    const open = async (
      request: IBoardRequest,
      below?: string
    ): Promise<Tab> => {
      const key = keyOf(request);
      const found = tabs.find(
        tab => keyOf(tab.content.model.request) === key || tab.id.endsWith(key)
      );
      if (found) {
        return found;
      }
      const tab = tabOf(clusters, request, trans, app.restored, themes);
      const { model } = tab.content;
      model.changed.connect((_, state) => {
        if (state.kind === 'open' || state.kind === 'stopped') {
          boards?.look();
        }
        if (state.kind !== 'open') {
          return;
        }
        const same = tabs.find(
          ({ content }) =>
            content.model !== model &&
            isBoard(content.model.state, state.board.id)
        );
        if (same) {
          tab.dispose(); // another tab already shows this board
          shell.activateById(same.id);
        } else {
          tabs.save(tab);
        }
      });
      await tabs.add(
        tab,
        'main',
        below ? { ref: below, mode: 'split-bottom' } : undefined
      );
      return tab;
    };

    commands.addCommand(CommandIDs.tensorboard, {
      label: args =>
        args.isPalette
          ? trans.__('Open TensorBoard on All Runs')
          : trans.__('TensorBoard'),
      caption: args =>
        args.name || args.refs
          ? trans.__('Show the curves of the run')
          : trans.__('Show the curves of all runs together'),
      icon: boardIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: {
            name: { type: 'string', description: trans.__('A run') },
            refs: {
              type: 'array',
              items: { type: 'string' },
              description: trans.__('Runs to show together')
            },
            folder: {
              type: 'string',
              description: trans.__('A folder, as the file browser names it')
            },
            below: {
              type: 'string',
              description: trans.__('The id of the tab below which it opens')
            }
          }
        }
      },
      execute: async args => {
        const below = typeof args.below === 'string' ? args.below : undefined;
        const tab = await open(requestOf(args), below);
        if (!tab.isDisposed) {
          shell.activateById(tab.id);
        }
        return tab;
      }
    });
    palette?.addItem({
      command: CommandIDs.tensorboard,
      category: trans.__('TFCluster'),
      args: { isPalette: true }
    });
    launcher?.add({
      command: CommandIDs.tensorboard,
      category: trans.__('TFCluster'),
      rank: 2
    });
    if (browsers) {
      addFolderMenu(app, browsers, trans);
    }
  }
};

/** Return whether a tab shows this board. */
const isBoard = (state: BoardState, id: string): boolean =>
  state.kind === 'open' && state.board.id === id;
