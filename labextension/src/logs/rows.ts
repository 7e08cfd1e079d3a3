/**
 * The position of each shown line in rows of text, so that a view draws only its visible part.
 *
 * A long line wraps into several rows. Rows are counted by columns of a monospaced font, but laid
 * out by the browser, so a character of unusual width moves text by a pixel, but never hides it.
 */

/** Characters that take two columns: East Asian wide characters and emoji. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/g;
const SIMPLE = /^[\x20-\x7e]*$/;
/** The maximum columns that a tab takes. */
const TAB = 8;

/** Return the columns of a text. */
export function columns(text: string): number {
  if (SIMPLE.test(text)) {
    return text.length;
  }
  const wide = text.match(WIDE)?.length ?? 0;
  const tabs = text.split('\t').length - 1;
  return text.length + wide + tabs * (TAB - 1);
}

export class Rows {
  /** The number of shown lines. */
  get length(): number {
    return this._numbers.length - this._head;
  }

  /** The number of rows that these lines take. */
  get height(): number {
    return this._bottom - this._top(0);
  }

  /** The number of rows that were dropped above the first line. */
  get origin(): number {
    return this._top(0);
  }

  /** The columns of the longest line that ever arrived. */
  get widest(): number {
    return this._widest;
  }

  /** Append a line, which wraps after `width` columns. */
  push(number: number, text: string, width = Infinity): void {
    const taken = columns(text);
    const height = Math.max(1, Math.ceil(taken / width));
    this._widest = Math.max(this._widest, taken);
    this._numbers.push(number);
    this._tops.push(this._bottom);
    this._bottom += height;
  }

  /** Remove lines below this number. */
  drop(before: number): void {
    while (
      this._head < this._numbers.length &&
      this._numbers[this._head] < before
    ) {
      this._head += 1;
    }
    if (this._head > 20_000) {
      this._numbers = this._numbers.slice(this._head);
      this._tops = this._tops.slice(this._head);
      this._head = 0;
    }
  }

  /** Return the number of the line at an index; 0 is the first shown one. */
  number(index: number): number {
    return this._numbers[this._head + index];
  }

  /** Return the number of rows above the line at `index`; `length` stands for the end. */
  offset(index: number): number {
    return this._top(index) - this._top(0);
  }

  /** Return the index of the line that covers a row. */
  at(row: number): number {
    return this._search(this._tops, row + this._top(0), true);
  }

  /** Return the index of the first line with at least this number. */
  indexOf(number: number): number {
    return this._search(this._numbers, number, false);
  }

  private _top(index: number): number {
    return this._tops[this._head + index] ?? this._bottom;
  }

  /** Return the last entry that is at most `value`, or the first that is at least `value`. */
  private _search(
    values: ReadonlyArray<number>,
    value: number,
    isLast: boolean
  ): number {
    let low = this._head;
    let high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isLast ? values[middle] <= value : values[middle] < value) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const found = low - this._head;
    return isLast ? Math.max(0, found - 1) : found;
  }

  private _numbers: number[] = [];
  private _tops: number[] = [];
  private _head = 0;
  private _bottom = 0;
  private _widest = 0;
}
