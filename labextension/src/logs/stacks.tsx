/**
 * The Python stacks that were taken automatically when the run stalled, above its lines.
 *
 * The stacks are loaded when the user opens them.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { ServerProblem } from '../api/problem';
import type { IKeptStacks } from '../api/types';
import type { LogsModel } from './model';
import type { ILogsState } from './state';

export interface IStacksProps {
  readonly model: LogsModel;
  readonly state: ILogsState;
  readonly trans: TranslationBundle;
}

/** A folded section with the stacks; nothing for a run that has not stalled. */
export function Stacks({
  model,
  state,
  trans
}: IStacksProps): React.JSX.Element | null {
  const [found, setFound] = React.useState<IKeptStacks | null>(null);
  const [problem, setProblem] = React.useState('');
  if (state.run?.cluster.status.reason !== 'Stalled') {
    return null;
  }
  const load = async (): Promise<void> => {
    try {
      setFound(await model.keptStacks());
      setProblem('');
    } catch (error) {
      if (!(error instanceof ServerProblem)) {
        throw error;
      }
      setProblem(error.message);
    }
  };
  return (
    <details
      className="tfc-Log-stacks"
      onToggle={event => {
        if (event.currentTarget.open) {
          void load();
        }
      }}
    >
      <summary>{trans.__('The line at which each task hangs')}</summary>
      {problem && <p role="alert">{problem}</p>}
      {found && found.tasks.length === 0 && (
        <p role="status">
          {trans.__(
            'No stacks were taken: the tasks cannot write to their output, or they are not Python programs.'
          )}
        </p>
      )}
      {found && found.tasks.length > 0 && (
        <pre
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolled region must be reachable by keyboard
          tabIndex={0}
          role="group"
          aria-label={trans.__('Stacks of %1', found.tasks.join(', '))}
        >
          {found.text}
        </pre>
      )}
    </details>
  );
}
