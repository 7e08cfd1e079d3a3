/** The usage of tasks: lines in rows, one request for the visible rows, and graphs on one axis. */
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { TaskUsage } from '../src/api/taskUsage';
import type { IGraph, IRunGraphs, IUsage } from '../src/api/types';
import * as layout from '../src/resources/layout';
import { ResourcesModel } from '../src/resources/model';
import { Resources } from '../src/resources/widget';
import { cores, sizeOf, sizePair, sizeWords } from '../src/run/quantities';
import { line } from '../src/run/TaskLines';
import { aRun, FakeServer, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const ASKED = 'GET /clusters/digits-1/usage';
const GIB = 2 ** 30;
let server: FakeServer;

const usage = (names: ReadonlyArray<string>, ended = false): IUsage => ({
  usage: {
    uid: 'digits-1',
    ended,
    tasks: names.map(name => ({
      name,
      current: ended
        ? null
        : { seconds: 6, cpu: 1.3, memory: 2 * GIB, received: 0, sent: 0 },
      average: { seconds: 60, cpu: 1, memory: GIB, received: 0, sent: 0 },
      memoryPeak: 2 * GIB,
      cpuRequested: 4,
      memoryRequested: null
    }))
  },
  series: Object.fromEntries(
    names.map(name => [name, { cpu: [0, 1, 1.3], memory: [0, GIB, 2 * GIB] }])
  )
});

const graph = (more: Partial<IGraph> = {}): IGraph => ({
  figure: 'cpu',
  requested: 4,
  low: [1, null, 0.2],
  middle: [1, null, 1.5],
  high: [1, null, 2],
  lines: [{ task: 'worker-1', outlier: true, values: [1, null, 0.2] }],
  ...more
});

const graphs = (more: Partial<IRunGraphs> = {}): IRunGraphs => ({
  began: 1000,
  at: [1020, 1040, 1060],
  types: [
    {
      usage: {
        taskType: 'worker',
        tasks: 40,
        cpu: 1.5,
        cpuRequested: 4,
        memoryPeak: 2 * GIB,
        peakTask: 'worker-3',
        memoryRequested: 8 * GIB
      },
      graphs: [graph()]
    }
  ],
  steps: [
    { at: 1020, step: 900 },
    { at: 1050, step: 12_000 }
  ],
  restarts: [
    [1030, 'worker-1'],
    [1031, 'worker-2']
  ],
  events: [],
  advice: [],
  noAdvice: '',
  ...more
});

beforeEach(() => {
  server = new FakeServer();
  server.runs = [aRun('digits')];
});

const asked = (): number =>
  server.requests.filter(each => each.startsWith(ASKED)).length;

it('asks once for all tasks in view, and of an ended run once for each', async () => {
  server.runs = [aRun('digits', 1, 'Succeeded')];
  server.answers[ASKED] = usage(['worker-0', 'worker-1'], true);
  server.model.start();
  await vi.waitFor(() => expect(server.model.find('digits-1')).toBeDefined());
  const lines = new TaskUsage(server.model, server.model.find('digits-1')!);
  expect(asked()).toBe(0);
  lines.show('worker-0', true);
  lines.show('worker-1', true);
  await vi.waitFor(() => expect(lines.lines.size).toBe(2));
  expect(asked()).toBe(1);
  lines.show('worker-0', false);
  lines.show('worker-0', true);
  await new Promise(resolve => setTimeout(resolve, 400));
  expect(asked()).toBe(1);
  lines.dispose();
});

it('asks no more once nothing of a run can be read', async () => {
  const { usage: none } = usage([]);
  server.answers[ASKED] = { usage: none, series: {}, unseen: 'not mounted' };
  server.model.start();
  await vi.waitFor(() => expect(server.model.find('digits-1')).toBeDefined());
  const lines = new TaskUsage(server.model, server.model.find('digits-1')!);
  lines.show('worker-0', true);
  await vi.waitFor(() => expect(asked()).toBe(1));
  lines.show('worker-1', true);
  await new Promise(resolve => setTimeout(resolve, 400));
  expect(asked()).toBe(1);
  lines.dispose();
});

it('draws a line from zero to what was requested', () => {
  expect(line([0, 2, 4], 4)).toBe('M1.0 13.0L20.0 7.0L39.0 1.0');
  expect(line([1], 4)).toBe('M1.0 10.0L39.0 10.0');
  expect(line([8, 4], 4)).toBe('M1.0 1.0L39.0 7.0');
  expect(line([3], 0)).toBe('M1.0 7.0L39.0 7.0');
});

it('gives marks that are too near for two numbers one number', () => {
  expect(layout.markLabels([34, 60, 280, 281, 281])).toEqual([
    { label: '1', place: 34 },
    { label: '2', place: 60 },
    { label: '3–5', place: 280 }
  ]);
});

it('writes figures as the command line does', () => {
  expect([0.02, 0.345, 1.31, 12, 480.4].map(cores)).toEqual([
    '0.02',
    '0.34',
    '1.3',
    '12',
    '480'
  ]);
  expect(sizeWords(410 * 2 ** 20)).toBe('410 MiB');
  expect(sizeOf(2.1 * GIB, 8 * GIB)).toBe('2.1');
  expect(sizePair(2.1 * GIB, 8 * GIB)).toEqual(['2.1', '8 GiB']);
  expect(sizePair(12 * 2 ** 20, 4 * GIB)).toEqual(['12 MiB', '4 GiB']);
  expect(sizePair(0, 4 * GIB)).toEqual(['0', '4 GiB']);
});

it('has round numbers on its axes', () => {
  expect([0, 0.07, 1, 1.2, 3.7, 7, 9, 130].map(layout.rounded)).toEqual([
    0, 0.08, 1, 1.5, 4, 8, 10, 150
  ]);
  expect(layout.topOf(graph())).toBe(4);
  const memory = { figure: 'memory' as const, requested: 7 * GIB };
  expect(layout.topOf(graph(memory))).toBe(8 * GIB);
  expect(layout.heightsOf(graph())).toEqual([0, 2, 4]);
  const quiet = {
    figure: 'network' as const,
    requested: null,
    high: [0, null, 0]
  };
  expect(layout.heightsOf(graph(quiet))).toEqual([0]);
  expect(layout.ticks(60)).toEqual([0, 15, 30, 45, 60]);
  expect([0, 45, 90, 3600, 5400, 172_800].map(layout.since)).toEqual([
    '0',
    '45s',
    '1m30s',
    '1h',
    '1h30m',
    '2d'
  ]);
  expect([7, 950, 12_000, 1_500_000].map(layout.shortStep)).toEqual([
    '7',
    '950',
    '12k',
    '1.5M'
  ]);
});

it('leaves gaps where nothing was sampled', () => {
  const xs = [10, 20, 30, 40];
  expect(layout.linePath([1, null, 2, 2], xs, 2)).toMatch(
    /^M10\.0 \S+h0\.1M30\.0 \S+L40\.0 \S+$/
  );
  const band = { low: [0, 0, null, 0], high: [1, 2, null, 2] };
  const path = layout.bandPath(graph(band), xs, 2);
  expect(path.match(/M/g)).toHaveLength(1);
  expect(path).toMatch(/Z$/);
});

it('knows the step at a time, and joins restarts of one moment', () => {
  const { steps } = graphs();
  expect([1000, 1020, 1049, 1060].map(at => layout.stepAt(steps, at))).toEqual([
    null,
    900,
    900,
    12_000
  ]);
  const event = (code: string, at: number) => ({
    at,
    reason: 'Running',
    message: `${code}.`,
    messages: [{ code }]
  });
  const healing = event('Healing', 1029);
  const events = [event('AllTasksUp', 1001), event('Reclaimed', 1055)];
  const found = layout.marks(graphs({ events } as Partial<IRunGraphs>));
  expect(found.map(({ at, restarted }) => [at, restarted])).toEqual([
    [1030, ['worker-1', 'worker-2']],
    [1055, []]
  ]);
  const joined = graphs({ events: [healing] } as Partial<IRunGraphs>);
  expect(
    layout.marks(joined).map(({ at, restarted }) => [at, restarted])
  ).toEqual([[1029, ['worker-1', 'worker-2']]]);
});

let root: Root;
let host: HTMLElement;

async function draw(told: Partial<IUsage>, phase = 'Running' as const) {
  server.runs = [aRun('digits', 1, phase)];
  server.answers[ASKED] = { ...usage([]), ...told };
  server.model.start();
  await vi.waitFor(() => expect(server.model.find('digits-1')).toBeDefined());
  const commands = new CommandRegistry();
  const model = new ResourcesModel(server.model, 'digits-1');
  host = document.body.appendChild(document.createElement('div'));
  root = createRoot(host);
  act(() =>
    root.render(<Resources model={model} commands={commands} trans={trans} />)
  );
  model.isSeen = true;
  await vi.waitFor(async () => {
    await act(() => new Promise(resolve => setTimeout(resolve, 20)));
    expect(model.state.graphs).not.toBeNull();
  });
  return model;
}

afterEach(() => {
  act(() => root?.unmount());
  host?.remove();
});

it('says in words what a graph shows, and names the outliers', async () => {
  const model = await draw({
    graphs: graphs({
      advice: [
        {
          code: 'IdleCpu',
          task: 'worker-1',
          message: 'worker-1 is idle.',
          command: 'tfcluster rerun digits --workers 3'
        }
      ]
    })
  });
  const picture = host.querySelector('svg[role=img]');
  expect(picture?.getAttribute('aria-label')).toBe(
    'CPU: last value 1.5; lowest 0.2, highest 2; asked for 4; differ from the others: worker-1'
  );
  expect(host.textContent).toContain('asked for 4 CPU, used 1.5');
  expect(host.textContent).toContain('peak of memory 2 of 8 GiB (worker-3)');
  expect(host.textContent).toContain('Started again: worker-1, worker-2');
  expect(host.querySelector('.tfc-Resources-advice code')?.textContent).toBe(
    '%tfcluster rerun digits --workers 3'
  );
  model.dispose();
});

it('says what to do where nothing was sampled', async () => {
  const model = await draw({ graphs: graphs({ types: [], at: [] }) });
  expect(host.querySelector('[role=status]')?.textContent).toContain(
    'a few seconds after the first task has started'
  );
  model.dispose();
});
