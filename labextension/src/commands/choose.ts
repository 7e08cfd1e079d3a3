/** Selects the run of a command: the named run, or a run that the user chooses. */
import { InputDialog, Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { type IClusters, nameOf } from '../api/clusters';
import type { IRun } from '../api/types';
import { phaseWord } from '../run/words';

export interface IChoice {
  readonly model: IClusters;
  readonly trans: TranslationBundle;
  /** The action of the command, for the title of the dialog. */
  readonly title: string;
  /** Returns whether a run can be chosen. */
  readonly fits: (run: IRun) => boolean;
  /** The message if no run can be chosen. */
  readonly none: string;
}

/** Return the run that `args` name; without a name, as from the palette, ask the user. */
export async function chooseRun(
  args: ReadonlyPartialJSONObject,
  { model, trans, title, fits, none }: IChoice
): Promise<IRun | null> {
  if (typeof args.name === 'string') {
    return model.find(args.name) ?? model.ensure(args.name);
  }
  const runs = model.state.runs.filter(fits);
  if (runs.length === 0) {
    Notification.info(none, { autoClose: 5000 });
    return null;
  }
  const items = runs.map(
    run => `${nameOf(run)} · ${phaseWord(run.cluster.status.phase, trans)}`
  );
  const { value } = await InputDialog.getItem({
    title,
    label: trans.__('Cluster'),
    items,
    okLabel: title,
    cancelLabel: trans.__('Cancel')
  });
  return value === null ? null : runs[items.indexOf(value)];
}

/**
 * Return the name of the named run, or of the run that the user chooses; null if the user chooses
 * none.
 */
export async function chooseName(
  args: ReadonlyPartialJSONObject,
  {
    clusters,
    trans,
    title
  }: {
    readonly clusters: IClusters;
    readonly trans: TranslationBundle;
    readonly title: string;
  }
): Promise<string | null> {
  if (typeof args.name === 'string' && args.name) {
    return args.name;
  }
  const none = trans.__('There are no clusters.');
  const all = { model: clusters, trans, title, fits: () => true, none };
  const run = await chooseRun({}, all);
  return run && nameOf(run);
}
