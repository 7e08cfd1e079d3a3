/**
 * The routes of the server extension, one function for each.
 *
 * Every request goes through `call`: base URL, token and XSRF token come from the connection, and
 * every failure is a `ServerProblem`.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import {
  type ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { ILaunchOptions, IPlan } from './launchOptions';
import type { VerbBodies } from './models';
import { problemOf, unreachable } from './problem';
import type {
  IBoard,
  IComparison,
  IKeptStacks,
  ILaunch,
  IProjectList,
  IRerun,
  IRun,
  IRunAsLaunch,
  ISchedule,
  IScheduleForm,
  IScheduleHistory,
  ISchedulePlan,
  IScheduleView,
  IRunDetails,
  IRunList,
  ITaskList,
  IUsage
} from './types';

const API = 'tfcluster/api';
/**
 * Milliseconds after which a list request is given up. The server answers within 3 s even without
 * its backend, and a lost network causes no error.
 */
const PATIENCE = 8_000;

/** What each request needs: the connection to the server, and the user's language. */
export interface ICaller {
  readonly settings: ServerConnection.ISettings;
  readonly trans: TranslationBundle;
  readonly language: string;
}

/** Return JupyterLab's language as an HTTP language tag; English if JupyterLab has none. */
export function languageOf(translator: ITranslator | null): string {
  // undefined in JupyterLab 4.2 without a language pack, contrary to the declared type
  const code: string | undefined = (translator ?? nullTranslator).languageCode;
  return !code || code === 'default' ? 'en' : code.replace('_', '-');
}

/**
 * Call a route.
 *
 * @throws ServerProblem if there is no response, or an error response.
 */
export async function respond(
  caller: ICaller,
  path: string,
  init: RequestInit = {}
): Promise<Response> {
  const url = URLExt.join(caller.settings.baseUrl, API, path);
  const headers = { 'Accept-Language': caller.language, ...init.headers };
  let response: Response;
  try {
    response = await ServerConnection.makeRequest(
      url,
      { ...init, headers },
      caller.settings
    );
  } catch (error) {
    if (init.signal?.aborted && !isTimeout(init.signal)) {
      throw error;
    }
    throw unreachable(caller.trans);
  }
  if (!response.ok) {
    throw problemOf(
      response.status,
      await response.text().catch(() => ''),
      caller.trans
    );
  }
  return response;
}

const isTimeout = ({ reason }: AbortSignal): boolean =>
  reason instanceof Error && reason.name === 'TimeoutError';

/** Call a route that answers with JSON, or without a body. */
export async function call<T>(
  caller: ICaller,
  path: string,
  method = 'GET',
  body?: unknown,
  signal?: AbortSignal
): Promise<T> {
  const init: RequestInit = { method, signal };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
  }
  const response = await respond(caller, path, init);
  if (response.status === 204) {
    return undefined as T;
  }
  try {
    return (await response.json()) as T;
  } catch {
    throw unreachable(caller.trans);
  }
}

const at = (name: string, verb = ''): string =>
  `clusters/${encodeURIComponent(name)}${verb && `/${verb}`}`;

export const listRuns = (caller: ICaller, all: boolean): Promise<IRunList> =>
  call(
    caller,
    all ? 'clusters?all=1' : 'clusters',
    'GET',
    undefined,
    AbortSignal.timeout(PATIENCE)
  );

export const runDetails = (
  caller: ICaller,
  name: string
): Promise<IRunDetails> => call(caller, at(name));

/** Return the launch that repeats a run, for a form. */
export const runAsLaunch = (
  caller: ICaller,
  name: string
): Promise<IRunAsLaunch> => call(caller, at(name, 'form'));

/** Return the current tasks of a run; undefined if there is no such run. */
export const listTasks = async (
  caller: ICaller,
  name: string
): Promise<ITaskList | undefined> => {
  const query = new URLSearchParams({ run: name });
  const { runs } = await call<{ runs: Record<string, ITaskList> }>(
    caller,
    `tasks?${query.toString()}`,
    'GET',
    undefined,
    AbortSignal.timeout(PATIENCE)
  );
  return runs[name];
};

const usageOf = (
  caller: ICaller,
  name: string,
  query: URLSearchParams
): Promise<IUsage> =>
  call(
    caller,
    `${at(name, 'usage')}?only=1&${query.toString()}`,
    'GET',
    undefined,
    AbortSignal.timeout(PATIENCE)
  );

/** Return what these tasks use, and their CPU and memory over time in about `points` points. */
export const taskUsage = (
  caller: ICaller,
  name: string,
  tasks: ReadonlyArray<string>,
  points: number
): Promise<IUsage> => {
  const query = new URLSearchParams(tasks.map(task => ['task', task]));
  query.set('points', String(points));
  query.append('figure', 'cpu');
  query.append('figure', 'memory');
  return usageOf(caller, name, query);
};

/** Return the graphs of all tasks, with at most `values` values in a line. */
export const usageGraphs = (
  caller: ICaller,
  name: string,
  values: number
): Promise<IUsage> =>
  usageOf(caller, name, new URLSearchParams({ graphs: String(values) }));

/** Return the stacks that were taken automatically when tasks stalled. */
export const keptStacks = (
  caller: ICaller,
  name: string
): Promise<IKeptStacks> => call(caller, at(name, 'stacks'));

export const launchRun = (caller: ICaller, launch: ILaunch): Promise<IRun> =>
  call(caller, 'clusters', 'POST', launch);

/** Return the launch options and the free resources. */
export const getLaunchOptions = (caller: ICaller): Promise<ILaunchOptions> =>
  call(caller, 'options');

/** Return the projects below the folder of the file browser; `refresh` searches again. */
export const listProjects = (
  caller: ICaller,
  refresh: boolean
): Promise<IProjectList> =>
  call(
    caller,
    refresh ? 'projects?refresh=1' : 'projects',
    'GET',
    undefined,
    AbortSignal.timeout(PATIENCE)
  );

/** Return the user's schedules, by name. */
export const listSchedules = (
  caller: ICaller
): Promise<{ readonly schedules: ReadonlyArray<IScheduleView> }> =>
  call(caller, 'schedules', 'GET', undefined, AbortSignal.timeout(PATIENCE));

const ofSchedule = (name: string): string =>
  `schedules/${encodeURIComponent(name)}`;

export const showSchedule = (
  caller: ICaller,
  name: string
): Promise<IScheduleView> =>
  call(
    caller,
    ofSchedule(name),
    'GET',
    undefined,
    AbortSignal.timeout(PATIENCE)
  );

/** Return the results of the due times from `from` until before `to`, in seconds since 1970. */
export const scheduleHistory = (
  caller: ICaller,
  name: string,
  from: number,
  to: number
): Promise<IScheduleHistory> =>
  call(
    caller,
    `${ofSchedule(name)}/history?from=${from}&to=${to}`,
    'GET',
    undefined,
    AbortSignal.timeout(PATIENCE)
  );

/** Return the values that fill a form to change a schedule. */
export const scheduleForm = (
  caller: ICaller,
  name: string
): Promise<IScheduleForm> => call(caller, `${ofSchedule(name)}/form`);

/** Return when a schedule would be due, and its problems; creates nothing. */
export const planSchedule = (
  caller: ICaller,
  what: ISchedulePlan,
  signal?: AbortSignal
): Promise<IPlan> => call(caller, 'schedules/plan', 'POST', what, signal);

export const createSchedule = (
  caller: ICaller,
  name: string,
  what: ISchedule
): Promise<IScheduleView> =>
  call(caller, 'schedules', 'POST', { name, ...what });

/** Replace the rules and the launch of a schedule. */
export const replaceSchedule = (
  caller: ICaller,
  name: string,
  what: ISchedule
): Promise<IScheduleView> =>
  call(caller, `${ofSchedule(name)}/update`, 'POST', { ...what, whole: true });

export const doScheduleVerb = (
  caller: ICaller,
  name: string,
  verb: 'pause' | 'resume' | 'run-now'
): Promise<IScheduleView> =>
  call(caller, `${ofSchedule(name)}/${verb}`, 'POST', {});

/** Remove a schedule with its history; its runs stay. */
export const deleteSchedule = (caller: ICaller, name: string): Promise<void> =>
  call(caller, ofSchedule(name), 'DELETE');

/** Return what a launch would create, and its problems; creates nothing. */
export const planLaunch = (
  caller: ICaller,
  launch: ILaunch,
  signal?: AbortSignal
): Promise<IPlan> => call(caller, 'clusters/plan', 'POST', launch, signal);

/** Act on exactly this run: the server answers 409 if another run has its name now. */
export const doVerb = <V extends keyof VerbBodies>(
  caller: ICaller,
  { cluster }: IRun,
  verb: V,
  body: VerbBodies[V]
): Promise<IRun> => {
  const { name, uid } = cluster.metadata;
  const query = new URLSearchParams({ uid });
  return call(caller, `${at(name, verb)}?${query.toString()}`, 'POST', body);
};

export const rerunRun = (
  caller: ICaller,
  name: string,
  changes: IRerun
): Promise<IRun> => call(caller, at(name, 'rerun'), 'POST', changes);

/**
 * Return the notebook data of these runs: by run name, then by MIME type. Unknown runs are left
 * out.
 */
export const keptOutputs = async (
  caller: ICaller,
  names: ReadonlyArray<string>
): Promise<Readonly<Record<string, ReadonlyPartialJSONObject>>> => {
  const query = new URLSearchParams(names.map(name => ['run', name]));
  const answer = await call<{
    outputs: Record<string, ReadonlyPartialJSONObject>;
  }>(caller, `outputs?${query.toString()}`);
  return answer.outputs;
};

/** Compare several runs by name. */
export const compareRuns = (
  caller: ICaller,
  names: ReadonlyArray<string>
): Promise<IComparison> => {
  const query = new URLSearchParams(names.map(name => ['run', name]));
  return call(caller, `comparison?${query.toString()}`);
};

/**
 * Open the output of the tasks, a stream of JSON lines. The stream starts with the last `tail`
 * lines of each task, or with all lines if `tail` is null.
 */
export const openLogs = (
  caller: ICaller,
  name: string,
  query: Record<string, string>,
  tasks: ReadonlyArray<string>,
  signal: AbortSignal
): Promise<Response> => {
  const asked = new URLSearchParams(query);
  tasks.forEach(task => asked.append('task', task));
  return respond(caller, `${at(name, 'logs')}?${asked.toString()}`, { signal });
};

/**
 * Return the URL from which the browser downloads the lines, so that a large file never passes
 * through the page's memory.
 *
 * The browser's own request carries its cookies, but no headers of `call`. So the URL has the XSRF
 * token or, on a page without this cookie, the server's token.
 */
export function logsFile(
  caller: ICaller,
  name: string,
  tasks: ReadonlyArray<string>
): string {
  const query = new URLSearchParams({ download: '1' });
  tasks.forEach(task => query.append('task', task));
  const xsrf = /(?:^|;\s*)_xsrf=([^;]*)/.exec(document.cookie)?.[1];
  if (xsrf) {
    query.set('_xsrf', xsrf);
  } else if (caller.settings.token) {
    query.set('token', caller.settings.token);
  }
  const { baseUrl } = caller.settings;
  return `${URLExt.join(baseUrl, API, at(name, 'logs'))}?${query.toString()}`;
}

/** Delete exactly this run. A run that is still being stopped is returned, and is removed later. */
export const deleteRun = (
  caller: ICaller,
  { cluster }: IRun,
  withLogs: boolean
): Promise<IRun | undefined> => {
  const { name, uid } = cluster.metadata;
  const query = new URLSearchParams({ uid, ...(withLogs && { logs: '1' }) });
  return call(caller, `${at(name)}?${query.toString()}`, 'DELETE');
};

/**
 * Open a board. Without `wait`, the server answers before a new board runs; `running` of the
 * response tells whether it runs.
 */
export const openBoard = (
  caller: ICaller,
  what: { refs?: ReadonlyArray<string>; folder?: string; wait?: boolean }
): Promise<IBoard> => call(caller, 'tensorboards', 'POST', what);

/** Return the running boards, whoever started them. */
export const listBoards = async (
  caller: ICaller
): Promise<ReadonlyArray<IBoard>> => {
  const path = 'tensorboards';
  const answer = await call<{ tensorboards: IBoard[] }>(caller, path);
  return answer.tensorboards;
};

/**
 * Return whether a running board has curves: TensorBoard lists its dashboards, and the dashboard of
 * curves is enabled with the first point. A board that does not answer counts as one with curves,
 * because its page says what is wrong.
 */
export async function hasCurves(
  caller: ICaller,
  { path }: IBoard
): Promise<boolean> {
  const url = URLExt.join(
    caller.settings.baseUrl,
    path,
    'data/plugins_listing'
  );
  try {
    const { settings } = caller;
    const response = await ServerConnection.makeRequest(url, {}, settings);
    const listed = (await response.json()) as Dashboards;
    return !response.ok || (listed.timeseries?.enabled ?? true);
  } catch {
    return true;
  }
}

/** TensorBoard's list of its dashboards, by name. */
type Dashboards = Readonly<Record<string, { readonly enabled: boolean }>>;

export const closeBoard = (caller: ICaller, id: string): Promise<void> =>
  call(caller, `tensorboards/${encodeURIComponent(id)}`, 'DELETE');
