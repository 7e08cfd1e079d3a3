import { MimeModel } from '@jupyterlab/rendermime';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { IRun } from '../src/api/types';
import { type Renderer, rendererFactory } from '../src/output/renderer';
import { MIME_TYPE } from '../src/output/stored';
import { CommandIDs } from '../src/tokens';
import { aRun, FakeServer, trans } from './runs';

let server: FakeServer;
let commands: CommandRegistry;
let drawn: Renderer[];
/** Whether the cell of the output is running. */
let executing = false;
const executed: string[] = [];
/** Timeout in milliseconds for an awaited change on a busy machine. */
const SOON = 8000;

beforeEach(() => {
  server = new FakeServer();
  commands = new CommandRegistry();
  executed.length = 0;
  for (const id of [CommandIDs.logs, CommandIDs.tensorboard]) {
    commands.addCommand(id, {
      label: id,
      execute: args => void executed.push(`${id} ${JSON.stringify(args)}`)
    });
  }
  drawn = [];
});
afterEach(() => drawn.forEach(renderer => renderer.dispose()));

const start = async (): Promise<void> => {
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  server.requests = [];
};
const draw = async (data: unknown, trusted = true): Promise<HTMLElement> => {
  const factory = rendererFactory({
    clusters: server.model,
    commands,
    trans,
    isExecuting: () => executing
  });
  const made = factory.createRenderer({} as never) as Renderer;
  drawn.push(made);
  Widget.attach(made, document.body);
  const model = new MimeModel({
    data: { [MIME_TYPE]: data as never },
    trusted
  });
  await made.renderModel(model);
  if (!executing) {
    await vi.waitFor(() => expect(made.node.textContent).not.toBe(''), SOON);
  }
  return made.node;
};
const store = (run: IRun, at = Date.UTC(2026, 10, 20) / 1000): unknown => ({
  kind: 'Run',
  at,
  ...run
});
const says = (node: HTMLElement, text: string): Promise<void> =>
  vi.waitFor(() => expect(node.textContent).toContain(text), SOON);

it('a run is drawn as it is now, not as it was stored, and changes with it', async () => {
  server.runs = [aRun('digits', 1, 'Running')];
  await start();
  const node = await draw(store(aRun('digits', 1, 'Queued')));
  await says(node, 'digits is Running.');
  server.push('digits-1', aRun('digits', 1, 'Failed', 2000));
  await says(node, 'digits is Failed.');
  expect(node.textContent).not.toContain('as of');
  expect(server.requests).toEqual([]);
});

it('before the server answers, the stored state is shown with its time', async () => {
  const node = await draw(store(aRun('digits', 1, 'Queued')));
  expect(node.textContent).toContain('digits is Queued.');
  expect(node.textContent).toContain('as of 2026-11-20');
  expect(node.querySelector('button')).toBeNull();
});

it('while the server is away, what was seen last is shown with the reason', async () => {
  server.runs = [aRun('digits', 1, 'Running')];
  await start();
  const node = await draw(store(aRun('digits', 1, 'Queued')));
  await says(node, 'digits is Running.');
  server.status = 0;
  await server.model.refresh();
  await says(node, 'The Jupyter server does not answer.');
  expect(node.textContent).toContain('digits is Running.');
  expect(node.textContent).toContain('as of');
});

it('a new run of the same name is never shown below the output of the old one', async () => {
  const other = aRun('digits', 1, 'Running');
  const metadata = { ...other.cluster.metadata, uid: 'another' };
  server.runs = [{ ...other, cluster: { ...other.cluster, metadata } }];
  await start();
  const node = await draw(store(aRun('digits', 1, 'Stopped')));
  await says(node, 'another run has the name now');
  expect(node.textContent).toContain('digits is Stopped.');
  expect(node.textContent).not.toContain('digits is Running.');
});

it('a run that this server does not know stays as it was stored, and why is said', async () => {
  await start();
  const node = await draw(store(aRun('colleague')));
  await says(node, 'does not know the run');
  expect(node.textContent).toContain('as of 2026-11-20');
});

it('a run that is deleted while it is shown stays as it was last', async () => {
  server.runs = [aRun('digits', 1, 'Running')];
  await start();
  const node = await draw(store(aRun('digits', 1, 'Queued')));
  await says(node, 'digits is Running.');
  server.push('digits-1', null);
  await says(node, 'This run was deleted.');
  expect(node.textContent).toContain('digits is Running.');
});

it('fifty outputs of old runs do not make fifty requests', async () => {
  await start();
  server.runs = Array.from({ length: 50 }, (_, i) =>
    aRun('old', i + 1, 'Failed', 10)
  );
  const nodes = await Promise.all(
    server.runs.map(run => draw(store({ ...run, notes: ['stored'] })))
  );
  await Promise.all(
    nodes.map(node =>
      vi.waitFor(() => expect(node.textContent).not.toContain('stored'), SOON)
    )
  );
  expect(server.requests.length).toBeLessThan(4);
}, 30_000);

it('names, sentences and notes are text, whatever is in them', async () => {
  const evil = '<img src=x onerror=alert(1)>';
  const run = aRun('digits');
  const status = { ...run.cluster.status, message: evil, warnings: [evil] };
  const metadata = { ...run.cluster.metadata, note: `noted ${evil}` };
  const cluster = { ...run.cluster, metadata, status };
  const node = await draw(store({ ...run, notes: [evil], cluster }));
  expect(node.textContent).toContain(evil);
  expect(node.textContent).toContain(`noted ${evil}`);
  expect(node.querySelector('img')).toBeNull();
});

it('says what was read from the text of the program', async () => {
  const run = aRun('digits');
  const why = {
    code: 'TakesFlag',
    params: { line: 3, file: 'a.py', name: '--ps-hosts' }
  };
  const inferred = [
    { code: 'InferredServer', params: { why } },
    { code: 'SaidByANewerVersion' }
  ];
  const status = { ...run.cluster.status, inferred };
  const cluster = { ...run.cluster, status };
  const node = await draw(store({ ...run, cluster }));
  expect(node.textContent).toContain(
    '1 parameter server, because line 3 of a.py takes --ps-hosts; --ps N overrides it.'
  );
});

it.each([null, 7, 'text', { kind: 'Run', at: 1 }, { kind: 'Later', at: 1 }])(
  'data that this version cannot draw are said to be so: %j',
  async data => {
    expect((await draw(data)).textContent).toContain('another version');
  }
);

const board = (ago: number): unknown => ({
  kind: 'TensorBoard',
  at: Date.now() / 1000 - ago,
  refs: ['digits-2'],
  folder: null,
  url: 'javascript:alert(1)'
});

it('a TensorBoard opens by itself once when a cell has just asked for it', async () => {
  const data = board(0);
  await draw(data);
  const node = await draw(data);
  const opened = 'tfcluster:tensorboard {"refs":["digits-2"]}';
  await vi.waitFor(() => expect(executed).toEqual([opened]));
  expect(node.querySelector('a')).toBeNull();
});

it.each([
  ['is old', 60, true],
  ['is not trusted', 0, false]
])(
  'a TensorBoard whose output %s waits for a click',
  async (_, ago, trusted) => {
    const node = await draw(board(ago), trusted);
    node.querySelector('button')?.click();
    await vi.waitFor(() => expect(executed).toHaveLength(1));
  }
);

const followed = (more: object = {}): unknown => ({
  kind: 'Follow',
  at: 1000,
  name: 'digits-1',
  uid: 'digits-1',
  tasks: ['worker-0'],
  ended: false,
  ...more
});

it('goes on with the lines of a run whose page was closed while a cell followed it', async () => {
  server.runs = [aRun('digits')];
  server.answer = url =>
    url.pathname.endsWith('/logs')
      ? new Response('{"lines":[["worker-0","step 7"]]}\n')
      : undefined;
  await start();
  const node = await draw(followed());
  await says(node, 'The page was closed while this cell followed digits-1.');
  await vi.waitFor(
    () => expect(node.querySelector('[role="log"]')).not.toBeNull(),
    SOON
  );
  await vi.waitFor(
    () => expect(server.requests).toContain('GET /clusters/digits-1/logs'),
    SOON
  );
  node.querySelector<HTMLElement>('.tfc-Follow-why button')?.click();
  expect(executed).toEqual([
    `${CommandIDs.logs} {"name":"digits-1","task":"worker-0"}`
  ]);
});

it('says that lines are missing of a run that has ended, and asks for none', async () => {
  server.runs = [aRun('digits', 1, 'Succeeded')];
  await start();
  const node = await draw(followed());
  await says(node, 'The page was closed before digits-1 ended');
  expect(node.querySelector('[role="log"]')).toBeNull();
  expect(server.requests).toEqual([]);
});

it('shows nothing where the lines come by themselves, or have come to their end', async () => {
  server.runs = [aRun('digits')];
  await start();
  executing = true;
  const node = await draw(followed());
  executing = false;
  server.push('digits-1', aRun('digits', 1, 'Running', 1001));
  await says(node, 'The page was closed');
  executing = true;
  const other = await draw(followed({ ended: true }));
  executing = false;
  server.push('digits-1', aRun('digits', 1, 'Running', 1002));
  await says(node, 'The page was closed');
  expect(other.textContent).toBe('');
});
