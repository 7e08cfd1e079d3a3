/**
 * Resumes a lost stream without repeating a line.
 *
 * This class counts the lines of each task. If all output of a task was received, the next stream
 * starts at the beginning, and known lines are skipped. The last known line is compared, because
 * the lines of a restarted log must not be skipped. If only the end of a long output was requested,
 * the next stream replaces everything.
 */
import type { TaskLine } from './buffer';

export interface INewLines {
  readonly lines: ReadonlyArray<TaskLine>;
  /** Whether the new lines replace all earlier lines. */
  readonly isReplacing: boolean;
}

interface ISeen {
  count: number;
  last: string;
}

export class Resume {
  /** `tail`: lines of each task with which the first stream starts. */
  constructor(private readonly _tail: number) {}

  /**
   * Return the number of lines of each task to request, null for all. Call it before each stream.
   */
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

  /** Whether a task may have lines before the first one that arrived. */
  get mayLackOlder(): boolean {
    return [...this._seen.values()].some(seen => seen.count >= this._tail);
  }

  /**
   * Return the new lines of a batch; null if this is another log, which must be read from the
   * beginning.
   */
  take(batch: ReadonlyArray<TaskLine>): INewLines | null {
    if (batch.length === 0) {
      return { lines: [], isReplacing: false }; // a heartbeat before the lines
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
