/**
 * The CPU and memory of a task as two small lines with a figure, in its row.
 *
 * Only rows that the user sees are loaded: an IntersectionObserver says which, so that neither a
 * folded row nor a hidden panel costs a request.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { uidOf } from '../api/runs';
import type { IClusters } from '../api/state';
import { type ITaskLines, type TaskLines, TaskUsage } from '../api/taskUsage';
import type { IRun } from '../api/types';
import { cores, sizePair, sizeWords } from './quantities';

/** Registers the element of a task's row; null when the row is removed. */
export type Observe = (task: string, row: Element | null) => void;

/** Return the lines of a run's tasks, and the function by which rows register. */
export function useTaskLines(
  clusters: IClusters,
  run: IRun
): { readonly lines: TaskLines; readonly observe: Observe } {
  const uid = uidOf(run);
  const first = React.useRef(run);
  first.current = run;
  const [lines, setLines] = React.useState<TaskLines>(NONE);
  const rows = React.useRef(new Map<string, Element>());
  const observer = React.useRef<IntersectionObserver | null>(null);
  const observe = React.useCallback<Observe>((task, row) => {
    const before = rows.current.get(task);
    if (before) {
      observer.current?.unobserve(before);
      rows.current.delete(task);
    }
    if (row) {
      rows.current.set(task, row);
      observer.current?.observe(row);
    }
  }, []);
  React.useEffect(() => {
    const usage = new TaskUsage(clusters, first.current);
    usage.changed.connect((_, now) => setLines(now));
    const seen = new IntersectionObserver(entries => {
      for (const { target, isIntersecting } of entries) {
        usage.show((target as HTMLElement).dataset.task ?? '', isIntersecting);
      }
    });
    observer.current = seen;
    rows.current.forEach(row => seen.observe(row));
    return () => {
      observer.current = null;
      seen.disconnect();
      usage.dispose();
      setLines(NONE);
    };
  }, [clusters, uid]);
  return { lines, observe };
}

const NONE: TaskLines = new Map<string, ITaskLines>();

/** CPU and memory; nothing for a task that was not sampled. */
export const Uses = React.memo(
  ({
    lines: { usage, ended, cpu, memory: sampled },
    trans
  }: {
    readonly lines: ITaskLines;
    readonly trans: TranslationBundle;
  }): React.JSX.Element => {
    const now = ended ? usage.average : usage.current;
    // the processes may have ended before the last sample; then the memory is 0
    const memory = sampled.filter(size => size > 0);
    const size = ended
      ? usage.memoryPeak || undefined // 0 if the task ended before its first measurement
      : now
        ? now.memory || memory[memory.length - 1]
        : undefined;
    const part = (used: string, asked: string | null): string =>
      asked === null ? used : trans.__('%1 of %2', used, asked);
    const { cpuRequested, memoryRequested } = usage;
    return (
      <>
        <Use
          label={trans.__('CPU')}
          values={cpu}
          requested={cpuRequested}
          figure={trans.__('%1 CPU', now ? cores(now.cpu) : '–')}
          words={
            now
              ? part(
                  cores(now.cpu),
                  cpuRequested === null ? null : cores(cpuRequested)
                )
              : trans.__('not known now')
          }
          about={ended ? trans.__('on average') : trans.__('now')}
          range={[cores(Math.min(...cpu)), cores(Math.max(...cpu))]}
          trans={trans}
        />
        <Use
          label={trans.__('Memory')}
          values={memory}
          requested={memoryRequested}
          figure={size === undefined ? '–' : sizeWords(size)}
          words={
            size === undefined
              ? trans.__('not known now')
              : memoryRequested === null
                ? sizeWords(size)
                : trans.__('%1 of %2', ...sizePair(size, memoryRequested))
          }
          about={ended ? trans.__('at its peak') : trans.__('now')}
          range={[
            sizeWords(Math.min(...memory, usage.memoryPeak)),
            sizeWords(Math.max(...memory, 0))
          ]}
          trans={trans}
        />
      </>
    );
  }
);

interface IUseProps {
  readonly label: string;
  readonly values: ReadonlyArray<number>;
  readonly requested: number | null;
  readonly figure: string;
  readonly words: string;
  readonly about: string;
  readonly range: readonly [string, string];
  readonly trans: TranslationBundle;
}

function Use({
  label,
  values,
  requested,
  figure,
  words,
  about,
  range: [low, high],
  trans
}: IUseProps): React.JSX.Element {
  const title = trans.__(
    '%1: %2 %3; %4 to %5 over time',
    label,
    words,
    about,
    low,
    high
  );
  return (
    <span className="tfc-Use" role="img" aria-label={title} title={title}>
      <svg
        className="tfc-Sparkline"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        width={WIDTH}
        height={HEIGHT}
        aria-hidden="true"
      >
        <path d={line(values, requested ?? 0)} />
      </svg>
      <span className="tfc-Use-figure" aria-hidden="true">
        {figure}
      </span>
    </span>
  );
}

const WIDTH = 40;
const HEIGHT = 14;
const MARGIN = 1;

/**
 * Return the SVG path of a line. The bottom of its box is zero; the top is the requested amount, or
 * the highest value if that is greater. One value is drawn as a level line; without a request, a
 * level line is at half height, away from the text above.
 */
export function line(values: ReadonlyArray<number>, requested: number): string {
  const known = values.length === 1 ? [values[0], values[0]] : values;
  const high = Math.max(0, ...known);
  const isLevel = requested === 0 && known.every(value => value === high);
  const most = Math.max(requested, isLevel ? 2 * high : high) || 1;
  const width = (WIDTH - 2 * MARGIN) / Math.max(1, known.length - 1);
  const height = HEIGHT - 2 * MARGIN;
  return known
    .map((value, place) => {
      const x = MARGIN + place * width;
      const y = MARGIN + height * (1 - Math.max(0, value) / most);
      return `${place ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
    })
    .join('');
}
