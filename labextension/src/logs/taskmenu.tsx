/** The menu that selects tasks: one, some or all, each with its number of lines. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { caretDownEmptyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { LogsModel } from './model';
import type { ILogsState, ITask } from './state';

export interface ITaskMenuProps {
  readonly model: LogsModel;
  readonly state: ILogsState;
  readonly trans: TranslationBundle;
}

/** A button with a list of check boxes. */
export function TaskMenu({
  model,
  state,
  trans
}: ITaskMenuProps): React.JSX.Element {
  const [isOpen, setOpen] = React.useState(false);
  const whole = React.useRef<HTMLSpanElement>(null);
  const button = React.useRef<HTMLButtonElement>(null);
  const { tasks } = state;
  const shown = tasks.filter(task => task.isShown);

  React.useEffect(() => {
    if (!isOpen) {
      return;
    }
    const close = (event: Event): void => {
      if (!whole.current?.contains(event.target as Node)) {
        setOpen(false);
      }
    };
    document.addEventListener('pointerdown', close);
    document.addEventListener('focusin', close);
    return () => {
      document.removeEventListener('pointerdown', close);
      document.removeEventListener('focusin', close);
    };
  }, [isOpen]);

  const toggle = (task: ITask): void => {
    const chosen = tasks.filter(one =>
      one === task ? !one.isShown : one.isShown
    );
    model.show(
      chosen.length === tasks.length ? [] : chosen.map(({ name }) => name)
    );
  };
  return (
    <span
      className="tfc-Log-tasks"
      ref={whole}
      role="presentation"
      onKeyDown={event => {
        if (event.key === 'Escape' && isOpen) {
          event.stopPropagation();
          setOpen(false);
          button.current?.focus();
        }
      }}
    >
      <button
        type="button"
        ref={button}
        className="tfc-Button"
        aria-expanded={isOpen}
        title={trans.__('Select the tasks whose output is shown')}
        onClick={() => setOpen(!isOpen)}
      >
        {label(shown, tasks, trans)}
        <caretDownEmptyIcon.react
          tag="span"
          className="tfc-Button-icon"
          aria-hidden="true"
        />
      </button>
      {isOpen && (
        <fieldset className="tfc-Log-taskmenu">
          <legend className="tfc-visually-hidden">{trans.__('Tasks')}</legend>
          <button
            type="button"
            className="tfc-Button"
            onClick={() => model.show([])}
          >
            {trans.__('All tasks')}
          </button>
          <ul>
            {tasks.map(task => (
              <li key={task.name}>
                <label className="tfc-Log-choice">
                  <input
                    type="checkbox"
                    checked={task.isShown}
                    onChange={() => toggle(task)}
                  />
                  <span className="tfc-Log-task" data-colour={task.place % 6}>
                    {task.name}
                  </span>
                  <span className="tfc-Log-tasklines">
                    {trans._n('%1 line', '%1 lines', task.lines)}
                  </span>
                </label>
                <button
                  type="button"
                  className="tfc-Button"
                  aria-label={trans.__('Only %1', task.name)}
                  onClick={() => model.show([task.name])}
                >
                  {trans.__('only')}
                </button>
              </li>
            ))}
          </ul>
        </fieldset>
      )}
    </span>
  );
}

function label(
  shown: ReadonlyArray<ITask>,
  tasks: ReadonlyArray<ITask>,
  trans: TranslationBundle
): string {
  if (shown.length === tasks.length) {
    return trans.__('All tasks');
  }
  return shown.length === 1
    ? shown[0].name
    : trans.__('%1 of %2 tasks', shown.length, tasks.length);
}
