/**
 * The launch options of the server (form fields, kernels, free resources), and the plan of a
 * launch.
 *
 * Types only; `tfcluster_magic/launch/form_fields.py` and `server/launch.py` make the data.
 */
import type { Mode } from './models';
import type { IScheduleRules } from './types';

export type FieldKind =
  | 'whole'
  | 'number'
  | 'memory'
  | 'duration'
  | 'word'
  | 'file'
  | 'switch'
  | 'pairs'
  | 'image'
  | 'names'
  | 'volumes'
  | 'secrets'
  | 'annotations'
  | 'claim'
  | 'runs'
  | 'cron'
  | 'zone'
  | 'durations';

/** One option of the command line. */
export interface IField {
  readonly key: string;
  readonly flag: string;
  /** The option's path in a spec; `*` means every task type. */
  readonly path: ReadonlyArray<string>;
  readonly kind: FieldKind;
  readonly section: 'basic' | 'resources' | 'limits' | 'pods' | 'schedule';
  readonly label: string;
  readonly help: string;
  readonly modes: ReadonlyArray<Mode>;
  /** The default as a user would type it; null if the program decides, or if there is none. */
  readonly default: Readonly<Partial<Record<Mode, string | null>>>;
  readonly words: ReadonlyArray<string>;
  /** An example value, if the format is not obvious. */
  readonly example?: string | null;
  readonly minimum?: number;
  readonly maximum?: number;
}

export interface IKernel {
  readonly name: string;
  readonly title: string;
  readonly python: string | null;
  /** Why tasks cannot use this kernel; null if they can. */
  readonly why: string | null;
}

/** A total amount and its free part; memory in bytes. */
export interface ILimit {
  readonly total: number;
  readonly free: number;
}

/** `GET options`. */
export interface ILaunchOptions {
  readonly options: {
    readonly cpu: ILimit;
    readonly memory: ILimit;
    readonly gpu: ILimit;
    readonly backend: string;
    /** The names of images for tasks, the default first; empty where tasks are not pods. */
    readonly images?: ReadonlyArray<string>;
    readonly notes?: ReadonlyArray<string>;
  };
  readonly form: ReadonlyArray<IField>;
  /** The options of a schedule, as fields of the same form. */
  readonly schedule: ReadonlyArray<IField>;
  readonly kernelspecs: ReadonlyArray<IKernel>;
  readonly defaults: { readonly kernelspec: string | null };
}

/** One problem. `option` is the input that it concerns; null if it concerns no input. */
export interface IPlanProblem {
  readonly field: string;
  readonly option: string | null;
  readonly value: unknown;
  readonly allowed: string;
  readonly message: string;
  /** A number that would be accepted instead; null if there is none. */
  readonly fits: number | null;
}

/** `POST clusters/plan`, and `POST schedules/plan`. */
export interface IPlan {
  readonly name: string | null;
  readonly problems: ReadonlyArray<IPlanProblem>;
  readonly warnings: ReadonlyArray<string>;
  /** The warnings that concern one input. */
  readonly cautions?: ReadonlyArray<IPlanProblem>;
  /** Information before a launch, such as the rest of a budget. */
  readonly told?: ReadonlyArray<string>;
  /** What was inferred from the program's text, each with the option that overrides it. */
  readonly inferred?: ReadonlyArray<string>;
  /** The equivalent line for a notebook in `folder`. */
  readonly line: string;
  readonly folder: string;
  /** The values from the file of a project; null for another program. */
  readonly project?: IPlanProject | null;
  /** The plan of a schedule; absent for a single launch. */
  readonly schedule?: {
    /** The rules as `POST schedules` takes them; null while a rule is wrong. */
    readonly rules: IScheduleRules | null;
    /** The next five due times, in seconds since 1970. */
    readonly next: ReadonlyArray<number>;
    /** The number of its first run; null for a change, and while the name cannot be used. */
    readonly firstRun: number | null;
  };
}

/** The configurations of a project, and the values that its file gives to empty fields, by key. */
export interface IPlanProject {
  readonly config: string | null;
  readonly configurations: ReadonlyArray<string>;
  readonly values: Readonly<Record<string, string | boolean>>;
}
