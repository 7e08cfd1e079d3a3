/* Made by `jlpm models` from docs/reference/tfcluster.schema.json: change the models in Python, not this file. */

/**
 * where the graph is built: in the program, or in one notebook (in-graph)
 */
export type Mode = 'between-graph' | 'in-graph';
/**
 * how the program was given
 */
export type ProgramKind = 'cell' | 'command' | 'file' | 'folder' | 'inline' | 'link' | 'path' | 'url';
/**
 * which of the flags that the program accepts are added to its command line
 */
export type PassFlags = 'addresses' | 'all' | 'none';
/**
 * The server of an In-Graph task: TensorFlow's C API, or tf.distribute.Server.
 */
export type ServerKind = 'native' | 'python';
/**
 * tasks whose success ends the run: the workers and the chief (`all`), or only the chief; absent: only the chief if there is one, else all workers
 */
export type SuccessPolicy = 'all' | 'chief';
/**
 * what that run must do: succeed, or end in any way
 */
export type AwaitedOutcome = 'end' | 'success';
/**
 * The phase of a run. The last three are final.
 */
export type Phase = 'Failed' | 'Queued' | 'Running' | 'Starting' | 'Stopped' | 'Stopping' | 'Succeeded';
/**
 * The reason why a run is in its phase, from a fixed list. `messages` says more.
 */
export type Reason =
  | 'BackingOff'
  | 'Completed'
  | 'DependencyFailed'
  | 'Disrupted'
  | 'Healing'
  | 'IdleTimeout'
  | 'Investigating'
  | 'MaxDuration'
  | 'OOMKilled'
  | 'PSExited'
  | 'PeerFinished'
  | 'ProgramFailed'
  | 'QueueTimeout'
  | 'Queued'
  | 'RecordDamaged'
  | 'Running'
  | 'ServerFailed'
  | 'Stalled'
  | 'StartFailed'
  | 'StartTimeout'
  | 'Starting'
  | 'StopRequested'
  | 'SupervisorLost';
/**
 * Why a task ended.
 */
export type Cause = 'Completed' | 'Error' | 'Evicted' | 'Killed' | 'Lost' | 'NotStarted' | 'OOMKilled' | 'Stopped';
/**
 * The state of one task.
 */
export type TaskState = 'Failed' | 'Pending' | 'Running' | 'Starting' | 'Stopped' | 'Succeeded';

/**
 * One run of a TFCluster: identity, spec and status.
 */
export interface TFCluster {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
  spec: Spec;
  status?: Status;
}
/**
 * The identity of a run. `name` is `<cluster>-<run>`, as in `digits-2`.
 */
export interface Metadata {
  name: string;
  /**
   * the name that the user chose
   */
  cluster: string;
  run: number;
  uid: string;
  createdAt: number;
  owner?: string;
  /**
   * a note about the run, on one line
   */
  note?: string;
  /**
   * the title that views show; `name` still identifies the run
   */
  displayName?: string;
  /**
   * tags, by which lists are filtered
   *
   * @maxItems 16
   */
  tags?: string[];
  scheduled?: ScheduledRun | null;
}
/**
 * The schedule and the due time for which a run was launched.
 */
export interface ScheduledRun {
  /**
   * the schedule's name
   */
  schedule: string;
  /**
   * the schedule's uid
   */
  uid: string;
  /**
   * the due time, in seconds since 1970
   */
  due: number;
  /**
   * 1 for the first attempt, 2 for the first retry
   */
  attempt?: number;
  /**
   * the due time in the schedule's zone, ISO 8601
   */
  local?: string;
  advised?: AdvisedOption[] | null;
}
/**
 * An option of a schedule's runs, changed by advice on the usage of an earlier run.
 */
export interface AdvisedOption {
  /**
   * the option by key, such as worker_memory
   */
  option: string;
  /**
   * its value in the schedule itself
   */
  own: string;
  /**
   * the value that runs get instead
   */
  value: string;
  /**
   * the run whose usage led to the advice
   */
  run: string;
  why: Message;
}
/**
 * the advice
 */
export interface Message {
  /**
   * the code of the text, from docs/reference/messages.md
   */
  code: string;
  /**
   * the values in the text, by name
   */
  params?: {
    [k: string]: string | number | (string | Message1)[] | Message1;
  };
}
/**
 * A sentence or a clause as the code of its text and the values in it.
 *
 *     The texts of all codes are in docs/reference/messages.md. A value is a name, a number, a message
 *     that is part of this one, or a list of names or of messages.
 */
export interface Message1 {
  /**
   * the code of the text, from docs/reference/messages.md
   */
  code: string;
  /**
   * the values in the text, by name
   */
  params?: {
    [k: string]: string | number | (string | Message1)[] | Message1;
  };
}
/**
 * The desired state of a cluster.
 */
export interface Spec {
  mode?: Mode;
  replicas?: ReplicaSet;
  program?: Program | null;
  passFlags?: PassFlags;
  server?: ServerKind;
  image?: string | null;
  interpreter?: string | null;
  /**
   * environment variables of the tasks
   */
  env?: {
    [k: string]: string;
  };
  lifecycle?: Lifecycle;
  resumeFrom?: string | null;
  /**
   * runs that this run waits for. While it waits, it is Queued and uses no resources. It fails as soon as one of those runs can no longer succeed or end as required
   *
   * @maxItems 10
   */
  after?: Dependency[];
  pods?: Pods | null;
  stop?: Stop | null;
}
/**
 * The tasks of a cluster by task type; a type that is absent has no tasks.
 */
export interface ReplicaSet {
  worker?: Replicas;
  ps?: Replicas1;
  chief?: Replicas2;
  evaluator?: Replicas3;
}
/**
 * tasks that train; in-graph: TensorFlow servers that compute
 */
export interface Replicas {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * The limits of one task. If a limit is absent, the task has no limit of its own.
 */
export interface Resources {
  cpu?: number | null;
  memory?: string | null;
  /**
   * number of whole GPUs; running clusters do not share a GPU
   */
  gpu?: number;
}
/**
 * parameter servers, released when the workers are done
 */
export interface Replicas1 {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * one task that leads the workers, if the program needs it
 */
export interface Replicas2 {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * one task outside the cluster that evaluates checkpoints
 */
export interface Replicas3 {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * The program of the tasks. In a record written by hand, it is `inline`, `command`, `path` or
 *     `url`.
 *
 *     A launch takes a snapshot instead: a small one (up to 64 KiB) is in `files`, a larger one under
 *     `<workspace>/.tfcluster/code/<sha256>/`. When a record is read,
 *     `kind` and `source` are filled in if they are absent.
 */
export interface Program {
  inline?: string | null;
  command?: string[] | null;
  path?: string | null;
  url?: string | null;
  kind?: ProgramKind | null;
  /**
   * what the user launched: a path, a URL, or 'cell'
   */
  source?: string;
  /**
   * file to start; absent: the program itself if it is one file, and in a folder run.sh, main.py, __main__.py or the only .py file
   */
  entrypoint?: string;
  /**
   * checksum that the program must have; otherwise it does not run. For inline, a file and a url, it is what sha256sum prints; for a folder and a snapshot, see docs/how-to/kubernetes-files.md
   */
  sha256?: string;
  files?: {
    [k: string]: string;
  } | null;
  /**
   * executable files of the snapshot
   *
   * @maxItems 5000
   */
  executables?: string[];
  /**
   * arguments of the program
   *
   * @maxItems 5000
   */
  arguments?: string[];
  /**
   * flags to add to the command line, spelled as the program declares them
   *
   * @maxItems 1000
   */
  flags?: string[];
  /**
   * whether the program needs TensorFlow to start
   */
  importsTensorflow?: boolean;
  /**
   * whether the program uses TensorFlow's distributed runtime. A launch determines this from the program. If a record written by hand does not have `true` here, each task determines it from the program's files
   */
  serves?: boolean;
  workingDir?: string | null;
}
/**
 * Limits of a run; docs/reference/limits.md has the table of defaults.
 */
export interface Lifecycle {
  successPolicy?: SuccessPolicy | null;
  /**
   * maximum number of retries of a failing program
   */
  restarts?: number;
  /**
   * maximum number of disruptions after which tasks start again
   */
  heals?: number;
  /**
   * time that ps and evaluator stay after success
   */
  reclaimAfter?: number;
  queueTimeout?: number | null;
  /**
   * longest time in Starting
   */
  startTimeout?: number;
  /**
   * longest time in Starting while a task has a node but its image cannot be pulled
   */
  imageTimeout?: number;
  /**
   * longest time from start to end
   */
  maxDuration?: number;
  /**
   * In-Graph: longest time in which no notebook uses the run
   */
  idleTimeout?: number;
  stallTimeout?: number | null;
  /**
   * time between SIGTERM and SIGKILL
   */
  grace?: number;
  /**
   * time for which the record of a finished run is kept
   */
  keepFor?: number;
}
/**
 * A run that must succeed or end before this one starts.
 */
export interface Dependency {
  /**
   * the run, such as prepare-3, on the same machine or in the same namespace
   */
  run: string;
  until?: AwaitedOutcome;
}
/**
 * Options of pods: claims, secrets, annotations. Only on Kubernetes.
 */
export interface Pods {
  /**
   * secrets for pulling the image from its registry
   *
   * @maxItems 10
   */
  imagePullSecrets?: string[];
  /**
   * claims to mount besides /data and /log
   *
   * @maxItems 20
   */
  volumes?: Volume[];
  /**
   * secrets for the tasks
   *
   * @maxItems 20
   */
  secrets?: SecretUse[];
  /**
   * annotations of the pods
   */
  annotations?: {
    [k: string]: string;
  };
  dataClaim?: DataClaim | null;
}
/**
 * An existing claim, mounted in every pod of the run.
 */
export interface Volume {
  /**
   * name of a PersistentVolumeClaim
   */
  claim: string;
  /**
   * mount path in the tasks
   */
  path: string;
  /**
   * mount the claim for reading only
   */
  readOnly?: boolean;
  /**
   * folder of the claim to mount; empty: the whole claim
   */
  subPath?: string;
}
/**
 * A secret that the administrator labelled for tasks, used in every pod of the run.
 */
export interface SecretUse {
  /**
   * name of a Secret labelled for tasks
   */
  name: string;
  /**
   * mount path, with one file for each key; empty: the keys become environment variables
   */
  path?: string;
  /**
   * environment variables, each with the key of the secret that holds its value; if `variables` and `path` are empty, each key becomes a variable of the same name
   */
  variables?: {
    [k: string]: string;
  };
}
/**
 * The run's own claim at /data, created and deleted with the run.
 */
export interface DataClaim {
  /**
   * size, such as 10Gi
   */
  size: string;
  storageClass?: string | null;
}
/**
 * A request to end the run; the only part of a spec that may change.
 */
export interface Stop {
  /**
   * the reason, as the record shows it
   */
  reason?: string;
  /**
   * the person who requested the stop
   */
  by?: string;
  /**
   * time of the request, in seconds since 1970
   */
  at?: number;
}
/**
 * The state of a run. It has only one writer: the supervisor, or the operator.
 *
 *     `evaluator` is present if the evaluator failed or was stopped, which does not end the run.
 */
export interface Status {
  phase: Phase;
  reason: Reason;
  /**
   * why the run is in this phase, in English
   */
  message?: string;
  /**
   * the sentences of `message` as codes, which views show in the reader's language
   */
  messages?: Message1[];
  /**
   * number of the attempt of all tasks together; 1 is the first
   */
  attempt?: number;
  queuedAt?: number | null;
  /**
   * the runs of `after` that were found, also if they were deleted later
   */
  awaited?: AwaitedRun[];
  startedAt?: number | null;
  runningAt?: number | null;
  finishedAt?: number | null;
  releasedAt?: number | null;
  stopAt?: number | null;
  retryAt?: number | null;
  /**
   * disruptions after which tasks were started again
   */
  heals?: number;
  /**
   * retries of a failing program
   */
  programRestarts?: number;
  /**
   * restarts by task, if it had any
   */
  restarts?: {
    [k: string]: number;
  };
  windowOpenedAt?: number | null;
  /**
   * failures whose common cause is sought now, or that ended the run
   */
  failures?: TaskFailure[];
  culprit?: string | null;
  evaluator?: TaskFailure | null;
  /**
   * number of tasks by type and state
   */
  counts?: {
    [k: string]: TypeCounts;
  };
  /**
   * at most 20 tasks that need attention
   */
  attention?: TaskStatus[];
  /**
   * the newest 50 events
   */
  events?: Event[];
  reclaimed?: Reclaimed | null;
  usage?: Usage | null;
  /**
   * host:port by task type
   */
  addresses?: {
    [k: string]: string[];
  };
  /**
   * output: the run's own folder; logs: its log files
   */
  paths?: {
    [k: string]: string;
  };
  /**
   * warnings of the launch and the operator
   */
  warnings?: string[];
  /**
   * what the launch inferred from the program's text, such as flags and counts, each with the option that overrides it
   */
  inferred?: Message1[];
}
/**
 * A run of `after` that exists or existed.
 */
export interface AwaitedRun {
  /**
   * the run, such as prepare-3
   */
  run: string;
  /**
   * uid of that run; a later run of the same name has another uid
   */
  uid: string;
  doneAt?: number | null;
}
/**
 * The failure of one attempt of a task.
 */
export interface TaskFailure {
  /**
   * the task, such as worker-3
   */
  task: string;
  /**
   * the attempt of the task that ended; 1 is the first
   */
  attempt: number;
  exit: TaskExit;
}
/**
 * The end of one task, from the runtime's termination message on any backend.
 */
export interface TaskExit {
  cause: Cause;
  /**
   * time of its end, in seconds since 1970
   */
  finishedAt: number;
  exitCode?: number | null;
  signal?: number | null;
  /**
   * whether its last lines report the loss of another task
   */
  follows?: boolean;
  /**
   * the last lines of its output
   */
  lastLines?: string[];
  /**
   * the error in its output, such as an exception
   */
  error?: string;
  /**
   * the user's file that raised `error`
   */
  file?: string;
  /**
   * the line in `file`; 0 if unknown
   */
  line?: number;
  /**
   * the exception that led to `error`
   */
  origin?: string;
  /**
   * where `error` happened although the exit code is 0: in a `thread`, in a child `process`, or before a `pipe` of a shell script
   */
  hidden?: string;
  /**
   * explanation by the cluster or the machine, in English
   */
  detail?: string;
  detailMessage?: Message1 | null;
  /**
   * why lines are missing in the copy of its output
   */
  uncopied?: string;
  /**
   * folders outside the run's own that it wrote to
   */
  wrote?: string[];
  /**
   * folders on its pod's own disk that it wrote to; they are lost with the pod
   */
  lost?: string[];
  found?: FoundCheckpoint | null;
}
/**
 * A checkpoint of an earlier run from which a program resumed although it had nothing left to
 *     train.
 */
export interface FoundCheckpoint {
  /**
   * name of the checkpoint
   */
  checkpoint: string;
  /**
   * folder of the checkpoint
   */
  folder: string;
  /**
   * the run that wrote it; empty if unknown
   */
  run?: string;
  /**
   * steps that the program trained after it restored the checkpoint
   */
  steps?: number;
}
/**
 * The number of tasks of one type by state.
 */
export interface TypeCounts {
  /**
   * tasks requested
   */
  desired: number;
  /**
   * tasks starting
   */
  starting?: number;
  /**
   * tasks running
   */
  running?: number;
  /**
   * tasks that succeeded
   */
  succeeded?: number;
  /**
   * tasks that failed
   */
  failed?: number;
  /**
   * tasks that were stopped
   */
  stopped?: number;
}
/**
 * The state of one task, for display.
 */
export interface TaskStatus {
  /**
   * the task, such as worker-3
   */
  name: string;
  state: TaskState;
  /**
   * explanation of the state, in English
   */
  message?: string;
  /**
   * number of restarts
   */
  restarts?: number;
  exit?: TaskExit | null;
  /**
   * the sentences of `message` as codes, which views show in the reader's language
   */
  messages?: Message1[];
}
/**
 * A notable event of the run.
 */
export interface Event {
  /**
   * time of the event
   */
  at: number;
  /**
   * the kind of event, in one word
   */
  reason: string;
  /**
   * what happened, in English
   */
  message: string;
  /**
   * the sentences of `message` as codes, which views show in the reader's language
   */
  messages?: Message1[];
}
/**
 * Resources that the run released, and when.
 */
export interface Reclaimed {
  /**
   * time of the release
   */
  at: number;
  /**
   * the tasks that were ended
   */
  tasks: string[];
  /**
   * CPU cores
   */
  cpu?: number;
  /**
   * memory in bytes
   */
  memory?: number;
  /**
   * GPUs
   */
  gpu?: number;
}
/**
 * The time for which tasks have reserved their resources.
 */
export interface Usage {
  /**
   * time up to which `days` counts
   */
  at: number;
  /**
   * number of tasks by type that still reserve resources
   */
  holding?: {
    [k: string]: number;
  };
  /**
   * seconds for which the tasks of a type together reserved resources, by day (UTC, such as 2026-11-22) and type
   */
  days?: {
    [k: string]: {
      [k: string]: number;
    };
  };
  /**
   * CPU cores requested by one task of each type
   */
  cores?: {
    [k: string]: number;
  };
  used?: number | null;
}
export interface VerbBodies {
  note: NoteBody;
  rename: RenameBody;
  stop: StopBody;
  tag: TagBody;
}
/**
 * Set the note of a run; an empty text removes it.
 */
export interface NoteBody {
  text: string;
}
/**
 * Set the display name of a run; an empty text removes it.
 */
export interface RenameBody {
  text: string;
}
/**
 * Stop a run; answers before it has ended.
 */
export interface StopBody {
  reason?: string;
}
/**
 * Add tags to a run, and remove others.
 */
export interface TagBody {
  /**
   * @maxItems 16
   */
  add?: string[];
  /**
   * @maxItems 16
   */
  remove?: string[];
}
