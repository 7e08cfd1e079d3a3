/** The filter of the sidebar: text, phase and mode. Pure functions. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { shown } from '../run/messages';
import { nameOf, tagsOf } from '../api/runs';
import type { Mode, Phase } from '../api/models';
import type { IRun } from '../api/types';
import { modeOf, programWords } from '../run/words';

/** The selected filter; an empty set accepts everything. */
export interface IFilter {
  readonly text: string;
  readonly phases: ReadonlySet<Phase>;
  readonly modes: ReadonlySet<Mode>;
}

export const NO_FILTER: IFilter = {
  text: '',
  phases: new Set(),
  modes: new Set()
};

const ORDER: ReadonlyArray<Phase> = [
  'Running',
  'Starting',
  'Queued',
  'Stopping',
  'Failed',
  'Succeeded',
  'Stopped'
];

export const isFiltering = (filter: IFilter): boolean =>
  filter.text.trim() !== '' || filter.phases.size > 0 || filter.modes.size > 0;

/** The prefix of a word that matches only tags. The prefix alone matches all runs with tags. */
const TAG = 'tag:';

/**
 * Return the matching runs: every word is in the names, program, sentence, note or tags, and
 * `tag:baseline` is one of the tags.
 */
export function filtered(
  runs: ReadonlyArray<IRun>,
  { text, phases, modes }: IFilter,
  trans: TranslationBundle
): ReadonlyArray<IRun> {
  const asked = text.toLowerCase().split(/\s+/).filter(Boolean);
  const words = asked.filter(word => !word.startsWith(TAG));
  const wanted = asked
    .filter(word => word.startsWith(TAG))
    .map(word => word.slice(TAG.length));
  return runs.filter(run => {
    const { phase } = run.cluster.status;
    const { note, displayName } = run.cluster.metadata;
    if (phases.size > 0 && !phases.has(phase)) {
      return false;
    }
    if (modes.size > 0 && !modes.has(modeOf(run))) {
      return false;
    }
    const tags = tagsOf(run).map(tag => tag.toLowerCase());
    if (!wanted.every(tag => (tag ? tags.includes(tag) : tags.length > 0))) {
      return false;
    }
    if (words.length === 0) {
      return true;
    }
    const message = shown(run.cluster.status, trans);
    const where = [
      ...[nameOf(run), displayName, programWords(run), phase, message, note],
      ...tags
    ]
      .join(' ')
      .toLowerCase();
    return words.every(word => where.includes(word));
  });
}

/** Return the number of runs in each phase that occurs, active phases first. */
export function phaseCounts(
  runs: ReadonlyArray<IRun>
): ReadonlyArray<readonly [Phase, number]> {
  const counts = new Map<Phase, number>();
  for (const { cluster } of runs) {
    const { phase } = cluster.status;
    counts.set(phase, (counts.get(phase) ?? 0) + 1);
  }
  return ORDER.flatMap(phase => {
    const count = counts.get(phase);
    return count ? [[phase, count] as const] : [];
  });
}

/** Return the set with `item` added, or, if the set contains it, removed. */
export function toggled<T>(items: ReadonlySet<T>, item: T): ReadonlySet<T> {
  const next = new Set(items);
  if (!next.delete(item)) {
    next.add(item);
  }
  return next;
}
