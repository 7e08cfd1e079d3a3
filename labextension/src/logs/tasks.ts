/** The tasks of a run in display order. Pure functions. */
import { TASK_TYPES } from '../api/runs';
import type { IRun } from '../api/types';
import type { ITask } from './state';

/** Return the names of all tasks in a run's spec. */
export function tasksOf(run: IRun): string[] {
  const replicas = run.cluster.spec.replicas ?? {};
  return TASK_TYPES.flatMap(type =>
    Array.from(
      { length: replicas[type]?.count ?? (type === 'worker' ? 1 : 0) },
      (_, index) => `${type}-${index}`
    )
  );
}

/** Sort task names by type, then by number. */
export function inOrder(names: Iterable<string>): string[] {
  const key = (name: string): [number, number] => {
    const [type, index] = name.split('-');
    const rank = TASK_TYPES.findIndex(known => known === type);
    return [rank < 0 ? TASK_TYPES.length : rank, Number(index) || 0];
  };
  return [...names]
    .map(name => [name, key(name)] as const)
    .sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1])
    .map(([name]) => name);
}

/**
 * Return the tasks with the number of lines that would be shown; `known` adds tasks without output.
 */
export function counted(
  known: ReadonlyArray<string>,
  counts: ReadonlyMap<
    string,
    { readonly lines: number; readonly noise: number }
  >,
  chosen: ReadonlySet<string> | null,
  showsNoise: boolean
): { readonly tasks: ReadonlyArray<ITask>; readonly hidden: number } {
  let hidden = 0;
  const names = inOrder(new Set([...known, ...counts.keys()]));
  const tasks = names.map((name, place) => {
    const { lines, noise } = counts.get(name) ?? { lines: 0, noise: 0 };
    const isShown = chosen === null || chosen.has(name);
    hidden += isShown && !showsNoise ? noise : 0;
    return { name, place, isShown, lines: showsNoise ? lines : lines - noise };
  });
  return { tasks, hidden };
}
