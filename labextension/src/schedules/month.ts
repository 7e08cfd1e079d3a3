/** The days of a month, and the due times of each, in the time zone of a schedule. Pure functions. */
import type { IOccurrence } from '../api/types';

/** A month; `month` is 0 for January. */
export interface IMonth {
  readonly year: number;
  readonly month: number;
}

const HOURS = 3600;
/** Seconds by which local time may differ from UTC, and a little more. */
const MARGIN = 15 * HOURS;

/** Return the day of a time in a zone, `2026-11-27`; UTC for a zone that the browser lacks. */
export function dayOf(at: number, timeZone: string): string {
  const form = { year: 'numeric', month: '2-digit', day: '2-digit' } as const;
  const date = new Date(at * 1000);
  try {
    return new Intl.DateTimeFormat('en-CA', { ...form, timeZone }).format(date);
  } catch {
    return date.toISOString().slice(0, 10);
  }
}

/** Return the time of day in a zone, `02:00`. */
export function timeOf(at: number, timeZone: string): string {
  const form = { hour: '2-digit', minute: '2-digit', hour12: false } as const;
  const date = new Date(at * 1000);
  try {
    return date.toLocaleTimeString('en-GB', { ...form, timeZone });
  } catch {
    return date.toISOString().slice(11, 16);
  }
}

export function monthOf(day: string): IMonth {
  const [year, month] = day.split('-').map(Number);
  return { year, month: month - 1 };
}

export function moved({ year, month }: IMonth, by: number): IMonth {
  const date = new Date(Date.UTC(year, month + by, 1));
  return { year: date.getUTCFullYear(), month: date.getUTCMonth() };
}

/** Return the day that is `by` days after `day`. */
export function dayAfter(day: string, by: number): string {
  const date = new Date(`${day}T00:00:00Z`);
  date.setUTCDate(date.getUTCDate() + by);
  return date.toISOString().slice(0, 10);
}

/** Return the same day `by` months later; in a shorter month, its last day. */
export function sameDay(day: string, by: number): string {
  const { year, month } = moved(monthOf(day), by);
  const last = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  const date = Math.min(Number(day.slice(8)), last);
  return new Date(Date.UTC(year, month, date)).toISOString().slice(0, 10);
}

/** Return a span that contains the whole month in every time zone, in seconds since 1970. */
export const spanOf = ({ year, month }: IMonth): readonly [number, number] => [
  Date.UTC(year, month, 1) / 1000 - MARGIN,
  Date.UTC(year, month + 1, 1) / 1000 + MARGIN
];

/**
 * Return the weeks of a month as lists of days; null stands for a day outside the month. Each week
 * begins on the weekday `first` (1 for Monday).
 */
export function weeksOf(
  { year, month }: IMonth,
  first: number
): ReadonlyArray<ReadonlyArray<string | null>> {
  const start = new Date(Date.UTC(year, month, 1));
  const lead = (start.getUTCDay() - first + 7) % 7;
  const count = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  const weeks = Math.ceil((lead + count) / 7);
  return Array.from({ length: weeks }, (_, week) =>
    Array.from({ length: 7 }, (_, column) => {
      const day = week * 7 + column - lead + 1;
      return day < 1 || day > count
        ? null
        : new Date(Date.UTC(year, month, day)).toISOString().slice(0, 10);
    })
  );
}

/** Return the due times by day; the due times of a day keep their order. */
export function byDay(
  occurrences: ReadonlyArray<IOccurrence>,
  timeZone: string
): ReadonlyMap<string, ReadonlyArray<IOccurrence>> {
  const days = new Map<string, IOccurrence[]>();
  for (const each of occurrences) {
    const day = dayOf(each.due, timeZone);
    days.set(day, [...(days.get(day) ?? []), each]);
  }
  return days;
}

const ORDER: ReadonlyArray<IOccurrence['state']> = [
  'Failed',
  'Succeeded',
  'Stopped',
  'Unknown',
  'Skipped',
  'Missed',
  'Running',
  'Retrying',
  'Launching',
  'Waiting'
];

/** Return how many due times are in each state, failures first. */
export const countsOf = (
  occurrences: ReadonlyArray<IOccurrence>
): ReadonlyArray<readonly [IOccurrence['state'], number]> =>
  ORDER.map(
    state =>
      [state, occurrences.filter(each => each.state === state).length] as const
  ).filter(([, count]) => count > 0);

/** Return the first day of a week where a language is spoken; 1 for Monday, 0 for Sunday. */
export function firstDayOf(language: string): number {
  try {
    const locale = new Intl.Locale(language) as Intl.Locale & {
      readonly weekInfo?: { readonly firstDay: number };
      getWeekInfo?(): { readonly firstDay: number };
    };
    const info = locale.getWeekInfo?.() ?? locale.weekInfo;
    return (info?.firstDay ?? 1) % 7;
  } catch {
    return 1;
  }
}
