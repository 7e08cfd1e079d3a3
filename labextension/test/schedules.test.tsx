import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { describe, expect, it, vi } from 'vitest';
import type { IPlan } from '../src/api/launchOptions';
import { EMPTY, launchOf } from '../src/launch/draft';
import { LaunchModel } from '../src/launch/model';
import { hindrance, marksOf, whyNoRepeat } from '../src/launch/problems';
import {
  browserZone,
  cronOf,
  DAILY,
  repeatOf,
  scheduleOf
} from '../src/launch/repeat';
import { Calendar } from '../src/schedules/calendar';
import * as months from '../src/schedules/month';
import { LAUNCH_OPTIONS, PLAN, serve } from './launching';
import { FakeServer, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

describe('when a launch recurs', () => {
  it.each([
    ['15 * * * *', 'hour', { minute: '15' }],
    ['5 2 * * *', 'day', { time: '02:05' }],
    ['0 22 * * 1-5', 'workday', { time: '22:00' }],
    ['30 0 * * 0', 'week', { time: '00:30', weekday: '0' }],
    ['0 12 31 * *', 'month', { time: '12:00', day: '31' }]
  ] as const)(
    '%s is a usual choice, and the same again',
    (cron, when, more) => {
      const repeat = repeatOf('nightly', cron);
      expect(repeat).toMatchObject({ when, ...more });
      expect(cronOf(repeat, '')).toBe(cron);
    }
  );

  it.each(['*/5 * * * *', '@daily', '0 2 * * 1,3', '0 2 1 1 *'])(
    '%s is an expression of its own',
    cron => {
      const repeat = repeatOf('nightly', cron);
      expect(repeat.when).toBe('cron');
      expect(cronOf(repeat, ` ${cron} `)).toBe(cron);
    }
  );

  it('is sent with the options that differ from the defaults', () => {
    const values = {
      time_zone: ' Asia/Shanghai ',
      overlap: 'forbid',
      retry_delays: '1m  10m',
      track: true,
      workers: '3'
    };
    const draft = { ...EMPTY, program: 'a.py', name: 'nightly', values };
    const launch = launchOf(draft, LAUNCH_OPTIONS);
    expect(scheduleOf(draft, DAILY, LAUNCH_OPTIONS, launch)).toEqual({
      name: 'nightly',
      options: {
        cron: '0 2 * * *',
        time_zone: 'Asia/Shanghai',
        retry_delays: ['1m', '10m'],
        track: true
      },
      launch: { program: 'a.py', options: { workers: '3' } },
      updates: false
    });
  });

  it.each([undefined, '', '  '])(
    'is in the zone of the browser where none is typed (%j)',
    typed => {
      const values: Record<string, string> =
        typed === undefined ? {} : { time_zone: typed };
      const draft = { ...EMPTY, name: 'nightly', values };
      const { options } = scheduleOf(draft, DAILY, LAUNCH_OPTIONS, {});
      expect(options).toHaveProperty('time_zone', browserZone());
    }
  );
});

describe('the form of a schedule', () => {
  const plan: IPlan = {
    ...PLAN,
    schedule: {
      rules: { cron: '0 2 * * *', timeZone: 'UTC' },
      next: [1],
      firstRun: 1
    }
  };
  const view = {
    schedule: { name: 'train', uid: 'u', rules: plan.schedule?.rules },
    next: [86_400]
  };

  it('asks for the plan of a schedule, saves its rules, and goes back to a launch', async () => {
    const bodies: unknown[] = [];
    const { clusters, sent, json } = serve(
      async () => json(PLAN),
      body => {
        bodies.push(body);
        return json('updates' in (body as object) ? plan : view, 201);
      }
    );
    const saved = vi.fn();
    clusters.scheduleSaved.connect((_, name) => saved(name));
    const model = new LaunchModel(clusters, null);
    await model.start({ program: 'train.py' });
    await vi.waitFor(() => expect(model.state.current).toBe(true));
    await model.openRepeat();
    expect(model.state.draft.name).toBe('train');
    expect(model.state.draft.values.time_zone).toBe(browserZone());
    await vi.waitFor(() => expect(model.state.plan?.schedule).toBeDefined());
    expect(sent).toContain('POST /schedules/plan');
    expect(await model.saveSchedule()).toEqual(view);
    expect(bodies[bodies.length - 1]).toEqual({
      name: 'train',
      rules: plan.schedule?.rules,
      launch: { program: 'train.py', options: {} },
      track: false
    });
    expect(saved).toHaveBeenCalledWith('train');
    expect(model.state.draft.repeat).toBeNull();
    expect(model.state.saved).toEqual(view);
    model.dispose();
  });

  it('takes the name from the newest plan, even if that request overtakes its own', async () => {
    const late: Array<() => void> = [];
    let asked = 0;
    const { clusters, json } = serve(
      body =>
        new Promise(resolve => {
          const answer = (): void => resolve(json({ ...PLAN, ...body }));
          return (body as { program?: string }).program && ++asked === 1
            ? late.push(answer)
            : answer();
        }),
      () => json(plan)
    );
    const model = new LaunchModel(clusters, null);
    await model.start();
    model.edit({ program: 'train.py' });
    const opens = model.openRepeat(); // asks at once, before the delay after a keystroke is over
    await vi.waitFor(() => expect(asked).toBe(2));
    late.forEach(answer => answer());
    await opens;
    expect(model.state.draft.name).toBe('train');
    model.dispose();
  });

  it('saves nothing while the server has a problem with it, which is shown at its input', async () => {
    const problem = {
      field: '--cron',
      option: 'cron',
      value: 'x',
      allowed: 'write minute, hour',
      message: 'm',
      fits: null
    };
    const wrong: IPlan = {
      ...PLAN,
      problems: [problem],
      schedule: { rules: null, next: [], firstRun: null }
    };
    const { clusters, sent, json } = serve(
      async () => json(PLAN),
      () => json(wrong)
    );
    const model = new LaunchModel(clusters, null);
    await model.start({ program: 'train.py', repeat: true });
    expect(await model.saveSchedule()).toBeNull();
    expect(sent).not.toContain('POST /schedules');
    expect(marksOf(model.state, trans).get('cron')?.[0].text).toBe(
      'write minute, hour'
    );
    expect(hindrance(model.state, trans)).toContain('Change “cron” first.');
    model.dispose();
  });

  it('says that a schedule was deleted while it was edited', async () => {
    const { clusters, json } = serve(
      async () => json(PLAN),
      () =>
        json(
          { title: 'NotFound', status: 404, detail: 'no schedule train' },
          404
        )
    );
    const model = new LaunchModel(clusters, null);
    await model.start({ program: 'train.py' });
    model.edit({ repeat: { ...DAILY, schedule: 'train' } });
    await vi.waitFor(() => expect(model.state.away).not.toBeNull());
    expect(hindrance(model.state, trans)).toBe(
      'The schedule train does not exist.'
    );
    model.dispose();
  });

  it('is not offered where a notebook is the client', () => {
    const { clusters } = serve(async () => new Response('{}'));
    const { state } = new LaunchModel(clusters, null);
    expect(whyNoRepeat(state, trans)).toBeNull();
    const driven = { ...state, draft: { ...EMPTY, mode: 'in-graph' as const } };
    expect(whyNoRepeat(driven, trans)).toContain('notebook');
  });
});

describe('a month', () => {
  it('has its days in weeks that begin as the language says', () => {
    const weeks = months.weeksOf({ year: 2026, month: 10 }, 1);
    expect(weeks[0].indexOf('2026-11-01')).toBe(6);
    expect(weeks.flat().filter(Boolean)).toHaveLength(30);
    expect(months.weeksOf({ year: 2026, month: 10 }, 0)[0][0]).toBe(
      '2026-11-01'
    );
    expect(months.moved({ year: 2026, month: 11 }, 1)).toEqual({
      year: 2027,
      month: 0
    });
    expect(months.dayAfter('2028-02-28', 1)).toBe('2028-02-29');
  });

  it('has the same day of another month, or its last one', () => {
    expect(months.sameDay('2026-01-31', 1)).toBe('2026-02-28');
    expect(months.sameDay('2026-01-15', -1)).toBe('2025-12-15');
  });

  it('puts due times on the days of the schedule, not of the reader', () => {
    const due = Date.UTC(2026, 10, 26, 18) / 1000; // 02:00 of the 27th in Shanghai
    expect(months.dayOf(due, 'Asia/Shanghai')).toBe('2026-11-27');
    expect(months.timeOf(due, 'Asia/Shanghai')).toBe('02:00');
    expect(months.dayOf(due, 'America/New_York')).toBe('2026-11-26');
    expect(months.dayOf(due, 'Mars/Olympus')).toBe('2026-11-26');
    const [from, to] = months.spanOf({ year: 2026, month: 10 });
    expect(from).toBeLessThan(Date.UTC(2026, 9, 31, 12) / 1000);
    expect(to).toBeGreaterThan(Date.UTC(2026, 11, 1, 12) / 1000);
  });
});

it('shows a month of due times with counts, and a day as a list, with two requests', async () => {
  const server = new FakeServer();
  const commands = { execute: vi.fn() };
  const host = document.body.appendChild(document.createElement('div'));
  const root = createRoot(host);
  const day = new Date();
  day.setUTCHours(0, 0, 0, 0);
  const due = (hour: number): number => day.getTime() / 1000 + hour * 3600;
  const advice = { changes: ['--ps 1 → 2'], runs: ['hourly-1'] };
  const one = (hour: number, state: string, run = ''): object => ({
    due: due(hour),
    kind: 'scheduled',
    state,
    run,
    attempt: hour === 1 ? 2 : 1,
    missed: 0,
    reason: null,
    advice: hour === 1 ? { code: 'ScheduleAdvised', params: advice } : null
  });
  server.answers['GET /schedules/hourly'] = {
    schedule: {
      name: 'hourly',
      uid: 'u',
      rules: { cron: '0 * * * *', timeZone: 'UTC' },
      status: {}
    },
    next: [due(24)]
  };
  server.answers['GET /schedules/hourly/history'] = {
    occurrences: [
      ...Array.from({ length: 22 }, (_, hour) => one(23 - hour, 'Succeeded')),
      one(1, 'Failed', 'hourly-2'),
      one(0, 'Skipped')
    ],
    runs: {
      'hourly-2': {
        phase: 'Failed',
        startedAt: 10,
        finishedAt: 75,
        message: 'worker-0 failed.',
        messages: []
      }
    }
  };
  act(() =>
    root.render(
      <Calendar
        name="hourly"
        model={server.model}
        commands={commands as unknown as CommandRegistry}
        trans={trans}
      />
    )
  );
  await vi.waitFor(async () => {
    await act(() => new Promise(resolve => setTimeout(resolve, 20)));
    expect(host.textContent).toContain('worker-0 failed.');
  });
  const chosen = host.querySelector('[role="gridcell"] [tabindex="0"]');
  expect(chosen?.getAttribute('aria-label')).toMatch(
    /: 1 Failed, 22 Succeeded, 1 Skipped$/
  );
  expect(
    host.querySelectorAll('[role="gridcell"] [tabindex="0"]')
  ).toHaveLength(1);
  expect(host.textContent).toContain('1m 5s');
  expect(host.textContent).toContain('attempt 2');
  expect(host.textContent).toContain('Launched with --ps 1 → 2');
  const rows = [...host.querySelectorAll('.tfc-Calendar-list tbody tr')];
  expect(rows).toHaveLength(24);
  expect(rows[0].textContent).toContain('23:00'); // newest first
  const press = (label: string): void =>
    act(() =>
      host.querySelector<HTMLElement>(`[aria-label="${label}"]`)?.click()
    );
  const key = (name: string): void =>
    act(() => {
      host
        .querySelector('[role="grid"]')
        ?.dispatchEvent(
          new KeyboardEvent('keydown', { key: name, bubbles: true })
        );
    });
  press('Logs of hourly-2');
  expect(commands.execute).toHaveBeenLastCalledWith('tfcluster:logs', {
    name: 'hourly-2'
  });
  const asked = server.requests.filter(each => each.includes('/schedules/'));
  expect(asked).toHaveLength(2);

  server.answers['GET /schedules/hourly/history'] = {
    occurrences: [],
    runs: {}
  };
  const today = months.dayOf(Date.now() / 1000, 'UTC');
  const focused = (): string | undefined =>
    document.activeElement?.textContent ?? undefined;
  key('PageUp');
  await vi.waitFor(async () => {
    await act(() => new Promise(resolve => setTimeout(resolve, 20)));
    expect(host.textContent).toContain('Nothing was due in this month.');
  });
  expect(focused()).toBe(String(Number(months.sameDay(today, -1).slice(8))));

  server.status = 503; // a short outage is reported by the list of runs, not here
  const before = server.requests.length;
  key('PageDown');
  await vi.waitFor(async () => {
    await act(() => new Promise(resolve => setTimeout(resolve, 20)));
    expect(server.requests).toHaveLength(before + 2);
  });
  expect(host.querySelector('[role="alert"]')).toBeNull();
  act(() => root.unmount());
});
