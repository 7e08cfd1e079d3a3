/**
 * CPU- and GPU-hours that a run has held, by what its record says. Pure; `tfcluster_magic/quota/ledger.py`
 * counts them.
 */
import type { Replicas, Status, Usage } from '../api/models';
import type { IRun } from '../api/types';

/** Below it nothing is said. */
const LEAST = 0.01;

/** Seconds that tasks of a type have held what they ask for, until `now` (in seconds). */
function seconds(usage: Usage, type: string, now: number): number {
  const days = Object.values(usage.days ?? {});
  const known = days.reduce((sum, day) => sum + (day[type] ?? 0), 0);
  return known + (usage.holding?.[type] ?? 0) * Math.max(0, now - usage.at);
}

/** CPU- and GPU-hours until `now` (in seconds), or until the run gave everything back. */
export function heldHours(run: IRun, now: number): readonly [number, number] {
  const { usage, releasedAt }: Status = run.cluster.status;
  if (!usage) {
    return [0, 0];
  }
  const until = releasedAt ?? now;
  let [cpu, gpu] = [0, 0];
  const replicas: Readonly<Record<string, Replicas | undefined>> = {
    ...run.cluster.spec.replicas
  };
  for (const [type, wanted] of Object.entries(replicas)) {
    const held = seconds(usage, type, until) / 3600;
    cpu += held * (usage.cores?.[type] ?? 0);
    gpu += held * (wanted?.resources?.gpu ?? 0);
  }
  return [cpu, gpu];
}

/** `4.50 CPU·h`, `2.00 GPU·h`: those that are worth a word. */
export function hourWords(run: IRun, now: number): string[] {
  const [cpu, gpu] = heldHours(run, now);
  return [[cpu, 'CPU·h'] as const, [gpu, 'GPU·h'] as const].flatMap(
    ([hours, unit]) => (hours < LEAST ? [] : [`${hours.toFixed(2)} ${unit}`])
  );
}
