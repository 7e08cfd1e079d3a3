/** One due time of a schedule as a mark, a word and a sentence. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { ICaller } from '../api/rest';
import { isActive, nameOf } from '../api/runs';
import type { IOccurrence, IRun, IScheduleView } from '../api/types';
import { shown } from '../run/messages';
import { moment } from '../run/quantities';
import { phaseWord } from '../run/words';

type State = IOccurrence['state'];

/** Marks differ in shape, not only in colour. */
const MARKS: Readonly<Partial<Record<State, string>>> = {
  Succeeded: '●',
  Failed: '✗',
  Stopped: '■',
  Unknown: '?',
  Skipped: '○',
  Missed: '○'
};

/** Return the word for the result of a due time. */
export function occurrenceWord(state: State, trans: TranslationBundle): string {
  switch (state) {
    case 'Waiting':
      return trans.__('Waiting');
    case 'Launching':
      return trans.__('Launching');
    case 'Retrying':
      return trans.__('Retrying');
    case 'Unknown':
      return trans.__('Unknown');
    case 'Skipped':
      return trans.__('Skipped');
    case 'Missed':
      return trans.__('Missed');
    default:
      return phaseWord(state, trans);
  }
}

/** The mark of a state; a word for screen readers is next to it. */
export function Mark({ state }: { readonly state: State }): React.JSX.Element {
  return (
    <span className="tfc-Schedule-mark" data-state={state} aria-hidden="true">
      {MARKS[state] ?? '…'}
    </span>
  );
}

/** Return a message in the reader's language, or a sentence as a person wrote it. */
export function told(
  words: IOccurrence['reason'] | string | undefined,
  trans: TranslationBundle
): string {
  return typeof words === 'string'
    ? words
    : words
      ? shown({ message: words.code, messages: [words] }, trans)
      : '';
}

/** Return whether a run has ended, but its schedule does not show this yet. */
export const isBehind = (
  occurrences: ReadonlyArray<IOccurrence>,
  runs: ReadonlyArray<IRun>
): boolean =>
  occurrences.some(
    ({ state, run }) =>
      (state === 'Launching' || state === 'Running') &&
      runs.some(each => nameOf(each) === run && !isActive(each))
  );

/** Say when a schedule is due next, or why it is not. */
export function standing(
  { schedule: { rules, status }, next }: IScheduleView,
  { trans, language }: ICaller
): string {
  if (status.problem) {
    return trans.__('does not work: %1', status.problem);
  }
  if (status.paused) {
    const why = told(status.paused.reason, trans);
    const by = status.paused.by;
    if (by) {
      return why
        ? trans.__('paused by %1: %2', by, why)
        : trans.__('paused by %1', by);
    }
    return why ? trans.__('paused: %1', why) : trans.__('paused');
  }
  return next.length > 0
    ? trans.__('next %1', moment(next[0], rules.timeZone ?? 'UTC', language))
    : trans.__('never due');
}
