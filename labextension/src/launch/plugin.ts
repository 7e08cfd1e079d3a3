/** The command that opens the launch form, and the places that offer it. */
import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { IClusters } from '../api/clusters';
import { clusterIcon } from '../icons';
import { RestoredTabs } from '../tabs';
import { CommandIDs, DOMAIN, IClustersToken } from '../tokens';
import { LaunchModel } from './model';
import type { IPrefill } from './prefill';
import { activeCell, LaunchContent, launchTab } from './widget';

const LAUNCH_SELECTED = 'tfcluster:launch-selected';
const LAUNCH_CELL = 'tfcluster:launch-cell';
const PROGRAMS = [
  '.jp-DirListing-item[data-file-type="python"]',
  '.jp-DirListing-item[data-isdir="true"]'
];

export const launchPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:launch',
  description: 'The form that launches a cluster.',
  autoStart: true,
  requires: [IClustersToken, IDocumentManager],
  optional: [
    ICommandPalette,
    IFileBrowserFactory,
    ILauncher,
    ILayoutRestorer,
    INotebookTracker,
    IStateDB,
    ITranslator
  ],
  activate: (
    app: JupyterFrontEnd,
    clusters: IClusters,
    documents: IDocumentManager,
    palette: ICommandPalette | null,
    files: IFileBrowserFactory | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    notebooks: INotebookTracker | null,
    memory: IStateDB | null,
    translator: ITranslator | null
  ): void => {
    const { commands, shell } = app;
    const languages = translator ?? nullTranslator;
    const trans = languages.load(DOMAIN);
    const tabs = new RestoredTabs<MainAreaWidget<LaunchContent>>(
      shell,
      restorer,
      {
        namespace: 'tfcluster-launch',
        command: CommandIDs.launch,
        name: () => 'launch'
      }
    );

    const open = async (wanted: IPrefill): Promise<void> => {
      const there = tabs.find(() => true);
      if (there) {
        shell.activateById(there.id);
        await there.content.model.prefill(wanted);
        return;
      }
      const model = new LaunchModel(clusters, memory);
      const tab = launchTab({
        model,
        commands,
        documents,
        notebooks,
        translator: languages,
        trans
      });
      await tabs.add(tab);
      shell.activateById(tab.id);
      await model.start(wanted);
    };

    commands.addCommand(CommandIDs.launch, {
      label: args =>
        args.isLauncher
          ? trans.__('TensorFlow cluster')
          : trans.__('Launch a TFCluster'),
      caption: trans.__('Launch a cluster of TensorFlow tasks'),
      icon: clusterIcon,
      describedBy: { args: ARGUMENTS },
      execute: args => open(prefillOf(args))
    });
    commands.addCommand(LAUNCH_CELL, {
      label: trans.__('Launch This Cell as TFCluster'),
      caption: trans.__('Open the launch form with the active cell'),
      icon: clusterIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      isEnabled: () => activeCell(notebooks) !== null,
      execute: () => {
        const cell = activeCell(notebooks);
        return cell ? open({ cell: cell.text, notebook: cell.notebook }) : null;
      }
    });
    palette?.addItem({
      command: CommandIDs.launch,
      category: trans.__('TFCluster')
    });
    // a right click makes the cell the active one
    app.contextMenu.addItem({
      command: LAUNCH_CELL,
      selector: '.jp-Notebook .jp-CodeCell',
      rank: 11
    });
    palette?.addItem({
      command: LAUNCH_CELL,
      category: trans.__('TFCluster')
    });
    launcher?.add({
      command: CommandIDs.launch,
      args: { isLauncher: true },
      category: trans.__('TFCluster'),
      rank: 1
    });
    if (files) {
      commands.addCommand(LAUNCH_SELECTED, {
        label: trans.__('Launch as TFCluster'),
        caption: trans.__('Open the launch form with this program'),
        icon: clusterIcon,
        describedBy: { args: { type: 'object', properties: {} } },
        execute: () => {
          const [first] = files.tracker.currentWidget?.selectedItems() ?? [];
          const { contents } = app.serviceManager;
          return first
            ? open({ program: contents.localPath(first.path) })
            : null;
        }
      });
      for (const selector of PROGRAMS) {
        app.contextMenu.addItem({
          command: LAUNCH_SELECTED,
          selector,
          rank: 3
        });
      }
    }
  }
};

const ARGUMENTS = {
  type: 'object',
  properties: {
    program: {
      type: 'string',
      description: 'A path of the file browser, or a URL'
    },
    config: {
      type: 'string',
      description: 'A configuration of the project in that folder'
    },
    cell: { type: 'string', description: 'The text of a program' },
    notebook: { type: 'string', description: 'The notebook of that cell' },
    mode: { type: 'string', enum: ['in-graph', 'between-graph'] },
    from: { type: 'string', description: 'The run to begin with' },
    schedule: { type: 'string', description: 'The schedule to change' },
    repeat: { type: 'boolean', description: 'Whether it becomes a schedule' },
    isLauncher: { type: 'boolean', description: 'Whether a card shows it' }
  }
} as const;

/** Return the arguments of a command that the form uses. */
function prefillOf(args: ReadonlyPartialJSONObject): IPrefill {
  const known = Object.entries(ARGUMENTS.properties)
    .filter(([, { type }]) => type === 'string')
    .map(([key]) => key);
  const said = Object.entries(args).filter(
    ([key, value]) => known.includes(key) && typeof value === 'string'
  );
  const repeat = args.repeat === true ? { repeat: true } : {};
  return { ...Object.fromEntries(said), ...repeat };
}
