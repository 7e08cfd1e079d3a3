/**
 * What the server extension sends and takes; `tfcluster_magic/server/openapi.yaml` says the same.
 *
 * The record itself is generated from its JSON Schema into `models.ts`.
 */
import type { Message, Phase, Status, TaskState, TFCluster } from './models';

/** The record of a run; what comes from the server always has a status. */
export interface ICluster extends TFCluster {
  readonly status: Status;
}

/** How far a training is; times in seconds since 1970. A diverged loss is null. */
export interface IProgress {
  readonly step: number;
  readonly total: number | null;
  readonly stepsPerSecond: number | null;
  readonly loss: number | null;
  readonly etaSeconds: number | null;
  readonly at: number;
  readonly unit: string;
  readonly epoch: number | null;
  /** (step, loss), oldest first, at most 60. */
  readonly history: ReadonlyArray<readonly [number, number | null]>;
  /** Further figures by the program's own names; null for what is not a number. */
  readonly metrics?: Readonly<Record<string, number | null>>;
  /** Who says it: `program`, `eventFiles` or `printedLines`. */
  readonly source?: string;
}

/** One run as it is shown. */
export interface IRun {
  readonly cluster: ICluster;
  readonly ready: { readonly ready: number; readonly total: number };
  readonly progress: IProgress | null;
  /** What is known beside the record, such as tasks that are silent; sentences for people. */
  readonly notes: ReadonlyArray<string>;
  /** Why nobody carries out requests for it; empty while somebody does. */
  readonly away?: string;
  readonly places?: IPlaces;
}

/** What the file browser calls the files of a run; those that it does not show are left out. */
export interface IPlaces {
  /** The file or folder that was launched. */
  readonly program?: string;
  /** Where it runs. */
  readonly folder?: string;
  readonly output?: string;
}

/** One task of a run, as it is seen now; empty or null where nobody can see it. Times in seconds since 1970. */
export interface ITaskRow {
  readonly name: string;
  readonly state: TaskState | null;
  readonly message: string;
  readonly messages: ReadonlyArray<Message>;
  readonly restarts: number;
  /** The machine that it is or was on. */
  readonly node: string;
  /** When it came to its state. */
  readonly since: number | null;
  /** What it printed last, and when. */
  readonly line: string;
  readonly printedAt: number | null;
}

/** All tasks of the run with this uid. */
export interface ITaskList {
  readonly uid: string;
  readonly tasks: ReadonlyArray<ITaskRow>;
}

/** One run with all of its record, and the words that would launch it again. */
export interface IRunDetails extends IRun {
  /** For a notebook: a line, or a whole cell. */
  readonly line: string;
  /** For a shell; null for a program that is a cell. */
  readonly command: string | null;
  readonly yaml: string;
  readonly tasks: ReadonlyArray<string>;
}

/** The answer to a list: `sequence` is the number of the last event of `stream` that it includes. */
export interface IRunList {
  readonly runs: ReadonlyArray<IRun>;
  readonly at: number;
  readonly stream: string;
  readonly sequence: number;
  /** Why nothing would be heard of changes, although the list could be read. */
  readonly problem?: IProblem | null;
}

/**
 * A change, as it is pushed; `failed`: what was asked of the run failed after the answer. `(un)available` is about all
 * runs: whether anything is heard of them.
 */
export interface IRunEvent {
  readonly type: 'changed' | 'removed' | 'failed' | 'unavailable' | 'available';
  readonly name: string;
  readonly run: IRun | null;
  readonly at: number;
  readonly stream: string;
  readonly sequence: number;
  readonly problem?: IProblem | null;
}

/** The schema id of pushed changes. */
export const RUN_EVENT = 'https://tfcluster.dev/events/run/v1';

/** What a launch asks for; `options` by the keys of `GET options`. */
export interface ILaunch {
  readonly program?: string;
  readonly cell?: string;
  /** Where the program runs, as the file browser names it; without it, in its own folder. */
  readonly folder?: string;
  readonly name?: string;
  readonly arguments?: ReadonlyArray<string>;
  readonly sha256?: string;
  readonly kernelspec?: string;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** The launch that would make a run again, and what of the run it does not say. */
export interface IRunAsLaunch {
  readonly name: string;
  readonly launch: ILaunch;
  readonly notes: ReadonlyArray<string>;
}

/** What a rerun changes. */
export interface IRerun {
  readonly resume?: boolean;
  readonly name?: string;
  readonly arguments?: ReadonlyArray<string>;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** An answer that is an error, RFC 9457. */
export interface IProblem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly problems?: ReadonlyArray<{
    readonly field: string;
    readonly value: unknown;
    readonly allowed: string;
  }>;
}

/** Several runs as one table; texts are in the language of the request. */
export interface IComparison {
  readonly runs: ReadonlyArray<{
    readonly name: string;
    /** Empty without one. */
    readonly displayName: string;
    readonly phase: Phase;
  }>;
  readonly rows: ReadonlyArray<IComparedRow>;
}

/** One thing of all runs, in their order; a value is empty where a run does not have it. */
export interface IComparedRow {
  readonly group: 'run' | 'arguments' | 'options' | 'results';
  readonly label: string;
  readonly values: ReadonlyArray<string>;
  readonly differs: boolean;
}

/** A TensorBoard that this server proxies; `path` is below the base URL. */
export interface IBoard {
  readonly id: string;
  readonly path: string;
  readonly title: string;
  /** The runs that it shows, none for a folder and for all runs. */
  readonly refs: ReadonlyArray<string>;
  readonly folder: string | null;
  /** Not while it is being started. */
  readonly running: boolean;
}
