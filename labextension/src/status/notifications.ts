/**
 * Notifications of runs that end while this page is open, and of requests that failed after their
 * response.
 *
 * Runs that end in the same way within a short time share one notification, which closes
 * automatically and disappears with its runs. A stop that was requested on this page is not
 * reported, nor is a run that ended before the page was opened.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { shown } from '../run/messages';
import { type IClusters, isSame, nameOf } from '../api/clusters';
import type { ServerProblem } from '../api/problem';
import type { IRun } from '../api/types';
import { duration } from '../run/quantities';
import { shorten } from '../run/words';
import type { Settings } from '../settings';
import { CommandIDs } from '../tokens';

/** Milliseconds for which a notification is shown; afterwards it is in JupyterLab's list. */
const SHORT = 8_000;
const LONG = 15_000;
/** Milliseconds in which runs that end in the same way share a notification. */
const TOGETHER = 60_000;

export interface INotifying {
  readonly model: IClusters;
  readonly settings: Settings;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

/** Notify from now on, as the settings say. */
export function notifyEnds(context: INotifying): void {
  const { model, settings } = context;
  const failed = new Notices('error', LONG, context);
  const succeeded = new Notices('success', SHORT, context);
  const stopped = new Notices('info', SHORT, context);
  const refused = new Refusals(context);
  model.transitioned.connect((_, { run, asked }) => {
    const { notifyFailed, notifyFinished } = settings.current;
    switch (run.cluster.status.phase) {
      case 'Failed':
        return notifyFailed && failed.tell(run);
      case 'Succeeded':
        return notifyFinished && succeeded.tell(run);
      case 'Stopped':
        return notifyFinished && !asked && stopped.tell(run);
      default:
        return;
    }
  });
  model.failed.connect((_, { run, problem }) => refused.tell(run, problem));
  model.changed.connect(() => {
    if (model.state.state === 'live') {
      [failed, succeeded, stopped].forEach(notices => notices.forgetDeleted());
      refused.forgetDeleted();
    }
  });
}

/** Notifications of accepted requests that failed afterwards, one for each request. */
class Refusals {
  constructor(private readonly _context: INotifying) {}

  tell(run: IRun, problem: ServerProblem): void {
    void this._context.model.ensure(nameOf(run)).catch(() => undefined);
    const id = Notification.error(forCell(problem.message), {
      autoClose: LONG,
      actions: actionsOn(run, this._context).slice(-1)
    });
    this._told.set(id, run);
  }

  /** Remove the notifications of deleted runs. */
  forgetDeleted(): void {
    for (const [id, run] of this._told) {
      if (!isSame(run, this._context.model.find(nameOf(run)))) {
        Notification.dismiss(id);
        this._told.delete(id);
      }
    }
  }

  private readonly _told = new Map<string, IRun>();
}

/** The notifications of one kind of end. */
class Notices {
  constructor(
    private readonly _type: 'error' | 'success' | 'info',
    private readonly _autoClose: number,
    private readonly _context: INotifying
  ) {}

  /** Report a run, together with the runs that ended a moment ago. */
  tell(run: IRun): void {
    // The server omits an ended run from lists once its name is launched again, so the run is kept
    // until it is deleted.
    void this._context.model.ensure(nameOf(run)).catch(() => undefined);
    const now = Date.now();
    const last = this._groups[this._groups.length - 1];
    const joins =
      last && now - last.at < TOGETHER && Notification.manager.has(last.id);
    if (joins) {
      last.runs.push(run);
      last.at = now;
      const { text: message, actions } = this._words(last.runs);
      const autoClose = this._autoClose;
      Notification.update({ id: last.id, message, actions, autoClose });
    } else {
      const id = this._emit([run], this._autoClose);
      this._groups.push({ id, runs: [run], at: now });
    }
  }

  /** Remove deleted runs from notifications. */
  forgetDeleted(): void {
    const { model } = this._context;
    for (const group of [...this._groups]) {
      const left = group.runs.filter(run =>
        isSame(run, model.find(nameOf(run)))
      );
      if (!Notification.manager.has(group.id) || left.length === 0) {
        Notification.dismiss(group.id);
        this._groups.splice(this._groups.indexOf(group), 1);
      } else if (left.length < group.runs.length) {
        group.runs = left;
        this._shorten(group);
      }
    }
  }

  /** Update a notification to the remaining runs; a closed one is not shown again. */
  private _shorten(group: IGroup): void {
    const autoClose = Math.max(0, group.at + this._autoClose - Date.now());
    if (autoClose > 0) {
      const { text: message, actions } = this._words(group.runs);
      Notification.update({ id: group.id, message, actions, autoClose });
    } else {
      Notification.dismiss(group.id);
      group.id = this._emit(group.runs, 0);
    }
  }

  /** `autoClose` 0 adds it only to JupyterLab's list. */
  private _emit(runs: ReadonlyArray<IRun>, autoClose: number): string {
    const { text, actions } = this._words(runs);
    return Notification.emit(text, this._type, { autoClose, actions });
  }

  private _words(runs: ReadonlyArray<IRun>): {
    readonly text: string;
    readonly actions: Notification.IAction[];
  } {
    const [run] = runs;
    if (runs.length === 1) {
      const actions = actionsOn(run, this._context);
      return {
        text: this._sentence(run),
        actions: this._type === 'error' ? actions : actions.slice(-1)
      };
    }
    const names = runs.map(nameOf);
    return {
      text: this._sentenceOfAll(runs.length, names),
      actions: actionsOn(run, this._context).slice(-1)
    };
  }

  private _sentence(run: IRun): string {
    const { trans } = this._context;
    const name = nameOf(run);
    const { startedAt, finishedAt } = run.cluster.status;
    switch (this._type) {
      case 'error':
        return trans.__('%1 failed. %2', name, sentence(run, trans));
      case 'info':
        return trans.__('%1 was stopped. %2', name, sentence(run, trans));
      case 'success':
        return startedAt != null && finishedAt != null
          ? trans.__(
              '%1 has finished. It took %2.',
              name,
              duration(finishedAt - startedAt)
            )
          : trans.__('%1 has finished.', name);
    }
  }

  private _sentenceOfAll(count: number, names: ReadonlyArray<string>): string {
    const { trans } = this._context;
    const all = shorten(names, trans);
    switch (this._type) {
      case 'error':
        return trans.__('%1 clusters failed: %2.', count, all);
      case 'info':
        return trans.__('%1 clusters were stopped: %2.', count, all);
      case 'success':
        return trans.__('%1 clusters have finished: %2.', count, all);
    }
  }

  private readonly _groups: IGroup[] = [];
}

/** Runs that share a notification. */
interface IGroup {
  id: string;
  runs: IRun[];
  /** When the last of the runs ended, in milliseconds since 1970. */
  at: number;
}

const sentence = (run: IRun, trans: TranslationBundle): string =>
  forCell(shown(run.cluster.status, trans));

/** Return the text with commands as typed in a cell; notifications are plain text. */
const forCell = (text: string): string =>
  text.replace(/`tfcluster /g, '`%tfcluster ').replace(/`/g, '');

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
