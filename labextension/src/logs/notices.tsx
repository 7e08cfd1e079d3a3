/** The notices around the lines: hidden lines, a lost stream, the end of the run. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { shown } from '../run/messages';
import { isActive } from '../api/runs';
import { PhaseBadge, Sentence } from '../run/parts';
import { clock, duration } from '../run/quantities';
import type { LogsModel } from './model';
import type { ILogsState } from './state';

export interface INoticesProps {
  readonly model: LogsModel;
  readonly state: ILogsState;
  readonly trans: TranslationBundle;
}

/** The notices above the lines: which lines are hidden, and a button to show them. */
export function Notices({
  model,
  state,
  trans
}: INoticesProps): React.JSX.Element {
  const { lacksOlder, around, missed, cleared, connection, problem } = state;
  return (
    <>
      {connection === 'lost' && (
        <Notice
          kind="warning"
          text={
            trans.__(
              'The connection was lost at %1; these lines are from before.',
              clock(state.lostAt / 1000, Date.now(), true)
            ) + (problem ? ` ${problem.message}` : '')
          }
          action={trans.__('Try again now')}
          onAction={() => model.retry()}
        />
      )}
      {connection === 'ended' && problem && !isEmpty(state) && (
        <Notice kind="warning" text={problem.message} />
      )}
      {around && (
        <Notice
          kind="warning"
          text={
            (around.at === null
              ? trans.__('These are older lines.')
              : trans.__(
                  'These are older lines, printed around %1.',
                  clock(around.at / 1000, Date.now(), true)
                )) +
            (around.isInTimeOrder
              ? ''
              : ` ${trans.__('They are listed task by task, not in order of time.')}`)
          }
          action={trans.__('Back to the newest')}
          onAction={() => model.showNewest()}
        />
      )}
      {missed && (
        <Notice
          kind="warning"
          text={
            missed.problem?.message ??
            trans.__('This line can no longer be read. Search again.')
          }
        />
      )}
      {lacksOlder && !around && (
        <Notice
          text={trans.__(
            'Only the newest lines are shown. Search and download cover the whole log.'
          )}
        />
      )}
      {cleared > 0 && (
        <Notice
          text={trans._n(
            '%1 earlier line was cleared from view.',
            '%1 earlier lines were cleared from view.',
            cleared
          )}
          action={trans.__('Show again')}
          onAction={() => model.showCleared()}
        />
      )}
    </>
  );
}

const isEmpty = ({ tasks, hidden }: ILogsState): boolean =>
  hidden === 0 && tasks.every(task => task.lines === 0);

interface INoticeProps {
  readonly text: string;
  readonly kind?: 'warning';
  readonly action?: string;
  readonly onAction?: () => void;
}

function Notice({
  text,
  kind,
  action,
  onAction
}: INoticeProps): React.JSX.Element {
  return (
    <p className="tfc-Log-notice" data-kind={kind}>
      <span>{text}</span>
      {action && (
        <button type="button" className="tfc-Log-link" onClick={onAction}>
          {action}
        </button>
      )}
    </p>
  );
}

/** The reason why there are no lines, shown in their place. */
export function Empty({ state, trans }: INoticesProps): React.JSX.Element {
  const { connection, hidden, problem, run, tasks } = state;
  const isFiltered = tasks.some(task => !task.isShown);
  const text =
    connection === 'connecting'
      ? trans.__('Reading the output…')
      : connection === 'ended' && problem && isEmpty(state)
        ? problem.message
        : hidden > 0
          ? trans.__(
              "So far there are only TensorFlow's own log lines, which are hidden."
            )
          : isFiltered
            ? trans.__('The selected tasks have printed nothing.')
            : run && isActive(run)
              ? trans.__('Nothing was printed yet; lines appear here at once.')
              : trans.__('Nothing was printed.');
  return <p className="tfc-Log-empty">{text}</p>;
}

/** The notice below the lines: the run's state, or its last sentence. */
export function Outcome({
  state,
  trans
}: INoticesProps): React.JSX.Element | null {
  const { run, connection } = state;
  if (connection === 'gone') {
    return (
      <footer className="tfc-Log-outcome">
        {trans.__(
          'This run was deleted. Its lines stay here until this tab is closed.'
        )}
      </footer>
    );
  }
  if (!run) {
    return null;
  }
  const { phase, startedAt, finishedAt } = run.cluster.status;
  const message = shown(run.cluster.status, trans);
  const took =
    startedAt != null && finishedAt != null
      ? trans.__('took %1', duration(finishedAt - startedAt))
      : '';
  return (
    <footer className="tfc-Log-outcome" data-phase={phase}>
      <PhaseBadge phase={phase} trans={trans} />
      {message && <Sentence text={message} />}
      {took && <span className="tfc-Log-took">{took}</span>}
    </footer>
  );
}
