/**
 * The menu of a run: on its button, and on a right click.
 */
import { MenuSvg } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { IRun } from '../api/types';
import { argumentsOf, enabledActions } from './actions';

/** Open the menu of what can be done with this run now, at a place of the window. */
export function openRunMenu(
  run: IRun,
  commands: CommandRegistry,
  x: number,
  y: number
): void {
  const menu = new MenuSvg({ commands });
  for (const action of enabledActions(run, commands)) {
    if (action.begins && menu.items.length > 0) {
      menu.addItem({ type: 'separator' });
    }
    menu.addItem({
      command: action.command,
      args: argumentsOf(action, run)
    });
  }
  menu.aboutToClose.connect(() => {
    // its command is executed after the signal
    requestAnimationFrame(() => menu.dispose());
  });
  menu.open(x, y);
}
