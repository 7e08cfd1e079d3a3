/**
 * The schedules below the list of runs: when each is due next, how its last due times ended, and
 * its actions. The name of a schedule opens its calendar.
 */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  deleteIcon,
  editIcon,
  fastForwardIcon,
  runIcon
} from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { nameOf } from '../api/runs';
import { deleteSchedule, doScheduleVerb, listSchedules } from '../api/rest';
import type { IClusters } from '../api/state';
import type { IOccurrence, IRun, IScheduleView } from '../api/types';
import { pauseIcon } from '../icons';
import { useBehind, useServerList } from '../run/hooks';
import { IconButton } from '../run/parts';
import {
  isBehind,
  Mark,
  occurrenceWord,
  standing
} from '../schedules/occurrences';
import { CommandIDs } from '../tokens';
import { Section } from './Section';

interface ISchedulesProps {
  readonly model: IClusters;
  readonly runs: ReadonlyArray<IRun>;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  /** The number of refreshes that the user has requested. */
  readonly refreshed: number;
}

/** Longest time that a timer of the browser allows, in milliseconds. */
const LONGEST = 2 ** 31 - 1;
/** Milliseconds from a due time until the list of schedules is expected to show its launch. */
const LATER = 2000;

/** The schedules, or how to make the first one; nothing until the server has answered. */
export function Schedules(props: ISchedulesProps): React.JSX.Element | null {
  const { model, runs, commands, trans, refreshed } = props;
  // load again when a schedule may have changed: by an action here, by a run that begins or ends,
  // or at a due time
  const [acted, act] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    model.scheduleSaved.connect(act);
    return () => void model.scheduleSaved.disconnect(act);
  }, [model]);
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
  const all = (list?.schedules ?? []).flatMap(
    ({ schedule }) => schedule.status.occurrences ?? []
  );
  useBehind(isBehind(all, runs), list, act);
  if (!list) {
    return null;
  }
  return (
    <Section title={trans.__('Schedules')} count={list.schedules.length}>
      {list.schedules.length > 0 ? (
        <ul className="tfc-Schedules">
          {list.schedules.map(each => (
            <Row key={each.schedule.uid} {...props} view={each} onActed={act} />
          ))}
        </ul>
      ) : (
        <p className="tfc-Fold-note">
          {trans.__('A schedule launches a program again and again.')}{' '}
          <button
            type="button"
            className="tfc-Link"
            onClick={() =>
              void commands.execute(CommandIDs.launch, { repeat: true })
            }
          >
            {trans.__('New schedule…')}
          </button>
        </p>
      )}
    </Section>
  );
}

interface IRowProps extends ISchedulesProps {
  readonly view: IScheduleView;
  onActed(): void;
}

function Row(props: IRowProps): React.JSX.Element {
  const { model, commands, trans, view, onActed } = props;
  const { name, rules, status } = view.schedule;
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
        'Its history is deleted permanently. Its runs are kept; active ones continue.'
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: trans.__('Delete') })
      ]
    });
    if (answer.button.accept) {
      await attempt(() => deleteSchedule(model.caller, name));
    }
  };
  const isPaused = Boolean(status.paused);
  const isLocked = Boolean(status.paused?.locked);
  return (
    <li className="tfc-Schedule" data-schedule={name}>
      <div className="tfc-Schedule-head">
        <button
          type="button"
          className="tfc-Link tfc-Schedule-name"
          title={trans.__('Show its due times as a calendar')}
          onClick={() =>
            void commands.execute(CommandIDs.scheduleHistory, { name })
          }
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
              isLocked
                ? trans.__('Only an administrator can resume %1', name)
                : isPaused
                  ? trans.__('Resume %1', name)
                  : trans.__('Pause %1', name)
            }
            disabled={isLocked}
            onClick={() => verb(isPaused ? 'resume' : 'pause')}
          />
          <IconButton
            icon={editIcon}
            label={trans.__('Edit %1…', name)}
            onClick={() =>
              void commands.execute(CommandIDs.launch, { schedule: name })
            }
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
        <bdi>{standing(view, model.caller)}</bdi>
      </small>
    </li>
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
  const words = occurrences.map(each => occurrenceWord(each.state, trans));
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
