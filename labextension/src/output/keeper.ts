/**
 * Keeps what a notebook holds of its runs up to date, so that its file says how each run was last, to anybody.
 *
 * A phase that a run reaches while the notebook is open is written into the document at once, as if the cell had printed
 * it. What happened before is written when the document is saved for another reason: opening a notebook never makes it
 * dirty, nor does it in a window that nobody looks at, nor where the file has changed since: the person at work in another
 * window would be asked which version is right. It works on the document, not on what is drawn: cells out of view have
 * outputs, too.
 */
import type { ICodeCellModel } from '@jupyterlab/cells';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { INotebookModel } from '@jupyterlab/notebook';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { Contents } from '@jupyterlab/services';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Throttler } from '@lumino/polling';
import * as rest from '../api/rest';
import { isActive, nameOf, uidOf } from '../api/runs';
import type { IClusters } from '../api/state';
import type { IRun } from '../api/types';
import { type IStoredRun, MIME_TYPE, stored } from './stored';

/** Milliseconds in which changes become one. */
const TOGETHER = 300;
/** Milliseconds between two requests, also where the server is behind what it has pushed. */
const PAUSE = 2_000;
/** Milliseconds after which the figures of a run that goes on are read again. */
const FIGURES = 20_000;
/** Milliseconds after a request that failed. */
const FAILED = 30_000;
/** Milliseconds by which two times of the same file may differ, as JupyterLab itself compares them. */
const SAME_FILE = 500;

export type IBundle = ReadonlyPartialJSONObject;

/** An output of the document, and the run that it holds. */
interface IHeld {
  readonly output: IRenderMime.IMimeModel;
  readonly stored: IStoredRun;
}

/** What the server says that a notebook keeps of a run. */
interface IFresh {
  readonly bundle: IBundle;
  readonly stored: IStoredRun;
  /** When this page got it, in milliseconds since 1970. */
  readonly gotAt: number;
}

export class OutputKeeper implements IDisposable {
  constructor(
    private readonly _clusters: IClusters,
    private readonly _context: DocumentRegistry.IContext<INotebookModel>,
    private readonly _contents: Pick<Contents.IManager, 'get'>
  ) {
    this._soon = new Throttler(() => this._look(), {
      limit: TOGETHER,
      edge: 'trailing'
    });
    this._context.saveState.connect(this._onSaveState, this);
    this._clusters.changed.connect(this._onChanged, this);
    this._context.pathChanged.connect(this._takeTurn, this);
    document.addEventListener('visibilitychange', this._takeTurn);
    void this._context.ready.then(() => {
      if (!this.isDisposed) {
        this._context.model.contentChanged.connect(this._onChanged, this);
        this._takeTurn();
        this._onChanged();
      }
    });
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    clearTimeout(this._timer);
    this._soon.dispose();
    this._turn?.dispose();
    document.removeEventListener('visibilitychange', this._takeTurn);
    this._context.pathChanged.disconnect(this._takeTurn, this);
    this._context.saveState.disconnect(this._onSaveState, this);
    this._clusters.changed.disconnect(this._onChanged, this);
    this._context.model.contentChanged.disconnect(this._onChanged, this);
  }

  private _onChanged(): void {
    if (!this._isDisposed) {
      void this._soon.invoke();
    }
  }

  /** Before the document is read to be saved: nothing that is known is left out. */
  private _onSaveState(_: unknown, state: DocumentRegistry.SaveState): void {
    const isShared = this._context.model.collaborative;
    if (state === 'started' && (!isShared || this._isMyTurn)) {
      this._write(() => true);
    }
  }

  /** Ask for the turn while somebody may look at this window, by the name that the document has now. */
  private readonly _takeTurn = (): void => {
    this._turn?.dispose();
    this._turn = null;
    if (this._isDisposed || !this._context.isReady || document.hidden) {
      return;
    }
    const { baseUrl } = this._clusters.caller.settings;
    const keep = (): void => void this._keep();
    const name = `tfcluster:${baseUrl}${this._context.path}`;
    this._turn = takeTurn(name, keep);
    keep();
  };

  private _look(): void {
    if (this._isDisposed || this._clusters.state.state !== 'live') {
      return;
    }
    const wanted = new Set<string>();
    for (const { stored } of this._held()) {
      const found = this._find(stored);
      if (found) {
        const uid = uidOf(found);
        const first = this._first.get(uid) ?? found.cluster.status.phase;
        this._first.set(uid, first);
        const known = this._fresh.get(uid);
        if (isBehind(known?.stored ?? stored, known?.gotAt ?? 0, found)) {
          wanted.add(nameOf(found));
        }
      }
    }
    if (wanted.size > 0) {
      this._ask([...wanted]);
    }
  }

  /** The run of an output as the page knows it; one that lists leave out is asked for once. */
  private _find(stored: IStoredRun): IRun | undefined {
    const [name, uid] = [nameOf(stored.run), uidOf(stored.run)];
    const found = this._clusters.find(name);
    if (!found && isActive(stored.run) && !this._asked.has(uid)) {
      this._asked.add(uid);
      this._clusters.ensure(name).catch(() => undefined); // it is not here
    }
    return found && uidOf(found) === uid ? found : undefined;
  }

  private _ask(names: ReadonlyArray<string>): void {
    const wait = this._nextAt - Date.now();
    if (wait > 0 || this._isAsking) {
      clearTimeout(this._timer);
      this._timer = setTimeout(() => this._look(), Math.max(wait, TOGETHER));
      return;
    }
    this._isAsking = true;
    rest
      .keptOutputs(this._clusters.caller, names)
      .then(
        outputs => {
          this._nextAt = Date.now() + PAUSE;
          this._take(outputs);
        },
        () => {
          this._nextAt = Date.now() + FAILED;
        }
      )
      .finally(() => {
        this._isAsking = false;
        this._onChanged(); // something may have changed meanwhile
      });
  }

  private _take(outputs: Readonly<Record<string, IBundle>>): void {
    for (const bundle of Object.values(outputs)) {
      const found = stored(bundle[MIME_TYPE]);
      if (found?.kind === 'Run') {
        const fresh = { bundle, stored: found, gotAt: Date.now() };
        this._fresh.set(uidOf(found.run), fresh);
      }
    }
    void this._keep();
  }

  /** Write what is known, as far as this window may. */
  private async _keep(): Promise<void> {
    const { model } = this._context;
    if (!this._mayWrite) {
      return;
    }
    if (model.dirty) {
      this._write(() => true);
      return;
    }
    const saw = (old: IRun, now: IRun): boolean => this._saw(old, now);
    const isMeant = this._outdated().some(({ stored, fresh }) =>
      saw(stored.run, fresh.stored.run)
    );
    if (isMeant && (model.collaborative || (await this._isSameFile()))) {
      if (this._mayWrite) {
        this._write(saw); // still
      }
    }
  }

  /** Whether nobody has saved the file since this window read or saved it. */
  private async _isSameFile(): Promise<boolean> {
    const { path, contentsModel } = this._context;
    try {
      const found = await this._contents.get(path, { content: false });
      const ours = Date.parse(contentsModel?.last_modified ?? '');
      return Math.abs(Date.parse(found.last_modified) - ours) <= SAME_FILE;
    } catch {
      return false; // it is away; the next save says so
    }
  }

  /** Whether the run came to its phase while this document was open. */
  private _saw(old: IRun, now: IRun): boolean {
    const { phase } = now.cluster.status;
    const isOther = old.cluster.status.phase !== phase || !isActive(now);
    return isOther && this._first.get(uidOf(now)) !== phase;
  }

  /** Write what is newer than what the document holds, where that is meant. */
  private _write(isMeant: (old: IRun, now: IRun) => boolean): void {
    if (this._isDisposed) {
      return;
    }
    for (const { output, stored, fresh } of this._outdated()) {
      if (isMeant(stored.run, fresh.stored.run)) {
        output.setData({ data: fresh.bundle });
      }
    }
  }

  /** The outputs of which something newer is known. */
  private _outdated(): ReadonlyArray<IHeld & { readonly fresh: IFresh }> {
    return this._held().flatMap(held => {
      const fresh = this._fresh.get(uidOf(held.stored.run));
      return fresh &&
        fresh.stored.at > held.stored.at &&
        differ(held.stored.run, fresh.stored.run)
        ? [{ ...held, fresh }]
        : [];
    });
  }

  /** The outputs of the document that hold a run. */
  private _held(): ReadonlyArray<IHeld> {
    const held: IHeld[] = [];
    for (const cell of this._context.model?.cells ?? []) {
      if (cell.type !== 'code') {
        continue;
      }
      const { outputs } = cell as ICodeCellModel;
      for (let index = 0; index < outputs.length; index++) {
        const output = outputs.get(index);
        const found = stored(output.data[MIME_TYPE]);
        if (found?.kind === 'Run') {
          held.push({ output, stored: found });
        }
      }
    }
    return held;
  }

  private get _mayWrite(): boolean {
    const isWritable = this._context.contentsModel?.writable !== false;
    return !this._isDisposed && isWritable && this._isMyTurn;
  }

  /** Of those who have the document open together, one writes: two would write an output twice. */
  private get _isMyTurn(): boolean {
    const { model } = this._context;
    if (!model.collaborative) {
      return this._turn?.isMine ?? false;
    }
    const { awareness } = model.sharedModel as unknown as IShared;
    const people = [...awareness.getStates()].filter(([, state]) => state.user);
    return Math.min(...people.map(([id]) => id)) === awareness.clientID;
  }

  /** The phase in which this page saw a run first while the document was open, by uid. */
  private readonly _first = new Map<string, string>();
  private readonly _fresh = new Map<string, IFresh>();
  private readonly _asked = new Set<string>();
  private readonly _soon: Throttler;
  private _turn: ITurn | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _nextAt = 0;
  private _isAsking = false;
  private _isDisposed = false;
}

/** What shared documents have beside their interface. */
interface IShared {
  readonly awareness: {
    readonly clientID: number;
    /** By client; the server is one, too, and has no user. */
    getStates(): ReadonlyMap<number, { readonly user?: unknown }>;
  };
}

/** What a document says of a run beside its figures. */
function digest({ cluster, ready }: IRun): string {
  const { phase, message, warnings, finishedAt, releasedAt } = cluster.status;
  const { note, displayName, tags } = cluster.metadata;
  return JSON.stringify([
    [phase, message, warnings ?? []],
    [finishedAt ?? null, releasedAt ?? null],
    [note ?? '', displayName ?? '', tags ?? []],
    [ready.ready, ready.total]
  ]);
}

const figures = ({ progress }: IRun): string =>
  JSON.stringify([progress?.step, progress?.loss, progress?.metrics]);

const differ = (one: IRun, other: IRun): boolean =>
  digest(one) !== digest(other) || figures(one) !== figures(other);

/** Whether what is known of a run since `gotAt` is to be read again. */
function isBehind(known: IStoredRun, gotAt: number, found: IRun): boolean {
  if (digest(known.run) !== digest(found)) {
    return true;
  }
  const isDue = !isActive(found) || Date.now() - gotAt > FIGURES;
  return isDue && figures(known.run) !== figures(found);
}

/** Whether it is this window that writes a document that several windows of a browser show. */
interface ITurn extends IDisposable {
  readonly isMine: boolean;
}

/** Two windows that write the same file would each ask a person which version is right. */
function takeTurn(name: string, onTurn: () => void): ITurn {
  const { locks } = navigator as { readonly locks?: LockManager };
  const waiting = new AbortController();
  let isMine = !locks; // where a page has no locks, on plain http, nobody is told of others
  let release = (): void => undefined;
  const hold = async (): Promise<void> => {
    if (waiting.signal.aborted) {
      return;
    }
    isMine = true;
    onTurn();
    return new Promise<void>(resolve => (release = resolve));
  };
  locks?.request(name, { signal: waiting.signal }, hold).catch(() => undefined); // it was given up while another window has it
  const end = new DisposableDelegate(() => {
    isMine = false;
    waiting.abort();
    release();
  });
  return {
    get isMine() {
      return isMine;
    },
    get isDisposed() {
      return end.isDisposed;
    },
    dispose: () => end.dispose()
  };
}
