/**
 * The routes of the server extension, one function for each.
 *
 * Everything that this extension sends goes through `call`: base URL, token and XSRF are the
 * connection's own, and every failure is a `ServerProblem`.
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
  ILaunch,
  IRerun,
  IRun,
  IRunAsLaunch,
  IRunDetails,
  IRunList,
  ITaskList
} from './types';

const API = 'tfcluster/api';
/**
 * Milliseconds after which a list that has not come never will: the server answers within 3 s even without its
 * backend, and a network that is gone tells nobody.
 */
const PATIENCE = 8_000;

/** Who calls: how the server is reached, and the person's language. */
export interface ICaller {
  readonly settings: ServerConnection.ISettings;
  readonly trans: TranslationBundle;
  readonly language: string;
}

/** The language that JupyterLab shows, as HTTP names it; English where JupyterLab does not say. */
export function languageOf(translator: ITranslator | null): string {
  // JupyterLab 4.2 without a language pack has none, whatever its types say.
  const code: string | undefined = (translator ?? nullTranslator).languageCode;
  return !code || code === 'default' ? 'en' : code.replace('_', '-');
}

/**
 * Call a route.
 *
 * @throws ServerProblem when there is no answer, or one that is an error.
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

/** Call a route that answers with JSON, or with nothing. */
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

/** The launch that repeats a run, to be changed in a form. */
export const runAsLaunch = (
  caller: ICaller,
  name: string
): Promise<IRunAsLaunch> => call(caller, at(name, 'form'));

/** Each task of a run, as it is now; undefined when there is no such run. */
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

export const launchRun = (caller: ICaller, launch: ILaunch): Promise<IRun> =>
  call(caller, 'clusters', 'POST', launch);

/** What a launch may ask for, and what is free now. */
export const getLaunchOptions = (caller: ICaller): Promise<ILaunchOptions> =>
  call(caller, 'options');

/** What a launch would make and what stands against it; makes nothing. */
export const planLaunch = (
  caller: ICaller,
  launch: ILaunch,
  signal?: AbortSignal
): Promise<IPlan> => call(caller, 'clusters/plan', 'POST', launch, signal);

/** Do something to this very run: the server refuses with 409 when another one has its name by now. */
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

/** What a notebook keeps of these runs: data by MIME type, by the names of runs; without those that are not known. */
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

/** Several runs beside each other, by their names. */
export const compareRuns = (
  caller: ICaller,
  names: ReadonlyArray<string>
): Promise<IComparison> => {
  const query = new URLSearchParams(names.map(name => ['run', name]));
  return call(caller, `comparison?${query.toString()}`);
};

/** What the tasks print: a stream of JSON lines. `tail` lines of each task to begin with, null for all. */
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
 * Where the browser itself gets the lines as a file: a large one never goes through the page's memory.
 *
 * A request of the browser carries its cookies; behind JupyterHub it needs the XSRF token, too, and on a page that has
 * no cookie the token of the server.
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

/** Delete this very run; one that is still being stopped is given as it is, and will be gone later. */
export const deleteRun = (
  caller: ICaller,
  { cluster }: IRun,
  withLogs: boolean
): Promise<IRun | undefined> => {
  const { name, uid } = cluster.metadata;
  const query = new URLSearchParams({ uid, ...(withLogs && { logs: '1' }) });
  return call(caller, `${at(name)}?${query.toString()}`, 'DELETE');
};

/** Without `wait`, one that has to be started is only begun with: `running` tells. */
export const openBoard = (
  caller: ICaller,
  what: { refs?: ReadonlyArray<string>; folder?: string; wait?: boolean }
): Promise<IBoard> => call(caller, 'tensorboards', 'POST', what);

/** The boards that run, whoever started them. */
export const listBoards = async (
  caller: ICaller
): Promise<ReadonlyArray<IBoard>> => {
  const path = 'tensorboards';
  const answer = await call<{ tensorboards: IBoard[] }>(caller, path);
  return answer.tensorboards;
};

export const closeBoard = (caller: ICaller, id: string): Promise<void> =>
  call(caller, `tensorboards/${encodeURIComponent(id)}`, 'DELETE');
