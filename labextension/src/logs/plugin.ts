/** `tfcluster:logs`: the output of a run in a tab, one for each run, restored with the layout. */
import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { nameOf } from '../api/runs';
import type { IClusters } from '../api/state';
import { chooseRun } from '../commands/choose';
import { logsIcon } from '../icons';
import { RestoredTabs } from '../tabs';
import { CommandIDs, DOMAIN, IClustersToken } from '../tokens';
import { LogsWidget } from './widget';

type Tab = MainAreaWidget<LogsWidget>;

export const logsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:logs',
  description: 'The output of a run as a document tab.',
  autoStart: true,
  requires: [IClustersToken],
  optional: [ITranslator, ILayoutRestorer, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    clusters: IClusters,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    lab: ILabShell | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, shell } = app;
    const tabs = new RestoredTabs<Tab>(shell, restorer, {
      namespace: 'tfcluster-logs',
      command: CommandIDs.logs,
      args: ({ content }) => ({
        name: content.name,
        task: content.model.shown.join(' ')
      }),
      name: ({ content }) => content.name
    });
    const open = async (name: string): Promise<Tab> => {
      const found = tabs.find(widget => widget.content.name === name);
      const isGone = found?.content.model.state.connection === 'gone';
      if (found && !(isGone && clusters.find(name))) {
        return found;
      }
      found?.dispose(); // the name belongs to another run now
      const content = new LogsWidget(clusters, name, trans);
      const widget = new MainAreaWidget({ content });
      widget.toolbar.hide(); // the output has its own toolbar
      widget.id = `tfcluster-logs-${name}`;
      let saved = '';
      content.model.changed.connect(({ shown }) => {
        if (saved !== shown.join(' ')) {
          saved = shown.join(' ');
          tabs.save(widget);
        }
      });
      // a page of Notebook 7 has one document, and room below it
      await tabs.add(widget, lab ? 'main' : 'down');
      return widget;
    };
    const asked = async (): Promise<string | null> => {
      const run = await chooseRun(
        {},
        {
          model: clusters,
          trans,
          title: trans.__('Logs'),
          fits: () => true,
          none: trans.__('There are no clusters.')
        }
      );
      return run && nameOf(run);
    };
    commands.addCommand(CommandIDs.logs, {
      label: args =>
        nameIn(args) ? trans.__('Logs') : trans.__('Logs of a Cluster…'),
      caption: trans.__('Show what the tasks of the run print'),
      icon: logsIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: {
            name: { type: 'string', description: trans.__('The run') },
            task: {
              type: 'string',
              description: trans.__('Show only this task')
            }
          }
        }
      },
      execute: async args => {
        const name = nameIn(args) || (await asked());
        if (!name) {
          return null;
        }
        const widget = await open(name);
        if (typeof args.task === 'string' && args.task) {
          widget.content.model.show(args.task.split(' '));
        }
        shell.activateById(widget.id);
        return widget;
      }
    });
  }
};

const nameIn = (args: ReadonlyPartialJSONObject): string =>
  typeof args.name === 'string' ? args.name : '';
