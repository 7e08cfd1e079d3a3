/**
 * What the model of all runs tells and takes, for views and for other extensions.
 */
import type { ISignal } from '@lumino/signaling';
import type { Phase, VerbBodies } from './models';
import type { ServerProblem } from './problem';
import type { ICaller } from './rest';
import type { ILaunch, IRerun, IRun, IRunDetails, ITaskList } from './types';

/** `live`: what is shown is so now; `stale`: it was so at `at`, and `problem` says what is wrong. */
export interface IClustersState {
  readonly state: 'loading' | 'live' | 'stale';
  /** Newest first: the newest run of each name and those that have not ended, or all of them. */
  readonly runs: ReadonlyArray<IRun>;
  readonly all: boolean;
  readonly problem: ServerProblem | null;
  /** When the server last answered or pushed, in milliseconds since 1970; 0 for never. */
  readonly at: number;
}

/** A run that came to a new phase; `before` is null for one that is new to this page. */
export interface ITransition {
  readonly run: IRun;
  readonly before: Phase | null;
  /** Whether a person asked for the end on this page. */
  readonly asked: boolean;
}

/** What was asked of a run, such as its deletion, and failed after the server had answered. */
export interface IFailure {
  readonly run: IRun;
  readonly problem: ServerProblem;
}

export interface IClusters {
  readonly state: IClustersState;
  readonly changed: ISignal<IClusters, IClustersState>;
  readonly transitioned: ISignal<IClusters, ITransition>;
  readonly failed: ISignal<IClusters, IFailure>;
  /** How the server is reached, for routes that are no verb of a run. */
  readonly caller: ICaller;
  find(name: string): IRun | undefined;
  /** Know a run that the list may leave out. Rejects with ServerProblem when there is none. */
  ensure(name: string): Promise<IRun>;
  details(name: string): Promise<IRunDetails>;
  /** Each task of a run as it is now, with one request; undefined when there is no such run. */
  tasks(name: string): Promise<ITaskList | undefined>;
  showAll(all: boolean): Promise<void>;
  refresh(): Promise<void>;
  launch(what: ILaunch): Promise<IRun>;
  /** Stop the run that this is: refused with 409 when its name is another run's by now. */
  stop(run: IRun): Promise<IRun>;
  /** Do something else to the run that this is; refused as `stop`. */
  act<V extends keyof VerbBodies>(
    run: IRun,
    verb: V,
    body: VerbBodies[V]
  ): Promise<IRun>;
  rerun(name: string, changes?: IRerun): Promise<IRun>;
  /** Delete the run that this is; one that has not ended is stopped first, and goes later. */
  remove(run: IRun, withLogs?: boolean): Promise<void>;
}
