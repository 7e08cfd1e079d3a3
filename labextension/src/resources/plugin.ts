/** `tfcluster:top`: what the tasks of a run use, in a tab for each run, restored with the layout. */
import { chooseName } from '../commands/choose';
import { resourcesIcon } from '../icons';
import { nameIn, tabPlugin } from '../tabs';
import { CommandIDs } from '../tokens';
import { ResourcesWidget } from './widget';

export const resourcesPlugin = tabPlugin<ResourcesWidget>(
  {
    plugin: 'resources',
    description: 'What the tasks of a run use, as graphs in a tab.',
    namespace: 'tfcluster-resources',
    command: CommandIDs.top,
    args: ({ name }) => ({ name }),
    key: ({ name }) => name
  },
  ({ app: { commands, shell }, clusters, trans, open }) => {
    commands.addCommand(CommandIDs.top, {
      label: args =>
        nameIn(args)
          ? trans.__('Resources')
          : trans.__('Resources of a Cluster…'),
      caption: trans.__('Show what each task uses, beside what you asked for'),
      icon: resourcesIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: {
            name: { type: 'string', description: trans.__('The run') }
          }
        }
      },
      execute: async args => {
        const title = trans.__('Resources');
        const name = await chooseName(args, { clusters, trans, title });
        if (!name) {
          return null;
        }
        const tab = await open(
          name,
          () => new ResourcesWidget({ clusters, name, commands, trans })
        );
        shell.activateById(tab.id);
        return tab;
      }
    });
  }
);
