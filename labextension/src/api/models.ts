/* Made by `jlpm models` from docs/reference/tfcluster.schema.json: change the models in Python, not this file. */

/**
 * who drives: each worker's program, or one notebook (in-graph)
 */
export type Mode = 'between-graph' | 'in-graph';
/**
 * what kind of program it is
 */
export type ProgramKind = 'cell' | 'command' | 'file' | 'folder' | 'inline' | 'link' | 'path' | 'url';
/**
 * flags that the program is given of those that it takes
 */
export type PassFlags = 'addresses' | 'all' | 'none';
/**
 * The server of an In-Graph task: TensorFlow's C API, or tf.distribute.Server.
 */
export type ServerKind = 'native' | 'python';
/**
 * whose success ends the run: that of all workers, or the chief's; absent: the chief's where there is one
 */
export type SuccessPolicy = 'all' | 'chief';
/**
 * what it has to do: success, or end in any way
 */
export type AwaitedOutcome = 'end' | 'success';
/**
 * The phase of a run. The last three are final.
 */
export type Phase = 'Failed' | 'Queued' | 'Running' | 'Starting' | 'Stopped' | 'Stopping' | 'Succeeded';
/**
 * Why a run is in its phase: the closed list. `Message`s say more.
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
   * what somebody wrote about the run, on one line
   */
  note?: string;
  /**
   * what the run is called where it is shown; `name` stays its name
   */
  displayName?: string;
  /**
   * words by which runs are found
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
   * 1, and one more for each retry
   */
  attempt?: number;
  /**
   * the due time in the schedule's zone, ISO 8601
   */
  local?: string;
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
   * runs that this one waits for, in Queued and without taking any room; it fails when one of them cannot do any more what is waited for
   *
   * @maxItems 10
   */
  after?: Dependency[];
  pods?: Pods | null;
  stop?: Stop | null;
}
/**
 * The tasks of a cluster by task type; absent types have none.
 */
export interface ReplicaSet {
  worker?: Replicas;
  ps?: Replicas1;
  chief?: Replicas2;
  evaluator?: Replicas3;
}
/**
 * tasks that train; in-graph: servers that compute
 */
export interface Replicas {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * The limits of one task. None means no limit of its own.
 */
export interface Resources {
  cpu?: number | null;
  memory?: string | null;
  /**
   * whole GPUs, not shared between running clusters
   */
  gpu?: number;
}
/**
 * parameter servers, given back when the workers are done
 */
export interface Replicas1 {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * one task that leads the workers, where the program wants it
 */
export interface Replicas2 {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * one task beside the cluster that evaluates checkpoints
 */
export interface Replicas3 {
  /**
   * number of tasks
   */
  count: number;
  resources?: Resources;
}
/**
 * The program of the tasks. Written by hand, it is `inline`, `command`, `path` or `url`.
 *
 *     A launch takes a snapshot instead: small ones (64 KiB) are in `files`; larger ones are under
 *     `<workspace>/.tfcluster/code/<sha256>/`. A program read from a record always has `kind` and
 *     `source` (`program.snapshots.completed`).
 */
export interface Program {
  inline?: string | null;
  command?: string[] | null;
  path?: string | null;
  url?: string | null;
  kind?: ProgramKind | null;
  /**
   * what the user named: a path, a URL, or 'cell'
   */
  source?: string;
  /**
   * file of the program that is started; absent: the file itself, and of a folder run.sh, main.py, __main__.py or its only .py file
   */
  entrypoint?: string;
  /**
   * checksum without which it does not run: of inline, a file and a url what sha256sum prints; of a folder and a snapshot see docs/how-to/kubernetes-files.md
   */
  sha256?: string;
  files?: {
    [k: string]: string;
  } | null;
  /**
   * files of the snapshot that have the executable bit
   *
   * @maxItems 5000
   */
  executables?: string[];
  /**
   * what the program is given on its command line
   *
   * @maxItems 5000
   */
  arguments?: string[];
  /**
   * flags that the program takes and is given, as spelled
   *
   * @maxItems 1000
   */
  flags?: string[];
  /**
   * the program cannot start without TensorFlow
   */
  importsTensorflow?: boolean;
  /**
   * the program mentions TensorFlow's distributed runtime; of one written by hand each task finds that out
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
   * retries of a failing program
   */
  restarts?: number;
  /**
   * disruptions healed without asking
   */
  heals?: number;
  /**
   * ps and evaluator live this long after success
   */
  reclaimAfter?: number;
  queueTimeout?: number | null;
  /**
   * bound on Starting
   */
  startTimeout?: number;
  /**
   * bound on Starting, from when a task has a node, where the registry does not have its image or does not give it
   */
  imageTimeout?: number;
  /**
   * bound on the run from its start
   */
  maxDuration?: number;
  /**
   * In-Graph: bound on idling
   */
  idleTimeout?: number;
  stallTimeout?: number | null;
  /**
   * between SIGTERM and SIGKILL
   */
  grace?: number;
  /**
   * how long a finished record stays
   */
  keepFor?: number;
}
/**
 * A run that has to succeed or end before this one starts.
 */
export interface Dependency {
  /**
   * the run, such as prepare-3, in the same place as this one
   */
  run: string;
  until?: AwaitedOutcome;
}
/**
 * Options of pods: claims, secrets, annotations. Only on Kubernetes.
 */
export interface Pods {
  /**
   * secrets that open the image's registry
   *
   * @maxItems 10
   */
  imagePullSecrets?: string[];
  /**
   * claims beside /data and /log
   *
   * @maxItems 20
   */
  volumes?: Volume[];
  /**
   * secrets that the tasks use
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
   * where the tasks find it
   */
  path: string;
  /**
   * the tasks may only read
   */
  readOnly?: boolean;
  /**
   * folder of the claim that is mounted; empty: all of it
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
   * where its keys are files; empty: they are environment variables
   */
  path?: string;
  /**
   * environment variables, each with the key of the secret that it holds; empty without a path: every key is a variable of its own name
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
   * its size, such as 10Gi
   */
  size: string;
  storageClass?: string | null;
}
/**
 * A request to end the run; the only part of a spec that may change.
 */
export interface Stop {
  /**
   * what the record says about it
   */
  reason?: string;
  /**
   * who asks
   */
  by?: string;
  /**
   * when that was, in seconds since 1970
   */
  at?: number;
}
/**
 * The state of a run. It has only one writer: the supervisor, or the operator. `evaluator` is
 *     how the evaluator ended if it failed or was stopped, which ends no run.
 */
export interface Status {
  phase: Phase;
  reason: Reason;
  /**
   * why it is there, in English
   */
  message?: string;
  /**
   * the sentences of `message` by their codes, to be shown in any language
   */
  messages?: Message[];
  /**
   * group attempt; 1 is the first
   */
  attempt?: number;
  queuedAt?: number | null;
  /**
   * the runs of `after` that were seen
   */
  awaited?: AwaitedRun[];
  startedAt?: number | null;
  runningAt?: number | null;
  finishedAt?: number | null;
  releasedAt?: number | null;
  stopAt?: number | null;
  retryAt?: number | null;
  /**
   * disruptions that were healed
   */
  heals?: number;
  /**
   * retries of a failing program
   */
  programRestarts?: number;
  /**
   * restarts of single tasks, where above 0
   */
  restarts?: {
    [k: string]: number;
  };
  windowOpenedAt?: number | null;
  /**
   * failures in the open window, or those that ended the run
   */
  failures?: TaskFailure[];
  culprit?: string | null;
  evaluator?: TaskFailure | null;
  /**
   * tasks by task type and state
   */
  counts?: {
    [k: string]: TypeCounts;
  };
  /**
   * at most 20 tasks that need attention
   */
  attention?: TaskStatus[];
  /**
   * the newest 50
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
   * what the launch and the operator warn of
   */
  warnings?: string[];
  /**
   * what the launch read from the program's text: flags that are passed, and counts; each with the option that overrides it
   */
  inferred?: Message[];
}
/**
 * A sentence or a clause as the code of its text and the values in it.
 *
 *     The texts of all codes are in docs/reference/messages.md. A value is a name, a number, a message
 *     that is part of this one, or a list of names or of messages.
 */
export interface Message {
  /**
   * the code of the text, from docs/reference/messages.md
   */
  code: string;
  /**
   * the values that stand in the text, by name
   */
  params?: {
    [k: string]: string | number | (string | Message)[] | Message;
  };
}
/**
 * A run of `after` that was seen.
 */
export interface AwaitedRun {
  /**
   * the run, such as prepare-3
   */
  run: string;
  /**
   * its uid: a later run of this name is another one
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
   * when it ended, in seconds since 1970
   */
  finishedAt: number;
  exitCode?: number | null;
  signal?: number | null;
  /**
   * its last lines say that it lost a peer
   */
  follows?: boolean;
  /**
   * the end of its output
   */
  lastLines?: string[];
  /**
   * what its output says that went wrong, such as an exception
   */
  error?: string;
  /**
   * the user's own file where that was raised
   */
  file?: string;
  /**
   * the line of `file`; 0 when it is not known
   */
  line?: number;
  /**
   * the exception that led to `error`
   */
  origin?: string;
  /**
   * what its exit code 0 did not tell of `error`: that it ended a `thread`, a child `process`, or what stands before a `pipe` in a shell script
   */
  hidden?: string;
  /**
   * what the cluster or the machine says of it, in English
   */
  detail?: string;
  detailMessage?: Message | null;
  /**
   * why the copy of its output lacks lines
   */
  uncopied?: string;
  /**
   * folders with results outside of the run's own
   */
  wrote?: string[];
  /**
   * folders with results on the disk of its pod
   */
  lost?: string[];
  found?: FoundCheckpoint | null;
}
/**
 * A checkpoint of an earlier run, beyond which a program did not train. `run` is its run, if
 *     known, and `steps` how many steps it trained all the same.
 */
export interface FoundCheckpoint {
  /**
   * name of the checkpoint
   */
  checkpoint: string;
  /**
   * the folder that it is in
   */
  folder: string;
  /**
   * the run that wrote it; empty when it is not known
   */
  run?: string;
  /**
   * steps that the program trained all the same
   */
  steps?: number;
}
/**
 * The number of tasks of one type by state.
 */
export interface TypeCounts {
  /**
   * tasks that were asked for
   */
  desired: number;
  /**
   * tasks that are started
   */
  starting?: number;
  /**
   * tasks that run
   */
  running?: number;
  /**
   * tasks that have succeeded
   */
  succeeded?: number;
  /**
   * tasks that have failed
   */
  failed?: number;
  /**
   * tasks that were ended
   */
  stopped?: number;
}
/**
 * The state of one task for display; `name` is `worker-3`.
 */
export interface TaskStatus {
  /**
   * the task, such as worker-3
   */
  name: string;
  state: TaskState;
  /**
   * what is to be said of it, in English
   */
  message?: string;
  /**
   * how often it was started again
   */
  restarts?: number;
  exit?: TaskExit | null;
  /**
   * the sentences of `message` by their codes, to be shown in any language
   */
  messages?: Message[];
}
/**
 * A notable event of the run.
 */
export interface Event {
  /**
   * when it happened
   */
  at: number;
  /**
   * what happened, in one word
   */
  reason: string;
  /**
   * what happened, in English
   */
  message: string;
  /**
   * the sentences of `message` by their codes, to be shown in any language
   */
  messages?: Message[];
}
/**
 * The released resources, and the time.
 */
export interface Reclaimed {
  /**
   * when it was given back
   */
  at: number;
  /**
   * the tasks that gave it back
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
 * The time for which tasks have had their requests; see `quota.ledger`.
 */
export interface Usage {
  /**
   * up to when `days` counts
   */
  at: number;
  /**
   * tasks by type that hold something since then
   */
  holding?: {
    [k: string]: number;
  };
  /**
   * seconds by day (2026-11-22, UTC) and task type, of all tasks together
   */
  days?: {
    [k: string]: {
      [k: string]: number;
    };
  };
  /**
   * CPU cores that a task of a type asks for
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
