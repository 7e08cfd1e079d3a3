/**
 * A search in the shown lines, a few milliseconds at a time, continued as lines arrive.
 *
 * The searcher owns the matches and the position of the current match.
 */
import type { IDisposable } from '@lumino/disposable';
import type { LineBuffer } from './buffer';
import type { Rows } from './rows';
import { expression, IQuery, NO_QUERY, Range, ranges } from './search';

const SLICE = 8;
/** Number of lines that are searched between two checks of the clock. */
const STRIDE = 500;
export const MOST_OCCURRENCES = 100_000;

/** The matches in a line, and the index of the current one (-1 for none). */
export interface IFound {
  readonly found: ReadonlyArray<Range>;
  readonly current: number;
}

const NOTHING: IFound = { found: [], current: -1 };

export class Searcher implements IDisposable {
  constructor(
    private readonly _bufferNow: () => LineBuffer,
    private readonly _changed: () => void
  ) {}

  /** Counts how often the view had to move to a match: after a step, or for a new search. */
  moves = 0;
  /**
   * Whether typing selected the current match; false after a step to another match or a change of
   * the lines.
   */
  isTyped = false;
  query: IQuery = NO_QUERY;
  /** What is wrong with the query; empty if it is valid. */
  wrong = '';
  /** The index of the current match; -1 for none. */
  current = -1;

  private get _buffer(): LineBuffer {
    return this._bufferNow();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    clearTimeout(this._timer);
  }

  get count(): number {
    return this._lines.length;
  }

  get isBusy(): boolean {
    return this._wanted !== null && this._scanned < this._rows.length;
  }

  /** Start a search; the current match is the first from line `from` on. */
  start(query: IQuery, rows: Rows, from: number): void {
    this._moves = true;
    this.isTyped = true;
    this._start(query, rows, from);
  }

  /**
   * Repeat the search in newly selected lines; the current match is the first from line `from` on.
   */
  lead(rows: Rows, from: number): void {
    this._moves = true;
    this.isTyped = false;
    this._start(this.query, rows, from);
  }

  /**
   * Search other lines. The current match stays; if its line is gone, the next match becomes
   * current.
   */
  restart(rows: Rows): void {
    this._start(this.query, rows, Math.max(0, this.currentLine));
  }

  private _start(query: IQuery, rows: Rows, from: number): void {
    clearTimeout(this._timer);
    const wanted = expression(query);
    this.query = query;
    this.wrong = typeof wanted === 'string' ? wanted : '';
    this._wanted = typeof wanted === 'string' ? null : wanted;
    this._rows = rows;
    this._lines = [];
    this._scanned = 0;
    this._from = from;
    this.current = -1;
    this._scan();
  }

  /** Continue after new lines have arrived, or after `gone` old lines were dropped. */
  more(gone: number): void {
    this._scanned = Math.max(0, this._scanned - gone);
    const first = this._buffer.first;
    let old = 0;
    while (old < this._lines.length && this._lines[old] < first) {
      old += 1;
    }
    if (old > 0) {
      this._lines = this._lines.slice(old);
      const isNone = this.current < 0 || this._lines.length === 0;
      this.current = isNone ? -1 : Math.max(0, this.current - old);
    }
    if (this._wanted && this._timer === undefined) {
      this._scan();
    }
  }

  /** Move to the next or previous match; after the last match comes the first. */
  step(by: 1 | -1): void {
    if (this.count > 0) {
      this.current = (this.current + by + this.count) % this.count;
      this.moves += 1;
      this.isTyped = false;
      this._changed();
    }
  }

  /** The line of the current match; -1 for none. */
  get currentLine(): number {
    return this._lines[this.current] ?? -1;
  }

  /** Return the matches in a line. */
  found(number: number): IFound {
    if (!this._wanted) {
      return NOTHING;
    }
    const found = ranges(this._buffer.line(number).text, this._wanted);
    const isHere = this.currentLine === number;
    const current = isHere ? this.current - this._lines.indexOf(number) : -1;
    return { found, current };
  }

  private _scan(): void {
    this._timer = undefined;
    if (!this._wanted || this._isDisposed) {
      return;
    }
    const until = performance.now() + SLICE;
    const rows = this._rows;
    while (this._scanned < rows.length && this.count < MOST_OCCURRENCES) {
      const stop = Math.min(rows.length, this._scanned + STRIDE);
      for (; this._scanned < stop; this._scanned++) {
        const number = rows.number(this._scanned);
        const line = this._buffer.line(number);
        for (let n = ranges(line.text, this._wanted).length; n > 0; n--) {
          this._lines.push(number);
        }
        const isHere = this._lines[this._lines.length - 1] === number;
        if (this.current < 0 && isHere && number >= this._from) {
          this._come(this._lines.indexOf(number));
        }
      }
      if (performance.now() > until) {
        break;
      }
    }
    if (this._scanned >= rows.length || this.count >= MOST_OCCURRENCES) {
      if (this.current < 0 && this.count > 0) {
        this._come(0);
      }
    } else {
      this._timer = setTimeout(() => this._scan());
    }
    this._changed();
  }

  private _come(occurrence: number): void {
    this.current = occurrence;
    this.moves += this._moves ? 1 : 0;
    this._moves = false;
  }

  private _moves = false;
  private _rows!: Rows;
  private _wanted: RegExp | null = null;
  /** The line of each match. */
  private _lines: number[] = [];
  private _scanned = 0;
  private _from = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _isDisposed = false;
}
