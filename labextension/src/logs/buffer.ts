/**
 * The newest lines of all tasks of one run, limited in number and size.
 *
 * The buffer owns the lines and their numbers: line 0 is the first that ever arrived, and a kept
 * line never changes its number. Old lines make room for new ones; `dropped` counts them.
 */
import { plain, settled } from './ansi';
import { TensorFlowLog } from './noise';

/**
 * A received line: its task, text and time (milliseconds since 1970, null if unknown), and, if only
 * a part of a log was read, the line's number in the task's log.
 */
export type TaskLine = readonly [
  task: string,
  text: string,
  at?: number | null,
  number?: number
];

export interface ILine {
  readonly task: string;
  /** The text after the last carriage return, with escape sequences. */
  readonly raw: string;
  /** The text that is shown and searched. */
  readonly text: string;
  readonly isNoise: boolean;
  /** When the line was printed, in milliseconds since 1970; null if unknown. */
  readonly at: number | null;
  /** The number of the line in the task's log, if known. */
  readonly number: number | null;
}

/** The number of kept lines of a task. */
export interface ITaskCount {
  readonly lines: number;
  readonly noise: number;
}

export const MOST_LINES = 200_000;
export const MOST_CHARACTERS = 128 * 1024 * 1024;
/** Maximum characters of a line that a view draws; the log file has all characters. */
export const MOST_SHOWN = 10_000;
/**
 * Maximum dropped lines that are still in memory, so that the list of lines is copied only rarely.
 */
const CHUNK = 20_000;

export class LineBuffer {
  constructor(
    private readonly _mostLines = MOST_LINES,
    private readonly _mostCharacters = MOST_CHARACTERS
  ) {}

  /** The number of the oldest kept line. */
  get first(): number {
    return this._base + this._head;
  }

  /** The number that the next line gets. */
  get end(): number {
    return this._base + this._lines.length;
  }

  /** The number of lines that were dropped for newer ones. */
  get dropped(): number {
    return this._dropped;
  }

  /** The line counts of tasks, in the order in which they first printed. */
  get counts(): ReadonlyMap<string, ITaskCount> {
    return this._counts;
  }

  /** Return a kept line by its number. */
  line(number: number): ILine {
    return this._lines[number - this._base];
  }

  /** Remove all lines; numbers continue. */
  clear(): void {
    this._base = this.end;
    this._lines = [];
    this._head = 0;
    this._characters = 0;
    this._counts.clear();
    this._dropped = 0;
    this._begins.clear();
    this._logs.clear();
  }

  /**
   * The time before which all dropped lines were printed, in milliseconds since 1970; null if
   * unknown.
   */
  get begin(): number | null {
    return this._begins.size > 0
      ? Math.max(...this._begins.values()) + 1
      : null;
  }

  /**
   * Return whether a line was printed before the first kept line of its task. Null if the times do
   * not decide: one time is unknown, or both are equal, as in a log that was printed within a
   * millisecond.
   */
  isBefore([task, , at]: TaskLine): boolean | null {
    const begins = this._begins.get(task);
    if (at == null || at === begins) {
      return null;
    }
    return begins === undefined || at < begins;
  }

  /** Return for each task the number of kept lines printed before a time, or at an unknown time. */
  countBefore(time: number | null): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (let number = this.first; number < this.end; number++) {
      const { task, at } = this.line(number);
      if (at === null || time === null || at < time) {
        counts.set(task, (counts.get(task) ?? 0) + 1);
      }
    }
    return counts;
  }

  /** Whether the lines of all tasks are in the order in which they were printed. */
  get isInTimeOrder(): boolean {
    for (let number = this.first + 1; number < this.end; number++) {
      const [before, line] = [this.line(number - 1), this.line(number)];
      const isKnown = before.at !== null && line.at !== null;
      if (isKnown && line.task !== before.task && line.at < before.at) {
        return false;
      }
    }
    return true;
  }

  append(batch: ReadonlyArray<TaskLine>): void {
    for (const [task, printed, at = null, number = null] of batch) {
      const raw = settled(printed);
      const text = plain(raw);
      const log = this._logs.get(task) ?? new TensorFlowLog();
      this._logs.set(task, log);
      const line = { task, raw, text, isNoise: log.hides(text), at, number };
      if (at !== null && !this._begins.has(task)) {
        this._begins.set(task, at);
      }
      this._lines.push(line);
      this._characters += raw.length;
      this._count(line, 1);
    }
    while (
      this.end - this.first > this._mostLines ||
      (this._characters > this._mostCharacters && this.end - this.first > 1)
    ) {
      const line = this._lines[this._head++];
      this._characters -= line.raw.length;
      this._dropped += 1;
      this._count(line, -1);
      if (line.at !== null) {
        this._begins.set(line.task, line.at);
      }
    }
    if (this._head > CHUNK) {
      this._lines = this._lines.slice(this._head);
      this._base += this._head;
      this._head = 0;
    }
  }

  private _count(line: ILine, by: number): void {
    const before = this._counts.get(line.task) ?? { lines: 0, noise: 0 };
    this._counts.set(line.task, {
      lines: before.lines + by,
      noise: before.noise + (line.isNoise ? by : 0)
    });
  }

  private _lines: ILine[] = [];
  private _base = 0;
  private _head = 0;
  private _characters = 0;
  private _dropped = 0;
  private readonly _logs = new Map<string, TensorFlowLog>();
  /** For each task, the time of its first kept line, or of its last dropped line. */
  private readonly _begins = new Map<string, number>();
  private readonly _counts = new Map<string, ITaskCount>();
}
