/** The items that JupyterLab's Running panel receives. */
import { MessageLoop } from '@lumino/messaging';
import { CommandRegistry } from '@lumino/commands';
import { Panel, Widget } from '@lumino/widgets';
import {
  type IRunningSessionSidebar,
  RunningSessionManagers,
  RunningSessions
} from '@jupyterlab/running';
import { expect, test, vi } from 'vitest';
import type { IBoard } from '../src/api/types';
import { runningClusters } from '../src/sidebar/running';
import { RunningBoards } from '../src/tensorboard/running';
import { aRun, FakeServer, trans } from './runs';

/** Commands that only record their calls. */
function noted(): { commands: CommandRegistry; done: unknown[] } {
  const commands = new CommandRegistry();
  const done: unknown[] = [];
  for (const id of ['tfcluster:open-sidebar', 'tfcluster:stop']) {
    commands.addCommand(id, { execute: ({ name }) => done.push([id, name]) });
  }
  return { commands, done };
}

test('active runs are there, with how far they are, and follow events', async () => {
  const server = new FakeServer();
  server.runs = [
    aRun('mnist'),
    aRun('waits', 1, 'Queued'),
    aRun('ends', 1, 'Stopping'),
    aRun('done', 1, 'Succeeded')
  ];
  const { commands, done } = noted();
  const panel = runningClusters(server.model, commands, trans);
  server.model.start();
  const labels = (): unknown[] => panel.running().map(item => item.label());
  await vi.waitFor(() =>
    expect(labels()).toEqual([
      'mnist-1 · 1 of 2 running',
      'waits-1 · Queued',
      'ends-1 · Stopping'
    ])
  );
  const [mnist, , ends] = panel.running();
  expect(mnist.labelTitle?.()).toContain('mnist is Running.');
  mnist.open?.();
  mnist.shutdown?.();
  expect(done).toEqual([
    ['tfcluster:open-sidebar', 'mnist-1'],
    ['tfcluster:stop', 'mnist-1']
  ]);
  expect(ends.shutdown).toBeUndefined();

  const asked = server.requests.length;
  const changed = vi.fn();
  panel.runningChanged.connect(changed);
  const more = { ready: { ready: 2, total: 2 } };
  server.push('mnist-1', aRun('mnist', 1, 'Running', 1000, more));
  await vi.waitFor(() => expect(changed).toHaveBeenCalled());
  expect(labels()[0]).toBe('mnist-1 · 2 of 2 running');
  expect(server.requests).toHaveLength(asked);

  server.answers = Object.fromEntries(
    ['mnist', 'waits'].map(name => [
      `POST /clusters/${name}-1/stop`,
      aRun(name, 1, 'Stopping')
    ])
  );
  panel.shutdownAll();
  await vi.waitFor(() => expect(server.requests.length).toBe(asked + 2));
  expect(server.requests.slice(asked).sort()).toEqual([
    'POST /clusters/mnist-1/stop',
    'POST /clusters/waits-1/stop'
  ]);
});

const board = (id: string, refs: string[]): IBoard => ({
  id,
  path: `tfcluster/tensorboard/${id}/`,
  title: refs.join(),
  refs,
  folder: null,
  running: true
});
const LIST = 'GET /tensorboards';

test('boards are asked for when the panel is seen, and never otherwise', async () => {
  const server = new FakeServer();
  server.answers = { [LIST]: { tensorboards: [board('a', ['digits-2'])] } };
  const toolbar = new Widget();
  const panel = { toolbar } as unknown as IRunningSessionSidebar;
  const opened = vi.fn();
  const stopped: string[] = [];
  const boards = new RunningBoards(
    server.model.caller,
    {
      open: opened,
      stop: id => (id === 'a' ? Promise.resolve(void stopped.push(id)) : null)
    },
    panel,
    trans
  );
  boards.look();
  expect(server.requests).toEqual([]);
  Widget.attach(toolbar, document.body);
  await vi.waitFor(() => expect(boards.running()).toHaveLength(1));
  toolbar.hide();
  boards.look();
  MessageLoop.flush();
  expect(server.requests).toEqual([LIST]);
  toolbar.show();
  await vi.waitFor(() => expect(server.requests).toEqual([LIST, LIST]));

  const [item] = boards.running();
  expect(item.label()).toBe('digits-2 · TensorBoard');
  item.open?.();
  expect(opened).toHaveBeenCalledWith({ refs: ['digits-2'], folder: null });
  server.answers = {
    [LIST]: { tensorboards: [board('b', [])] },
    'DELETE /tensorboards/b': {}
  };
  item.shutdown?.();
  await vi.waitFor(() =>
    expect(boards.running().map(each => each.label())).toEqual([
      'All runs · TensorBoard'
    ])
  );
  expect(stopped).toEqual(['a']); // the tab of board `a` stopped it; board `b` has no tab
  server.answers[LIST] = { tensorboards: [] };
  boards.shutdownAll();
  await vi.waitFor(() => expect(boards.running()).toEqual([]));
  expect(server.requests).toContain('DELETE /tensorboards/b');
  toolbar.dispose();
});

test('the last answer stays while the server is away', async () => {
  const server = new FakeServer();
  server.answers = { [LIST]: { tensorboards: [board('a', [])] } };
  const tabs = { open: vi.fn(), stop: () => null };
  const boards = new RunningBoards(server.model.caller, tabs, null, trans);
  boards.look();
  await vi.waitFor(() => expect(boards.running()).toHaveLength(1));
  server.status = 0;
  await boards.refresh();
  expect(boards.running()).toHaveLength(1);
});

test('the panel itself shows both, and asks for boards when it is brought to the front', async () => {
  const server = new FakeServer();
  server.runs = [aRun('mnist'), aRun('done', 1, 'Failed')];
  server.answers = { [LIST]: { tensorboards: [board('a', ['digits-2'])] } };
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  const { commands, done } = noted();
  const managers = new RunningSessionManagers();
  const panel = new RunningSessions(managers);
  const tabs = { open: vi.fn(), stop: () => null };
  managers.add(runningClusters(server.model, commands, trans));
  managers.add(new RunningBoards(server.model.caller, tabs, panel, trans));
  const side = new Panel();
  side.addWidget(panel);
  panel.hide();
  Widget.attach(side, document.body);
  await vi.waitFor(() => {
    const lists = '.jp-RunningSessions-sectionContainer';
    expect(panel.node.querySelectorAll(lists)).toHaveLength(2);
  });
  expect(server.requests).not.toContain(LIST);

  panel.show();
  const labels = (): HTMLElement[] => [
    ...panel.node.querySelectorAll<HTMLElement>('.jp-RunningSessions-itemLabel')
  ];
  await vi.waitFor(() =>
    expect(labels().map(label => label.textContent)).toEqual([
      'mnist-1 · 1 of 2 running',
      'digits-2 · TensorBoard'
    ])
  );
  expect(server.requests.filter(asked => asked === LIST)).toHaveLength(1);
  labels().forEach(label => label.click());
  expect(done).toEqual([['tfcluster:open-sidebar', 'mnist-1']]);
  expect(tabs.open).toHaveBeenCalledOnce();

  server.push('mnist-1', aRun('mnist', 1, 'Succeeded'));
  await vi.waitFor(() => expect(labels()).toHaveLength(1));
  side.dispose();
});
