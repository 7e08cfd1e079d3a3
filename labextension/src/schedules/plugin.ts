/** `tfcluster:schedule-history`: the calendar of a schedule in a tab, restored with the layout. */
import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IClusters } from '../api/clusters';
import { calendarIcon } from '../icons';
import { RestoredTabs } from '../tabs';
import { CommandIDs, DOMAIN, IClustersToken } from '../tokens';
import { CalendarWidget } from './calendar';

export const schedulesPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:schedules',
  description: 'The history of a schedule as a calendar.',
  autoStart: true,
  requires: [IClustersToken],
  optional: [ITranslator, ILayoutRestorer, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    model: IClusters,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    lab: ILabShell | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, shell } = app;
    const tabs = new RestoredTabs<MainAreaWidget<CalendarWidget>>(
      shell,
      restorer,
      {
        namespace: 'tfcluster-schedule',
        command: CommandIDs.scheduleHistory,
        args: ({ content }) => ({ name: content.schedule }),
        name: ({ content }) => content.schedule
      }
    );
    commands.addCommand(CommandIDs.scheduleHistory, {
      label: trans.__('Show the History of a Schedule'),
      caption: trans.__('What became of its due times, as a calendar'),
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
        let tab = tabs.find(({ content }) => content.schedule === schedule);
        if (!tab) {
          const content = new CalendarWidget({
            name: schedule,
            model,
            commands,
            trans
          });
          tab = new MainAreaWidget({ content });
          tab.id = `tfcluster-schedule-${schedule}`;
          tab.title.label = trans.__('%1 · Schedule', schedule);
          tab.title.caption = tab.title.label;
          tab.title.icon = calendarIcon;
          tab.title.closable = true;
          tab.toolbar.hide(); // it would be empty
          await tabs.add(tab, lab ? 'main' : 'down');
        }
        shell.activateById(tab.id);
        return tab;
      }
    });
  }
};
