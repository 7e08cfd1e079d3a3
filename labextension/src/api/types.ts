/**
 * The data that the server extension sends and receives, as in
 * `tfcluster_magic/server/openapi.yaml`.
 *
 * The record itself is generated from its JSON Schema into `models.ts`.
 */
import type {
  Event,
  Message,
  Phase,
  Status,
  TaskState,
  TFCluster
} from './models';

/** The record of a run; a record from the server always has a status. */
export interface ICluster extends TFCluster {
  readonly status: Status;
}

/** The progress of a training; times in seconds since 1970. A diverged loss is null. */
export interface IProgress {
  readonly step: number;
  readonly total: number | null;
  readonly stepsPerSecond: number | null;
  readonly loss: number | null;
  readonly etaSeconds: number | null;
  readonly at: number;
  readonly unit: string;
  readonly epoch: number | null;
  /** Pairs of step and loss, oldest first, at most 60. */
  readonly history: ReadonlyArray<readonly [number, number | null]>;
  /** Other metrics by the program's own names; null if not a number. */
  readonly metrics?: Readonly<Record<string, number | null>>;
  /** The source of the progress: `program`, `eventFiles` or `printedLines`. */
  readonly source?: string;
}

/** One run with its progress and notes. */
export interface IRun {
  readonly cluster: ICluster;
  readonly ready: { readonly ready: number; readonly total: number };
  readonly progress: IProgress | null;
  /** Sentences about facts that are not in the record, such as silent tasks. */
  readonly notes: ReadonlyArray<string>;
  /** Why no operator handles this run; empty if one does. */
  readonly away?: string;
  /** What each type of tasks used, once the run is over. */
  readonly used?: ReadonlyArray<ITypeUsage>;
  readonly places?: IPlaces;
  /** The address of the run's graphs in Grafana, if the administrator has set up Grafana. */
  readonly graphs?: string | null;
}

/**
 * The paths of a run's files in the file browser. A file that the file browser does not show has no
 * path.
 */
export interface IPlaces {
  /** The file or folder that was launched. */
  readonly program?: string;
  /** The working folder. */
  readonly folder?: string;
  readonly output?: string;
}

/** The current state of one task; empty or null if unknown. Times in seconds since 1970. */
export interface ITaskRow {
  readonly name: string;
  readonly state: TaskState | null;
  readonly message: string;
  readonly messages: ReadonlyArray<Message>;
  readonly restarts: number;
  /** The machine on which the task runs or ran. */
  readonly node: string;
  /** When the task reached its state. */
  readonly since: number | null;
  /** The last line that the task printed, and when it was printed. */
  readonly line: string;
  readonly printedAt: number | null;
}

/**
 * The usage of a task over `seconds`: busy cores, bytes of memory, and bytes a second that were
 * received and sent.
 */
export interface IRates {
  readonly seconds: number;
  readonly cpu: number;
  readonly memory: number;
  readonly received: number;
  readonly sent: number;
}

/** What one task uses: `current` while it runs, `average` once the task was sampled. */
export interface ITaskUsage {
  readonly name: string;
  readonly current: IRates | null;
  readonly average: IRates | null;
  readonly memoryPeak: number;
  readonly cpuRequested: number | null;
  readonly memoryRequested: number | null;
}

/** What the sampled tasks of one type used, and what one of these tasks requested. */
export interface ITypeUsage {
  readonly taskType: string;
  readonly tasks: number;
  readonly cpu: number;
  readonly cpuRequested: number | null;
  readonly memoryPeak: number;
  readonly peakTask: string;
  readonly memoryRequested: number | null;
}

/** The values of a figure in the equal parts of a time span; null where no value is known. */
export type Values = ReadonlyArray<number | null>;

/** One figure over time: of all tasks of a type, and, as lines, of the tasks that stand out. */
export interface IGraph {
  readonly figure: 'cpu' | 'memory' | 'network' | 'steps';
  readonly requested: number | null;
  readonly low: Values;
  readonly middle: Values;
  readonly high: Values;
  readonly lines: ReadonlyArray<{
    readonly task: string;
    readonly outlier: boolean;
    readonly values: Values;
  }>;
}

/** The graphs of a run on one time axis; times in seconds since 1970. */
export interface IRunGraphs {
  readonly began: number;
  /** The end of each of the equal parts into which the time of the run is divided. */
  readonly at: ReadonlyArray<number>;
  readonly types: ReadonlyArray<{
    readonly usage: ITypeUsage;
    readonly graphs: ReadonlyArray<IGraph>;
  }>;
  readonly steps: ReadonlyArray<{ readonly at: number; readonly step: number }>;
  readonly restarts: ReadonlyArray<readonly [number, string]>;
  readonly events: ReadonlyArray<Event>;
  readonly advice: ReadonlyArray<IAdvice>;
  /** Why no advice can be given; empty if advice was possible. */
  readonly noAdvice: string;
}

/** An advised change of a run, and the command that makes the change. */
export interface IAdvice {
  readonly code: string;
  readonly task: string;
  readonly message: string;
  readonly command: string;
}

/**
 * `GET clusters/{ref}/usage`: the tasks; on request, the samples of named tasks over time, and
 * graphs.
 */
export interface IUsage {
  readonly usage: {
    readonly uid: string;
    readonly ended: boolean;
    readonly tasks: ReadonlyArray<ITaskUsage>;
  };
  readonly series: Readonly<
    Record<
      string,
      {
        readonly cpu: ReadonlyArray<number>;
        readonly memory: ReadonlyArray<number>;
      }
    >
  >;
  readonly graphs?: IRunGraphs;
  /** Why the usage cannot be read where the server runs; absent if it can. */
  readonly unseen?: string;
}

/** The stacks that were taken automatically when these tasks stalled, as text. */
export interface IKeptStacks {
  readonly tasks: ReadonlyArray<string>;
  readonly text: string;
}

/** All tasks of the run with this uid. */
export interface ITaskList {
  readonly uid: string;
  readonly tasks: ReadonlyArray<ITaskRow>;
}

/** One run with its whole record, and the commands that launch it again. */
export interface IRunDetails extends IRun {
  /** The launch in a notebook: a line, or a whole cell. */
  readonly line: string;
  /** The launch in a shell; null for a program that is a cell. */
  readonly command: string | null;
  readonly yaml: string;
  readonly tasks: ReadonlyArray<string>;
}

/** A list response; `sequence` is the number of the last event of `stream` that it includes. */
export interface IRunList {
  readonly runs: ReadonlyArray<IRun>;
  readonly at: number;
  readonly stream: string;
  readonly sequence: number;
  /** Why no events will arrive, although the list could be read. */
  readonly problem?: IProblem | null;
}

/**
 * A pushed change. `failed`: a request on the run failed after the server had answered.
 * `(un)available` says for all runs whether their events arrive.
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

/** A launch request; `options` by the keys of `GET options`. */
export interface ILaunch {
  readonly program?: string;
  readonly cell?: string;
  /** The working folder as the file browser names it; default: the program's own folder. */
  readonly folder?: string;
  readonly name?: string;
  readonly arguments?: ReadonlyArray<string>;
  readonly sha256?: string;
  readonly kernelspec?: string;
  /** The configuration, if `program` is a project. */
  readonly config?: string;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** A folder with `tfcluster.yaml`. */
export interface IProject {
  /** The folder, as the file browser names it. */
  readonly path: string;
  readonly configurations: ReadonlyArray<string>;
  /** What is wrong with the project's file, in sentences. */
  readonly problems: ReadonlyArray<string>;
  /** The name of the project's newest run. */
  readonly lastRun: string | null;
}

/** `GET projects`; `complete` is false if the search stopped at one of its limits. */
export interface IProjectList {
  readonly projects: ReadonlyArray<IProject>;
  readonly complete: boolean;
}

/** One due time of a schedule, and its result. */
export interface IOccurrence {
  /** The due time, in seconds since 1970. */
  readonly due: number;
  readonly kind: string;
  readonly state:
    | 'Waiting'
    | 'Launching'
    | 'Running'
    | 'Retrying'
    | 'Succeeded'
    | 'Failed'
    | 'Stopped'
    | 'Unknown'
    | 'Skipped'
    | 'Missed';
  /** The name of the newest run of this due time, or empty. */
  readonly run: string;
  /** The number of the attempt: 1, and one more for each retry. */
  readonly attempt: number;
  /** The number of earlier due times that were missed together with this one. */
  readonly missed: number;
  readonly reason: Message | null;
  /** What advice changed in the newest run of this due time, or why it changed nothing. */
  readonly advice: Message | null;
}

/**
 * The results of the due times in a span of time, newest first, and the existing runs of these due
 * times.
 */
export interface IScheduleHistory {
  readonly occurrences: ReadonlyArray<IOccurrence>;
  readonly runs: Readonly<
    Record<
      string,
      Pick<
        Status,
        'phase' | 'startedAt' | 'finishedAt' | 'message' | 'messages'
      >
    >
  >;
}

/** When a schedule is due. The server sends more rules, which this extension does not read. */
export interface IScheduleRules {
  readonly cron: string;
  readonly timeZone?: string;
}

/** A schedule that is being filled in; `options` by the keys of `GET options`. */
export interface ISchedulePlan {
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>>;
  readonly launch: ILaunch;
  /** Whether the plan is for a change of the existing schedule of this name. */
  readonly updates: boolean;
}

/** The body of `POST schedules`, and of an update that replaces a whole schedule. */
export interface ISchedule {
  readonly rules: IScheduleRules;
  readonly launch: ILaunch;
  readonly track: boolean;
}

/** The values that fill a form to change a schedule. */
export interface IScheduleForm {
  readonly name: string;
  readonly launch: ILaunch;
  readonly options: Readonly<Record<string, string | boolean>>;
  readonly notes: ReadonlyArray<string>;
}

/** A schedule with its newest ten due times, and when it is due next, in seconds since 1970. */
export interface IScheduleView {
  readonly schedule: {
    readonly name: string;
    readonly uid: string;
    readonly rules: IScheduleRules;
    readonly status: {
      /** The newest due times, oldest first. */
      readonly occurrences?: ReadonlyArray<IOccurrence>;
      readonly paused?: {
        readonly reason?: Message | string;
        /** The person who paused the schedule; empty if it was the owner. */
        readonly by?: string;
        /** Whether only an administrator may resume it. */
        readonly locked?: boolean;
      } | null;
      readonly problem?: string;
    };
  };
  readonly next: ReadonlyArray<number>;
}

/** The launch that would repeat a run, and notes on what this launch lacks. */
export interface IRunAsLaunch {
  readonly name: string;
  readonly launch: ILaunch;
  readonly notes: ReadonlyArray<string>;
}

/** The changes of a rerun. */
export interface IRerun {
  readonly resume?: boolean;
  readonly name?: string;
  readonly arguments?: ReadonlyArray<string>;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** An error response (RFC 9457). */
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
    /** Empty if the run has no display name. */
    readonly displayName: string;
    readonly phase: Phase;
  }>;
  readonly rows: ReadonlyArray<IComparedRow>;
}

/** A row with the values of all runs in their order; a value is empty if a run lacks it. */
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
  /** The runs that the board shows; empty for a folder and for all runs. */
  readonly refs: ReadonlyArray<string>;
  readonly folder: string | null;
  /** Whether the board runs; false while it starts. */
  readonly running: boolean;
}
