/**
 * When a launch recurs: the usual choices and their cron expressions, and the request of a schedule.
 * Pure functions.
 */
import type { ILaunchOptions, IField } from '../api/launchOptions';
import type { ILaunch, ISchedulePlan } from '../api/types';
import { defaultOf, type IDraft, type IRepeat, type When } from './draft';

export const DAILY: IRepeat = {
  schedule: '',
  when: 'day',
  minute: '0',
  time: '02:00',
  weekday: '1',
  day: '1'
};

/** Return the cron expression of the inputs; `typed` is the expression that the user typed. */
export function cronOf(repeat: IRepeat, typed: string): string {
  const { when, minute, time, weekday, day } = repeat;
  const [hours, minutes] = time.split(':').map(Number);
  const at = time ? `${minutes} ${hours}` : ''; // a cleared time is refused by the server
  switch (when) {
    case 'hour':
      return `${minute} * * * *`;
    case 'day':
      return `${at} * * *`;
    case 'workday':
      return `${at} * * 1-5`;
    case 'week':
      return `${at} * * ${weekday}`;
    case 'month':
      return `${at} ${day} * *`;
    case 'cron':
      return typed.trim();
  }
}

const CHOICES: ReadonlyArray<readonly [When, RegExp]> = [
  ['hour', /^(?<minute>\d+) \* \* \* \*$/],
  ['day', /^(?<m>\d+) (?<h>\d+) \* \* \*$/],
  ['workday', /^(?<m>\d+) (?<h>\d+) \* \* 1-5$/],
  ['week', /^(?<m>\d+) (?<h>\d+) \* \* (?<weekday>[0-6])$/],
  ['month', /^(?<m>\d+) (?<h>\d+) (?<day>\d+) \* \*$/]
];

/**
 * Return the inputs that make a cron expression; if no usual choice makes it, the expression
 * itself.
 */
export function repeatOf(schedule: string, cron: string): IRepeat {
  for (const [when, form] of CHOICES) {
    const { m, h, ...others } = form.exec(cron)?.groups ?? {};
    if (form.test(cron)) {
      const two = (part: string): string => part.padStart(2, '0');
      const time = h === undefined ? {} : { time: `${two(h)}:${two(m)}` };
      return { ...DAILY, ...others, ...time, schedule, when };
    }
  }
  return { ...DAILY, schedule, when: 'cron' };
}

/** Return the time zone of the browser. */
export const browserZone = (): string =>
  Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Return the time zones that the browser knows. */
export const knownZones = (): ReadonlyArray<string> =>
  (
    Intl as typeof Intl & { supportedValuesOf?(key: string): string[] }
  ).supportedValuesOf?.('timeZone') ?? [];

/** Return the request of a draft's schedule: only options that differ from the defaults. */
export function scheduleOf(
  draft: IDraft,
  repeat: IRepeat,
  { schedule: fields }: ILaunchOptions,
  launch: ILaunch
): ISchedulePlan {
  const options: Record<string, unknown> = {};
  for (const field of fields) {
    const said = saidOf(field, draft, repeat);
    if (said && said !== defaultOf(field, 'between-graph')) {
      options[field.key] =
        field.kind === 'durations' ? String(said).split(/\s+/) : said;
    }
  }
  const { name, ...what } = launch;
  return {
    name: name ?? '',
    options,
    launch: what,
    updates: repeat.schedule !== ''
  };
}

function saidOf(
  { key, kind }: IField,
  { values }: IDraft,
  repeat: IRepeat
): string | boolean {
  const value = values[key] ?? '';
  if (kind === 'cron') {
    return cronOf(repeat, String(value));
  }
  const said = typeof value === 'string' ? value.trim() : value;
  // the form shows the browser's zone; the server's default is the zone of its own machine
  return kind === 'zone' ? said || browserZone() : said;
}
