/**
 * What the shown tasks of one run use, as small lines: one request for all of them.
 *
 * An active run is polled while a task is shown, less often the more tasks are shown. Each task of
 * an ended run is loaded once. A hidden page makes no requests. If the server does not answer, only
 * the lines are missing: the rows beside them say why.
 */
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { type ISignal, Signal } from '@lumino/signaling';
import { ServerProblem } from './problem';
import * as rest from './rest';
import { isActive, nameOf, uidOf } from './runs';
import type { IClusters } from './state';
import type { IRun, ITaskUsage, IUsage } from './types';

/** Number of points of a line, which is 40 pixels wide. */
export const POINTS = 40;
/** Maximum tasks of a request, so that its URL does not become too long. */
const MOST = 150;
/** Minimum milliseconds between two requests, and milliseconds to add for each task. */
const LOOK = 5_000;
const LOOK_EACH = 20;
/** Milliseconds in which rows that come into view are collected into one request. */
const QUIET = 200;

/** One task: its figures, and its CPU and memory over time, oldest first. */
export interface ITaskLines {
  readonly usage: ITaskUsage;
  readonly ended: boolean;
  readonly cpu: ReadonlyArray<number>;
  readonly memory: ReadonlyArray<number>;
}

export type TaskLines = ReadonlyMap<string, ITaskLines>;

export class TaskUsage implements IDisposable {
  constructor(
    private readonly _clusters: IClusters,
    private readonly _run: IRun
  ) {
    this._poll = new Poll({
      name: `tfcluster-labextension:usage-${nameOf(_run)}`,
      factory: () => this._fetch(),
      frequency: { interval: LOOK, backoff: true, max: 30_000 },
      standby: () => document.hidden || this._wanted().length === 0,
      auto: false
    });
    _clusters.changed.connect(this._onChanged, this);
  }

  /** The lines by task name; the same object while nothing changes. */
  get lines(): TaskLines {
    return this._lines;
  }

  get changed(): ISignal<this, TaskLines> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    window.clearTimeout(this._timer);
    this._clusters.changed.disconnect(this._onChanged, this);
    this._poll.dispose();
    Signal.clearData(this);
  }

  /** Record whether the row of a task is in view. */
  show(task: string, isShown: boolean): void {
    if (isShown) {
      this._shown.add(task);
    } else {
      this._shown.delete(task);
    }
    const isMissing = this._wanted().some(name => !this._asked.has(name));
    if (isMissing && !this.isDisposed) {
      window.clearTimeout(this._timer);
      this._timer = window.setTimeout(() => void this._poll.refresh(), QUIET);
    }
  }

  private get _now(): IRun {
    const run = this._clusters.find(nameOf(this._run));
    return run && uidOf(run) === uidOf(this._run) ? run : this._run;
  }

  /**
   * Return the tasks to request now. For an ended run, these are the tasks that have not been
   * loaded since its end.
   */
  private _wanted(): string[] {
    if (this._isUnseen) {
      return [];
    }
    const isOver = !isActive(this._now);
    return [...this._shown]
      .filter(task => !(isOver && this._lines.get(task)?.ended))
      .filter(task => !(isOver && this._unknown.has(task)))
      .slice(0, MOST);
  }

  private _onChanged(): void {
    if (!isActive(this._now) && !this._isOver) {
      this._isOver = true;
      if (this._wanted().length > 0) {
        void this._poll.refresh();
      }
    }
  }

  private async _fetch(): Promise<void> {
    const tasks = this._wanted();
    if (tasks.length === 0) {
      return;
    }
    try {
      const { caller } = this._clusters;
      tasks.forEach(task => this._asked.add(task));
      const found = await rest.taskUsage(
        caller,
        nameOf(this._run),
        tasks,
        POINTS
      );
      if (!this.isDisposed && found.usage.uid === uidOf(this._run)) {
        this._take(found);
      }
    } catch (error) {
      if (!(error instanceof ServerProblem)) {
        throw error;
      }
      tasks.forEach(task => this._asked.delete(task));
      throw error; // so that the poll backs off
    }
    const interval = Math.max(LOOK, LOOK_EACH * tasks.length);
    if (!this.isDisposed && this._poll.frequency.interval !== interval) {
      this._poll.frequency = { ...this._poll.frequency, interval };
    }
  }

  private _take({ usage, series, unseen }: IUsage): void {
    this._isUnseen = unseen !== undefined;
    const lines = new Map(this._lines);
    for (const task of usage.tasks) {
      const told = series[task.name];
      if (told) {
        const { cpu, memory } = told;
        lines.set(task.name, { usage: task, ended: usage.ended, cpu, memory });
      } else if (usage.ended) {
        this._unknown.add(task.name);
      }
    }
    this._lines = lines;
    this._changed.emit(lines);
  }

  private _lines: TaskLines = new Map<string, ITaskLines>();
  private _isOver = false;
  /** Whether the output of the run cannot be read where the server runs. */
  private _isUnseen = false;
  private _timer = 0;
  private readonly _shown = new Set<string>();
  private readonly _asked = new Set<string>();
  /** Tasks of an ended run that left no samples. */
  private readonly _unknown = new Set<string>();
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, TaskLines>(this);
}
