/**
 * What a form begins with: the last launch, a program, a cell, or the spec of a run. Pure.
 */
import type { Program, Spec } from '../api/models';
import type { ILaunchOptions } from '../api/launchOptions';
import { EMPTY, IDraft } from './draft';
import { typed } from './pods';
import { joinArguments } from './commandLine';

/** What a form may be opened with. */
export interface IPrefill {
  readonly program?: string;
  readonly cell?: string;
  readonly notebook?: string;
  readonly mode?: IDraft['mode'];
  /** The name of a run. */
  readonly from?: string;
}

/** What of `draft` changes when a form is opened with these. */
export function opened(draft: IDraft, wanted: IPrefill): Partial<IDraft> {
  const { program, cell, mode, notebook = '' } = wanted;
  const chosen = mode === undefined ? {} : { mode };
  // arguments, counts and name are those of a program
  const fresh = { ...EMPTY, kernelspec: draft.kernelspec };
  if (program !== undefined) {
    const place = /^[a-z][a-z0-9+.-]*:\/\//i.test(program) ? 'url' : 'file';
    const key = place === 'url' ? 'url' : 'program';
    return {
      ...(program === draft[key] ? {} : fresh),
      mode: 'between-graph',
      source: place,
      [key]: program,
      ...chosen
    };
  }
  if (cell !== undefined) {
    const isSame = draft.cell?.text === cell && draft.source === 'cell';
    return {
      ...(isSame ? {} : fresh),
      mode: 'between-graph',
      source: 'cell',
      cell: { text: cell, notebook },
      ...chosen
    };
  }
  return chosen;
}

/** The draft that repeats a run's spec; a cell's text is not in it. */
export function draftOfSpec(
  spec: Spec,
  name: string,
  launchOptions: ILaunchOptions
): IDraft {
  const mode = spec.mode ?? 'between-graph';
  const { program } = spec;
  const values: Record<string, string | boolean> = {};
  for (const field of launchOptions.form) {
    const value = at(spec, field.path);
    if (value === undefined || value === null || !field.modes.includes(mode)) {
      continue;
    }
    if (field.kind === 'switch') {
      values[field.key] = value === 1;
    } else if (field.key !== 'mode') {
      values[field.key] =
        field.kind === 'duration'
          ? durationOf(Number(value))
          : (typed(field.kind, value) ?? String(value));
    }
  }
  const kind = program?.kind ?? 'file';
  const isUrl = kind === 'url' || kind === 'link';
  const isFile = ['file', 'folder', 'path'].includes(kind);
  return {
    ...EMPTY,
    mode,
    name,
    source: isUrl ? 'url' : kind === 'cell' ? 'cell' : 'file',
    url: isUrl ? (program?.source ?? '') : '',
    program: program && isFile ? pathOf(program) : '',
    arguments: joinArguments(program?.arguments ?? []),
    kernelspec: spec.interpreter ? '' : null,
    values
  };
}

/** A draft that was kept, as far as it is one; the state database may hold anything. */
export function restored(kept: unknown): IDraft {
  if (typeof kept !== 'object' || kept === null) {
    return EMPTY;
  }
  const found: Record<string, unknown> = { ...EMPTY };
  for (const [key, value] of Object.entries(kept)) {
    const like = found[key];
    if (key === 'values' && isRecord(value)) {
      found.values = Object.fromEntries(
        Object.entries(value).filter(([, v]) => typeof v !== 'object')
      );
    } else if (typeof like === 'string' && typeof value === 'string') {
      found[key] = value;
    } else if (key === 'kernelspec' && typeof value === 'string') {
      found[key] = value;
    }
  }
  const draft = found as unknown as IDraft;
  const known =
    ['between-graph', 'in-graph'].includes(draft.mode) &&
    ['file', 'cell', 'url'].includes(draft.source);
  return known ? draft : EMPTY;
}

/** Seconds as a person writes them: 5400 gives `1h30m`. */
export function durationOf(seconds: number): string {
  if (seconds !== Math.floor(seconds) || seconds === 0) {
    return `${seconds}s`;
  }
  let left = seconds;
  let text = '';
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    text += count ? `${count}${unit}` : '';
  }
  return text;
}

const UNITS: ReadonlyArray<readonly [string, number]> = [
  ['d', 86400],
  ['h', 3600],
  ['m', 60],
  ['s', 1]
];

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

const pathOf = ({ source = '', workingDir }: Program): string =>
  workingDir?.startsWith('/') && !source.startsWith('/')
    ? `${workingDir}/${source}`
    : source;

function at(spec: object, path: ReadonlyArray<string>): unknown {
  return path.reduce<unknown>(
    (found, part) => (isRecord(found) ? found[part] : undefined),
    spec
  );
}
