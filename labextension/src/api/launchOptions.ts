/**
 * The launch options of the server: the fields of the form, the kernels, what is free; and a plan.
 *
 * Types only; `tfcluster_magic/launch/form_fields.py` and `server/launch.py` make the data.
 */
import type { Mode } from './models';

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
  | 'runs';

/** One option of the command line. */
export interface IField {
  readonly key: string;
  readonly flag: string;
  /** Where it stands in a spec; `*` for every task type. */
  readonly path: ReadonlyArray<string>;
  readonly kind: FieldKind;
  readonly section: 'basic' | 'resources' | 'limits' | 'pods';
  readonly label: string;
  readonly help: string;
  readonly modes: ReadonlyArray<Mode>;
  /** As one would type it; null where the program decides, or for none. */
  readonly default: Readonly<Partial<Record<Mode, string | null>>>;
  readonly words: ReadonlyArray<string>;
  /** How it is written, where that is not to be seen otherwise. */
  readonly example?: string | null;
  readonly minimum?: number;
  readonly maximum?: number;
}

export interface IKernel {
  readonly name: string;
  readonly title: string;
  readonly python: string | null;
  /** Why tasks cannot run with it; null when they can. */
  readonly why: string | null;
}

/** An amount of which `free` is left; memory in bytes. */
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
    /** Those that tasks may have by their names, the default first; none where tasks are no pods. */
    readonly images?: ReadonlyArray<string>;
    readonly notes?: ReadonlyArray<string>;
  };
  readonly form: ReadonlyArray<IField>;
  readonly kernelspecs: ReadonlyArray<IKernel>;
  readonly defaults: { readonly kernelspec: string | null };
}

/** One thing that is wrong; `option` is the input that it is about, null for none. */
export interface IPlanProblem {
  readonly field: string;
  readonly option: string | null;
  readonly value: unknown;
  readonly allowed: string;
  readonly message: string;
  /** The number that would do. */
  readonly fits: number | null;
}

/** `POST clusters/plan`. */
export interface IPlan {
  readonly name: string | null;
  readonly problems: ReadonlyArray<IPlanProblem>;
  readonly warnings: ReadonlyArray<string>;
  /** Those of the warnings that are about one input. */
  readonly cautions?: ReadonlyArray<IPlanProblem>;
  /** What one should know before, such as what is left of a budget. */
  readonly told?: ReadonlyArray<string>;
  /** What was read from the program's text, each with the option that overrides it. */
  readonly inferred?: ReadonlyArray<string>;
  /** The line of a notebook in `folder` that launches the same. */
  readonly line: string;
  readonly folder: string;
}
