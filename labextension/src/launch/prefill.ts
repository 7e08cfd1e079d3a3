/**
 * The initial content of a form: the last launch, a program, a cell, or a repeated run. Pure
 * functions.
 */
import type { ILaunchOptions } from '../api/launchOptions';
import type { ILaunch, IScheduleForm } from '../api/types';
import { joinArguments } from '../run/commandLine';
import { EMPTY, IDraft } from './draft';
import { repeatOf } from './repeat';

/** The arguments with which a form may be opened. */
export interface IPrefill {
  readonly program?: string;
  /** The configuration, if the program is a project. */
  readonly config?: string;
  readonly cell?: string;
  readonly notebook?: string;
  readonly mode?: IDraft['mode'];
  /** The name of a run. */
  readonly from?: string;
  /** The name of a schedule to change. */
  readonly schedule?: string;
  /** Whether the launch shall recur. */
  readonly repeat?: boolean;
}

const URL_START = /^[a-z][a-z0-9+.-]*:\/\//i;

/** Return the changes to `draft` when a form is opened with these arguments. */
export function opened(draft: IDraft, wanted: IPrefill): Partial<IDraft> {
  const { program, config = '', cell, mode, notebook = '' } = wanted;
  const chosen = mode === undefined ? {} : { mode };
  // arguments, counts and name of the last program do not apply to another program
  const fresh = { ...EMPTY, kernelspec: draft.kernelspec };
  if (program !== undefined) {
    const place = URL_START.test(program) ? 'url' : 'file';
    const key = place === 'url' ? 'url' : 'program';
    return {
      ...(program === draft[key] ? {} : fresh),
      mode: 'between-graph',
      source: place,
      [key]: program,
      config,
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

/**
 * Return the draft of a launch, and the options that the form cannot hold, such as a text with line
 * breaks.
 */
export function draftOfLaunch(
  launch: ILaunch,
  launchOptions: ILaunchOptions
): { readonly draft: IDraft; readonly left: ReadonlyArray<string> } {
  const { program, cell, options = {} } = launch;
  const values: Record<string, string | boolean> = {};
  const left: string[] = [];
  for (const field of launchOptions.form) {
    const value = options[field.key];
    if (field.key === 'mode' || value === undefined) {
      continue;
    }
    if (typeof value === 'boolean') {
      values[field.key] = value;
      continue;
    }
    const items = (Array.isArray(value) ? value : [value]).map(String);
    const lines = items.filter(
      item => item === item.trim() && !/[\r\n]/.test(item)
    );
    if (lines.length) {
      values[field.key] = lines.join(field.kind === 'runs' ? ' ' : '\n');
    }
    if (lines.length < items.length) {
      left.push(field.label);
    }
  }
  const isUrl = program !== undefined && URL_START.test(program);
  const draft: IDraft = {
    ...EMPTY,
    mode: options.mode === 'in-graph' ? 'in-graph' : 'between-graph',
    source: cell !== undefined ? 'cell' : isUrl ? 'url' : 'file',
    program: isUrl ? '' : (program ?? ''),
    config: launch.config ?? '',
    url: isUrl ? program : '',
    sha256: launch.sha256 ?? '',
    cell: cell === undefined ? null : { text: cell, notebook: '' },
    arguments: joinArguments(launch.arguments ?? []),
    folder: launch.folder ?? null,
    name: launch.name ?? '',
    kernelspec: launch.kernelspec ?? (options.python === undefined ? null : ''),
    values
  };
  return { draft, left };
}

/** Return the draft that changes a schedule, and the options that the form cannot hold. */
export function draftOfSchedule(
  { name, launch, options }: IScheduleForm,
  launchOptions: ILaunchOptions
): ReturnType<typeof draftOfLaunch> {
  const { draft, left } = draftOfLaunch(launch, launchOptions);
  const repeat = repeatOf(name, String(options.cron ?? ''));
  const values = { ...draft.values, ...options };
  return { draft: { ...draft, values, repeat }, left };
}

const MAY_BE_NULL: ReadonlyArray<string> = ['kernelspec', 'folder'];

/** Return a valid draft from a stored one; the state database may hold anything. */
export function restored(kept: unknown): IDraft {
  if (typeof kept !== 'object' || kept === null) {
    return EMPTY;
  }
  const found: Record<string, unknown> = { ...EMPTY };
  for (const [key, value] of Object.entries(kept)) {
    const like = found[key];
    if (key === 'values' && isRecord(value)) {
      found.values = Object.fromEntries(
        // Leave out `after`: the runs for which the last launch waited have ended long ago.
        Object.entries(value).filter(
          ([key, v]) => typeof v !== 'object' && key !== 'after'
        )
      );
    } else if (typeof like === 'string' && typeof value === 'string') {
      found[key] = value;
    } else if (MAY_BE_NULL.includes(key) && typeof value === 'string') {
      found[key] = value;
    }
  }
  const draft = found as unknown as IDraft;
  const known =
    ['between-graph', 'in-graph'].includes(draft.mode) &&
    ['file', 'cell', 'url'].includes(draft.source);
  return known ? draft : EMPTY;
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;
