/**
 * The input of the form, the state around it, and the launch request. Pure functions.
 *
 * Values are kept as typed, even if they do not apply now: switching the mode back and forth loses
 * nothing.
 */
import type { Mode } from '../api/models';
import type { ServerProblem } from '../api/problem';
import type { ILaunch, IRun, IScheduleView } from '../api/types';
import type {
  FieldKind,
  IField,
  ILaunchOptions,
  IPlan,
  IPlanProject
} from '../api/launchOptions';
import { splitArguments } from '../run/commandLine';

export type ProgramSource = 'file' | 'cell' | 'url';

/** The text of a cell, and the path of its notebook. */
export interface ICellProgram {
  readonly text: string;
  readonly notebook: string;
}

/** A usual choice, or `cron` for any other expression. */
export type When = 'hour' | 'day' | 'workday' | 'week' | 'month' | 'cron';

/** The inputs of the usual choices, as typed. */
export interface IRepeat {
  /** The schedule that is changed; '' for a new one. */
  readonly schedule: string;
  readonly when: When;
  /** The minute of every hour. */
  readonly minute: string;
  /** `02:00`. */
  readonly time: string;
  /** The day of the week; 0 is Sunday. */
  readonly weekday: string;
  readonly day: string;
}

export interface IDraft {
  readonly mode: Mode;
  readonly source: ProgramSource;
  readonly program: string;
  /** The chosen configuration, if the program is a project; '' for none. */
  readonly config: string;
  readonly url: string;
  readonly sha256: string;
  readonly cell: ICellProgram | null;
  readonly arguments: string;
  /** The working folder as the file browser names it; null for the program's own folder. */
  readonly folder: string | null;
  readonly name: string;
  /** The kernel whose Python the tasks use; '' for the Python in `values.python`. */
  readonly kernelspec: string | null;
  /** The options of the launch, and of a schedule. */
  readonly values: Readonly<Record<string, string | boolean>>;
  /** When the launch recurs; null for a single launch. */
  readonly repeat: IRepeat | null;
}

export const EMPTY: IDraft = {
  mode: 'between-graph',
  source: 'file',
  program: '',
  config: '',
  url: '',
  sha256: '',
  cell: null,
  arguments: '',
  folder: null,
  name: '',
  kernelspec: null,
  values: {},
  repeat: null
};

/** The run or schedule from which a draft comes, and notes for the user. */
export interface IOrigin {
  readonly name: string;
  readonly notes: ReadonlyArray<string>;
}

/** The state of a launch form: input, server responses, and the result of the launch. */
export interface ILaunchState {
  readonly draft: IDraft;
  /** The run from which the form was filled in. */
  readonly origin: IOrigin | null;
  /** The available choices; null until the server has answered. */
  readonly launchOptions: ILaunchOptions | null;
  readonly plan: IPlan | null;
  /** The result of `placeOf` for the draft of the current plan. */
  readonly planned: string | null;
  /** Whether the plan is for the current input. */
  readonly current: boolean;
  /** Why the server does not answer; the input stays. */
  readonly away: ServerProblem | null;
  readonly launching: boolean;
  readonly refusal: ServerProblem | null;
  readonly launched: IRun | null;
  /** The schedule that was saved. */
  readonly saved: IScheduleView | null;
  /** The ids of the sections that the user has opened. */
  readonly openSections: ReadonlySet<string>;
  /** Whether a launch was tried, so that missing values count as errors. */
  readonly tried: boolean;
}

export const INITIAL: ILaunchState = {
  draft: EMPTY,
  origin: null,
  launchOptions: null,
  plan: null,
  planned: null,
  current: false,
  away: null,
  launching: false,
  refusal: null,
  launched: null,
  saved: null,
  openSections: new Set(),
  tried: false
};

/** Return the fields that apply to the current choices. */
export function fieldsOf(
  launchOptions: ILaunchOptions,
  draft: Pick<IDraft, 'mode' | 'values'>
): ReadonlyArray<IField> {
  return launchOptions.form.filter(
    ({ modes, path }) =>
      modes.includes(draft.mode) &&
      (path[0] !== 'replicas' ||
        path[2] !== 'resources' ||
        !isSingle(path[1]) ||
        draft.values[path[1]] === true)
  );
}

/**
 * Return the kernel whose Python is used; '' if the Python is given by path, or tasks use no
 * kernel's Python.
 */
export const kernelOf = (
  draft: IDraft,
  launchOptions: ILaunchOptions
): string =>
  launchOptions.kernelspecs.length
    ? (draft.kernelspec ?? launchOptions.defaults.kernelspec ?? '')
    : '';

/** Return the default of a field as text. */
export const defaultOf = (field: IField, mode: Mode): string =>
  field.default[mode] ?? '';

/** Return the part of a draft that decides where its project is. */
export const placeOf = (draft: IDraft): string =>
  JSON.stringify([
    draft.mode,
    draft.source,
    draft.program.trim(),
    draft.config,
    draft.folder
  ]);

/**
 * Return the project, if the program is one; undefined until a plan for this program has arrived.
 */
export const projectOf = ({
  draft,
  plan,
  planned
}: ILaunchState): IPlanProject | null | undefined =>
  plan && planned === placeOf(draft) ? (plan.project ?? null) : undefined;

/** Return the value that applies if nothing is typed: the project's, else the default. */
export const baseOf = (
  field: IField,
  mode: Mode,
  project?: IPlanProject | null
): string => {
  const said = field.key === 'mode' ? undefined : project?.values[field.key];
  return typeof said === 'string' ? said : defaultOf(field, mode);
};

/** Return the launch request of a draft: only values that differ from the defaults. */
export function launchOf(
  draft: IDraft,
  launchOptions: ILaunchOptions,
  project?: IPlanProject | null
): ILaunch {
  const { mode } = draft;
  const options: Record<string, unknown> = {};
  for (const field of fieldsOf(launchOptions, draft)) {
    const value = field.key === 'mode' ? mode : draft.values[field.key];
    if (field.key === 'python' && kernelOf(draft, launchOptions) !== '') {
      continue;
    }
    const said = typeof value === 'string' ? value.trim() : value;
    if (said === false) {
      options[field.key] = false; // sent too: without the option, the program would decide
    } else if (said && said !== baseOf(field, mode, project)) {
      options[field.key] = valueOf(field, said);
    }
  }
  return {
    ...(mode === 'between-graph' && programOf(draft)),
    ...(draft.name.trim() && { name: draft.name.trim() }),
    ...(draft.kernelspec &&
      kernelOf(draft, launchOptions) && { kernelspec: draft.kernelspec }),
    options
  };
}

function programOf(draft: IDraft): ILaunch {
  const words = splitArguments(draft.arguments) ?? [];
  const told = words.length ? { arguments: words } : {};
  if (draft.source === 'cell') {
    return draft.cell
      ? {
          cell: draft.cell.text,
          folder: draft.folder ?? folderOf(draft.cell.notebook),
          ...told
        }
      : told;
  }
  const program = (draft.source === 'url' ? draft.url : draft.program).trim();
  const sha256 = draft.source === 'url' ? draft.sha256.trim() : '';
  return {
    ...(program && { program }),
    ...(draft.source === 'file' && draft.config && { config: draft.config }),
    ...(draft.folder !== null && { folder: draft.folder }),
    ...(sha256 && { sha256 }),
    ...told
  };
}

/** Return the folder of a file of the server. */
export const folderOf = (path: string): string =>
  path.split('/').slice(0, -1).join('/');

/** Return whether an option's value is entered as several lines. */
export const hasLines = ({ kind }: Pick<IField, 'kind'>): boolean =>
  LINES.has(kind);

/** Return the typed text in the form that the server accepts. */
function valueOf(field: IField, said: string | true): unknown {
  if (field.kind === 'runs') {
    return String(said).split(/\s+/);
  }
  return hasLines(field) ? lines(said) : said;
}

const LINES: ReadonlySet<FieldKind> = new Set<FieldKind>([
  'pairs',
  'annotations',
  'names',
  'volumes',
  'secrets'
]);

const isSingle = (type: string): boolean =>
  type === 'chief' || type === 'evaluator';

const lines = (text: unknown): ReadonlyArray<string> =>
  String(text)
    .split('\n')
    .map(line => line.trim())
    .filter(line => line);
