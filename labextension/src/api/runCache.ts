/**
 * The cache of runs of a page, by their names: merges lists and events.
 *
 * Promises that a run never comes back from its end, and that every new phase is told once. A name may be another run's
 * after a deletion: only the uid says which one it is. It asks nobody.
 */
import { isActive, isSame, nameOf, uidOf } from './runs';
import type { ITransition } from './state';
import type { IRun, IRunEvent, IRunList } from './types';

export class RunCache {
  constructor(private readonly _notify: (transition: ITransition) => void) {}

  get all(): ReadonlyArray<IRun> {
    return [...this._runs.values()];
  }

  find(name: string): IRun | undefined {
    return this._runs.get(name);
  }

  /** Keep the run of this name although lists leave it out. */
  pin(name: string): void {
    this._pinned.add(name);
  }

  /** Note that a person on this page asks for the end of a run. */
  requestEnd(run: IRun): void {
    this._endRequested.add(uidOf(run));
  }

  /** Forget that the end was asked for: the server refused, or it is over. */
  cancelEnd(run: IRun): void {
    this._endRequested.delete(uidOf(run));
  }

  /** Take what a run is now. */
  put(run: IRun): void {
    this._replace(new Map(this._runs).set(nameOf(run), this._later(run)));
  }

  /**
   * Take a list; gives the names of those runs that somebody wants and that it leaves out.
   *
   * It was on its way while changes were pushed: those that it does not include come on top.
   */
  merge(
    answer: IRunList,
    meanwhile: ReadonlyMap<string, IRunEvent>
  ): ReadonlyArray<string> {
    const listed = new Map(answer.runs.map(run => [nameOf(run), run]));
    for (const { name, run, stream, sequence } of meanwhile.values()) {
      if (stream !== answer.stream || sequence <= answer.sequence) {
        continue;
      }
      if (run === null) {
        listed.delete(name);
      } else {
        listed.set(name, run);
      }
    }
    const next = new Map<string, IRun>();
    const kept: string[] = [];
    for (const name of this._pinned) {
      const known = this._runs.get(name);
      if (known && !listed.has(name)) {
        next.set(name, known);
        kept.push(name);
      }
    }
    for (const [name, run] of listed) {
      next.set(name, this._later(run));
    }
    this._replace(next);
    this._since ||= answer.at; // what ended before is no news
    return kept;
  }

  /** A run is gone. */
  remove(name: string): void {
    const run = this._runs.get(name);
    if (run) {
      this.cancelEnd(run);
    }
    const next = new Map(this._runs);
    next.delete(name);
    this._pinned.delete(name);
    this._runs = next;
  }

  /** News may come late: what was told of a run before its end is not news after it. */
  private _later(run: IRun): IRun {
    const known = this._runs.get(nameOf(run));
    const isBack =
      known && isSame(run, known) && !isActive(known) && isActive(run);
    return isBack ? known : run;
  }

  private _replace(next: ReadonlyMap<string, IRun>): void {
    const told = this._since === 0 ? [] : [...next.values()];
    const before = this._runs;
    this._runs = next;
    for (const run of told) {
      this._note(run, before.get(nameOf(run)));
    }
  }

  private _note(run: IRun, known: IRun | undefined): void {
    const { phase, finishedAt } = run.cluster.status;
    const before =
      known && isSame(run, known) ? known.cluster.status.phase : null;
    const isOld = before === null && (finishedAt ?? Infinity) < this._since;
    if (before !== phase && !isOld) {
      this._notify({ run, before, asked: this._endRequested.has(uidOf(run)) });
    }
    if (!isActive(run)) {
      this.cancelEnd(run);
    }
  }

  private _runs: ReadonlyMap<string, IRun> = new Map();
  private readonly _pinned = new Set<string>();
  /** The uids of runs whose end was asked for here. */
  private readonly _endRequested = new Set<string>();
  /** When this page first knew the runs, by the server's clock. */
  private _since = 0;
}
