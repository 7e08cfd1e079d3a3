/**
 * Updates the runs in a notebook document, so that its file has the last state of each run.
 *
 * A phase that a run reaches while the notebook is open is written into the document at once, as if
 * the cell had printed it. Earlier changes are written when the document is saved for another
 * reason. Opening a notebook never makes it dirty. A hidden window writes nothing, and neither does
 * a window whose file has changed since it was read: otherwise another window would ask its user
 * which version is right. The keeper works on the document instead of the page, because cells out
 * of view have outputs too.
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

/** Milliseconds in which changes are collected before they are handled together. */
const TOGETHER = 300;
/** Minimum milliseconds between two requests, even if the server is behind its own events. */
const PAUSE = 2_000;
/** Milliseconds after which the metrics of an active run are read again. */
const FIGURES = 20_000;
/** Milliseconds to wait after a failed request. */
const FAILED = 30_000;
/**
 * Milliseconds by which two times of the same file may differ; JupyterLab allows the same
 * difference.
 */
const SAME_FILE = 500;

export type IBundle = ReadonlyPartialJSONObject;

/** An output of the document with its run. */
interface IHeld {
  readonly output: IRenderMime.IMimeModel;
  readonly stored: IStoredRun;
}

/** The current notebook data of a run, from the server. */
interface IFresh {
  readonly bundle: IBundle;
  readonly stored: IStoredRun;
  /** When this page received the data, in milliseconds since 1970. */
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

  /** Write everything known before the document is saved. */
  private _onSaveState(_: unknown, state: DocumentRegistry.SaveState): void {
    const isShared = this._context.model.collaborative;
    if (state === 'started' && (!isShared || this._isMyTurn)) {
      this._write(() => true);
    }
  }

  /** Ask for the right to write while this window is visible, under the document's current name. */
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

  /** Return the run of an output; a run that lists leave out is requested once. */
  private _find(stored: IStoredRun): IRun | undefined {
    const [name, uid] = [nameOf(stored.run), uidOf(stored.run)];
    const found = this._clusters.find(name);
    if (!found && isActive(stored.run) && !this._asked.has(uid)) {
      this._asked.add(uid);
      this._clusters.ensure(name).catch(() => undefined); // the run does not exist
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
        this._onChanged(); // runs may have changed during the request
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

  /** Write what is known, if this window may. */
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
        this._write(saw); // checked again after the wait
      }
    }
  }

  /** Return whether nobody else has saved the file since this window read or saved it. */
  private async _isSameFile(): Promise<boolean> {
    const { path, contentsModel } = this._context;
    try {
      const found = await this._contents.get(path, { content: false });
      const ours = Date.parse(contentsModel?.last_modified ?? '');
      return Math.abs(Date.parse(found.last_modified) - ours) <= SAME_FILE;
    } catch {
      return false; // the file is unreachable; the next save reports that
    }
  }

  /** Return whether the run reached its phase while this document was open. */
  private _saw(old: IRun, now: IRun): boolean {
    const { phase } = now.cluster.status;
    const isOther = old.cluster.status.phase !== phase || !isActive(now);
    return isOther && this._first.get(uidOf(now)) !== phase;
  }

  /** Write data that is newer than the document's, for the runs selected by `isMeant`. */
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

  /** Return the outputs with newer data. */
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

  /** Return the outputs of the document that hold a run. */
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

  /**
   * Whether this client writes: only one of the clients that share the document does, so that no
   * output is written twice.
   */
  private get _isMyTurn(): boolean {
    const { model } = this._context;
    if (!model.collaborative) {
      return this._turn?.isMine ?? false;
    }
    const { awareness } = model.sharedModel as unknown as IShared;
    const people = [...awareness.getStates()].filter(([, state]) => state.user);
    return Math.min(...people.map(([id]) => id)) === awareness.clientID;
  }

  /** By uid, the phase in which this page first saw each run while the document was open. */
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

/** The parts of a shared document beyond its interface. */
interface IShared {
  readonly awareness: {
    readonly clientID: number;
    /** The clients by id; the server is also a client, but has no user. */
    getStates(): ReadonlyMap<number, { readonly user?: unknown }>;
  };
}

/** Return the state of a run without its metrics, for comparison. */
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

const usedBy = ({ used }: IRun): number => used?.length ?? 0;

const differ = (one: IRun, other: IRun): boolean =>
  digest(one) !== digest(other) ||
  figures(one) !== figures(other) ||
  usedBy(one) !== usedBy(other);

/** Return whether the data of a run, received at `gotAt`, must be read again. */
function isBehind(known: IStoredRun, gotAt: number, found: IRun): boolean {
  if (
    digest(known.run) !== digest(found) ||
    usedBy(known.run) < usedBy(found)
  ) {
    return true;
  }
  const isDue = !isActive(found) || Date.now() - gotAt > FIGURES;
  return isDue && figures(known.run) !== figures(found);
}

/** The right of one of several windows of a browser to write a document. */
interface ITurn extends IDisposable {
  readonly isMine: boolean;
}

/**
 * Request the right to write: if two windows wrote one file, each would ask its user which version
 * is right.
 */
function takeTurn(name: string, onTurn: () => void): ITurn {
  const { locks } = navigator as { readonly locks?: LockManager };
  const waiting = new AbortController();
  // without locks (plain HTTP), a page does not know about other windows, so it writes
  let isMine = !locks;
  let release = (): void => undefined;
  const hold = async (): Promise<void> => {
    if (waiting.signal.aborted) {
      return;
    }
    isMine = true;
    onTurn();
    return new Promise<void>(resolve => (release = resolve));
  };
  // rejects if the wait for the right is ended
  locks?.request(name, { signal: waiting.signal }, hold).catch(() => undefined);
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
