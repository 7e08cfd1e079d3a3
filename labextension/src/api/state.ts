/** The interface of the model of all runs, for views and for other extensions. */
import type { ISignal } from '@lumino/signaling';
import type { Phase, VerbBodies } from './models';
import type { ServerProblem } from './problem';
import type { ICaller } from './rest';
import type {
  ILaunch,
  IRerun,
  IRun,
  IRunDetails,
  ISchedule,
  IScheduleView,
  ITaskList
} from './types';

/**
 * `live`: the state is current. `stale`: the state was current at `at`, and `problem` is the
 * reason.
 */
export interface IClustersState {
  readonly state: 'loading' | 'live' | 'stale';
  /**
   * The runs, newest first: if `all`, every run; else the newest run of each name, and all runs
   * that have not ended.
   */
  readonly runs: ReadonlyArray<IRun>;
  readonly all: boolean;
  readonly problem: ServerProblem | null;
  /** When the server last answered or sent an event, in milliseconds since 1970; 0 for never. */
  readonly at: number;
}

/**
 * A run that reached a new phase. `before` is its earlier phase; null if the run is new to this
 * page.
 */
export interface ITransition {
  readonly run: IRun;
  readonly before: Phase | null;
  /** Whether a user of this page requested the end of the run. */
  readonly asked: boolean;
}

/** A request on a run, such as its deletion, that failed after the server had answered. */
export interface IFailure {
  readonly run: IRun;
  readonly problem: ServerProblem;
}

export interface IClusters {
  readonly state: IClustersState;
  readonly changed: ISignal<IClusters, IClustersState>;
  readonly transitioned: ISignal<IClusters, ITransition>;
  readonly failed: ISignal<IClusters, IFailure>;
  /** Emitted when a schedule was saved on this page. */
  readonly scheduleSaved: ISignal<IClusters, string>;
  /** The connection to the server, for routes that are not a verb of a run. */
  readonly caller: ICaller;
  find(name: string): IRun | undefined;
  /** Load a run that the list may leave out. Rejects with ServerProblem if there is no such run. */
  ensure(name: string): Promise<IRun>;
  details(name: string): Promise<IRunDetails>;
  /** Return the current tasks of a run in one request; undefined if there is no such run. */
  tasks(name: string): Promise<ITaskList | undefined>;
  showAll(all: boolean): Promise<void>;
  refresh(): Promise<void>;
  launch(what: ILaunch): Promise<IRun>;
  /** Create a schedule, or replace the schedule of this name. */
  saveSchedule(
    name: string,
    what: ISchedule,
    isNew: boolean
  ): Promise<IScheduleView>;
  /** Stop exactly this run; refused with 409 if another run has its name by now. */
  stop(run: IRun): Promise<IRun>;
  /** Call another verb on exactly this run; refused like `stop`. */
  act<V extends keyof VerbBodies>(
    run: IRun,
    verb: V,
    body: VerbBodies[V]
  ): Promise<IRun>;
  rerun(name: string, changes?: IRerun): Promise<IRun>;
  /** Delete exactly this run; an active one is stopped first and removed later. */
  remove(run: IRun, withLogs?: boolean): Promise<void>;
}
