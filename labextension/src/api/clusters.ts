/**
 * The model of all runs in this page: one state, one signal, and the verbs, such as stop.
 *
 * Every view shows the same state, and the result of a verb appears as soon as the server has
 * answered. A verb acts on the given run, never on a later run of the same name. The model owns no
 * widget and shows nothing.
 */
import { ISignal, Signal } from '@lumino/signaling';
import type { VerbBodies } from './models';
import { RunWatcher } from './runWatcher';
import { isSame, nameOf } from './runs';
import * as rest from './rest';
import type { IClusters } from './state';
import type {
  ILaunch,
  IRerun,
  IRun,
  IRunDetails,
  ISchedule,
  IScheduleView,
  ITaskList
} from './types';

export { isActive, isSame, listed, nameOf } from './runs';
export type { IClusters, IClustersState, IFailure, ITransition } from './state';

export class ClustersModel extends RunWatcher implements IClusters {
  async ensure(name: string): Promise<IRun> {
    this._cache.pin(name);
    return this.find(name) ?? this._answered(this._lookup.get(name));
  }

  details(name: string): Promise<IRunDetails> {
    return rest.runDetails(this.caller, name);
  }

  tasks(name: string): Promise<ITaskList | undefined> {
    return rest.listTasks(this.caller, name);
  }

  async launch(what: ILaunch): Promise<IRun> {
    return this._answered(rest.launchRun(this.caller, what));
  }

  async saveSchedule(
    name: string,
    what: ISchedule,
    isNew: boolean
  ): Promise<IScheduleView> {
    const save = isNew ? rest.createSchedule : rest.replaceSchedule;
    const saved = await save(this.caller, name, what);
    this._scheduleSaved.emit(name);
    return saved;
  }

  get scheduleSaved(): ISignal<IClusters, string> {
    return this._scheduleSaved;
  }

  async stop(run: IRun): Promise<IRun> {
    return this._ending(run, () => this.act(run, 'stop', {}));
  }

  act<V extends keyof VerbBodies>(
    run: IRun,
    verb: V,
    body: VerbBodies[V]
  ): Promise<IRun> {
    return this._answered(rest.doVerb(this.caller, run, verb, body));
  }

  async rerun(name: string, changes: IRerun = {}): Promise<IRun> {
    return this._answered(rest.rerunRun(this.caller, name, changes));
  }

  async remove(run: IRun, withLogs = false): Promise<void> {
    const stopping = await this._ending(run, () =>
      this._answered(rest.deleteRun(this.caller, run, withLogs))
    );
    // a run that is being stopped stays until an event says that it is gone
    if (!stopping && isSame(run, this.find(nameOf(run)))) {
      this._drop(nameOf(run));
    }
  }

  private async _ending<T>(run: IRun, ask: () => Promise<T>): Promise<T> {
    this._cache.requestEnd(run);
    try {
      return await ask();
    } catch (error) {
      this._cache.cancelEnd(run);
      throw error;
    }
  }

  private readonly _scheduleSaved = new Signal<IClusters, string>(this);
}
