/** The geometry of a graph, and the labels of its axes. Pure functions. */
import type { IGraph, IRunGraphs, Values } from '../api/types';
import { amount, cores, sizeOf, sizeUnit } from '../run/quantities';

export const WIDTH = 300;
export const HEIGHT = 128;
/** The part of the box in which values are drawn. */
export const PLOT = { left: 34, right: 292, top: 14, bottom: 98 } as const;

/** The minimum of the highest value of the vertical axis, so that noise stays small. */
const LEAST = { cpu: 0, memory: 2 ** 20, network: 2 ** 10, steps: 0 } as const;

/** Return the highest value of the vertical axis: a round number that all values fit below. */
export function topOf({ high, requested, figure }: IGraph): number {
  const most = Math.max(
    requested ?? 0,
    ...high.map(value => value ?? 0),
    LEAST[figure]
  );
  const base =
    figure === 'memory' || figure === 'network' ? sizeUnit(most)[1] : 1;
  return rounded(most / base) * base || 1;
}

/**
 * Return the values that the vertical axis names; only zero if no value of the graph is above zero.
 */
export function heightsOf(graph: IGraph): ReadonlyArray<number> {
  const { high, requested } = graph;
  if (!requested && !high.some(value => value)) {
    return [0];
  }
  const top = topOf(graph);
  return [0, top / 2, top];
}

/**
 * Return the lowest number at or above `value` that is 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of
 * ten.
 */
export function rounded(value: number): number {
  if (value <= 0) {
    return 0;
  }
  const power = 10 ** Math.floor(Math.log10(value));
  const digits = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
  const found = digits.find(digit => digit * power >= value * 0.9999) ?? 10;
  return Number((found * power).toPrecision(3));
}

/** Return a value of a figure, in the unit that suits values up to `most`. */
export function figureWords(
  figure: IGraph['figure'],
  value: number,
  most = value
): string {
  switch (figure) {
    case 'cpu':
      return cores(value);
    case 'steps':
      return value < 10 ? String(Number(value.toPrecision(2))) : amount(value);
    case 'memory':
      return `${sizeOf(value, most)} ${sizeUnit(most)[0]}`;
    case 'network':
      return `${sizeOf(value, most)} ${sizeUnit(most)[0]}/s`;
  }
}

/** Return the horizontal place of a time. */
export const xOf = (at: number, began: number, end: number): number =>
  PLOT.left + ((PLOT.right - PLOT.left) * (at - began)) / (end - began || 1);

/** Return the vertical place of a value. */
export const yOf = (value: number, top: number): number =>
  PLOT.bottom - ((PLOT.bottom - PLOT.top) * Math.min(value, top)) / top;

const place = (x: number, y: number): string =>
  `${x.toFixed(1)} ${y.toFixed(1)}`;

/** Return the path of a line; where no value is known it has a gap. */
export function linePath(
  values: Values,
  xs: ReadonlyArray<number>,
  top: number
): string {
  let pen = 'M';
  return values
    .map((value, index) => {
      if (value === null) {
        pen = 'M';
        return '';
      }
      const drawn = `${pen}${place(xs[index], yOf(value, top))}`;
      // a single value between gaps is a dot, by the round end of a line
      const isAlone = pen === 'M' && (values[index + 1] ?? null) === null;
      pen = 'L';
      return isAlone ? `${drawn}h0.1` : drawn;
    })
    .join('');
}

/** Return the area between the lowest and the highest values; a gap divides it. */
export function bandPath(
  { low, high }: IGraph,
  xs: ReadonlyArray<number>,
  top: number
): string {
  const parts: string[] = [];
  let above: string[] = [];
  let below: string[] = [];
  const close = (): void => {
    if (above.length > 1) {
      parts.push(`M${above.join('L')}L${below.reverse().join('L')}Z`);
    }
    above = [];
    below = [];
  };
  high.forEach((most, index) => {
    const least = low[index];
    if (most === null || least === null) {
      close();
      return;
    }
    above.push(place(xs[index], yOf(most, top)));
    below.push(place(xs[index], yOf(least, top)));
  });
  close();
  return parts.join('');
}

const TICKS: ReadonlyArray<number> = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800,
  86400, 172800, 604800
];
const MOST_TICKS = 4;

/** Return the seconds after the beginning at which the time axis has a mark. */
export function ticks(length: number): number[] {
  const step =
    TICKS.find(each => length / each <= MOST_TICKS) ?? length / MOST_TICKS;
  const found: number[] = [];
  for (let at = 0; at <= length + 0.001; at += step) {
    found.push(at);
  }
  return found;
}

/** Format seconds since the beginning: `0`, `30s`, `5m`, `1h30m`, `2d`. */
export function since(seconds: number): string {
  const whole = Math.round(seconds);
  const [days, hours] = [Math.floor(whole / 86400), Math.floor(whole / 3600)];
  const minutes = Math.floor(whole / 60) % 60;
  if (days && whole % 86400 === 0) {
    return `${days}d`;
  }
  if (hours) {
    return `${hours}h${minutes ? `${minutes}m` : ''}`;
  }
  if (minutes) {
    return `${minutes}m${whole % 60 ? `${whole % 60}s` : ''}`;
  }
  return whole ? `${whole}s` : '0';
}

/**
 * Return the step that was reached at a time; null before the first step, or if there are no steps.
 */
export function stepAt(steps: IRunGraphs['steps'], at: number): number | null {
  let found: number | null = null;
  for (const mark of steps) {
    if (mark.at > at + 0.05) {
      break;
    }
    found = mark.step;
  }
  return found;
}

/** Format a step briefly, for the axis: `950`, `12k`, `1.5M`. */
export function shortStep(step: number): string {
  for (const [unit, size] of [
    ['M', 1e6],
    ['k', 1e3]
  ] as const) {
    if (step >= 10 * size || (step >= size && step % (size / 10) === 0)) {
      return `${amount(step / size)}${unit}`;
    }
  }
  return String(step);
}

/** One mark on the time axis, and what happened then. */
export interface IMark {
  readonly at: number;
  readonly event: IRunGraphs['events'][number] | null;
  /** The tasks that were started again. */
  readonly restarted: ReadonlyArray<string>;
}

/**
 * Return the marks by time: events, and restarts. All restarts at nearly the same time share one
 * mark, with the event that led to them.
 */
export function marks({ events, restarts, began, at }: IRunGraphs): IMark[] {
  const near = Math.max(5, ((at[at.length - 1] ?? began) - began) / 50);
  const found: { at: number; event: IMark['event']; restarted: string[] }[] =
    events
      .filter(({ messages }) => !QUIET.has(messages?.[0]?.code ?? ''))
      .map(event => ({ at: event.at, event, restarted: [] }));
  const groups: { at: number; tasks: string[] }[] = [];
  for (const [when, task] of restarts) {
    const last = groups[groups.length - 1];
    if (last && when - last.at <= near) {
      last.tasks.push(task);
    } else {
      groups.push({ at: when, tasks: [task] });
    }
  }
  for (const { at: when, tasks } of groups) {
    const restarted = [...new Set(tasks)].sort((one, other) =>
      one.localeCompare(other, 'en', { numeric: true })
    );
    const cause = found.find(
      ({ at: then }) => when >= then && when - then <= near
    );
    if (cause) {
      cause.restarted = restarted;
    } else {
      found.push({ at: when, event: null, restarted });
    }
  }
  return found.sort((one, other) => one.at - other.at);
}

/** Marks with a smaller distance than this share one label. */
const NUMBER_WIDTH = 10;

/**
 * Return the labels of marks at these places, which must be in ascending order. A label is the
 * number of a mark, or the first and the last number of marks that share it.
 */
export function markLabels(
  places: ReadonlyArray<number>
): ReadonlyArray<{ readonly label: string; readonly place: number }> {
  const groups: { first: number; last: number; place: number }[] = [];
  places.forEach((place, index) => {
    const group = groups[groups.length - 1];
    if (group && place - group.place < NUMBER_WIDTH) {
      group.last = index + 1;
    } else {
      groups.push({ first: index + 1, last: index + 1, place });
    }
  });
  return groups.map(({ first, last, place }) => ({
    label: first === last ? `${first}` : `${first}–${last}`,
    place
  }));
}

/** Events of a launch without problems, which get no mark. */
const QUIET: ReadonlySet<string> = new Set([
  'AwaitedDone',
  'Starting',
  'AllTasksUp',
  'Completed'
]);
