/**
 * The cache of a page's runs by name; merges lists and events.
 *
 * An ended run never becomes active again, and every new phase is reported once. After a deletion,
 * another run may have the name, so only the uid identifies a run. The cache makes no requests.
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

  /** Keep the run of this name even if lists leave it out. */
  pin(name: string): void {
    this._pinned.add(name);
  }

  /** Record that a user of this page requested the end of a run. */
  requestEnd(run: IRun): void {
    this._endRequested.add(uidOf(run));
  }

  /** Drop the record of a requested end: the server refused, or the run has ended. */
  cancelEnd(run: IRun): void {
    this._endRequested.delete(uidOf(run));
  }

  /** Store the current state of a run. */
  put(run: IRun): void {
    this._replace(new Map(this._runs).set(nameOf(run), this._later(run)));
  }

  /**
   * Merge a list; return the names of pinned runs that it leaves out.
   *
   * Changes that were pushed while the list was on its way are applied on top.
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
    this._since ||= answer.at; // runs that ended before this time are not reported
    return kept;
  }

  /** Remove a run. */
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

  /** Return the later state: an event from before a run's end must not replace the ended state. */
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
  /** The uids of runs whose end was requested on this page. */
  private readonly _endRequested = new Set<string>();
  /** When this page first received runs, by the server's clock. */
  private _since = 0;
}
