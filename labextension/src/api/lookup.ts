/**
 * A lookup of runs that the list leaves out. Requests made at about the same time share one HTTP
 * request.
 *
 * A notebook with fifty outputs of old runs must not make fifty requests when it is opened.
 */
import { PromiseDelegate } from '@lumino/coreutils';
import { nameOf } from './runs';
import { ServerProblem } from './problem';
import * as rest from './rest';
import type { IRun } from './types';

/** Milliseconds in which lookups are collected into one request. */
const TOGETHER = 50;
/**
 * Milliseconds for which a found run is cached, because outputs are drawn one after another. "Not
 * found" is not cached, because the run may be launched at any moment.
 */
const FRESH = 15_000;

export class Lookup {
  constructor(private readonly _caller: rest.ICaller) {}

  /**
   * Return the current state of a run. Rejects with ServerProblem; `isMissing` tells whether the
   * reason is that there is no such run.
   */
  get(name: string): Promise<IRun> {
    const run = this._runs.get(name);
    if (run && Date.now() - this._answeredAt < FRESH) {
      return Promise.resolve(run);
    }
    let asked = this._wanted.get(name);
    if (asked === undefined) {
      if (this._wanted.size === 0) {
        setTimeout(() => void this._ask(), TOGETHER);
      }
      asked = new PromiseDelegate<IRun>();
      this._wanted.set(name, asked);
    }
    return asked.promise;
  }

  /** Drop cached answers. */
  reset(): void {
    this._answeredAt = 0;
  }

  /** Drop the cached answer of a removed run. */
  forget(name: string): void {
    this._runs.delete(name);
  }

  private async _ask(): Promise<void> {
    const wanted = this._wanted;
    this._wanted = new Map();
    try {
      // use the list even for one run, because browsers log every 404
      const { runs } = await rest.listRuns(this._caller, true);
      this._runs = new Map(runs.map(run => [nameOf(run), run]));
      this._answeredAt = Date.now();
      for (const [name, asked] of wanted) {
        const run = this._runs.get(name);
        if (run) {
          asked.resolve(run);
        } else {
          asked.reject(missing(name, this._caller));
        }
      }
    } catch (error) {
      wanted.forEach(asked => asked.reject(error));
    }
  }

  private _wanted = new Map<string, PromiseDelegate<IRun>>();
  private _runs = new Map<string, IRun>();
  private _answeredAt = 0;
}

/** The title of the error if there is no such run. */
const NOT_FOUND = 'NotFound';

/**
 * Return whether the server answered that there is no such run, rather than that a route is
 * missing.
 */
export const isMissing = (error: unknown): boolean =>
  error instanceof ServerProblem && error.problem.title === NOT_FOUND;

function missing(name: string, { trans }: rest.ICaller): ServerProblem {
  return new ServerProblem({
    type: 'about:blank',
    title: NOT_FOUND,
    status: 404,
    detail: trans.__('There is no run %1 here.', name)
  });
}
