import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import * as React from 'react';
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { expect, it, vi } from 'vitest';
import {
  type IClusters,
  type IClustersState,
  type IFailure,
  type ITransition,
  nameOf
} from '../src/api/clusters';
import type { IProgress } from '../src/api/types';
import { RunProgress } from '../src/run/parts';
import { Projects } from '../src/sidebar/Projects';
import { Schedules } from '../src/sidebar/Schedules';
import { Sidebar } from '../src/sidebar/Sidebar';
import { Away } from '../src/sidebar/states';
import { aRun, FakeServer, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

it('opens the row of a run that comes after the answer to its launch, and offers older runs', async () => {
  const host = document.body.appendChild(document.createElement('div'));
  const root = createRoot(host);
  let revealed: { name: string } | null = { name: 'digits-1' };
  let state: IClustersState = {
    state: 'live',
    runs: [],
    all: false,
    problem: null,
    at: 1
  };
  // The server's side: pushed changes arrive by these two signals.
  const model = {
    get state() {
      return state;
    },
    find: name => state.runs.find(run => nameOf(run) === name),
    tasks: () => new Promise(() => undefined)
  } as Partial<IClusters> as IClusters;
  const changed = new Signal<IClusters, IClustersState>(model);
  Object.assign(model, {
    changed,
    scheduleSaved: new Signal<IClusters, string>(model),
    transitioned: new Signal<IClusters, ITransition>(model),
    failed: new Signal<IClusters, IFailure>(model)
  });
  act(() =>
    root.render(
      <Sidebar
        model={model}
        commands={new CommandRegistry()}
        trans={trans}
        filterRef={React.createRef()}
        revealed={revealed}
        onRevealed={() => (revealed = null)}
        onDrawn={() => undefined}
        findExamples={() => Promise.resolve(null)}
      />
    )
  );
  expect(revealed).toBeNull(); // requested before anything was drawn, as by a link
  expect(host.querySelector('[role="row"]')).toBeNull();
  state = { ...state, runs: [aRun('digits')] };
  await act(async () => changed.emit(state));
  await vi.waitFor(() => {
    const row = document.activeElement;
    expect(row?.getAttribute('data-run')).toBe('digits-1');
    expect(row?.getAttribute('aria-expanded')).toBe('true');
  });

  // A first run has no earlier runs; for a later run, the earlier runs are one click away.
  const older = (): HTMLButtonElement | undefined =>
    [...host.querySelectorAll<HTMLButtonElement>('.tfc-Link')].find(
      ({ textContent }) => textContent === 'Show older runs, too'
    );
  expect(older()).toBeUndefined();
  model.showAll = vi.fn(() => Promise.resolve());
  state = { ...state, runs: [aRun('digits', 2)] };
  await act(async () => changed.emit(state));
  act(() => older()?.click());
  expect(model.showAll).toHaveBeenCalledWith(true);
  state = { ...state, all: true };
  await act(async () => changed.emit(state));
  expect(older()).toBeUndefined();
  act(() => root.unmount());
  host.remove();
});

it('says that nobody answers for a run as long as nobody does', async () => {
  const host = document.body.appendChild(document.createElement('div'));
  const root = createRoot(host);
  const away = 'The operator has not answered since 14:02:10.';
  const draw = (more: { away?: string }): void =>
    act(() =>
      root.render(
        <Away
          runs={[aRun('a'), aRun('b', 1, 'Queued', 1, more)]}
          trans={trans}
        />
      )
    );
  draw({ away });
  const told = host.querySelector('[role="status"]');
  expect(told?.textContent).toContain(away);
  draw({ away: '' });
  expect(host.textContent).toBe('');
  draw({});
  expect(host.textContent).toBe('');
  act(() => root.unmount());
});

it.each([
  [false, '90%', '900'],
  [true, '100%', '1000']
])(
  'draws the bar of a run by its last step, and of a success full (%s)',
  (full, width, now) => {
    const host = document.body.appendChild(document.createElement('div'));
    const root = createRoot(host);
    const progress: IProgress = {
      step: 900,
      total: 1000,
      stepsPerSecond: null,
      loss: null,
      etaSeconds: null,
      at: 0,
      unit: 'step',
      epoch: null,
      history: []
    };
    act(() =>
      root.render(
        <RunProgress
          progress={progress}
          name="digits-1"
          active={false}
          full={full}
          trans={trans}
        />
      )
    );
    const bar = host.querySelector('[role=progressbar]');
    expect(bar?.getAttribute('aria-valuenow')).toBe(now);
    expect(bar?.querySelector<HTMLElement>('div')?.style.width).toBe(width);
    expect(host.textContent).toContain('step 900/1000');
    act(() => root.unmount());
  }
);

it('lists projects with their last run, and says how to make the first', async () => {
  const server = new FakeServer();
  const host = document.body.appendChild(document.createElement('div'));
  const root = createRoot(host);
  const commands = new CommandRegistry();
  const launched = vi.fn();
  commands.addCommand('tfcluster:launch', { execute: launched });
  const onReveal = vi.fn();
  const draw = (refreshed: number): Promise<void> =>
    act(async () =>
      root.render(
        <Projects
          model={server.model}
          runs={[aRun('digits', 2, 'Failed')]}
          commands={commands}
          trans={trans}
          refreshed={refreshed}
          onReveal={onReveal}
        />
      )
    );
  const shows = (text: string): Promise<void> =>
    vi.waitFor(async () => {
      await act(() => Promise.resolve());
      expect(host.textContent).toContain(text);
    });
  server.answers['GET /projects'] = { projects: [], complete: true };
  await draw(0);
  await shows('%tfcluster project init .');
  expect(host.querySelector('details')?.open).toBe(false);

  const project = {
    path: 'work/digits',
    configurations: ['big'],
    problems: ['workers is x'],
    lastRun: 'digits-2'
  };
  server.answers['GET /projects'] = { projects: [project], complete: false };
  await draw(1);
  await shows('work/digits');
  expect(host.querySelector('details')?.open).toBe(true);
  expect(host.textContent).toContain('1 problem');
  expect(host.textContent).toContain('Failed');
  const press = (text: string): void =>
    [...host.querySelectorAll('button')]
      .find(({ textContent }) => textContent === text)
      ?.click();
  act(() => press('big'));
  expect(launched).toHaveBeenCalledWith({
    program: 'work/digits',
    config: 'big'
  });
  act(() => press('digits-2'));
  expect(onReveal).toHaveBeenCalledWith('digits-2');
  act(() => root.unmount());
});

it('lists schedules with their last due times, and pauses, resumes and runs them', async () => {
  const server = new FakeServer();
  const host = document.body.appendChild(document.createElement('div'));
  const root = createRoot(host);
  const commands = { execute: vi.fn() };
  const due = Date.UTC(2026, 0, 2, 2) / 1000;
  const occurrence = {
    due,
    kind: 'scheduled',
    state: 'Failed',
    run: 'nightly-1',
    reason: { code: 'ScheduleNotLaunched', params: { why: 'no program' } }
  };
  const view = (paused: object | null): object => ({
    schedule: {
      name: 'nightly',
      uid: 'u',
      rules: { cron: '0 2 * * *', timeZone: 'Asia/Shanghai' },
      status: { occurrences: [occurrence], paused }
    },
    next: paused ? [] : [due + 86_400]
  });
  const lists = (paused: object | null): void => {
    server.answers['GET /schedules'] = { schedules: [view(paused)] };
  };
  const settled = (condition: () => void): Promise<void> =>
    vi.waitFor(async () => {
      await act(() => new Promise(resolve => setTimeout(resolve, 20)));
      condition();
    });
  const shows = (text: string): Promise<void> =>
    settled(() => expect(host.textContent).toContain(text));
  const press = (label: string): void =>
    act(() =>
      [...host.querySelectorAll('button')]
        .find(
          button =>
            button.textContent === label ||
            button.getAttribute('aria-label') === label
        )
        ?.click()
    );
  server.answers['GET /schedules'] = { schedules: [] };
  const draw = (refreshed: number): void =>
    act(() =>
      root.render(
        <Schedules
          model={server.model}
          runs={[]}
          commands={commands as unknown as CommandRegistry}
          trans={trans}
          refreshed={refreshed}
        />
      )
    );
  draw(0);
  await shows('A schedule launches');
  press('New schedule…');
  expect(commands.execute).toHaveBeenLastCalledWith('tfcluster:launch', {
    repeat: true
  });

  lists(null);
  draw(1);
  await shows('2026');
  expect(host.textContent).toContain('(Asia/Shanghai)');
  expect(host.querySelector('[role="img"]')?.getAttribute('aria-label')).toBe(
    'Last due times: Failed'
  );
  press('nightly');
  expect(commands.execute).toHaveBeenLastCalledWith(
    'tfcluster:schedule-history',
    { name: 'nightly' }
  );
  press('Edit nightly…');
  expect(commands.execute).toHaveBeenLastCalledWith('tfcluster:launch', {
    schedule: 'nightly'
  });

  server.answers['POST /schedules/nightly/pause'] = {};
  lists({ reason: 'the data is repaired' });
  press('Pause nightly');
  await shows('paused: the data is repaired');
  press('Run nightly now'); // disabled while the schedule is paused
  server.answers['POST /schedules/nightly/resume'] = {};
  lists(null);
  press('Resume nightly');
  await shows('next');
  server.answers['POST /schedules/nightly/run-now'] = {};
  press('Run nightly now');
  await settled(() =>
    expect(server.requests.filter(each => each.includes('POST'))).toEqual([
      expect.stringContaining('/schedules/nightly/pause'),
      expect.stringContaining('/schedules/nightly/resume'),
      expect.stringContaining('/schedules/nightly/run-now')
    ])
  );
  act(() => root.unmount());
});
