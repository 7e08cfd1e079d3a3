/** The identity of runs, and the selection and order of a list. Pure functions. */
import type { Phase } from './models';
import type { IRun } from './types';

/** The task types in display order. */
export const TASK_TYPES = ['chief', 'worker', 'ps', 'evaluator'] as const;

const ENDED: ReadonlySet<Phase> = new Set<Phase>([
  'Succeeded',
  'Failed',
  'Stopped'
]);
/** Return whether a run can still change its phase. */
export const isActive = (run: IRun): boolean =>
  !ENDED.has(run.cluster.status.phase);

/** Return whether a run can be stopped: it has not ended and is not ending. */
export const isStoppable = (run: IRun): boolean =>
  isActive(run) && run.cluster.status.phase !== 'Stopping';

export const nameOf = (run: IRun): string => run.cluster.metadata.name;

/** Return a run's display name, or its name without one. */
export const displayNameOf = (run: IRun): string =>
  run.cluster.metadata.displayName || nameOf(run);

export const tagsOf = (run: IRun): ReadonlyArray<string> =>
  run.cluster.metadata.tags ?? [];

export const uidOf = (run: IRun): string => run.cluster.metadata.uid;

/**
 * Return whether `run` and `other` are states of one run; a different run may have the same name.
 */
export const isSame = (run: IRun, other: IRun | undefined): boolean =>
  other !== undefined && uidOf(run) === uidOf(other);

/**
 * Return the runs of a list: active ones first, each group newest first. Without `all`, only the
 * newest run of each name, and the runs that have not ended.
 */
export function listed(
  runs: ReadonlyArray<IRun>,
  all: boolean
): ReadonlyArray<IRun> {
  const newest = new Map<string, number>();
  for (const { cluster } of runs) {
    const { cluster: name, run } = cluster.metadata;
    newest.set(name, Math.max(run, newest.get(name) ?? 0));
  }
  return runs
    .filter(run => {
      const { cluster: name, run: number } = run.cluster.metadata;
      return all || isActive(run) || newest.get(name) === number;
    })
    .sort(
      (a, b) =>
        Number(isActive(b)) - Number(isActive(a)) ||
        b.cluster.metadata.createdAt - a.cluster.metadata.createdAt ||
        b.cluster.metadata.run - a.cluster.metadata.run
    );
}
