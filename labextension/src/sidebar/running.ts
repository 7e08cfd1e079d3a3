/**
 * The active runs in JupyterLab's Running panel.
 *
 * This list follows the model of all runs and makes no requests. A click on a run opens its row in
 * the sidebar. Stopping a run asks first, as elsewhere. Before all runs are stopped, the panel
 * itself asks.
 */
import type { IRunningSessions } from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { type IClusters, isActive, nameOf } from '../api/clusters';
import { isStoppable } from '../api/runs';
import type { IRun } from '../api/types';
import { iconOfPhase, stopRunIcon } from '../icons';
import { shown } from '../run/messages';
import { isFailing, stateWord, taskWords } from '../run/words';
import { CommandIDs } from '../tokens';
import { each } from './Selection';

/** Return the content of the panel for `model`. */
export function runningClusters(
  model: IClusters,
  commands: CommandRegistry,
  trans: TranslationBundle
): IRunningSessions.IManager {
  const active = (): ReadonlyArray<IRun> => model.state.runs.filter(isActive);
  return {
    name: trans.__('TensorFlow Clusters'),
    running: () => active().map(run => itemOf(run, commands, trans)),
    shutdownAll: () =>
      void each(model, active().filter(isStoppable), run => model.stop(run)),
    refreshRunning: () => void model.refresh(),
    runningChanged: model.changed,
    shutdownLabel: trans.__('Stop'),
    shutdownAllLabel: trans.__('Stop All'),
    shutdownAllConfirmationText: trans.__(
      'This stops all active clusters. What their tasks have not saved is lost; logs, checkpoints and the records stay.'
    ),
    shutdownItemIcon: stopRunIcon
  };
}

function itemOf(
  run: IRun,
  commands: CommandRegistry,
  trans: TranslationBundle
): IRunningSessions.IRunningItem {
  const name = nameOf(run);
  const { status } = run.cluster;
  const { phase } = status;
  const word = stateWord(status, trans);
  const state =
    phase === 'Starting' || phase === 'Running' ? taskWords(run, trans) : word;
  return {
    icon: () => iconOfPhase(isFailing(status) ? 'Failed' : phase),
    label: () => `${name} · ${state}`,
    labelTitle: () =>
      [`${name}: ${word}`, shown(status, trans)].filter(Boolean).join('\n'),
    open: () => void commands.execute(CommandIDs.openSidebar, { name }),
    ...(isStoppable(run) && {
      shutdown: () => void commands.execute(CommandIDs.stop, { name })
    })
  };
}
