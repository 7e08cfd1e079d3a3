/**
 * The schedules below the list of runs: the next due time of each, the results of its last ones,
 * and its actions. An open schedule shows its history.
 */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  deleteIcon,
  fastForwardIcon,
  runIcon
} from '@jupyterlab/ui-components';
import * as React from 'react';
import { nameOf } from '../api/runs';
import {
  deleteSchedule,
  doScheduleVerb,
  listSchedules,
  scheduleHistory
} from '../api/rest';
import type { IClusters } from '../api/state';
import type { IOccurrence, IRun, IScheduleView } from '../api/types';
import { pauseIcon } from '../icons';
import { shown } from '../run/messages';
import { IconButton, Sentence } from '../run/parts';
import { duration } from '../run/quantities';
import { Section, useServerList } from './Section';

interface ISchedulesProps {
  readonly model: IClusters;
  readonly runs: ReadonlyArray<IRun>;
  readonly trans: TranslationBundle;
  /** The number of refreshes that the user has requested. */
  readonly refreshed: number;
  /** Open the row of a run. */
  onReveal(name: string): void;
}

/** Due times that an open schedule shows. */
const MOST_SHOWN = 30;
/** Longest time of a timer, in milliseconds. */
const LONGEST = 2 ** 31 - 1;
/** Milliseconds after a due time at which its launch can be seen. */
const LATER = 2000;

/** The schedules, or how to make the first one; nothing until the server has answered. */
export function Schedules(props: ISchedulesProps): React.JSX.Element | null {
  const { model, runs, trans, refreshed } = props;
  // these change a schedule: a user here, a run that begins or ends, a due time
  const [acted, act] = React.useReducer((count: number) => count + 1, 0);
  const launched = runs
    .filter(({ cluster }) => cluster.metadata.scheduled)
    .map(run => `${nameOf(run)} ${run.cluster.status.phase}`);
  const watched = [acted, ...launched].join();
  const list = useServerList({
    ask: React.useCallback(() => listSchedules(model.caller), [model]),
    watched,
    refreshed
  });
  const next = Math.min(
    ...(list?.schedules ?? []).flatMap(each => each.next.slice(0, 1))
  );
  React.useEffect(() => {
    if (!Number.isFinite(next)) {
      return;
    }
    const wait = Math.max(0, next * 1000 - Date.now()) + LATER;
    const timer = setTimeout(act, Math.min(wait, LONGEST));
    return () => clearTimeout(timer);
  }, [next]);
  if (!list) {
    return null;
  }
  return (
    <Section title={trans.__('Schedules')} count={list.schedules.length}>
      {list.schedules.length > 0 ? (
        <ul className="tfc-Schedules">
          {list.schedules.map(each => (
            <Row
              key={each.schedule.uid}
              {...props}
              view={each}
              watched={watched}
              onActed={act}
            />
          ))}
        </ul>
      ) : (
        <p className="tfc-Fold-note">
          {trans.__('A schedule launches a program again and again.')}{' '}
          <Sentence
            text={trans.__(
              'Make one: `tfcluster schedule create nightly --cron "0 2 * * *" train.py`'
            )}
          />
        </p>
      )}
    </Section>
  );
}

interface IRowProps extends ISchedulesProps {
  readonly view: IScheduleView;
  readonly watched: string;
  onActed(): void;
}

function Row(props: IRowProps): React.JSX.Element {
  const { model, trans, view, onActed } = props;
  const { name, rules, status } = view.schedule;
  const [isOpen, open] = React.useState(false);
  const attempt = async (action: () => Promise<unknown>): Promise<void> => {
    try {
      await action();
    } catch (error) {
      const text = `${name}: ${String((error as Error).message)}`;
      Notification.error(text, { autoClose: 10_000 });
    }
    onActed();
  };
  const verb = (what: 'pause' | 'resume' | 'run-now'): void =>
    void attempt(() => doScheduleVerb(model.caller, name, what));
  const remove = async (): Promise<void> => {
    const answer = await showDialog({
      title: trans.__('Delete the schedule %1?', name),
      body: trans.__(
        'Its history is deleted permanently. Its runs stay, and go on.'
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: trans.__('Delete') })
      ]
    });
    if (answer.button.accept) {
      open(false); // the history is deleted with the schedule
      await attempt(() => deleteSchedule(model.caller, name));
    }
  };
  const isPaused = Boolean(status.paused);
  return (
    <li className="tfc-Schedule" data-schedule={name}>
      <div className="tfc-Schedule-head">
        <button
          type="button"
          className="tfc-Link tfc-Schedule-name"
          aria-expanded={isOpen}
          title={trans.__('Show its due times')}
          onClick={() => open(!isOpen)}
        >
          <bdi>{name}</bdi>
        </button>
        <Dots occurrences={status.occurrences ?? []} trans={trans} />
        <span className="tfc-Schedule-actions">
          <IconButton
            icon={fastForwardIcon}
            label={trans.__('Run %1 now', name)}
            disabled={isPaused}
            onClick={() => verb('run-now')}
          />
          <IconButton
            icon={isPaused ? runIcon : pauseIcon}
            label={
              isPaused
                ? trans.__('Resume %1', name)
                : trans.__('Pause %1', name)
            }
            onClick={() => verb(isPaused ? 'resume' : 'pause')}
          />
          <IconButton
            icon={deleteIcon}
            label={trans.__('Delete %1', name)}
            onClick={() => void remove()}
          />
        </span>
      </div>
      <small
        className="tfc-Schedule-next"
        title={`${rules.cron} (${rules.timeZone ?? 'UTC'})`}
      >
        <bdi>{standing(view, trans)}</bdi>
      </small>
      {isOpen && <History {...props} />}
    </li>
  );
}

/** Say when a schedule is due next, or why it is not. */
function standing(
  { schedule: { rules, status }, next }: IScheduleView,
  trans: TranslationBundle
): string {
  if (status.problem) {
    return trans.__('does not work: %1', status.problem);
  }
  if (status.paused) {
    const why = told(status.paused.reason, trans);
    return why ? trans.__('paused: %1', why) : trans.__('paused');
  }
  return next.length > 0
    ? trans.__('next %1', moment(next[0], rules.timeZone ?? 'UTC'))
    : trans.__('never due');
}

/** Return a message in the reader's language, or a sentence as its author wrote it. */
function told(
  words: IOccurrence['reason'] | string | undefined,
  trans: TranslationBundle
): string {
  return typeof words === 'string'
    ? words
    : words
      ? shown({ message: words.code, messages: [words] }, trans)
      : '';
}

/** Format a due time in the schedule's zone, with the zone where it is not the reader's. */
function moment(at: number, timeZone: string): string {
  const date = new Date(at * 1000);
  const form = { dateStyle: 'medium', timeStyle: 'short' } as const;
  const here = date.toLocaleString(undefined, form);
  try {
    const there = date.toLocaleString(undefined, { ...form, timeZone });
    return there === here ? here : `${there} (${timeZone})`;
  } catch {
    return here; // a zone that this browser does not know
  }
}

const MARKS: Readonly<Record<string, string>> = {
  Succeeded: '●',
  Failed: '✗',
  Stopped: '■',
  Unknown: '?',
  Skipped: '○',
  Missed: '○'
};

function stateWord(
  state: IOccurrence['state'],
  trans: TranslationBundle
): string {
  switch (state) {
    case 'Waiting':
      return trans.__('Waiting');
    case 'Launching':
      return trans.__('Launching');
    case 'Running':
      return trans.__('Running');
    case 'Retrying':
      return trans.__('Retrying');
    case 'Succeeded':
      return trans.__('Succeeded');
    case 'Failed':
      return trans.__('Failed');
    case 'Stopped':
      return trans.__('Stopped');
    case 'Unknown':
      return trans.__('Unknown');
    case 'Skipped':
      return trans.__('Skipped');
    case 'Missed':
      return trans.__('Missed');
  }
}

function Mark({ state }: { state: IOccurrence['state'] }): React.JSX.Element {
  return (
    <span className="tfc-Schedule-mark" data-state={state} aria-hidden="true">
      {MARKS[state] ?? '…'}
    </span>
  );
}

/** The last due times as marks, the newest at the end. */
function Dots({
  occurrences,
  trans
}: {
  readonly occurrences: ReadonlyArray<IOccurrence>;
  readonly trans: TranslationBundle;
}): React.JSX.Element | null {
  if (occurrences.length === 0) {
    return null;
  }
  const words = occurrences.map(each => stateWord(each.state, trans));
  const label = trans.__('Last due times: %1', words.join(', '));
  return (
    <span
      className="tfc-Schedule-dots"
      role="img"
      aria-label={label}
      title={label}
    >
      {occurrences.map(each => (
        <Mark key={`${each.due} ${each.kind}`} state={each.state} />
      ))}
    </span>
  );
}

/** The results of the newest due times of a schedule. */
function History({
  model,
  runs,
  trans,
  view,
  watched,
  refreshed,
  onReveal
}: IRowProps): React.JSX.Element {
  const { name, rules } = view.schedule;
  const list = useServerList({
    ask: React.useCallback(
      () => scheduleHistory(model.caller, name),
      [model, name]
    ),
    watched,
    refreshed
  });
  const found = list?.occurrences.slice(0, MOST_SHOWN) ?? [];
  if (found.length === 0) {
    return (
      <p className="tfc-Schedule-none">
        {list
          ? trans.__('It was not due yet.')
          : trans.__('Asking the server…')}
      </p>
    );
  }
  const took = (each: IOccurrence): string => {
    const run = runs.find(one => nameOf(one) === each.run);
    const { startedAt, finishedAt } = run?.cluster.status ?? {};
    return startedAt != null && finishedAt != null
      ? trans.__('took %1', duration(finishedAt - startedAt))
      : '';
  };
  return (
    <ul className="tfc-Schedule-history">
      {found.map(each => (
        <li key={`${each.due} ${each.kind}`}>
          <Mark state={each.state} />{' '}
          <span>{moment(each.due, rules.timeZone ?? 'UTC')}</span>{' '}
          <span>{stateWord(each.state, trans)}</span>{' '}
          {each.run && (
            <button
              type="button"
              className="tfc-Link"
              title={trans.__('Show the run')}
              onClick={() => onReveal(each.run)}
            >
              <bdi>{each.run}</bdi>
            </button>
          )}{' '}
          <small>{took(each)}</small>
          {each.reason && (
            <small className="tfc-Schedule-why">
              <Sentence text={told(each.reason, trans)} />
            </small>
          )}
        </li>
      ))}
    </ul>
  );
}
