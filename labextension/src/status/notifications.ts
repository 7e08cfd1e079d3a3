/**
 * One notification for each run that ends while this page is open: that it is done, or why not.
 *
 * Says nothing of a stop that was asked for on this page, and nothing of ends that lie before it.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { shown } from '../run/messages';
import { type IClusters, ITransition, nameOf } from '../api/clusters';
import type { IRun } from '../api/types';
import { duration } from '../run/quantities';
import type { Settings } from '../settings';
import { CommandIDs } from '../tokens';

const SHORT = 8000;

export interface INotifying {
  readonly model: IClusters;
  readonly settings: Settings;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

/** Notify from now on, as the settings say. */
export function notifyEnds(context: INotifying): void {
  const { model, settings } = context;
  model.transitioned.connect((_, transition) => {
    const { notifyFailed, notifyFinished } = settings.current;
    switch (transition.run.cluster.status.phase) {
      case 'Failed':
        return notifyFailed && tellFailed(transition.run, context);
      case 'Succeeded':
        return notifyFinished && tellSucceeded(transition.run, context);
      case 'Stopped':
        return notifyFinished && tellStopped(transition, context);
      default:
        return;
    }
  });
}

/** The run's sentence; notifications are plain text, and its commands are for a cell. */
const sentence = (run: IRun, trans: TranslationBundle): string =>
  shown(run.cluster.status, trans)
    .replace(/`tfcluster /g, '`%tfcluster ')
    .replace(/`/g, '');

function tellFailed(run: IRun, context: INotifying): void {
  const { trans } = context;
  const message = sentence(run, trans);
  Notification.error(trans.__('%1 failed. %2', nameOf(run), message), {
    autoClose: false,
    actions: actionsOn(run, context)
  });
}

function tellSucceeded(run: IRun, { trans, ...context }: INotifying): void {
  const { startedAt, finishedAt } = run.cluster.status;
  const text =
    startedAt != null && finishedAt != null
      ? trans.__(
          '%1 has finished. It took %2.',
          nameOf(run),
          duration(finishedAt - startedAt)
        )
      : trans.__('%1 has finished.', nameOf(run));
  Notification.success(text, {
    autoClose: SHORT,
    actions: actionsOn(run, { trans, ...context }).slice(-1)
  });
}

function tellStopped({ run, asked }: ITransition, { trans }: INotifying): void {
  if (!asked) {
    const message = sentence(run, trans);
    Notification.info(trans.__('%1 was stopped. %2', nameOf(run), message), {
      autoClose: SHORT
    });
  }
}

function actionsOn(
  run: IRun,
  { commands, trans }: INotifying
): Notification.IAction[] {
  const name = nameOf(run);
  const labels: ReadonlyArray<readonly [string, string]> = [
    [CommandIDs.logs, trans.__('Logs')],
    [CommandIDs.rerun, trans.__('Rerun')],
    [CommandIDs.openSidebar, trans.__('Show')]
  ];
  return labels
    .filter(([command]) => commands.hasCommand(command))
    .map(([command, label]) => ({
      label,
      caption: commands.caption(command, { name }),
      callback: () => void commands.execute(command, { name })
    }));
}
