/**
 * Actions on several runs at once: compare, stop, delete.
 *
 * One dialog is shown for all of them. Runs that have ended or disappeared before the user confirms
 * are skipped. If an action fails for one run, the action continues for the other runs.
 */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { closeIcon, deleteIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { type IClusters, isSame, nameOf } from '../api/clusters';
import { isStoppable } from '../api/runs';
import type { IRun } from '../api/types';
import { compareIcon, stopRunIcon } from '../icons';
import { IconButton } from '../run/parts';
import { CommandIDs } from '../tokens';

interface ISelectionProps {
  readonly runs: ReadonlyArray<IRun>;
  readonly model: IClusters;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  onClear(): void;
}

/** Maximum runs of a comparison; a table with more columns is not readable. */
const MOST_COMPARED = 8;

export function Selection({
  runs,
  model,
  commands,
  trans,
  onClear
}: ISelectionProps): React.JSX.Element {
  const active = runs.filter(isStoppable);
  const stop = async (): Promise<void> => {
    const asked = await question(
      trans._n('Stop %1 cluster?', 'Stop %1 clusters?', active.length),
      active,
      trans.__(
        'What their tasks have not saved is lost; logs, checkpoints and the records stay.'
      ),
      trans.__('Stop'),
      trans
    );
    if (asked) {
      await each(model, active, run => model.stop(run));
    }
  };
  const remove = async (): Promise<void> => {
    const asked = await question(
      trans._n('Delete %1 cluster?', 'Delete %1 clusters?', runs.length),
      runs,
      active.length > 0
        ? trans.__(
            'Active clusters are stopped first. The records are deleted permanently; logs and output stay, unless you choose otherwise below.'
          )
        : trans.__(
            'The records are deleted permanently; logs and output stay, unless you choose otherwise below.'
          ),
      trans.__('Delete'),
      trans,
      trans.__('Delete their logs and output, too')
    );
    if (asked) {
      await each(model, runs, run => model.remove(run, asked.isChecked));
      onClear();
    }
  };
  return (
    <div
      className="tfc-Selection"
      role="group"
      aria-label={trans.__('Actions on the selected clusters')}
    >
      <span role="status">
        {trans._n('%1 selected', '%1 selected', runs.length)}
      </span>
      <span className="tfc-Toolbar-space" />
      {commands.hasCommand(CommandIDs.compare) && (
        <button
          type="button"
          className="tfc-Button"
          disabled={runs.length < 2 || runs.length > MOST_COMPARED}
          title={trans.__(
            'Show 2 to %1 clusters side by side: table and curves',
            MOST_COMPARED
          )}
          onClick={() =>
            void commands.execute(CommandIDs.compare, {
              refs: runs.map(nameOf)
            })
          }
        >
          <compareIcon.react
            tag="span"
            className="tfc-Button-icon"
            aria-hidden="true"
          />
          {trans.__('Compare')}
        </button>
      )}
      <IconButton
        icon={stopRunIcon}
        label={trans.__('Stop the selected clusters')}
        disabled={active.length === 0}
        onClick={() => void stop()}
      />
      <IconButton
        icon={deleteIcon}
        label={trans.__('Delete the selected clusters')}
        onClick={() => void remove()}
      />
      <IconButton
        icon={closeIcon}
        label={trans.__('Clear the selection')}
        title={trans.__('Clear the selection (Escape)')}
        onClick={onClear}
      />
    </div>
  );
}

/** Ask once for all selected runs; return null if the user cancels. */
async function question(
  title: string,
  runs: ReadonlyArray<IRun>,
  text: string,
  yes: string,
  trans: TranslationBundle,
  checkbox?: string
): Promise<{ isChecked: boolean } | null> {
  const answer = await showDialog({
    title,
    body: (
      <div className="tfc-Dialog-body">
        <p>
          <strong>{runs.map(nameOf).join(', ')}</strong>
        </p>
        <p>{text}</p>
      </div>
    ),
    checkbox: checkbox ? { label: checkbox, checked: false } : null,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: yes })
    ]
  });
  return answer.button.accept ? { isChecked: answer.isChecked === true } : null;
}

/** Act on the runs that still exist, in parallel, and report each failure. */
export async function each(
  model: IClusters,
  runs: ReadonlyArray<IRun>,
  act: (run: IRun) => Promise<unknown>
): Promise<void> {
  const there = runs.filter(run => isSame(run, model.find(nameOf(run))));
  const done = await Promise.allSettled(there.map(act));
  done.forEach((one, index) => {
    if (one.status === 'rejected') {
      const why = String((one.reason as Error).message);
      Notification.error(`${nameOf(there[index])}: ${why}`, {
        autoClose: 10_000
      });
    }
  });
}
