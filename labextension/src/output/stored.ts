/**
 * Parses `application/vnd.tfcluster.v1+json` from a notebook, which may come from another user or
 * another version. Pure functions.
 */
import type { IRun, ITypeUsage } from '../api/types';

export const MIME_TYPE = 'application/vnd.tfcluster.v1+json';

/** A run as it was at `at`, in seconds since 1970. */
export interface IStoredRun {
  readonly kind: 'Run';
  readonly at: number;
  readonly run: IRun;
}

/** A TensorBoard opened at `at`: of these runs, of a folder, or of all runs. */
export interface IStoredBoard {
  readonly kind: 'TensorBoard';
  readonly at: number;
  readonly refs: ReadonlyArray<string>;
  readonly folder: string | null;
}

/**
 * Lines of a run that a cell has followed since `at`. Without `ended`, lines may be missing,
 * because the page was closed before the run ended.
 */
export interface IStoredFollow {
  readonly kind: 'Follow';
  readonly at: number;
  readonly name: string;
  readonly uid: string;
  readonly tasks: ReadonlyArray<string>;
  readonly ended: boolean;
}

type Loose = { readonly [key: string]: unknown };

/** Return the parsed data; null if this version cannot draw them. */
export function stored(
  data: unknown
): IStoredRun | IStoredBoard | IStoredFollow | null {
  if (!isObject(data) || typeof data.at !== 'number') {
    return null;
  }
  const { kind, at } = data;
  if (kind === 'TensorBoard') {
    const refs = Array.isArray(data.refs) ? data.refs.filter(isText) : [];
    return { kind, at, refs, folder: isText(data.folder) ? data.folder : null };
  }
  if (kind === 'Follow') {
    const { name, uid, ended } = data;
    const tasks = Array.isArray(data.tasks) ? data.tasks.filter(isText) : [];
    return isText(name) && isText(uid)
      ? { kind, at, name, uid, tasks, ended: ended !== false }
      : null;
  }
  return kind === 'Run' && isRun(data) ? { kind, at, run: whole(data) } : null;
}

function isRun(data: Loose): boolean {
  const { cluster } = data;
  return (
    isObject(cluster) &&
    isObject(cluster.metadata) &&
    isText(cluster.metadata.name) &&
    isText(cluster.metadata.uid) &&
    typeof cluster.metadata.createdAt === 'number' &&
    isObject(cluster.spec) &&
    isObject(cluster.status) &&
    isText(cluster.status.phase)
  );
}

/** Return a run with only the known fields. */
function whole(data: Loose): IRun {
  const { cluster, ready, progress, notes, used } = data as unknown as IRun;
  return {
    cluster,
    ready: isObject(ready) ? ready : { ready: 0, total: 0 },
    progress: isObject(progress) ? progress : null,
    notes: Array.isArray(notes) ? notes.filter(isText) : [],
    used: Array.isArray(used) ? used.filter(isTypeUsage) : []
  };
}

const isTypeUsage = (value: unknown): value is ITypeUsage =>
  isObject(value) &&
  isText(value.taskType) &&
  isText(value.peakTask) &&
  [value.tasks, value.cpu, value.memoryPeak].every(isNumber) &&
  [value.cpuRequested, value.memoryRequested].every(
    each => each === null || isNumber(each)
  );

const isNumber = (value: unknown): value is number => typeof value === 'number';

const isObject = (value: unknown): value is Loose =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isText = (value: unknown): value is string => typeof value === 'string';
