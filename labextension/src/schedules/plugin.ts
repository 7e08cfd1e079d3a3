/** `tfcluster:schedule-history`: the calendar of a schedule in a tab, restored with the layout. */
import { calendarIcon } from '../icons';
import { tabPlugin } from '../tabs';
import { CommandIDs } from '../tokens';
import { CalendarWidget } from './calendar';

export const schedulesPlugin = tabPlugin<CalendarWidget>(
  {
    plugin: 'schedules',
    description: 'The history of a schedule as a calendar.',
    namespace: 'tfcluster-schedule',
    command: CommandIDs.scheduleHistory,
    args: ({ schedule }) => ({ name: schedule }),
    key: ({ schedule }) => schedule
  },
  ({ app: { commands, shell }, clusters: model, trans, open }) => {
    commands.addCommand(CommandIDs.scheduleHistory, {
      label: trans.__('Show the History of a Schedule'),
      caption: trans.__('Show the results of its due times as a calendar'),
      icon: calendarIcon,
      describedBy: {
        args: {
          type: 'object',
          required: ['name'],
          properties: {
            name: { type: 'string', description: trans.__('The schedule') }
          }
        }
      },
      isEnabled: ({ name }) => typeof name === 'string',
      execute: async ({ name }) => {
        const schedule = String(name);
        const tab = await open(
          schedule,
          () => new CalendarWidget({ name: schedule, model, commands, trans })
        );
        shell.activateById(tab.id);
        return tab;
      }
    });
  }
);
