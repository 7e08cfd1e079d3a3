/** `tfcluster:logs`: the output of a run in a tab, one for each run, restored with the layout. */
import { chooseName } from '../commands/choose';
import { logsIcon } from '../icons';
import { nameIn, tabPlugin } from '../tabs';
import { CommandIDs } from '../tokens';
import { LogsWidget } from './widget';

export const logsPlugin = tabPlugin<LogsWidget>(
  {
    plugin: 'logs',
    description: 'The output of a run as a document tab.',
    namespace: 'tfcluster-logs',
    command: CommandIDs.logs,
    args: ({ name, model }) => ({ name, task: model.shown.join(' ') }),
    key: ({ name }) => name
  },
  ({ app: { commands, shell }, clusters, trans, open }) => {
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
        const title = trans.__('Logs');
        const name = await chooseName(args, { clusters, trans, title });
        if (!name) {
          return null;
        }
        const make = (): LogsWidget => new LogsWidget(clusters, name, trans);
        const widget = await open(name, make, {
          changes: ({ model }) => model.changed,
          isOld: ({ model }) =>
            // the name belongs to another run now
            model.state.connection === 'gone' &&
            clusters.find(name) !== undefined
        });
        if (typeof args.task === 'string' && args.task) {
          widget.content.model.show(args.task.split(' '));
        }
        shell.activateById(widget.id);
        return widget;
      }
    });
  }
);
