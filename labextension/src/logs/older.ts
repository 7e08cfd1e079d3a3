/**
 * Looks for a text in the whole log of a run, which the server reads, and keeps the matches that the view does not have.
 *
 * A view holds the newest lines only; where it lacks older ones, a search of its own would miss what they say. The
 * server takes an expression of JavaScript for what it means here, or refuses it.
 */
import type { IDisposable } from '@lumino/disposable';
import { ServerProblem } from '../api/problem';
import type { LineBuffer, TaskLine } from './buffer';
import type { IQuery } from './search';
import { messages, StreamLost } from './stream';

/** Milliseconds without another key, after which the server is asked. */
const PAUSE = 400;
export const MOST_OLDER = 5000;

/** `off`: the view has every line, or nothing is looked for. */
export type OlderState = 'off' | 'busy' | 'done' | 'failed';

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
  /** The lines that the view has. */
  readonly kept: LineBuffer;
  readonly onChange: () => void;
}

export class OlderSearch implements IDisposable {
  constructor(private readonly _options: IOlderOptions) {}

  state: OlderState = 'off';
  /** Matches in the order in which they were printed; the server's line numbers with them. */
  matches: ReadonlyArray<TaskLine> = [];
  /** Whether there may be more. */
  hasMore = false;
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
    this.hasMore = false;
    this.problem = null;
    this.state = wanted ? 'busy' : 'off';
    if (wanted) {
      this._timer = setTimeout(() => void this._ask(wanted), PAUSE);
    }
  }

  private async _ask({ query, tasks, showsNoise }: IOlderQuery): Promise<void> {
    const abort = (this._abort = new AbortController());
    const { kept, onChange } = this._options;
    const limit = kept.begin;
    let [found, unsure]: [TaskLine[], TaskLine[]] = [[], []];
    let [count, isWhole] = [0, false];
    try {
      const asked = {
        search: query.text,
        case: query.isCaseSensitive ? '1' : '0',
        regex: query.isRegExp ? '1' : '0',
        most: String(MOST_OLDER),
        hide_tensorflow_logs: showsNoise ? '0' : '1',
        ...(limit !== null && { before: String(limit) })
      };
      const response = await this._options.open(asked, tasks, abort.signal);
      for await (const batch of messages(response)) {
        for (const { lines = [], printed = {}, problem, end } of batch) {
          if (problem) {
            throw new ServerProblem(problem);
          }
          count += lines.length;
          unsure = [
            ...unsure,
            ...lines.filter(line => kept.isBefore(line) === null)
          ];
          found = [...found, ...lines.filter(line => kept.isBefore(line))];
          if (end && unsure.length > 0) {
            // the server has counted what lies before the limit, and so do we: the rest is what the view lacks
            const counts = kept.countBefore(limit);
            const isLacking = ([task, , , number = Infinity]: TaskLine) =>
              number < (printed[task] ?? 0) - (counts.get(task) ?? 0);
            found = [...found, ...unsure.filter(isLacking)];
          }
          isWhole ||= end === true;
        }
        if (abort.signal.aborted) {
          return;
        }
        this.matches = found;
        this.hasMore = count >= MOST_OLDER;
        onChange();
      }
      if (!isWhole) {
        throw new StreamLost('closed');
      }
      this.matches = inTimeOrder(found);
      this.state = 'done';
    } catch (error) {
      if (this._abort !== abort || this._isDisposed) {
        return; // something else is looked for by now
      }
      this.state = 'failed';
      this.problem = error instanceof ServerProblem ? error : null;
    }
    onChange();
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

/** On Kubernetes the lines of many tasks come task by task. Lines without a time stay where they are. */
function inTimeOrder(lines: ReadonlyArray<TaskLine>): ReadonlyArray<TaskLine> {
  return lines.every(([, , at]) => at != null)
    ? [...lines].sort(([, , a], [, , b]) => (a ?? 0) - (b ?? 0))
    : lines;
}
