/** A launch form whose launch was refused, until an administrator allows more. */
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { IPlan } from '../src/api/launchOptions';
import { hindrance } from '../src/launch/problems';
import { LaunchModel } from '../src/launch/model';
import { LaunchContent } from '../src/launch/widget';
import { PLAN, serve } from './launching';
import { trans } from './runs';

const quota = {
  field: 'quota.cpu',
  option: null,
  value: '8 CPU cores',
  allowed: 'you may have 4 CPU cores at once',
  message: 'quota.cpu is 8 CPU cores; you may have 4 CPU cores at once',
  fits: null
};
const REFUSED: IPlan = { ...PLAN, problems: [quota] };
const MISSING: IPlan = {
  ...PLAN,
  problems: [{ ...quota, field: 'program', option: 'program', value: null }]
};
const PLANNED = 'POST /clusters/plan';

/** A form for which the server returns `plan`, and the number of requests for a plan. */
async function aForm(plan: IPlan, launch?: () => Response) {
  const server = { plan, up: true };
  const { clusters, sent, json } = serve(async () => {
    if (!server.up) {
      throw new TypeError('no network');
    }
    return json(server.plan);
  }, launch);
  const model = new LaunchModel(clusters, null);
  await model.start();
  model.edit({ program: 'train.py', arguments: '--epochs 3' });
  await vi.advanceTimersByTimeAsync(1_000);
  const asked = (): number => sent.filter(line => line === PLANNED).length;
  return { server, model, asked };
}

/** The form in its tab. */
function aTab(model: LaunchModel): LaunchContent {
  const content = new LaunchContent({
    model,
    commands: new CommandRegistry(),
    documents: {} as never,
    notebooks: null,
    translator: {} as never,
    trans
  });
  Widget.attach(content, document.body);
  return content;
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe('a form that is refused', () => {
  it('launches once more is allowed, without a word being typed', async () => {
    const { server, model } = await aForm(REFUSED);
    const tab = aTab(model);
    expect(hindrance(model.state, trans)).toContain('has to be changed');
    server.plan = PLAN;
    await vi.advanceTimersByTimeAsync(6_000);
    expect(hindrance(model.state, trans)).toBeNull();
    expect(model.state.draft).toMatchObject({
      program: 'train.py',
      arguments: '--epochs 3'
    });
    tab.dispose();
  });

  it('asks at once when its window is looked at, or its tab, and not while neither is', async () => {
    const { server, model, asked } = await aForm(REFUSED);
    const tab = aTab(model);
    await vi.advanceTimersByTimeAsync(10);
    const before = asked();
    window.dispatchEvent(new Event('focus'));
    await vi.advanceTimersByTimeAsync(10);
    expect(asked()).toBe(before + 1);
    tab.hide();
    window.dispatchEvent(new Event('focus'));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked()).toBe(before + 1);
    server.plan = PLAN;
    tab.show();
    await vi.advanceTimersByTimeAsync(10);
    expect(hindrance(model.state, trans)).toBeNull();
    tab.dispose();
    window.dispatchEvent(new Event('focus'));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked()).toBe(before + 2);
  });

  it('asks every few seconds, and no more once it is not', async () => {
    const { server, model, asked } = await aForm(REFUSED);
    const tab = aTab(model);
    await vi.advanceTimersByTimeAsync(10);
    const before = asked();
    await vi.advanceTimersByTimeAsync(20_000);
    expect(asked() - before).toBe(4);
    server.plan = PLAN;
    await vi.advanceTimersByTimeAsync(5_000);
    const allowed = asked();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked()).toBe(allowed);
    tab.dispose();
  });

  it('recovers by itself from a server that did not answer', async () => {
    const { server, model } = await aForm(REFUSED);
    const tab = aTab(model);
    server.up = false;
    await vi.advanceTimersByTimeAsync(6_000);
    expect(hindrance(model.state, trans)).toContain('does not answer');
    server.up = true;
    server.plan = PLAN;
    await vi.advanceTimersByTimeAsync(6_000);
    expect(hindrance(model.state, trans)).toBeNull();
    tab.dispose();
  });
});

describe('what the button was refused with', () => {
  const conflict = (): Response =>
    new Response(
      JSON.stringify({ title: 'no', status: 422, detail: 'used up' }),
      { status: 422 }
    );

  it('goes when what stood against it is gone', async () => {
    const { server, model } = await aForm(PLAN, conflict);
    const tab = aTab(model);
    server.plan = REFUSED;
    await model.launch();
    await vi.advanceTimersByTimeAsync(10);
    expect(model.state.refusal?.message).toBe('used up');
    expect(hindrance(model.state, trans)).toContain('has to be changed');
    server.plan = PLAN;
    await vi.advanceTimersByTimeAsync(6_000);
    expect(model.state.refusal).toBeNull();
    tab.dispose();
  });

  it('stays where no plan knows of it', async () => {
    const { model } = await aForm(PLAN, conflict);
    const tab = aTab(model);
    await model.launch();
    await vi.advanceTimersByTimeAsync(20_000);
    expect(model.state.refusal?.message).toBe('used up');
    tab.dispose();
  });
});

it('asks nothing by itself while nothing stands against it, or a program is only missing', async () => {
  for (const plan of [PLAN, MISSING]) {
    const { model, asked } = await aForm(plan);
    const tab = aTab(model);
    const before = asked();
    await vi.advanceTimersByTimeAsync(60_000);
    window.dispatchEvent(new Event('focus'));
    await vi.advanceTimersByTimeAsync(10);
    expect(asked()).toBe(before);
    tab.dispose();
  }
});
