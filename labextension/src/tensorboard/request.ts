/**
 * What a TensorBoard is asked for: runs, a folder, or all runs. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type {
  ReadonlyPartialJSONObject,
  ReadonlyPartialJSONValue
} from '@lumino/coreutils';
import type { IBoard } from '../api/types';

/** No runs and no folder means all runs. */
export interface IBoardRequest {
  readonly refs: ReadonlyArray<string>;
  readonly folder: string | null;
}

/** The request in a command's arguments: `{ refs }`, `{ name }`, `{ folder }` or nothing. */
export function requestOf(args: ReadonlyPartialJSONObject): IBoardRequest {
  const refs = Array.isArray(args.refs) ? args.refs.filter(isName) : [];
  if (isName(args.name) && !refs.includes(args.name)) {
    refs.push(args.name);
  }
  const folder = typeof args.folder === 'string' ? args.folder : null;
  return { refs: [...refs].sort(), folder: refs.length ? null : folder };
}

/** The same for the same request. */
export const keyOf = ({ refs, folder }: IBoardRequest): string =>
  JSON.stringify(refs.length ? refs : folder);

/** The arguments that ask for it again. */
export function argsOf({
  refs,
  folder
}: IBoardRequest): ReadonlyPartialJSONObject {
  return refs.length ? { refs: [...refs] } : folder === null ? {} : { folder };
}

/** What is asked for once the server knows it: `digits` has become `digits-2`. */
export const requestOfBoard = (board: IBoard): IBoardRequest => ({
  refs: board.refs,
  folder: board.folder
});

/** The words on a tab, of which a narrow one shows the first. */
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
