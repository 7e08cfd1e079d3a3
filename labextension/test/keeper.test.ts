import type { DocumentRegistry } from '@jupyterlab/docregistry';
import { type INotebookModel, NotebookModel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Phase } from '../src/api/models';
import type { IRun } from '../src/api/types';
import { OutputKeeper } from '../src/output/keeper';
import { MIME_TYPE } from '../src/output/stored';
import { aRun, FakeServer } from './runs';

/**
 * The locks of a browser, which happy-dom lacks: one holder of a name at a time, in the order of
 * requests.
 */
class Locks {
  readonly queues = new Map<string, Promise<unknown>>();

  async request(
    name: string,
    { signal }: { readonly signal: AbortSignal },
    hold: () => Promise<void>
  ): Promise<void> {
    const before = this.queues.get(name);
    const mine = Promise.resolve(before).then(() => {
      signal.throwIfAborted();
      return hold();
    });
    this.queues.set(
      name,
      mine.catch(() => undefined)
    );
    await mine;
  }
}

/** A window with a notebook open, as in JupyterLab. */
class Shown {
  constructor(server: FakeServer, file: { last_modified: string }) {
    this.model = new NotebookModel();
    const data = { [MIME_TYPE]: stored(aRun('digits', 1, 'Queued')) };
    const output = { output_type: 'display_data', metadata: {}, data };
    const cell = { cell_type: 'code', source: '', metadata: {} };
    const cells = [{ ...cell, outputs: [output], execution_count: null }];
    this.model.fromJSON({
      cells,
      metadata: {},
      nbformat: 4,
      nbformat_minor: 4
    });
    this.model.dirty = false;
    this.context = {
      path: 'notebook.ipynb',
      isReady: true,
      ready: Promise.resolve(),
      model: this.model,
      contentsModel: { writable: true, ...file },
      saveState: new Signal<this, DocumentRegistry.SaveState>(this),
      pathChanged: new Signal<this, string>(this)
    };
    this.keeper = new OutputKeeper(
      server.model,
      this.context as unknown as DocumentRegistry.IContext<INotebookModel>,
      { get: () => Promise.resolve(file as never) }
    );
  }

  get phase(): string {
    const [cell] = this.model.sharedModel.cells;
    const { outputs } = cell.toJSON() as never as {
      outputs: { data: Record<string, IRun> }[];
    };
    return outputs[0].data[MIME_TYPE].cluster.status.phase;
  }

  readonly model: NotebookModel;
  readonly context;
  readonly keeper: OutputKeeper;
}

/** The clients that have a shared document open. */
interface IShared {
  readonly awareness: {
    readonly clientID: number;
    getStates(): Map<number, object>;
  };
}

let server: FakeServer;
let locks: Locks;
let file: { last_modified: string };
let windows: Shown[];
let at = 0;

const stored = (run: IRun): never =>
  ({ kind: 'Run', at: (at += 1), ...run }) as never;
/** Open a document with an older state; the page has compared this state with the run. */
const show = async (): Promise<Shown> => {
  const before = fetched();
  answerWith('Running');
  const shown = new Shown(server, { ...file });
  windows.push(shown);
  await vi.waitFor(() => expect(fetched()).toBe(before + 1));
  await settled();
  expect(shown.phase).toBe('Queued');
  return shown;
};
const answerWith = (phase: Phase): IRun => {
  const run = aRun('digits', 1, phase, 2000);
  const bundle = { [MIME_TYPE]: stored(run) };
  server.answers['GET /outputs'] = { outputs: { 'digits-1': bundle } };
  return run;
};
/** Show or hide the page, as when the user chooses another tab of the browser. */
const see = (isSeen: boolean): void => {
  vi.spyOn(document, 'hidden', 'get').mockReturnValue(!isSeen);
  document.dispatchEvent(new Event('visibilitychange'));
};
const fetched = (): number =>
  server.requests.filter(asked => asked === 'GET /outputs').length;
/** Put the run into this phase, and wait until the page has read its notebook data. */
const reach = async (phase: Phase): Promise<void> => {
  const before = fetched();
  server.push('digits-1', answerWith(phase));
  await vi.waitFor(() => expect(fetched()).toBe(before + windows.length));
  await settled();
};
/** Wait until all work that an answer started is done. */
const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 50; turn++) {
    await new Promise(resolve => setTimeout(resolve));
  }
};

beforeEach(async () => {
  windows = [];
  file = { last_modified: '2026-11-20T10:00:00Z' };
  locks = new Locks();
  vi.stubGlobal(
    'navigator',
    Object.create(navigator, { locks: { value: locks } })
  );
  see(true);
  server = new FakeServer();
  server.runs = [aRun('digits', 1, 'Running')];
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
});
afterEach(() => {
  windows.forEach(({ keeper }) => keeper.dispose());
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

it('a phase is written at once while somebody looks, and the document is dirty', async () => {
  const shown = await show();
  await reach('Succeeded');
  await vi.waitFor(() => expect(shown.phase).toBe('Succeeded'));
  expect(shown.model.dirty).toBe(true);
});

it('a window that nobody looks at stays clean; it writes when it is seen again', async () => {
  const shown = await show();
  see(false);
  await reach('Succeeded');
  expect(shown.model.dirty).toBe(false);
  expect(shown.phase).toBe('Queued');
  see(true);
  await vi.waitFor(() => expect(shown.phase).toBe('Succeeded'));
});

it('a file that another window has saved is left to it, until this one is saved', async () => {
  const shown = await show();
  shown.context.contentsModel.last_modified = '2026-11-20T09:00:00Z';
  await reach('Succeeded');
  expect(shown.model.dirty).toBe(false);
  expect(shown.phase).toBe('Queued');
  shown.context.saveState.emit('started');
  expect(shown.phase).toBe('Succeeded');
});

it('of two windows that are seen one writes, the other when that one is closed', async () => {
  const [first, second] = [await show(), await show()];
  await reach('Succeeded');
  await vi.waitFor(() => expect(first.phase).toBe('Succeeded'));
  expect(second.phase).toBe('Queued');
  first.keeper.dispose();
  await vi.waitFor(() => expect(second.phase).toBe('Succeeded'));
});

it('a document that is renamed has a turn of its own', async () => {
  const [first, second] = [await show(), await show()];
  second.context.path = 'copy.ipynb';
  second.context.pathChanged.emit('copy.ipynb');
  await reach('Succeeded');
  for (const shown of [first, second]) {
    await vi.waitFor(() => expect(shown.phase).toBe('Succeeded'));
  }
});

it.each([
  ['the first person writes, whatever the server itself is', 5, 'Succeeded'],
  ['who is not the first does not, not even when all is saved', 9, 'Queued']
])('of people who edit together %s', async (_, client, phase) => {
  const shown = await show();
  vi.spyOn(shown.model, 'collaborative', 'get').mockReturnValue(true);
  const user = { username: 'jo' };
  const { sharedModel } = shown.model as never as { sharedModel: IShared };
  vi.spyOn(sharedModel, 'awareness', 'get').mockReturnValue({
    clientID: client,
    getStates: () =>
      new Map([
        [1, {}],
        [9, { user }],
        [5, { user }]
      ])
  });
  await reach('Succeeded');
  await vi.waitFor(() => expect(shown.phase).toBe(phase));
  shown.context.saveState.emit('started');
  expect(shown.phase).toBe(phase);
});
