/**
 * Going on after a stream was lost, without a line twice.
 *
 * Counts the lines of each task. As long as all of a task's output has been seen, the next stream is asked for from the
 * beginning, and what was seen is passed over; the last line of it is compared, because a log that was begun anew must
 * not be passed over. Where only the end of a long output was asked for, the next stream replaces everything.
 */
import type { TaskLine } from './buffer';

export interface INewLines {
  readonly lines: ReadonlyArray<TaskLine>;
  /** Whether they take the place of everything that came before. */
  readonly isReplacing: boolean;
}

interface ISeen {
  count: number;
  last: string;
}

export class Resume {
  /** `tail`: how many lines of each task the first stream begins with. */
  constructor(private readonly _tail: number) {}

  /** How many lines of each task to ask for, null for all: to be called before each stream. */
  begin(): number | null {
    const isFirst = this._seen.size === 0;
    const isWhole = [...this._seen.values()].every(
      seen => seen.count < this._tail
    );
    this._passed = new Map();
    this._isReplaced = this._isWrong || (!isFirst && !isWhole);
    this._isWrong = false;
    return isFirst || this._isReplaced ? this._tail : null;
  }

  /** Whether lines of a task may lie before the first one that came. */
  get mayLackOlder(): boolean {
    return [...this._seen.values()].some(seen => seen.count >= this._tail);
  }

  /** The lines of a batch that are new; null when this log is another one: begin again. */
  take(batch: ReadonlyArray<TaskLine>): INewLines | null {
    if (batch.length === 0) {
      return { lines: [], isReplacing: false }; // a sign of life, before the lines
    }
    const isReplacing = this._isReplaced;
    if (isReplacing) {
      this._seen.clear();
      this._isReplaced = false;
    }
    const lines: TaskLine[] = [];
    for (const line of batch) {
      const [task, text] = line;
      const passed = (this._passed.get(task) ?? 0) + 1;
      this._passed.set(task, passed);
      const seen = this._seen.get(task);
      if (seen && passed === seen.count && text !== seen.last) {
        this._isWrong = true;
        return null;
      }
      if (!seen || passed > seen.count) {
        this._seen.set(task, { count: passed, last: text });
        lines.push(line);
      }
    }
    return { lines, isReplacing };
  }

  private readonly _seen = new Map<string, ISeen>();
  private _passed = new Map<string, number>();
  private _isReplaced = false;
  private _isWrong = false;
}
