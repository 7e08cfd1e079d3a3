/** The buttons for a run. Name, icon and enabled state of a button are those of its command. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { ellipsesIcon, LabIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { nameOf } from '../api/runs';
import type { IRun } from '../api/types';
import {
  argumentsOf,
  enabledActions,
  IRunAction,
  openRunMenu
} from './actions';
import { IconButton } from './parts';

export interface IRunActionsProps {
  readonly run: IRun;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  /** The number of buttons, which are shown as icons; the other actions are in the menu. */
  readonly icons?: number;
  readonly tabIndex?: number;
}

/** The first actions as buttons, and a menu with all of them. */
export function RunActions({
  run,
  commands,
  trans,
  icons,
  tabIndex
}: IRunActionsProps): React.JSX.Element {
  const shown = enabledActions(run, commands)
    .filter(({ quick }) => quick)
    .slice(0, icons ?? 5);
  return (
    <div
      className="tfc-Actions"
      role="group"
      aria-label={trans.__('Actions on %1', nameOf(run))}
    >
      {shown.map(action => (
        <ActionButton
          key={action.command}
          action={action}
          run={run}
          commands={commands}
          iconOnly={icons !== undefined}
          tabIndex={tabIndex}
        />
      ))}
      <IconButton
        icon={ellipsesIcon}
        label={trans.__('More actions on %1', nameOf(run))}
        title={trans.__('More actions')}
        aria-haspopup="menu"
        tabIndex={tabIndex}
        onClick={event => {
          event.stopPropagation();
          const box = event.currentTarget.getBoundingClientRect();
          openRunMenu(run, commands, box.left, box.bottom);
        }}
      />
    </div>
  );
}

interface IActionButtonProps {
  readonly action: IRunAction;
  readonly run: IRun;
  readonly commands: CommandRegistry;
  readonly iconOnly: boolean;
  readonly tabIndex?: number;
}

function ActionButton({
  action,
  run,
  commands,
  iconOnly,
  tabIndex
}: IActionButtonProps): React.JSX.Element {
  const args = argumentsOf(action, run);
  const { command } = action;
  const label = commands.label(command, args).replace('…', '');
  const icon = commands.icon(command, args);
  const key = action.key
    ? ` (${action.key === 'Delete' ? 'Del' : action.key})`
    : '';
  return (
    <button
      type="button"
      className={iconOnly ? 'tfc-Button tfc-mod-icon' : 'tfc-Button'}
      title={`${commands.caption(command, args) || label}${key}`}
      aria-label={`${label} ${nameOf(run)}`}
      tabIndex={tabIndex}
      onClick={event => {
        event.stopPropagation();
        void commands.execute(command, args);
      }}
    >
      {icon && (
        <LabIcon.resolveReact
          icon={icon as LabIcon.IMaybeResolvable}
          tag="span"
          className="tfc-Button-icon"
          aria-hidden="true"
        />
      )}
      {!iconOnly && <span>{label}</span>}
    </button>
  );
}
