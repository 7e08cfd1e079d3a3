/**
 * Dialogs before a run is stopped or deleted.
 *
 * A dialog concerns exactly one run. If the run ends or is deleted elsewhere while the dialog is
 * open, the dialog says so and cannot be confirmed.
 */
import { Dialog, ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { shown } from '../run/messages';
import { isActive, isSame, nameOf, type IClusters } from '../api/clusters';
import type { IRun } from '../api/types';
import { Sentence } from '../run/parts';
import { useRun } from '../run/hooks';
import { duration } from '../run/quantities';

interface IQuestion {
  readonly model: IClusters;
  readonly run: IRun;
  readonly trans: TranslationBundle;
}

/** Ask whether to stop the run. */
export async function asksToStop(question: IQuestion): Promise<boolean> {
  const { run: asked, trans } = question;
  const dialog = new Dialog({
    title: trans.__('Stop %1?', nameOf(asked)),
    body: new Body(question, run => (
      <p>{isActive(run) ? stopWords(run, trans) : endedWords(run, trans)}</p>
    )),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Stop') })
    ]
  });
  dialog.addClass('tfc-Dialog');
  return (await answered(dialog, question, isActive)) !== null;
}

/**
 * Ask whether to delete the run, and whether to delete its output, too. Return null if the user
 * cancels.
 */
export async function asksToDelete(
  question: IQuestion
): Promise<{ withLogs: boolean } | null> {
  const { run: asked, trans } = question;
  const dialog = new Dialog({
    title: trans.__('Delete %1?', nameOf(asked)),
    body: new Body(question, run => (
      <p>
        {isActive(run) && (
          <strong>{trans.__('It still runs: it is stopped first.')} </strong>
        )}
        {waitingFor(run, question.model.state.runs).length > 0 && (
          <strong>
            {trans.__(
              'These runs wait for it: %1. They fail, unless they wait only for its end.',
              waitingFor(run, question.model.state.runs).map(nameOf).join(', ')
            )}{' '}
          </strong>
        )}
        {trans.__(
          'Its record is deleted permanently. Its logs and output stay, unless you choose otherwise below.'
        )}
      </p>
    )),
    checkbox: {
      label: trans.__('Delete its logs and output, too'),
      checked: false
    },
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Delete') })
    ]
  });
  dialog.addClass('tfc-Dialog');
  const answer = await answered(dialog, question, () => true);
  return answer && { withLogs: answer.isChecked === true };
}

/** Return the runs that wait for a run. */
export function waitingFor(
  { cluster }: IRun,
  runs: ReadonlyArray<IRun>
): ReadonlyArray<IRun> {
  const { name } = cluster.metadata;
  return runs.filter(({ cluster: { spec, status } }) => {
    const awaited = status.awaited ?? [];
    return (
      status.phase === 'Queued' &&
      (spec.after ?? []).some(({ run }) => run === name) &&
      !awaited.some(({ run, doneAt }) => run === name && doneAt)
    );
  });
}

/**
 * Return the answer; null if the user cancels. The dialog cannot be confirmed while the question
 * does not apply to the run.
 */
async function answered<T>(
  dialog: Dialog<T>,
  { model, run }: IQuestion,
  makesSense: (run: IRun) => boolean
): Promise<Dialog.IResult<T> | null> {
  const stands = (): boolean => {
    const now = model.find(nameOf(run));
    return now !== undefined && isSame(run, now) && makesSense(now);
  };
  const follow = (): void => {
    const yes = dialog.node.querySelector<HTMLButtonElement>('.jp-mod-accept');
    if (yes) {
      yes.disabled = !stands();
    }
  };
  model.changed.connect(follow);
  try {
    const answer = await dialog.launch();
    return answer.button.accept && stands() ? answer : null;
  } finally {
    model.changed.disconnect(follow);
  }
}

function stopWords(run: IRun, trans: TranslationBundle): string {
  const grace = run.cluster.spec.lifecycle?.grace ?? 10;
  return trans._n(
    'Its task gets %2 to end. What it has not saved by then is lost; logs, checkpoints and the record stay.',
    'Its %1 tasks get %2 to end. What they have not saved by then is lost; logs, checkpoints and the record stay.',
    run.ready.total,
    duration(grace)
  );
}

function endedWords(run: IRun, trans: TranslationBundle): React.ReactNode {
  return (
    <>
      {trans.__('It has ended meanwhile: there is nothing to stop.')}{' '}
      <Sentence text={shown(run.cluster.status, trans)} />
    </>
  );
}

/** The body of a dialog; it is updated when the run changes. */
class Body extends ReactWidget {
  constructor(
    private readonly _question: IQuestion,
    private readonly _words: (run: IRun) => React.ReactNode
  ) {
    super();
    this.addClass('tfc-Dialog-body');
  }

  protected override render(): React.JSX.Element {
    return <Following {...this._question} words={this._words} />;
  }
}

function Following({
  model,
  run: asked,
  trans,
  words
}: IQuestion & {
  readonly words: (run: IRun) => React.ReactNode;
}): React.JSX.Element {
  const run = useRun(model, nameOf(asked));
  return (
    <div role="status">
      {run && isSame(asked, run)
        ? words(run)
        : trans.__(
            '%1 was deleted elsewhere: there is nothing to do.',
            nameOf(asked)
          )}
    </div>
  );
}
