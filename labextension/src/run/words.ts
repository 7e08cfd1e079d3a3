/** Texts about a run, as on the command line (`tfcluster status`, `list`). Pure functions. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Phase, Reclaimed, Replicas, Status, Usage } from '../api/models';
import { TASK_TYPES } from '../api/runs';
import type { IProgress, IRun, ITypeUsage } from '../api/types';
import { joinArguments } from './commandLine';
import {
  bytes,
  clock,
  cores,
  duration,
  shortDuration,
  significant,
  sizePair,
  sizeWords
} from './quantities';

/** Return the word for a phase. */
export function phaseWord(phase: Phase, trans: TranslationBundle): string {
  switch (phase) {
    case 'Queued':
      return trans.__('Queued');
    case 'Starting':
      return trans.__('Starting');
    case 'Running':
      return trans.__('Running');
    case 'Stopping':
      return trans.__('Stopping');
    case 'Succeeded':
      return trans.__('Succeeded');
    case 'Failed':
      return trans.__('Failed');
    case 'Stopped':
      return trans.__('Stopped');
  }
}

/** Return whether a task has failed, but the cause of the run's failure is not yet determined. */
export const isFailing = ({ phase, reason }: Status): boolean =>
  reason === 'Investigating' && (phase === 'Starting' || phase === 'Running');

/** Return the word for a run's state: its phase, or that it is failing. */
export const stateWord = (status: Status, trans: TranslationBundle): string =>
  isFailing(status) ? trans.__('Failing') : phaseWord(status.phase, trans);

/** Return `2 of 3 running`; for an ended run `3 tasks finished`, or its number of tasks. `task_words` of `output/report.py` says the same. */
export function taskWords(run: IRun, trans: TranslationBundle): string {
  const { ready, total } = run.ready;
  const { phase } = run.cluster.status;
  if (phase === 'Succeeded') {
    const left = Object.values(run.cluster.status.counts ?? {}).reduce(
      (sum, { running }) => sum + (running ?? 0),
      0
    );
    const finished = trans._n(
      '%1 task finished',
      '%1 tasks finished',
      total - left
    );
    return left ? trans.__('%1, %2 running', finished, left) : finished;
  }
  return phase === 'Failed' || phase === 'Stopped'
    ? trans._n('%1 task', '%1 tasks', total)
    : trans.__('%1 of %2 running', ready, total);
}

/** Return the number of tasks of each type. */
export function replicaCounts(run: IRun): ReadonlyArray<[string, number]> {
  const replicas = run.cluster.spec.replicas ?? {};
  return TASK_TYPES.flatMap((type): [string, number][] => {
    const wanted: Replicas | undefined = replicas[type];
    return wanted?.count ? [[type, wanted.count]] : [];
  });
}

/**
 * Return the mode in the words of the launch form; `mode_words` of `output/report.py` does the
 * same.
 */
export const modeWords = (run: IRun, trans: TranslationBundle): string =>
  modeOf(run) === 'in-graph'
    ? trans.__('used from a notebook')
    : trans.__('program on every worker');

/** `program on every worker · 2 workers, 1 ps`. */
export function shape(run: IRun, trans: TranslationBundle): string {
  const counts = replicaCounts(run).map(
    ([type, count]) =>
      `${count} ${type}${count > 1 && type !== 'ps' ? 's' : ''}`
  );
  return `${modeWords(run, trans)} · ${counts.join(', ')}`;
}

export const modeOf = (run: IRun): 'in-graph' | 'between-graph' =>
  run.cluster.spec.mode ?? 'between-graph';

/** Number of metrics in the line besides the loss. */
const MOST_METRICS = 3;

/**
 * Return `step 400/800 · 187 steps/s · loss 0.12 · 2 s left`; for an ended run, without speed and
 * remaining time. If a program succeeded but its last reported step is lower than the total, the
 * text says `last reported step`.
 */
export function describeProgress(
  progress: IProgress,
  active: boolean,
  trans: TranslationBundle,
  succeeded = false
): string {
  const { step, total, stepsPerSecond, loss, etaSeconds } = progress;
  const done = total === null ? `${step}` : `${step}/${total}`;
  const isEpoch = progress.unit === 'epoch';
  const isShort = succeeded && total !== null && step < total;
  const parts = [
    isEpoch
      ? isShort
        ? trans.__('last reported epoch %1', done)
        : trans.__('epoch %1', done)
      : isShort
        ? trans.__('last reported step %1', done)
        : trans.__('step %1', done)
  ];
  if (active && stepsPerSecond) {
    parts.push(speed(stepsPerSecond, isEpoch, trans));
  }
  if (loss !== null) {
    parts.push(trans.__('loss %1', significant(loss)));
  } else if (progress.history.length > 0) {
    parts.push(trans.__('loss is not a number'));
  }
  for (const [name, value] of Object.entries(progress.metrics ?? {})
    .filter(([, value]) => value !== null)
    .slice(0, MOST_METRICS)) {
    parts.push(`${name} ${significant(value as number)}`);
  }
  if (active && etaSeconds) {
    parts.push(trans.__('%1 left', shortDuration(etaSeconds)));
  }
  return parts.join(' · ');
}

function speed(
  rate: number,
  isEpoch: boolean,
  trans: TranslationBundle
): string {
  if (rate < 1) {
    const each = shortDuration(1 / rate);
    return isEpoch ? trans.__('%1/epoch', each) : trans.__('%1/step', each);
  }
  const number = rate >= 10 ? rate.toFixed(0) : rate.toFixed(1);
  return isEpoch
    ? trans.__('%1 epochs/s', number)
    : trans.__('%1 steps/s', number);
}

/** `reclaimed at 22:41: ps-0 (1 CPU, 512Mi)`. */
export function reclaimedWords(
  what: Reclaimed,
  trans: TranslationBundle
): string {
  const freed = [
    ...(what.cpu ? [`${what.cpu} CPU`] : []),
    ...(what.memory ? [bytes(what.memory)] : []),
    ...(what.gpu ? [`${what.gpu} GPU`] : [])
  ];
  const amount = freed.length ? ` (${freed.join(', ')})` : '';
  const told = trans.__(
    'reclaimed at %1: %2',
    clock(what.at, Date.now(), true),
    shorten(what.tasks, trans)
  );
  return `${told}${amount}`;
}

/** `worker-0, worker-1 and 7 more`. */
export function shorten(
  names: ReadonlyArray<string>,
  trans: TranslationBundle,
  most = 5
): string {
  return names.length <= most
    ? names.join(', ')
    : trans.__(
        '%1 and %2 more',
        names.slice(0, most).join(', '),
        names.length - most
      );
}

/** Return the program as named at the launch, with its arguments. */
export function programWords(run: IRun): string {
  const { program } = run.cluster.spec;
  return program
    ? `${program.source ?? ''} ${joinArguments(program.arguments ?? [])}`.trim()
    : '';
}

/** Return the program without its folder. */
export function sourceWord(run: IRun): string {
  const whole = run.cluster.spec.program?.source ?? '';
  return whole.replace(/\/$/, '').split('/').pop() || whole;
}

/** Return `launched 22:41 · took 5s`. For an outdated state the duration is unknown. */
export function timeWords(
  run: IRun,
  now: number,
  trans: TranslationBundle,
  isOld = false
): string {
  const { startedAt, finishedAt } = run.cluster.status;
  const parts = [
    trans.__('launched %1', clock(run.cluster.metadata.createdAt, now))
  ];
  if (startedAt != null && (finishedAt != null || !isOld)) {
    parts.push(
      finishedAt != null
        ? trans.__('took %1', duration(finishedAt - startedAt))
        : trans.__(
            'took %1 so far',
            duration(Math.floor(now / 1000 - startedAt))
          )
    );
  }
  const held = isOld ? [] : hourWords(run, now / 1000);
  parts.push(...held.map(hours => trans.__('reserved %1', hours)));
  return parts.join(' · ');
}

/** Minimum hours that are shown. */
const LEAST = 0.01;

/**
 * Return the seconds for which tasks of a type have reserved what they requested, until `now` (in
 * seconds).
 */
function seconds(usage: Usage, type: string, now: number): number {
  const days = Object.values(usage.days ?? {});
  const known = days.reduce((sum, day) => sum + (day[type] ?? 0), 0);
  return known + (usage.holding?.[type] ?? 0) * Math.max(0, now - usage.at);
}

/** Return CPU- and GPU-hours until `now` (in seconds), or until the run released everything. */
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

/** Return `4.50 CPU·h`, `2.00 GPU·h`; tiny amounts are left out. */
export function hourWords(run: IRun, now: number): string[] {
  const [cpu, gpu] = heldHours(run, now);
  return [[cpu, 'CPU·h'] as const, [gpu, 'GPU·h'] as const].flatMap(
    ([hours, unit]) => (hours < LEAST ? [] : [`${hours.toFixed(2)} ${unit}`])
  );
}

/** Return `asked for 4 CPU, used 1.3 · peak of memory 2.1 of 8 GiB (worker-0)`. */
export function usedWords(usage: ITypeUsage, trans: TranslationBundle): string {
  const { cpu, cpuRequested, memoryPeak, memoryRequested } = usage;
  return [
    cpuRequested === null
      ? trans.__('used %1 CPU', cores(cpu))
      : trans.__('asked for %1 CPU, used %2', cores(cpuRequested), cores(cpu)),
    memoryRequested === null
      ? trans.__(
          'peak of memory %1 (%2)',
          sizeWords(memoryPeak),
          usage.peakTask
        )
      : trans.__(
          'peak of memory %1 of %2 (%3)',
          ...sizePair(memoryPeak, memoryRequested),
          usage.peakTask
        )
  ].join(' · ');
}
