/**
 * A search in a run's whole log on the server, which keeps the matches that the view lacks.
 *
 * A view has only the newest lines, so its own search would miss older ones. The server gives a
 * JavaScript expression the same meaning, or refuses it.
 */
import type { IDisposable } from '@lumino/disposable';
import { ServerProblem } from '../api/problem';
import type { LineBuffer, TaskLine } from './buffer';
import type { IQuery } from './search';
import { messages, StreamLost } from './stream';

/** Milliseconds after the last keystroke until the server begins to search. */
const PAUSE = 400;
export const MOST_OLDER = 5000;

/** `off`: the view has every line, or the search is empty. */
export type OlderState = 'off' | 'busy' | 'done' | 'failed';

/** A search and its limits. */
export interface IOlderQuery {
  readonly query: IQuery;
  /** The tasks to search; empty for all tasks. */
  readonly tasks: ReadonlyArray<string>;
  readonly showsNoise: boolean;
}

export interface IOlderOptions {
  readonly open: (
    query: Record<string, string>,
    tasks: ReadonlyArray<string>,
    signal: AbortSignal
  ) => Promise<Response>;
  /** The lines of the view. */
  readonly kept: LineBuffer;
  readonly onChange: () => void;
}

export class OlderSearch implements IDisposable {
  constructor(private readonly _options: IOlderOptions) {}

  state: OlderState = 'off';
  /** Matches in the order in which they were printed, with the server's line numbers. */
  matches: ReadonlyArray<TaskLine> = [];
  /** Whether more matches may exist. */
  hasMore = false;
  problem: ServerProblem | null = null;

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._end();
  }

  /** Start this search; null ends the current search. A repeated search makes no request. */
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
            // the server and the view both count a task's lines before the limit; if the view has
            // fewer, it lacks the first ones
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
        return; // another search has started
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

/**
 * Sort lines by time. On Kubernetes, lines of many tasks arrive task by task. Lines without a time
 * keep their place.
 */
function inTimeOrder(lines: ReadonlyArray<TaskLine>): ReadonlyArray<TaskLine> {
  return lines.every(([, , at]) => at != null)
    ? [...lines].sort(([, , a], [, , b]) => (a ?? 0) - (b ?? 0))
    : lines;
}
