/** The tasks of a run: one request for all of them, and rows that a user can read and reach. */
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { ITaskRow } from '../src/api/types';
import { taskGroups, TaskTable } from '../src/run/TaskTable';
import { CommandIDs } from '../src/tokens';
import { aRun, FakeServer, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const ASKED = 'GET /tasks';
let server: FakeServer;
let root: Root;
let host: HTMLElement;
let commands: CommandRegistry;
let logs: string[];

const row = (name: string, more: Partial<ITaskRow> = {}): ITaskRow => ({
  name,
  state: 'Running',
  message: '',
  messages: [],
  restarts: 0,
  node: 'node-a',
  since: Date.now() / 1000 - 90,
  line: `last of ${name}`,
  printedAt: null,
  ...more
});
const workers = (count: number): ITaskRow[] =>
  Array.from({ length: count }, (_, index) => row(`worker-${index}`));
const answer = (tasks: ReadonlyArray<ITaskRow>): void => {
  server.answers[ASKED] = { runs: { 'digits-1': { uid: 'digits-1', tasks } } };
};
const asked = (): number =>
  server.requests.filter(each => each === ASKED).length;
const names = (): ReadonlyArray<string | undefined> =>
  [...host.querySelectorAll<HTMLElement>('.tfc-TaskRow')].map(
    each => each.dataset.task
  );
const button = (text: string): HTMLButtonElement =>
  [...host.querySelectorAll('button')].find(each =>
    each.textContent?.includes(text)
  )!;

/** Wait for the drawing, which follows a change of the state. */
const drawn = (condition: () => void): Promise<void> =>
  vi.waitFor(async () => {
    await act(() => new Promise(resolve => setTimeout(resolve, 20)));
    condition();
  });

beforeEach(() => {
  server = new FakeServer();
  server.runs = [aRun('digits')];
  host = document.body.appendChild(document.createElement('div'));
  root = createRoot(host);
  logs = [];
  commands = new CommandRegistry();
  commands.addCommand(CommandIDs.logs, {
    execute: ({ name, task }) => void logs.push(`${name} ${task}`)
  });
});

afterEach(() => {
  act(() => root.unmount());
  host.remove();
});

async function draw(tasks: ReadonlyArray<ITaskRow>): Promise<void> {
  answer(tasks);
  server.model.start();
  await vi.waitFor(() => expect(server.model.find('digits-1')).toBeDefined());
  const run = server.model.find('digits-1')!;
  act(() =>
    root.render(
      <TaskTable
        clusters={server.model}
        run={run}
        commands={commands}
        trans={trans}
      />
    )
  );
  await drawn(() => expect(host.querySelector('[role=table]')).not.toBeNull());
  expect(asked()).toBe(1);
}

it('groups by type, and puts what needs a look before the rest', () => {
  const groups = taskGroups([
    row('ps-0', { node: 'node-b' }),
    row('worker-0'),
    row('worker-1', { state: 'Starting' }),
    row('worker-2', { restarts: 1 }),
    row('worker-3', { state: 'Failed', node: 'node-c' }),
    row('worker-4', { state: null }),
    row('worker-5', { state: 'Succeeded' })
  ]);
  const told = groups.map(({ type, first, others, node }) => [
    type,
    first.map(each => each.name).join(' '),
    others.map(each => each.name).join(' '),
    node
  ]);
  expect(told).toEqual([
    [
      'worker',
      'worker-3 worker-1 worker-2 worker-4',
      'worker-0 worker-5',
      null
    ],
    ['ps', '', 'ps-0', 'node-b']
  ]);
});

it('asks once for all tasks, and again when the run has changed', async () => {
  await draw(workers(3));
  expect(names()).toEqual(['worker-0', 'worker-1', 'worker-2']);
  expect(host.textContent).toContain('last of worker-2');
  answer([row('worker-0', { state: 'Failed', message: 'it broke' })]);
  server.push('digits-1', aRun('digits', 1, 'Failed'));
  await drawn(() => expect(host.textContent).toContain('it broke'));
  expect(asked()).toBe(2);
  expect(names()).toEqual(['worker-0']);
});

it('keeps the rows and says why where the server does not answer', async () => {
  await draw(workers(2));
  server.status = 0;
  server.push('digits-1', aRun('digits', 1, 'Stopping', 1001));
  await drawn(() =>
    expect(host.querySelector('[role=status]')?.textContent).toBeTruthy()
  );
  expect(names()).toEqual(['worker-0', 'worker-1']);
});

it('folds hundreds of tasks that run, and shows them in parts', async () => {
  const many = workers(600);
  many[431] = row('worker-431', { state: 'Failed', message: 'out of memory' });
  await draw(many);
  expect(names()).toEqual(['worker-431']);
  expect(asked()).toBe(1);
  act(() => button('more').click());
  expect(names().length).toBe(101);
  expect(button('more').textContent).toBe('Show 100 of 499 more');
  const table = host.querySelector('[role=table]');
  expect(table?.getAttribute('aria-rowcount')).toBe('601');
});

it('is one stop for Tab, goes on by arrows, and opens the logs of a task', async () => {
  await draw([...workers(2), row('ps-0')]);
  const stops = (): string[] =>
    [...host.querySelectorAll<HTMLElement>('button[tabindex="0"]')].map(
      each => each.textContent ?? ''
    );
  expect(stops()).toEqual(['worker-0']);
  act(() => button('worker-0').focus());
  for (const [key, reached] of [
    ['ArrowDown', 'worker-1'],
    ['End', 'ps-0'],
    ['ArrowUp', 'worker-1']
  ]) {
    act(() => {
      document.activeElement?.dispatchEvent(
        new KeyboardEvent('keydown', { key, bubbles: true })
      );
    });
    expect(document.activeElement?.textContent).toBe(reached);
    expect(stops()).toEqual([reached]);
  }
  act(() => button('worker-1').click());
  expect(logs).toEqual(['digits-1 worker-1']);
});

it('says the machine once where all tasks of a type are on it', async () => {
  await draw([
    ...workers(2),
    row('ps-0', { node: 'node-b' }),
    row('ps-1', { node: 'node-c' })
  ]);
  const types = [...host.querySelectorAll('.tfc-TaskTable-type')].map(
    each => each.textContent
  );
  expect(types[0]).toContain('node-a');
  expect(types[1]).not.toContain('node-');
  const nodes = [...host.querySelectorAll('.tfc-TaskRow-node')].map(
    each => each.textContent
  );
  expect(nodes).toEqual(['node-b', 'node-c']);
});
