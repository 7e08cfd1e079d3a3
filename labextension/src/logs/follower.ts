/**
 * Follows the output of one run while its view exists, and reconnects when the stream is lost.
 *
 * No line is delivered twice, the end is reported once, and no request follows `dispose`. The pause
 * between attempts grows to 15 s; `retry` ends it.
 */
import type { IDisposable } from '@lumino/disposable';
import { isMissing } from '../api/lookup';
import { ServerProblem } from '../api/problem';
import type { TaskLine } from './buffer';
import { Resume } from './resume';
import { messages, StreamLost } from './stream';

/**
 * `live`: lines arrive as they are printed; `lost`: the lines are old, and a reconnection follows.
 */
export type Connection = 'connecting' | 'live' | 'lost' | 'ended' | 'gone';

export interface IFollowerOptions {
  /** Number of lines of each task with which the stream starts. */
  readonly tail: number;
  /** Open the stream; `tail` null means all lines. */
  readonly open: (
    tail: number | null,
    signal: AbortSignal
  ) => Promise<Response>;
  readonly onLines: (
    lines: ReadonlyArray<TaskLine>,
    isReplacing: boolean
  ) => void;
  readonly onConnection: (
    connection: Connection,
    problem: ServerProblem | null
  ) => void;
}

const PAUSES = [500, 1000, 2000, 4000, 8000, 15_000];

export class Follower implements IDisposable {
  constructor(private readonly _options: IFollowerOptions) {
    this._resume = new Resume(_options.tail);
  }

  get isDisposed(): boolean {
    return this._abort.signal.aborted;
  }

  /** Whether lines may exist before the first one that arrived. */
  get mayLackOlder(): boolean {
    return this._resume.mayLackOlder;
  }

  dispose(): void {
    this._abort.abort();
    this._wake();
  }

  /** Reconnect now if the stream is lost. */
  retry(): void {
    this._failures = 0;
    this._wake();
  }

  /** Follow until the run ends. Never rejects. */
  async run(): Promise<void> {
    while (!this.isDisposed) {
      const outcome = await this._once();
      if (outcome || this.isDisposed) {
        return;
      }
      await this._pause();
    }
  }

  /** Read one stream; return true if no more lines will come. */
  private async _once(): Promise<boolean> {
    const attempt = new AbortController();
    const abort = (): void => attempt.abort();
    this._abort.signal.addEventListener('abort', abort);
    try {
      const tail = this._resume.begin();
      const response = await this._options.open(tail, attempt.signal);
      this._options.onConnection('live', null);
      return await this._read(response);
    } catch (error) {
      if (!this.isDisposed) {
        return this._failed(error);
      }
      return true;
    } finally {
      this._abort.signal.removeEventListener('abort', abort);
      attempt.abort();
    }
  }

  private async _read(response: Response): Promise<boolean> {
    for await (const batch of messages(response)) {
      if (this.isDisposed) {
        return true;
      }
      this._failures = 0;
      const found = this._resume.take(batch.flatMap(one => one.lines ?? []));
      if (found === null) {
        return false; // another log has this name now: read it from its beginning, at once
      }
      if (found.lines.length > 0) {
        this._options.onLines(found.lines, found.isReplacing);
      }
      for (const { problem, end } of batch) {
        if (problem) {
          throw new ServerProblem(problem);
        }
        if (end) {
          this._options.onConnection('ended', null);
          return true;
        }
      }
    }
    throw new StreamLost('closed');
  }

  private _failed(error: unknown): boolean {
    const problem = error instanceof ServerProblem ? error : null;
    if (isMissing(problem)) {
      this._options.onConnection('gone', problem);
      return true;
    }
    this._options.onConnection('lost', problem);
    return false;
  }

  private _pause(): Promise<void> {
    const pause = PAUSES[Math.min(this._failures, PAUSES.length - 1)];
    this._failures += 1;
    return new Promise(resolve => {
      const timer = setTimeout(resolve, pause);
      this._wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  private readonly _abort = new AbortController();
  private readonly _resume: Resume;
  private _failures = 0;
  private _wake: () => void = () => undefined;
}
