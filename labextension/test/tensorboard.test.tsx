/** A TensorBoard's tab: its requests, and its states between the click and the page. */
import * as React from 'react';
import { createRoot } from 'react-dom/client';
import { expect, test, vi } from 'vitest';
import { ServerProblem } from '../src/api/problem';
import type { IBoard } from '../src/api/types';
import { BoardModel } from '../src/tensorboard/model';
import { Words } from '../src/tensorboard/notice';
import { BoardWidget } from '../src/tensorboard/widget';
import { argsOf, keyOf, titleOf, requestOf } from '../src/tensorboard/request';
import { aRun, FakeServer, trans } from './runs';

const OPEN = 'POST /tensorboards';
const BOARD: IBoard = {
  id: '0123456789abcdef',
  path: 'tfcluster/tensorboard/0123456789abcdef/',
  title: 'digits-2',
  refs: ['digits-2'],
  folder: null,
  running: true
};

/** A server that has the board. */
function serverWithBoard(): FakeServer {
  const server = new FakeServer();
  server.answers = {
    [OPEN]: BOARD,
    [`DELETE /tensorboards/${BOARD.id}`]: {}
  };
  return server;
}

test.each([
  [{ name: 'a-1' }, { refs: ['a-1'], folder: null }],
  [{ refs: ['b-1', 'a-1'] }, { refs: ['a-1', 'b-1'], folder: null }],
  [
    { refs: ['a-1'], name: 'a-1' },
    { refs: ['a-1'], folder: null }
  ],
  [{ folder: 'log/x' }, { refs: [], folder: 'log/x' }],
  [{ folder: '' }, { refs: [], folder: '' }],
  [
    { cwd: 'x', isPalette: true },
    { refs: [], folder: null }
  ],
  [
    { refs: [1, ''], name: 2, folder: [] },
    { refs: [], folder: null }
  ]
])('the arguments %j ask for %j', (args, request) => {
  expect(requestOf(args)).toEqual(request);
  expect(requestOf(argsOf(request))).toEqual(request);
});

test('the order of runs makes no other tab, and a folder is no run of its name', () => {
  expect(keyOf(requestOf({ refs: ['b', 'a'] }))).toBe(
    keyOf(requestOf({ refs: ['a', 'b'] }))
  );
  const keys = [{}, { folder: '' }, { folder: 'a' }, { name: 'a' }];
  expect(new Set(keys.map(args => keyOf(requestOf(args)))).size).toBe(4);
});

test('a tab is named by its runs, or by its folder', () => {
  const title = (args: Record<string, string>): string =>
    titleOf(requestOf(args), trans);
  expect(title({ name: 'digits-2' })).toBe('digits-2 · TensorBoard');
  expect(title({ folder: 'log/deep/' })).toBe('deep · TensorBoard');
  expect(title({})).toBe('All runs · TensorBoard');
});

test('a board that is opened has its address below the base URL, and the names of the server', async () => {
  const server = serverWithBoard();
  const model = new BoardModel(server.model, requestOf({ name: 'digits' }));
  const kinds: string[] = [];
  model.changed.connect((_, state) => kinds.push(state.kind));
  await model.open();
  expect(kinds).toEqual(['starting', 'open']);
  expect(model.state).toMatchObject({
    url: 'http://server/a/b/tfcluster/tensorboard/0123456789abcdef/'
  });
  expect(model.request.refs).toEqual(['digits-2']);
  await model.stop();
  expect(model.state.kind).toBe('stopped');
  expect(server.requests).toEqual([OPEN, `DELETE /tensorboards/${BOARD.id}`]);
});

test('a page that its board still starts for has its address before, and the reason of a start that fails', async () => {
  const server = serverWithBoard();
  const model = new BoardModel(server.model, requestOf({ name: 'digits' }));
  const states: unknown[] = [];
  model.changed.connect((_, { kind, ...more }) =>
    states.push([kind, 'url' in more])
  );
  const early = (): Response =>
    new Response(JSON.stringify({ ...BOARD, running: false }), { status: 202 });
  const ends = [200, 500].map(
    status => () =>
      status === 200
        ? undefined
        : new Response(JSON.stringify({ detail: 'boom' }), { status })
  );
  for (const end of ends) {
    const answers = [early, end];
    server.answer = () => answers.shift()?.();
    await model.open();
  }
  expect(states).toEqual([
    ['starting', false],
    ['starting', true],
    ['open', true],
    ['starting', false],
    ['starting', true],
    ['refused', false]
  ]);
});

test('a tab on an active run waits until it has curves, or until it has ended without any', async () => {
  for (const ending of ['curves', 'end', 'button']) {
    const server = serverWithBoard();
    server.runs = [aRun('digits', 2)];
    await server.model.refresh();
    let enabled = false;
    server.answer = url =>
      url.pathname.endsWith('/data/plugins_listing')
        ? new Response(JSON.stringify({ timeseries: { enabled } }))
        : undefined;
    const model = new BoardModel(server.model, requestOf({ name: 'digits' }));
    const waits = (): boolean | null =>
      model.state.kind === 'open' ? model.state.waits : null;
    await model.open();
    for (let look = 0; look < 10; look++) {
      await model.look();
    }
    expect(waits()).toBe(true);
    if (ending === 'curves') {
      enabled = true;
      await model.look();
    } else if (ending === 'button') {
      model.show();
    } else {
      server.runs = [];
      await server.model.refresh();
      await model.look();
      expect(waits()).toBe(true); // still waits, because TensorBoard may not have read the last data
      for (let look = 0; look < 10; look++) {
        await model.look();
      }
    }
    expect(waits()).toBe(false);
  }
});

test('a page that does not even load is let go while its board still starts', async () => {
  const server = serverWithBoard();
  const early = { ...BOARD, running: false };
  server.answer = () => {
    server.gate = new Promise(() => {}); // the next request has no answer
    return new Response(JSON.stringify(early), { status: 202 });
  };
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  const request = requestOf({ name: 'digits' });
  const tab = new BoardWidget(server.model, request, trans, Promise.resolve());
  const pages = (): number => tab.node.querySelectorAll('iframe').length;
  void tab.model.open();
  await vi.waitFor(() => expect(pages()).toBe(1));
  vi.advanceTimersByTime(60_000);
  expect([tab.model.state.kind, pages()]).toEqual(['starting', 0]);
  vi.useRealTimers();
});

test('a tab whose server was away asks again when it is back, a refused one does not', async () => {
  const server = serverWithBoard();
  const asked = (): number =>
    server.requests.filter(request => request === OPEN).length;
  const model = new BoardModel(server.model, requestOf({}));
  server.status = 500;
  await model.open();
  server.status = 200;
  await server.model.refresh();
  expect([model.state.kind, asked()]).toEqual(['refused', 1]);
  server.status = 0;
  await model.open();
  expect([model.state.kind, asked()]).toEqual(['refused', 2]);
  server.status = 200;
  await server.model.refresh();
  await vi.waitFor(() => expect(model.state.kind).toBe('open'));
  expect(asked()).toBe(3);
});

test('a tab whose backend was away asks again once it is back, and only once', async () => {
  const server = serverWithBoard();
  server.runs = [aRun('digits')];
  await server.model.refresh();
  const model = new BoardModel(server.model, requestOf({}));
  const asked = (): number =>
    server.requests.filter(request => request === OPEN).length;
  server.status = 503;
  await model.open();
  await server.model.refresh();
  server.answer = url =>
    url.pathname.endsWith('/tensorboards')
      ? new Response('', { status: 503 })
      : undefined;
  server.status = 200;
  await server.model.refresh();
  await vi.waitFor(() => expect(asked()).toBe(2));
  await server.model.refresh();
  await vi.waitFor(() => expect(model.state.kind).toBe('refused'));
  expect(asked()).toBe(2);
});

test('what a program said is text, with a button to try again', async () => {
  const node = document.createElement('div');
  const onOpen = vi.fn();
  const problem = new ServerProblem({
    type: '',
    title: '',
    status: 500,
    detail: 'It did not start\n<img src=x>'
  });
  createRoot(node).render(
    <Words
      state={{ kind: 'refused', problem }}
      trans={trans}
      onOpen={onOpen}
      onShow={vi.fn()}
    />
  );
  await vi.waitFor(() => expect(node.querySelector('pre')).not.toBeNull());
  expect(node.querySelector('pre')?.textContent).toBe('<img src=x>');
  expect(node.querySelector('img')).toBeNull();
  expect(node.querySelector('[role="alert"]')).not.toBeNull();
  node.querySelector('button')?.click();
  expect(onOpen).toHaveBeenCalledOnce();
});
