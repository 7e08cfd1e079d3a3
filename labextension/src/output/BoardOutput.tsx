/** A TensorBoard below a cell: opened in a tab at once for a new output, later by a button. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import * as React from 'react';
import { boardIcon } from '../icons';
import { CommandIDs } from '../tokens';
import type { IStoredBoard } from './stored';

/** Seconds for which an output counts as new. */
const FRESH = 10;

/**
 * Boards that were opened automatically, because an output that is drawn twice must open only one
 * tab.
 */
const opened = new Set<string>();

export interface IBoardOutputProps {
  readonly stored: IStoredBoard;
  readonly isTrusted: boolean;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

export function BoardOutput({
  stored,
  isTrusted,
  commands,
  trans
}: IBoardOutputProps): React.JSX.Element {
  const open = (): void =>
    void commands.execute(CommandIDs.tensorboard, argumentsOf(stored));
  React.useEffect(() => {
    if (isTrusted && isFresh(stored)) {
      void commands.execute(CommandIDs.tensorboard, argumentsOf(stored));
    }
  }, [stored, isTrusted, commands]);
  const { refs, folder } = stored;
  return (
    <button type="button" className="tfc-Button" onClick={open}>
      <boardIcon.react
        tag="span"
        className="tfc-Button-icon"
        aria-hidden="true"
      />
      {refs.length > 0
        ? trans.__('Open TensorBoard of %1', refs.join(', '))
        : folder !== null
          ? trans.__('Open TensorBoard of %1', folder)
          : trans.__('Open TensorBoard of all runs')}
    </button>
  );
}

/** Return whether a cell has just requested the board; true once for each request. */
function isFresh({ at, refs, folder }: IStoredBoard): boolean {
  const key = JSON.stringify([at, refs, folder]);
  const isNew = Math.abs(Date.now() / 1000 - at) < FRESH && !opened.has(key);
  if (isNew) {
    opened.add(key);
  }
  return isNew;
}

function argumentsOf(stored: IStoredBoard): ReadonlyPartialJSONObject {
  const { refs, folder } = stored;
  return refs.length > 0 ? { refs: [...refs] } : folder ? { folder } : {};
}
