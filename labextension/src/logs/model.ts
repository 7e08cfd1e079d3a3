/**
 * The output of one run for a tab: its lines, the shown ones, the search, and the stream.
 *
 * The model owns the buffer and the stream; views read `buffer` and `rows` and draw the visible
 * part. State is replaced, never changed, and one signal reports it, at most 20 times a second.
 */
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { IClusters } from '../api/state';
import { ServerProblem } from '../api/problem';
import { keptStacks, openLogs } from '../api/rest';
import type { IKeptStacks } from '../api/types';
import type { IRun } from '../api/types';
import { ILine, LineBuffer, MOST_LINES, MOST_SHOWN, TaskLine } from './buffer';
import { Follower } from './follower';
import { OlderSearch } from './older';
import { Rows } from './rows';
import { IQuery } from './search';
import { Searcher } from './searcher';
import { connected, ILogsState, INITIAL } from './state';
import { messages } from './stream';
import { counted, tasksOf } from './tasks';

/** Milliseconds in which changes are collected before the signal is emitted. */
const TOGETHER = 50;
/** Minimum number of lines of each task with which the view starts, even with many tasks. */
const LEAST_TAIL = 500;
/** Number of lines that are shown around an older line. */
const AROUND = 10_000;

export class LogsModel implements IDisposable {
  constructor(
    private readonly _clusters: IClusters,
    readonly name: string
  ) {
    this.searcher = new Searcher(
      () => this.buffer,
      () => this._change()
    );
    this.older = new OlderSearch({
      open: (query, tasks, signal) => this._open(query, tasks, signal),
      kept: this._newest,
      onChange: () => this._change()
    });
    _clusters.changed.connect(this._onClusters, this);
    void this._start();
  }

  readonly searcher: Searcher;
  readonly older: OlderSearch;

  /** The available lines: the newest, or older ones around a match. */
  get buffer(): LineBuffer {
    return this._around ?? this._newest;
  }

  get rows(): Rows {
    return this._rows;
  }

  get state(): ILogsState {
    return this._state;
  }

  get changed(): ISignal<LogsModel, ILogsState> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._follower?.dispose();
    this.searcher.dispose();
    this.older.dispose();
    this._asked?.abort();
    clearTimeout(this._timer);
    Signal.clearData(this);
  }

  /** Show only these tasks; an empty list means all, including future ones. */
  show(tasks: ReadonlyArray<string>): void {
    this._shown = tasks.length ? new Set(tasks) : null;
    this._rebuild();
  }

  setNoise(showsNoise: boolean): void {
    this._patch = { ...this._patch, showsNoise };
    this._rebuild();
  }

  setTimes(showsTimes: boolean): void {
    this._patch = { ...this._patch, showsTimes };
    this._rebuild();
  }

  setWraps(wraps: boolean): void {
    this._patch = { ...this._patch, wraps };
    this._rebuild();
  }

  /** Whether the newest line is kept in view; `state` is updated a moment later. */
  get follows(): boolean {
    return this._patch.follows;
  }

  follow(follows: boolean): void {
    if (follows !== this._patch.follows) {
      this._patch = { ...this._patch, follows };
      this._change();
    }
  }

  /** Set the number of columns after which a line wraps. */
  setColumns(width: number): void {
    if (width !== this._columns) {
      this._columns = width;
      if (this._patch.wraps) {
        this._rebuild();
      }
    }
  }

  /** Clear the view; `showCleared` shows the lines again. */
  clear(): void {
    this._clearedBelow = this.buffer.end;
    this._rebuild();
  }

  showCleared(): void {
    this._clearedBelow = 0;
    this._rebuild();
  }

  search(query: IQuery, from: number): void {
    this._patch = { ...this._patch, missed: null };
    this.searcher.start(query, this._rows, from);
    this._change();
  }

  /**
   * Show the lines around an older one that a search has found.
   *
   * If that line is no longer readable, the view does not change, and a notice says so.
   */
  async showAround([task, , at = null, number = 0]: TaskLine): Promise<void> {
    this._asked?.abort();
    const { signal } = (this._asked = new AbortController());
    const found = new LineBuffer();
    let problem: ServerProblem | null = null;
    try {
      const where = { around: `${task}:${number}`, lines: String(AROUND) };
      const response = await this._open(where, this.shown, signal);
      for await (const batch of messages(response)) {
        for (const message of batch) {
          if (message.problem) {
            throw new ServerProblem(message.problem);
          }
          found.append(message.lines ?? []);
        }
      }
    } catch (error) {
      problem = error instanceof ServerProblem ? error : null;
      found.clear();
    }
    if (signal.aborted) {
      return; // the user has requested something else
    }
    let place = found.first;
    while (place < found.end && !isLine(found.line(place), task, number)) {
      place += 1;
    }
    if (place === found.end) {
      this._patch = { ...this._patch, missed: { problem } };
      this._change();
      return;
    }
    const { isInTimeOrder } = found;
    this._around = found;
    this._clearedBelow = 0;
    this._patch = {
      ...this._patch,
      around: { at, isInTimeOrder },
      missed: null,
      follows: false
    };
    this._rebuild();
    this.searcher.lead(this._rows, place);
    this._change();
  }

  /** Show the newest lines again, and follow them. */
  showNewest(): void {
    this._asked?.abort();
    this._around = null;
    this._patch = {
      ...this._patch,
      around: null,
      missed: null,
      follows: true
    };
    this._rebuild();
  }

  /** Reconnect now. */
  retry(): void {
    this._follower?.retry();
  }

  /** The shown tasks; empty for all. */
  get shown(): ReadonlyArray<string> {
    return this._shown ? [...this._shown] : [];
  }

  /** Load the stacks that were taken when the run stalled. Rejects with ServerProblem. */
  keptStacks(): Promise<IKeptStacks> {
    return keptStacks(this._clusters.caller, this.name);
  }

  private _open(
    query: Record<string, string>,
    tasks: ReadonlyArray<string>,
    signal: AbortSignal
  ): Promise<Response> {
    return openLogs(this._clusters.caller, this.name, query, tasks, signal);
  }

  private async _start(): Promise<void> {
    const run = await this._clusters.ensure(this.name).catch(() => undefined);
    if (this._isDisposed) {
      return;
    }
    this._run = run;
    const count = Math.max(1, run ? tasksOf(run).length : 1);
    this._follower = new Follower({
      tail: Math.max(LEAST_TAIL, Math.floor(MOST_LINES / count)),
      open: (tail, signal) =>
        this._open(
          { follow: '1', ...(tail !== null && { tail: String(tail) }) },
          [],
          signal
        ),
      onLines: (lines, isReplacing) => this._take(lines, isReplacing),
      onConnection: (connection, problem) => {
        const isKnown = this._clusters.find(this.name) !== undefined;
        this._patch = connected(this._patch, connection, problem, isKnown);
        this._change();
      }
    });
    void this._follower.run();
    this._change();
  }

  private _onClusters(): void {
    const run = this._clusters.find(this.name);
    const isLive = this._clusters.state.state === 'live';
    const uid = this._run?.cluster.metadata.uid;
    if (run ? uid && run.cluster.metadata.uid !== uid : this._run && isLive) {
      this._follower?.dispose(); // the run was deleted; another run may have its name now
      this._patch = { ...this._patch, connection: 'gone', problem: null };
    } else if (run) {
      this._run = run;
    }
    if (isLive && this._patch.connection === 'lost' && !this._wasLive) {
      this.retry();
    }
    this._wasLive = isLive;
    this._change();
  }

  private _take(lines: ReadonlyArray<TaskLine>, isReplacing: boolean): void {
    const from = isReplacing ? 0 : this._newest.end;
    if (isReplacing) {
      this._newest.clear();
      this._clearedBelow = 0;
    }
    this._newest.append(lines);
    if (this._around) {
      return; // these lines are shown when the user returns to the newest lines
    }
    if (isReplacing) {
      this._rebuild();
      return;
    }
    const before = this._rows.length;
    this._rows.drop(this._newest.first);
    const gone = before - this._rows.length;
    this._extend(Math.max(from, this._newest.first));
    this.searcher.more(gone);
    this._change();
  }

  /** Update the shown rows for lines from this number on. */
  private _extend(from: number): void {
    const { showsNoise, wraps } = this._patch;
    const width = wraps && this._columns > 0 ? this._columns : Infinity;
    for (let number = from; number < this.buffer.end; number++) {
      const line = this.buffer.line(number);
      if (this._shown && !this._shown.has(line.task)) {
        continue;
      }
      if (line.isNoise && !showsNoise) {
        continue;
      }
      this._rows.push(number, line.text.slice(0, MOST_SHOWN), width);
    }
  }

  private _rebuild(): void {
    this._rows = new Rows();
    this._extend(Math.max(this.buffer.first, this._clearedBelow));
    this.searcher.restart(this._rows);
    this._change();
  }

  private _change(): void {
    if (this._timer === undefined && !this._isDisposed) {
      this._timer = setTimeout(() => this._emit(), TOGETHER);
    }
  }

  private _emit(): void {
    this._timer = undefined;
    const { counts } = this.buffer;
    const { tasks, hidden } = counted(
      this._run ? tasksOf(this._run) : [],
      counts,
      this._shown,
      this._patch.showsNoise
    );
    const lacksOlder =
      this._newest.dropped > 0 || (this._follower?.mayLackOlder ?? false);
    this._lookInOlder(lacksOlder);
    this._state = {
      ...this._patch,
      run: this._run,
      tasks,
      hidden,
      cleared: Math.max(0, this._clearedBelow - this.buffer.first),
      lacksOlder,
      revision: this._state.revision + 1
    };
    this._changed.emit(this._state);
  }

  /** Search older lines too, if there are any. */
  private _lookInOlder(lacksOlder: boolean): void {
    const { query, wrong } = this.searcher;
    const isWanted = lacksOlder && query.text.trim() !== '' && !wrong;
    this.older.look(
      isWanted
        ? { query, tasks: this.shown, showsNoise: this._patch.showsNoise }
        : null
    );
  }

  private _patch = INITIAL;
  private _state: ILogsState = INITIAL;
  private readonly _newest = new LineBuffer();
  private _around: LineBuffer | null = null;
  private _asked: AbortController | null = null;
  private _rows = new Rows();
  private _run: IRun | undefined;
  private _follower: Follower | null = null;
  private _shown: ReadonlySet<string> | null = null;
  private _columns = 0;
  private _clearedBelow = 0;
  private _wasLive = true;
  private _isDisposed = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private readonly _changed = new Signal<LogsModel, ILogsState>(this);
}

const isLine = (line: ILine, task: string, number: number): boolean =>
  line.task === task && line.number === number;
