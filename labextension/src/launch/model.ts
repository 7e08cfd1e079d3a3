/**
 * The state of one launch form: input, server responses, and the launch.
 *
 * Only the newest plan counts, the input survives an unreachable server, and the last launch and
 * the open sections are remembered. The model has one state and one signal; it owns no widget.
 */
import type { IStateDB } from '@jupyterlab/statedb';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { Debouncer } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';
import { IClusters, isActive, nameOf } from '../api/clusters';
import { ServerProblem } from '../api/problem';
import * as rest from '../api/rest';
import type { IPlan } from '../api/launchOptions';
import type { ILaunch, IRun, IRunAsLaunch, IScheduleView } from '../api/types';
import {
  folderOf,
  IDraft,
  ILaunchState,
  INITIAL,
  launchOf,
  placeOf,
  projectOf
} from './draft';
import {
  draftOfLaunch,
  draftOfSchedule,
  IPrefill,
  opened,
  restored
} from './prefill';
import { isRefused } from './problems';
import { browserZone, DAILY, scheduleOf } from './repeat';

const KEY = 'tfcluster-labextension:launch';
const SECTIONS_KEY = 'tfcluster-labextension:launch-sections';
/** Milliseconds without a keystroke after which a plan is requested. */
const QUIET = 250;
const ROOM = 1000;
const PROGRAM: ReadonlyArray<keyof IDraft> = ['program', 'url', 'cell'];

export class LaunchModel implements IDisposable {
  constructor(
    readonly clusters: IClusters,
    private readonly _memory: IStateDB | null
  ) {
    this._ask = new Debouncer(() => this._plan(), QUIET);
    this._look = new Debouncer(() => this._load(), ROOM);
    clusters.changed.connect(this._onRuns, this);
  }

  get state(): ILaunchState {
    return this._state;
  }

  get changed(): ISignal<LaunchModel, ILaunchState> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    this._abort?.abort();
    this._ask.dispose();
    this._look.dispose();
    Signal.clearData(this);
  }

  /** Start with the last launch, or with the requested one. */
  async start(wanted: IPrefill = {}): Promise<void> {
    const [last, sections] = await Promise.all([
      this._memory?.fetch(KEY).catch(() => undefined),
      this._memory?.fetch(SECTIONS_KEY).catch(() => undefined)
    ]);
    const ids = Array.isArray(sections) ? sections : [];
    this._set({ openSections: new Set(ids.map(String)) });
    if (!this._edited) {
      this._set({ draft: restored(last) });
    }
    await this._load();
    await this.prefill(wanted);
  }

  /** Apply the arguments of a command. */
  async prefill(wanted: IPrefill): Promise<void> {
    const asked = ++this._prefills;
    const isWanted = (): boolean => asked === this._prefills;
    const { repeat, ...others } = wanted;
    if (wanted.from !== undefined || wanted.schedule !== undefined) {
      await this._fill(wanted, isWanted);
    } else if (Object.keys(others).length) {
      this.edit(opened(this._state.draft, wanted));
      if (wanted.program !== undefined || wanted.cell !== undefined) {
        this._set({ origin: null });
      }
    }
    if (repeat && isWanted()) {
      await this.openRepeat();
    }
  }

  /**
   * Fill in the form from a run or a schedule, unless something else is requested before the server
   * answers.
   */
  private async _fill(
    wanted: IPrefill,
    isWanted: () => boolean
  ): Promise<void> {
    const { launchOptions } = this._state;
    if (!launchOptions) {
      this._wanted = wanted; // used when the server answers again
      return;
    }
    const { caller } = this.clusters;
    const { schedule, from = '' } = wanted;
    const fill = async (): Promise<
      readonly [IRunAsLaunch, ReturnType<typeof draftOfLaunch>]
    > => {
      if (schedule === undefined) {
        const run = await rest.runAsLaunch(caller, from);
        return [run, draftOfLaunch(run.launch, launchOptions)];
      }
      const form = await rest.scheduleForm(caller, schedule);
      return [form, draftOfSchedule(form, launchOptions)];
    };
    const [{ name, notes }, { draft, left }] = await fill();
    if (!isWanted() || this._disposed) {
      return;
    }
    const more = left.map(label =>
      caller.trans.__(
        '%1: values with line breaks or with spaces at either end are not copied.',
        label
      )
    );
    this.edit(draft);
    this._set({ origin: { name, notes: [...notes, ...more] }, tried: false });
  }

  /**
   * Change the input; a plan is requested after a pause. If the program changes, the working folder
   * is reset.
   */
  edit(change: Partial<IDraft>): void {
    this._edited = true;
    this._number++;
    const { draft } = this._state;
    const isOther = PROGRAM.some(
      key => key in change && change[key] !== draft[key]
    );
    this._set({
      draft: {
        ...draft,
        ...(isOther && { folder: null, config: '' }),
        ...change
      },
      current: false,
      refusal: null,
      launched: null,
      saved: null
    });
    void this._ask.invoke();
  }

  /** Make a schedule of the launch: the form asks when it recurs. */
  async openRepeat(): Promise<void> {
    if (!this._state.draft.name && !this._state.current) {
      await this._plan(); // the plan contains the name
    }
    const { draft, plan } = this._state;
    const { time_zone: zone = browserZone() } = draft.values;
    this.edit({
      name: draft.name || (plan?.name ?? ''),
      repeat: draft.repeat ?? DAILY,
      values: { ...draft.values, time_zone: zone }
    });
  }

  /** Go back to a single launch. */
  closeRepeat(): void {
    this.edit({ repeat: null });
    this._set({ origin: null });
  }

  /** Open or close a section, and remember it for the next form. */
  toggleSection(id: string): void {
    const openSections = new Set(this._state.openSections);
    if (!openSections.delete(id)) {
      openSections.add(id);
    }
    this._set({ openSections });
    this._memory?.save(SECTIONS_KEY, [...openSections]).catch(() => undefined); // a failure to remember is harmless
  }

  setValue(key: string, value: string | boolean): void {
    this.edit({ values: { ...this._state.draft.values, [key]: value } });
  }

  /** Ask the server again now. */
  async retry(): Promise<void> {
    await this._load();
    await this._plan();
  }

  /**
   * Ask again if the input was refused: an administrator may have allowed more, or a run may have
   * ended. Do not ask if nothing was refused, or while the newest input is on its way.
   */
  async retryRefused(): Promise<void> {
    const { away, current, launching } = this._state;
    if (launching || !isRefused(this._state)) {
      return;
    }
    if (away) {
      await this._load();
    } else if (current) {
      await this._plan();
      if (!isRefused(this._state)) {
        await this._load(); // free resources have changed with the run
      }
    }
  }

  /** Launch the current input; return the run, or null if it was refused. */
  async launch(): Promise<IRun | null> {
    const { draft, launchOptions, launching } = this._state;
    if (!launchOptions || launching) {
      return null;
    }
    this._set({ launching: true, refusal: null, launched: null });
    try {
      const run = await this.clusters.launch(
        launchOf(draft, launchOptions, projectOf(this._state))
      );
      this._set({ launching: false, launched: run, tried: false });
      this._remember();
      return run;
    } catch (error) {
      this._set({ launching: false, refusal: problemIn(error), tried: true });
      void this._plan();
      return null;
    }
  }

  /** Save the current input as a schedule; return it, or null if it was refused. */
  async saveSchedule(): Promise<IScheduleView | null> {
    const { draft, launchOptions, launching } = this._state;
    const { repeat } = draft;
    if (!launchOptions || launching || !repeat) {
      return null;
    }
    const launch = launchOf(draft, launchOptions, projectOf(this._state));
    this._set({ launching: true, refusal: null, saved: null });
    try {
      // The server parses the typed rules, and exactly the parsed rules are saved.
      const plan = await this._planned(launch);
      const rules = plan.schedule?.rules;
      if (!rules || plan.problems.length) {
        this._set({ plan, current: true, launching: false, tried: true });
        return null;
      }
      const { name = '', ...what } = launch;
      const saved = await this.clusters.saveSchedule(
        name,
        { rules, launch: what, track: draft.values.track === true },
        repeat.schedule === ''
      );
      this._remember();
      this.edit({ repeat: null });
      this._set({ launching: false, saved, tried: false, origin: null });
      return saved;
    } catch (error) {
      this._set({ launching: false, refusal: problemIn(error), tried: true });
      void this._plan();
      return null;
    }
  }

  /** Ask the server about a launch, or about the schedule that it becomes. */
  private _planned(launch: ILaunch, signal?: AbortSignal): Promise<IPlan> {
    const { draft, launchOptions } = this._state;
    const { caller } = this.clusters;
    return draft.repeat && launchOptions
      ? rest.planSchedule(
          caller,
          scheduleOf(draft, draft.repeat, launchOptions, launch),
          signal
        )
      : rest.planLaunch(caller, launch, signal);
  }

  /**
   * Return the notebook line for the current input, with a cell program below it. With `notebook`,
   * paths are relative to the notebook's folder. If the plan is older than the input, the server is
   * asked first.
   */
  async line(notebook?: string): Promise<string> {
    const { draft, launchOptions, plan, current } = this._state;
    if (!launchOptions) {
      throw new Error('no launch options'); // without options no line can be requested
    }
    const launch = launchOf(draft, launchOptions, projectOf(this._state));
    const known = plan && current && notebook === undefined;
    const { line } = known
      ? plan
      : await this._planned({
          ...launch,
          ...(notebook !== undefined && { folder: folderOf(notebook) })
        });
    return launch.cell === undefined ? line : `${line}\n${launch.cell}`;
  }

  /** Count missing values as errors from now on. */
  tried(): void {
    this._set({ tried: true });
  }

  private async _load(): Promise<void> {
    try {
      const launchOptions = await rest.getLaunchOptions(this.clusters.caller);
      this._set({ launchOptions });
      const wanted = this._wanted;
      this._wanted = null;
      if (wanted !== null) {
        await this.prefill(wanted).catch(error =>
          this._set({ refusal: problemIn(error) })
        );
      }
    } catch (error) {
      this._set({ away: problemIn(error) });
      return;
    }
    if (!this._state.current || this._state.away) {
      await this._plan();
    }
  }

  /** Ask the server about the current input; resolves once the newest request is answered. */
  private _plan(): Promise<void> {
    return (this._planning = this._planOnce());
  }

  private async _planOnce(): Promise<void> {
    const { draft, launchOptions, launched } = this._state;
    // after a launch there is no plan: it would only report that the name is taken
    if (!launchOptions || launched || this._disposed) {
      this._set({ away: launchOptions ? null : this._state.away });
      return;
    }
    this._abort?.abort();
    const abort = (this._abort = new AbortController());
    const asked = this._number;
    try {
      const known = projectOf(this._state);
      const launch = launchOf(draft, launchOptions, known);
      const plan = await this._planned(launch, abort.signal);
      if (!abort.signal.aborted) {
        const { refusal, plan: before } = this._state;
        // keep the refusal of a launch, because this plan does not repeat it
        const isOver = before?.problems.length && !plan.problems.length;
        // The request left out values that equal the defaults, but the file of a new project may
        // replace these defaults. Ask only once more, because the next request knows the project.
        const isWhole =
          known !== undefined ||
          isSame(launch, launchOf(draft, launchOptions, plan.project));
        const isNewest = asked === this._number;
        this._set({
          plan,
          planned: placeOf(draft),
          away: null,
          current: isNewest && isWhole,
          refusal: isOver ? null : refusal
        });
        if (isNewest && !isWhole) {
          void this._ask.invoke();
        }
      }
    } catch (error) {
      if (!abort.signal.aborted) {
        this._set({ away: problemIn(error), current: false });
      }
    }
    if (abort.signal.aborted && !this._disposed) {
      await this._planning; // a newer request took over
    }
  }

  /**
   * Request a new plan when runs begin or end, because free resources change with them, and when
   * the server is reachable again.
   */
  private _onRuns(): void {
    const { state, runs } = this.clusters.state;
    const active = runs.filter(isActive).map(nameOf).join();
    const isBack = state === 'live' && !this._live && this._state.away !== null;
    this._live = state === 'live';
    if (isBack || (this._active !== active && state === 'live')) {
      this._active = active;
      this._set({ current: false });
      void this._look.invoke();
    }
  }

  private _remember(): void {
    const { draft } = this._state;
    const values = { ...draft.values };
    delete values.env; // environment variables may contain passwords
    this._state.launchOptions?.schedule.forEach(
      ({ key }) => delete values[key]
    );
    const kept = { ...draft, values, cell: null, repeat: null };
    this._memory
      ?.save(KEY, kept as unknown as ReadonlyPartialJSONObject)
      .catch(() => undefined); // a failure to remember is harmless
  }

  private _set(change: Partial<ILaunchState>): void {
    if (!this._disposed) {
      this._state = { ...this._state, ...change };
      this._changed.emit(this._state);
    }
  }

  private _state = INITIAL;
  private _edited = false;
  private _disposed = false;
  private _number = 0;
  private _prefills = 0;
  /** The arguments that fill in the form once the server answers. */
  private _wanted: IPrefill | null = null;
  private _active = '';
  private _live = true;
  private _abort: AbortController | null = null;
  private _planning: Promise<void> | null = null;
  private readonly _ask: Debouncer;
  private readonly _look: Debouncer;
  private readonly _changed = new Signal<LaunchModel, ILaunchState>(this);
}

const isSame = (one: ILaunch, other: ILaunch): boolean =>
  JSON.stringify(one) === JSON.stringify(other);

function problemIn(error: unknown): ServerProblem {
  if (error instanceof ServerProblem) {
    return error;
  }
  throw error;
}
