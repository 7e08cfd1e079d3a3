/**
 * Looks for a text in the whole log of a run, which the server reads, and keeps the matches that the view does not have.
 *
 * A view holds the newest lines only; where it lacks older ones, a search of its own would miss what they say. Plain
 * text only: an expression of JavaScript means something else to the server.
 */
import type { IDisposable } from '@lumino/disposable';
import { ServerProblem } from '../api/problem';
import type { TaskLine } from './buffer';
import { isNoise } from './noise';
import type { IQuery } from './search';
import { messages } from './stream';

/** Milliseconds without another key, after which the server is asked. */
const PAUSE = 400;
export const MOST_OLDER = 5000;

/** `off`: the view has every line, or nothing is looked for; `text-only`: it is an expression. */
export type OlderState = 'off' | 'text-only' | 'busy' | 'done' | 'failed';

/** What is looked for and where. */
export interface IOlderQuery {
  readonly query: IQuery;
  /** Empty for all tasks. */
  readonly tasks: ReadonlyArray<string>;
  readonly showsNoise: boolean;
}

export interface IOlderOptions {
  readonly open: (
    query: Record<string, string>,
    tasks: ReadonlyArray<string>,
    signal: AbortSignal
  ) => Promise<Response>;
  /** Whether the view does not have this line. */
  readonly isOlder: (line: TaskLine) => boolean;
  readonly onChange: () => void;
}

export class OlderSearch implements IDisposable {
  constructor(private readonly _options: IOlderOptions) {}

  state: OlderState = 'off';
  /** Matches in the order in which they were printed; the server's line numbers with them. */
  matches: ReadonlyArray<TaskLine> = [];
  problem: ServerProblem | null = null;

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._end();
  }

  /** Look for this, null for nothing; what is looked for already is not asked again. */
  look(wanted: IOlderQuery | null): void {
    const key = JSON.stringify(wanted);
    if (key === this._key) {
      return;
    }
    this._key = key;
    this._end();
    this.matches = [];
    this.problem = null;
    this.state = !wanted ? 'off' : wanted.query.isRegExp ? 'text-only' : 'busy';
    if (wanted && this.state === 'busy') {
      this._timer = setTimeout(() => void this._ask(wanted), PAUSE);
    }
  }

  private async _ask({ query, tasks, showsNoise }: IOlderQuery): Promise<void> {
    const abort = (this._abort = new AbortController());
    const found: TaskLine[] = [];
    try {
      const asked = {
        search: query.text,
        case: query.isCaseSensitive ? '1' : '0'
      };
      const response = await this._options.open(asked, tasks, abort.signal);
      for await (const batch of messages(response)) {
        for (const { lines = [], problem } of batch) {
          if (problem) {
            throw new ServerProblem(problem);
          }
          found.push(
            ...lines.filter(
              line =>
                this._options.isOlder(line) && (showsNoise || !isNoise(line[1]))
            )
          );
        }
        if (abort.signal.aborted) {
          return;
        }
        this.matches = found.slice(0, MOST_OLDER);
        this._options.onChange();
        if (found.length >= MOST_OLDER) {
          abort.abort();
          break;
        }
      }
      this.state = 'done';
    } catch (error) {
      if (this._abort !== abort || this._isDisposed) {
        return; // something else is looked for by now
      }
      this.state = 'failed';
      this.problem = error instanceof ServerProblem ? error : null;
    }
    this._options.onChange();
  }

  private _end(): void {
    clearTimeout(this._timer);
    this._abort?.abort();
    this._abort = null;
  }

  private _key = 'null';
  private _abort: AbortController | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _isDisposed = false;
}
