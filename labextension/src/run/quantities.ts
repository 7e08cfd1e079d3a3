/** Formats numbers, durations, times and sizes like the command line. Pure functions. */

const UNITS: ReadonlyArray<readonly [string, number]> = [
  ['Ti', 2 ** 40],
  ['Gi', 2 ** 30],
  ['Mi', 2 ** 20],
  ['Ki', 2 ** 10]
];

/** Format a number with three significant digits: 0.1234 is `0.123`, 1234 is `1.23e+3`. */
export const significant = (value: number): string =>
  Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 1e-4)
    ? value.toExponential(2)
    : String(Number(value.toPrecision(3)));

/** Format a duration: `2 s`, `3 min 05 s`, `1 h 20 min`. */
export function shortDuration(seconds: number): string {
  if (seconds < 10) {
    return `${String(Number(Math.max(seconds, 0.1).toFixed(1)))} s`;
  }
  const whole = Math.round(seconds);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  if (hours) {
    return `${hours} h ${String(minutes).padStart(2, '0')} min`;
  }
  const rest = whole % 60;
  return minutes
    ? `${minutes} min ${String(rest).padStart(2, '0')} s`
    : `${rest} s`;
}

/** Format a rough duration in one or two units: 75 gives `75s`, 7500 gives `2h5m`. */
export function age(seconds: number): string {
  const left = Math.max(0, Math.floor(seconds));
  if (left < 120) {
    return `${left}s`;
  }
  if (left < 3600) {
    return `${Math.floor(left / 60)}m`;
  }
  if (left < 2 * 86400) {
    const minutes = Math.floor((left % 3600) / 60);
    return `${Math.floor(left / 3600)}h${minutes ? `${minutes}m` : ''}`;
  }
  return `${Math.floor(left / 86400)}d`;
}

/**
 * Format a duration: 5400 gives `1h 30m`, 0.25 gives `0.3s`; a negative duration, from clocks that
 * differ, gives `0s`.
 */
export function duration(seconds: number): string {
  const positive = Math.max(0, seconds);
  if (positive < 10 && positive !== Math.floor(positive)) {
    return `${positive.toFixed(1)}s`;
  }
  let left = Math.round(positive);
  const parts: string[] = [];
  for (const [unit, size] of [
    ['d', 86400],
    ['h', 3600],
    ['m', 60],
    ['s', 1]
  ] as const) {
    const count = Math.floor(left / size);
    left %= size;
    if (count) {
      parts.push(`${count}${unit}`);
    }
  }
  return parts.slice(0, 2).join(' ') || '0s';
}

/** Return the local time of day, with the date unless it is today. `at` in seconds since 1970. */
export function clock(at: number, now = Date.now(), seconds = false): string {
  const when = new Date(at * 1000);
  const two = (part: number): string => String(part).padStart(2, '0');
  const parts = [when.getHours(), when.getMinutes()];
  const time = [...parts, ...(seconds ? [when.getSeconds()] : [])]
    .map(two)
    .join(':');
  return when.toDateString() === new Date(now).toDateString()
    ? time
    : `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${time}`;
}

/**
 * Format a time in a time zone and a language, with the zone's name if the zone is not the
 * reader's.
 */
export function moment(at: number, timeZone: string, language: string): string {
  const date = new Date(at * 1000);
  const form = { dateStyle: 'medium', timeStyle: 'short' } as const;
  const here = date.toLocaleString(language, form);
  try {
    const there = date.toLocaleString(language, { ...form, timeZone });
    return there === here ? here : `${there} (${timeZone})`;
  } catch {
    return here; // a zone that this browser does not know
  }
}

/** Format bytes: 2147483648 gives `2Gi`, 1610612736 gives `1536Mi`. */
export function bytes(count: number): string {
  for (const [unit, size] of UNITS) {
    if (
      count >= size &&
      (count % size === 0 || unit === 'Ki' || count >= 10 * size)
    ) {
      return `${Math.round(count / size)}${unit}`;
    }
  }
  return String(Math.round(count));
}

const SIZES: ReadonlyArray<readonly [string, number]> = [
  ['GiB', 2 ** 30],
  ['MiB', 2 ** 20],
  ['KiB', 2 ** 10]
];

/** Format an amount with at most one digit after the point; a large amount has none. */
export const amount = (value: number): string =>
  value >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/\.0$/, '');

/** Format cores: `1.3`, `0.02`. */
export const cores = (value: number): string =>
  value < 1 ? String(Number(value.toFixed(2))) : amount(value);

/** Return the unit of bytes for values up to `most`. */
export const sizeUnit = (most: number): readonly [string, number] =>
  SIZES.find(([, size]) => most >= size) ?? SIZES[2];

/** Format bytes: `1.9 GiB`, `410 MiB`. */
export function sizeWords(bytes: number): string {
  const [unit, size] = sizeUnit(bytes);
  return `${amount(bytes / size)} ${unit}`;
}

/** Format two numbers of bytes; the first has a unit only if the second has a different unit. */
export function sizePair(
  used: number,
  asked: number
): readonly [string, string] {
  const same = used === 0 || sizeUnit(used)[0] === sizeUnit(asked)[0];
  return [same ? sizeOf(used, asked) : sizeWords(used), sizeWords(asked)];
}

/** Format bytes in the unit that suits `most`, without the unit: `1.9` of `8 GiB`. */
export const sizeOf = (bytes: number, most: number): string =>
  amount(bytes / sizeUnit(most)[1]);
