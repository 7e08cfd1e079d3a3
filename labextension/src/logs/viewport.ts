/**
 * The window over many rows: which lines it covers, and how it moves when lines arrive and go.
 *
 * The viewport owns the scroll position. While it follows the output, the end stays in view;
 * scrolling up stops this, and scrolling to the end resumes it. A search starts from the position
 * at which typing began, and returns there if nothing matches. So the position depends on the whole
 * word and not on the speed of typing.
 */
import type { Rows } from './rows';

/** Number of lines that are drawn beyond each edge, so that scrolling shows no gap. */
const BEYOND = 15;
/** Maximum lines that are drawn because they are selected. */
const MOST_SELECTED = 5000;

/** Keys that scroll up. */
const UP: ReadonlySet<string> = new Set(['ArrowUp', 'PageUp', 'Home']);

export interface ISlice {
  readonly from: number;
  readonly to: number;
}

/** Return the indexes of the lines to draw. */
export function slice(
  rows: Rows,
  top: number,
  height: number,
  row: number,
  follows: boolean
): ISlice {
  if (rows.length === 0) {
    return { from: 0, to: 0 };
  }
  const visible = Math.ceil(height / row) + 1;
  const last = follows ? rows.height : Math.ceil(top / row) + visible;
  const first = follows ? rows.height - visible : Math.floor(top / row);
  return {
    from: Math.max(0, rows.at(first) - BEYOND),
    to: Math.min(rows.length, rows.at(last) + 1 + BEYOND)
  };
}

/** Extend a slice by the selected lines, so that the selection keeps its end. */
export function withSelected(
  rows: Rows,
  drawn: ISlice,
  selected: readonly [number, number] | null
): ISlice {
  if (!selected) {
    return drawn;
  }
  const from = Math.min(drawn.from, rows.indexOf(selected[0]));
  const to = Math.max(drawn.to, rows.indexOf(selected[1]) + 1);
  return to - from > MOST_SELECTED
    ? drawn
    : { from, to: Math.min(to, rows.length) };
}

export class Viewport {
  constructor(
    private readonly _element: HTMLElement,
    private readonly _onFollow: (follows: boolean) => void
  ) {
    // A scroll by wheel or key takes some frames to leave the last row. Until then, each new line
    // would move the view back to the end.
    const leave = (isUp: boolean): void => {
      if (isUp && this.top > 0) {
        _onFollow(false);
      }
    };
    const passive = { passive: true };
    _element.addEventListener(
      'wheel',
      ({ deltaY }) => leave(deltaY < 0),
      passive
    );
    _element.addEventListener('keydown', ({ key }) => leave(UP.has(key)));
  }

  get top(): number {
    return this._element.scrollTop;
  }

  get height(): number {
    return this._element.clientHeight;
  }

  /** Handle a scroll event; return whether the view follows now. */
  scrolled(rows: Rows, row: number): void {
    const { scrollTop, scrollHeight, clientHeight } = this._element;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < row;
    if (Math.abs(scrollTop - this._top) > 1) {
      this.stay();
    }
    if (scrollTop < this._top - 1 && !isAtEnd) {
      this._onFollow(false);
    } else if (scrollTop > this._top && isAtEnd) {
      this._onFollow(true);
    }
    this._top = scrollTop;
    this._note(rows, row);
  }

  /** Adjust after lines arrived, went or changed: keep the end, or the line at the upper edge. */
  settle(rows: Rows, row: number, follows: boolean): void {
    if (follows) {
      this.stay();
      this._go(this._element.scrollHeight);
    } else if (rows !== this._rows) {
      const index = rows.indexOf(this._line);
      this._go(rows.offset(Math.min(index, rows.length)) * row + this._rest);
    } else if (rows.origin !== this._origin) {
      this._go(this.top - (rows.origin - this._origin) * row);
    }
    this._note(rows, row);
  }

  /**
   * Bring a found line into view during typing; `follows` is whether the end was in view until now.
   */
  seek(rows: Rows, row: number, number: number, follows: boolean): void {
    const began = this._began ?? {
      line: this._line,
      rest: this._rest,
      follows
    };
    this.show(rows, row, number);
    this._began = began;
  }

  /**
   * Without a match, return to the position at which typing began. Return whether to follow again;
   * null if nothing moved.
   */
  goBack(rows: Rows, row: number): boolean | null {
    const began = this._began;
    if (!began) {
      return null;
    }
    this.stay();
    if (!began.follows) {
      this._jump(rows.offset(rows.indexOf(began.line)) * row + began.rest);
      this._note(rows, row);
    }
    return began.follows;
  }

  /** Accept the current position: forget the position at which typing began. */
  stay(): void {
    this._began = null;
  }

  /** Bring a line into view, centred if it is far away. */
  show(rows: Rows, row: number, number: number): void {
    this.stay();
    const y = rows.offset(rows.indexOf(number)) * row;
    const isFar = y < this.top || y + row > this.top + this.height;
    this._jump(isFar ? Math.max(0, y - this.height / 2) : this.top);
    this._note(rows, row);
  }

  private _go(top: number): void {
    this._element.scrollTop = top;
    this._top = this._element.scrollTop;
  }

  /**
   * Jump to a position even during a scroll: an instant scroll ends the smooth scroll of a key or
   * wheel.
   */
  private _jump(top: number): void {
    this._element.scrollTo({ top, behavior: 'smooth' });
    this._element.scrollTo({ top, behavior: 'instant' });
    this._top = this._element.scrollTop;
  }

  /** Store the line at the upper edge, and the pixels of it that are out of sight. */
  private _note(rows: Rows, row: number): void {
    this._rows = rows;
    this._origin = rows.origin;
    const index = rows.at(Math.floor(this._top / row));
    this._line = rows.length ? rows.number(index) : 0;
    this._rest = Math.max(0, this._top - rows.offset(index) * row);
  }

  /** The line at the upper edge. */
  get line(): number {
    return this._line;
  }

  /**
   * The line from which a search starts: the line at which typing began, or the line at the upper
   * edge.
   */
  get begin(): number {
    return this._began?.line ?? this._line;
  }

  /** The position before typing moved the view. */
  private _began: {
    readonly line: number;
    readonly rest: number;
    readonly follows: boolean;
  } | null = null;
  private _top = 0;
  private _rows: Rows | null = null;
  private _origin = 0;
  private _line = 0;
  private _rest = 0;
}
