/**
 * Follows the output of one run for as long as somebody looks: asks, reads, and asks again when the stream was lost.
 *
 * Promises no line twice, an end that is told once, and no request after `dispose`. Between attempts it waits longer
 * and longer, at most 15 s; `retry` ends the wait.
 */
import type { IDisposable } from '@lumino/disposable';
import { isMissing } from '../api/lookup';
import { ServerProblem } from '../api/problem';
import type { TaskLine } from './buffer';
import { Resume } from './resume';
import { messages, StreamLost } from './stream';

/** `live`: lines come as they are printed; `lost`: what is there is old, and it is tried again. */
export type Connection = 'connecting' | 'live' | 'lost' | 'ended' | 'gone';

export interface IFollowerOptions {
  /** How many lines of each task to begin with. */
  readonly tail: number;
  /** Ask for the stream; `tail` null means all lines. */
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

  /** Whether lines may lie before the first one that came. */
  get mayLackOlder(): boolean {
    return this._resume.mayLackOlder;
  }

  dispose(): void {
    this._abort.abort();
    this._wake();
  }

  /** Try again now, if the stream is lost. */
  retry(): void {
    this._failures = 0;
    this._wake();
  }

  /** Follow until the end of the run. Never rejects. */
  async run(): Promise<void> {
    while (!this.isDisposed) {
      const outcome = await this._once();
      if (outcome || this.isDisposed) {
        return;
      }
      await this._pause();
    }
  }

  /** One stream; true when nothing more will come. */
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
        return false; // another log under this name: from its beginning, at once
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
