/** The actions on a run, their order and keys: one table for buttons, menus and keys. */
import { MenuSvg } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { nameOf } from '../api/runs';
import type { IRun } from '../api/types';
import { CommandIDs } from '../tokens';

/** One command on a run, with its arguments besides the name. */
export interface IRunAction {
  readonly command: string;
  readonly more?: ReadonlyJSONObject;
  /** The key of the action while a row has the focus, as in `KeyboardEvent.key`. */
  readonly key?: string;
  /** Whether the action has a button in addition to its menu entry. */
  readonly quick?: boolean;
  /** Whether menus have a separator above the action. */
  readonly begins?: boolean;
}

export const RUN_ACTIONS: ReadonlyArray<IRunAction> = [
  { command: CommandIDs.stop, key: 's', quick: true },
  {
    command: CommandIDs.connect,
    key: 'c',
    quick: true,
    more: { with: 'strategy' }
  },
  { command: CommandIDs.connect, more: { with: 'session' } },
  { command: CommandIDs.logs, key: 'l', quick: true },
  { command: CommandIDs.tensorboard, key: 't', quick: true },
  { command: CommandIDs.top, key: 'u', quick: true },
  { command: CommandIDs.rerun, key: 'r', quick: true, begins: true },
  { command: CommandIDs.rerun, more: { resume: true } },
  { command: CommandIDs.editAndLaunch, key: 'e' },
  { command: CommandIDs.rename, key: 'F2', begins: true },
  { command: CommandIDs.tag, key: '#' },
  { command: CommandIDs.note, key: 'n' },
  { command: CommandIDs.copyCommand },
  { command: CommandIDs.copyCommand, more: { shell: true } },
  { command: CommandIDs.copyYaml },
  { command: CommandIDs.remove, key: 'Delete', begins: true }
];

/** Return the arguments of an action on this run. */
export const argumentsOf = (
  action: IRunAction,
  run: IRun
): ReadonlyJSONObject => ({ ...action.more, name: nameOf(run) });

/** Return the actions that this run allows now. */
export const enabledActions = (
  run: IRun,
  commands: CommandRegistry
): ReadonlyArray<IRunAction> =>
  RUN_ACTIONS.filter(
    action =>
      commands.hasCommand(action.command) &&
      commands.isVisible(action.command, argumentsOf(action, run)) &&
      commands.isEnabled(action.command, argumentsOf(action, run))
  );

/** Open the menu of a run's actions at a position of the window. */
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
    // dispose later, because the chosen command is executed after this signal
    requestAnimationFrame(() => menu.dispose());
  });
  menu.open(x, y);
}
