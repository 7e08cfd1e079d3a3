/** The request for a TensorBoard: runs, a folder, or all runs. Pure functions. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type {
  ReadonlyPartialJSONObject,
  ReadonlyPartialJSONValue
} from '@lumino/coreutils';
import { isActive, nameOf } from '../api/runs';
import type { IBoard, IRun } from '../api/types';

/** A request for a board. A request without runs and folder means all runs. */
export interface IBoardRequest {
  readonly refs: ReadonlyArray<string>;
  readonly folder: string | null;
}

/** Return the request in a command's arguments: `{ refs }`, `{ name }`, `{ folder }` or nothing. */
export function requestOf(args: ReadonlyPartialJSONObject): IBoardRequest {
  const refs = Array.isArray(args.refs) ? args.refs.filter(isName) : [];
  if (isName(args.name) && !refs.includes(args.name)) {
    refs.push(args.name);
  }
  const folder = typeof args.folder === 'string' ? args.folder : null;
  return { refs: [...refs].sort(), folder: refs.length ? null : folder };
}

/** Return a key that is equal for equal requests. */
export const keyOf = ({ refs, folder }: IBoardRequest): string =>
  JSON.stringify(refs.length ? refs : folder);

/** Return the arguments that repeat the request. */
export function argsOf({
  refs,
  folder
}: IBoardRequest): ReadonlyPartialJSONObject {
  return refs.length ? { refs: [...refs] } : folder === null ? {} : { folder };
}

/** Return the request with the server's names: `digits` has become `digits-2`. */
export const requestOfBoard = (board: IBoard): IBoardRequest => ({
  refs: board.refs,
  folder: board.folder
});

/** Return the runs that the board shows; a folder may contain the output of any run. */
export const runsOf = (
  { refs }: IBoardRequest,
  runs: ReadonlyArray<IRun>
): ReadonlyArray<IRun> =>
  runs.filter(run => refs.length === 0 || refs.includes(nameOf(run)));

/** Return whether the first point of a curve is still to come; a folder is never waited for. */
export const expectsCurves = (
  request: IBoardRequest,
  runs: ReadonlyArray<IRun>
): boolean =>
  request.folder === null && runsOf(request, runs).some(run => isActive(run));

/** Return the title of a tab; a narrow tab shows its beginning. */
export function titleOf(
  { refs, folder }: IBoardRequest,
  trans: TranslationBundle
): string {
  if (refs.length) {
    return trans.__('%1 · TensorBoard', refs.join(', '));
  }
  if (folder !== null) {
    const name = folder.split('/').filter(Boolean).pop() ?? '/';
    return trans.__('%1 · TensorBoard', name);
  }
  return trans.__('%1 · TensorBoard', trans.__('All runs'));
}

const isName = (value?: ReadonlyPartialJSONValue): value is string =>
  typeof value === 'string' && value !== '';
