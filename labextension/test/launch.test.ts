import type { IStateDB } from '@jupyterlab/statedb';
import { describe, expect, it, vi } from 'vitest';
import type { IPlan } from '../src/api/launchOptions';
import { EMPTY, fieldsOf, type IDraft, launchOf } from '../src/launch/draft';
import { LaunchModel } from '../src/launch/model';
import {
  draftOfSpec,
  durationOf,
  opened,
  restored
} from '../src/launch/prefill';
import { hindrance, marksOf } from '../src/launch/problems';
import {
  joinArguments,
  programOfCell,
  splitArguments
} from '../src/launch/commandLine';
import { LAUNCH_OPTIONS, PLAN, serve } from './launching';
import { trans } from './runs';

const draft = (change: Partial<IDraft>): IDraft => ({ ...EMPTY, ...change });

describe('the arguments of a program', () => {
  it.each([
    ['', []],
    ['  --epochs 3 ', ['--epochs', '3']],
    [`a "b \\" c" 'd "e' f\\ g ''`, ['a', 'b " c', 'd "e', 'f g', '']],
    [`it"'"s`, ["it's"]]
  ])('are split as a shell does: %s', (line, words) => {
    expect(splitArguments(line)).toEqual(words);
  });

  it('have no words while a quote is open', () => {
    expect(splitArguments("--name 'x")).toBeNull();
  });

  it('are the same after they were joined and split', () => {
    const words = ['', "it's", 'a b', '"', '\\', '--x=1', '$HOME', '*', 'é'];
    expect(splitArguments(joinArguments(words))).toEqual(words);
  });

  it('begin below the line of the magic', () => {
    expect(programOfCell('%%tfcluster launch --x\nprint(1)\n')).toBe(
      'print(1)\n'
    );
    expect(programOfCell('print(1)')).toBe('print(1)');
  });
});

describe('the launch that a draft asks for', () => {
  it('says only what differs from the defaults', () => {
    const values = { workers: ' 2 ', memory: ' 2Gi ', env: 'A=b\n\n C=d e ' };
    expect(
      launchOf(
        draft({ program: ' train.py ', name: ' x ', values }),
        LAUNCH_OPTIONS
      )
    ).toEqual({
      program: 'train.py',
      name: 'x',
      options: { memory: '2Gi', env: ['A=b', 'C=d e'] }
    });
  });

  it('leaves out what means nothing in its mode, and keeps it for the other', () => {
    const both = draft({
      mode: 'in-graph',
      program: 'train.py',
      arguments: '1',
      values: { chief: true, idle_timeout: '2h' }
    });
    expect(launchOf(both, LAUNCH_OPTIONS)).toEqual({
      options: { mode: 'in-graph', idle_timeout: '2h' }
    });
    expect(
      launchOf({ ...both, mode: 'between-graph' }, LAUNCH_OPTIONS)
    ).toEqual({
      program: 'train.py',
      arguments: ['1'],
      options: { chief: true }
    });
  });

  it('says that there shall be no chief where one was taken back', () => {
    const options = (values: IDraft['values']): unknown =>
      launchOf(draft({ values }), LAUNCH_OPTIONS).options;
    expect(options({ chief: false })).toEqual({ chief: false });
    expect(options({})).toEqual({});
  });

  it('runs a cell in the folder of its notebook', () => {
    const cell = { text: 'x', notebook: 'a/b/n.ipynb' };
    expect(
      launchOf(draft({ source: 'cell', cell, program: 'p.py' }), LAUNCH_OPTIONS)
    ).toEqual({ cell: 'x', folder: 'a/b', options: {} });
  });

  it('names a Python only where no kernel is chosen', () => {
    const values = { python: '/x/python' };
    expect(launchOf(draft({ values }), LAUNCH_OPTIONS).options).toEqual({});
    expect(
      launchOf(draft({ values, kernelspec: 'py' }), LAUNCH_OPTIONS)
    ).toEqual({
      kernelspec: 'py',
      options: {}
    });
    expect(
      launchOf(draft({ values, kernelspec: '' }), LAUNCH_OPTIONS).options
    ).toEqual(values);
  });

  it('asks for the size of a chief only where there is one', () => {
    const keys = (values: IDraft['values']): string[] =>
      fieldsOf(LAUNCH_OPTIONS, draft({ values })).map(({ key }) => key);
    expect(keys({})).not.toContain('chief_memory');
    expect(keys({ chief: true })).toContain('chief_memory');
  });
});

describe('what a form begins with', () => {
  it('is what was kept, whatever the state database holds', () => {
    const kept = draft({ program: 'a.py', values: { workers: '3' } });
    expect(restored(JSON.parse(JSON.stringify(kept)))).toEqual(kept);
    for (const rubbish of [null, 7, 'x', [], { mode: 'x' }, { source: 1 }]) {
      expect(restored(rubbish)).toEqual(EMPTY);
    }
    expect(restored({ program: 5, values: { a: {}, b: 'c' } })).toEqual(
      draft({ values: { b: 'c' } })
    );
  });

  it('is the same again for the same program, and new for another', () => {
    const last = draft({ program: 'a.py', arguments: 'x', values: { a: 'b' } });
    expect({ ...last, ...opened(last, { program: 'a.py' }) }).toEqual(last);
    expect({ ...last, ...opened(last, { program: 'c.py' }) }).toEqual(
      draft({ program: 'c.py' })
    );
    expect(opened(last, { program: 'https://h/c.py' })).toMatchObject({
      source: 'url',
      url: 'https://h/c.py'
    });
    expect(opened(last, { mode: 'in-graph' })).toEqual({ mode: 'in-graph' });
  });

  it('is a cell without arguments, counts and name of what was launched before', () => {
    const values = { workers: '3' };
    const last = draft({ program: 'a.py', arguments: 'x', name: 'n', values });
    const cell = { text: 'print(1)', notebook: 'a/n.ipynb' };
    const said = { cell: cell.text, notebook: cell.notebook };
    const begun = { ...last, ...opened(last, said) };
    expect(begun).toEqual(draft({ source: 'cell', cell }));
    const typed = { ...begun, arguments: 'y' };
    expect({ ...typed, ...opened(typed, said) }).toEqual(typed);
  });

  it('is the spec of a run', () => {
    const spec = {
      replicas: { worker: { count: 3 }, chief: { count: 1 } },
      env: { A: 'b' },
      interpreter: '/x/python',
      program: {
        kind: 'file',
        source: 'train.py',
        workingDir: '/w',
        entrypoint: 'train.py',
        sha256: '',
        arguments: ['a b']
      }
    } as const;
    const made = draftOfSpec(
      { ...spec, program: { ...spec.program, arguments: ['a b'] } },
      'digits',
      LAUNCH_OPTIONS
    );
    expect(launchOf(made, LAUNCH_OPTIONS)).toEqual({
      program: '/w/train.py',
      name: 'digits',
      arguments: ['a b'],
      options: { workers: '3', chief: true, env: ['A=b'], python: '/x/python' }
    });
  });

  it.each([
    [5400, '1h30m'],
    [86400, '1d'],
    [0, '0s'],
    [2.5, '2.5s']
  ])('writes %d seconds as %s', (seconds, text) => {
    expect(durationOf(seconds)).toBe(text);
  });
});

describe('what stands against a launch', () => {
  const problem = (option: string | null, value: unknown = 'x') => ({
    field: '',
    option,
    value,
    allowed: 'do this',
    message: 'field: do this',
    fits: null
  });
  const state = (problems: IPlan['problems'], change = {}) => ({
    draft: EMPTY,
    launchOptions: LAUNCH_OPTIONS,
    plan: { ...PLAN, problems },
    current: true,
    away: null,
    launching: false,
    refusal: null,
    launched: null,
    openSections: new Set<string>(),
    tried: false,
    ...change
  });

  it('stands at its input, or below the form where there is none', () => {
    const found = marksOf(
      state([problem('workers'), problem('idle_timeout'), problem(null)]),
      trans
    );
    expect([...found.keys()]).toEqual(['workers', '']);
    expect(found.get('')).toHaveLength(2);
    expect(found.get('')?.[0].text).toBe('field: do this');
  });

  it('is a sentence alone where hours are used up', () => {
    const hours = { ...problem(null), field: 'budget.cpuHours' };
    const [mark] = marksOf(state([hours]), trans).get('') ?? [];
    expect(mark).toMatchObject({ text: 'do this', wrong: true });
  });

  it('is no mistake while a program is only missing', () => {
    const missing = state([problem('program', null)]);
    expect(marksOf(missing, trans).get('program')?.[0].wrong).toBe(false);
    expect(hindrance(missing, trans)).toBe('Choose a program first.');
    const tried = { ...missing, tried: true };
    expect(marksOf(tried, trans).get('program')?.[0].wrong).toBe(true);
  });

  it('is told at the kernel where its Python is no good', () => {
    const keys = (change: object): string[] => [
      ...marksOf(state([problem('python')], change), trans).keys()
    ];
    expect(keys({})).toEqual(['kernelspec']);
    expect(keys({ draft: draft({ kernelspec: '' }) })).toEqual(['python']);
  });

  it('is nothing once a plan of what is typed has no problem', () => {
    expect(hindrance(state([]), trans)).toBeNull();
    expect(hindrance(state([], { current: false }), trans)).not.toBeNull();
  });
});

describe('the form and the server', () => {
  it('takes the newest plan, whichever answer comes last', async () => {
    const late: Array<() => void> = [];
    const { clusters, json } = serve(
      body =>
        new Promise(resolve => {
          const line = body.name ?? '';
          const answer = (): void => resolve(json({ ...PLAN, line }));
          return line === 'slow' ? late.push(answer) : answer();
        })
    );
    const model = new LaunchModel(clusters, null);
    await model.start();
    model.edit({ name: 'slow' });
    await vi.waitFor(() => expect(late).toHaveLength(1));
    model.edit({ name: 'quick' });
    await vi.waitFor(() => expect(model.state.plan?.line).toBe('quick'));
    late.forEach(answer => answer());
    await new Promise(resolve => setTimeout(resolve));
    expect(model.state).toMatchObject({ current: true, away: null });
    expect(model.state.plan?.line).toBe('quick');
    model.dispose();
  });

  it('keeps what is typed while the server is away, and asks again', async () => {
    let up = false;
    const { clusters, json } = serve(async () => {
      if (!up) {
        throw new TypeError('no network');
      }
      return json(PLAN);
    });
    const model = new LaunchModel(clusters, null);
    await model.start();
    model.edit({ program: 'train.py' });
    await vi.waitFor(() => expect(model.state.away).not.toBeNull());
    expect(model.state.draft.program).toBe('train.py');
    expect(hindrance(model.state, trans)).toContain('does not answer');
    up = true;
    await model.retry();
    expect(hindrance(model.state, trans)).toBeNull();
    model.dispose();
  });

  it('launches once, remembers it without the cell and the environment, and begins with it', async () => {
    const kept = new Map<string, unknown>();
    const memory = {
      fetch: (key: string) => Promise.resolve(kept.get(key)),
      save: (key: string, value: unknown) => {
        kept.set(key, value);
        return Promise.resolve();
      }
    } as never;
    const { clusters, sent, json } = serve(() => Promise.resolve(json(PLAN)));
    const model = new LaunchModel(clusters, memory);
    await model.start({ program: 'train.py' });
    model.edit({ values: { env: 'PASSWORD=x', python: '/a/python' } });
    const both = await Promise.all([model.launch(), model.launch()]);
    expect(both.map(run => run?.cluster.metadata.name)).toEqual([
      'train-1',
      undefined
    ]);
    expect(sent.filter(line => line === 'POST /clusters')).toHaveLength(1);
    const next = new LaunchModel(clusters, memory);
    await next.start();
    expect(next.state.draft.program).toBe('train.py');
    expect(next.state.draft.values).toEqual({ python: '/a/python' });
    model.dispose();
    next.dispose();
  });
});

describe('the sections of a form', () => {
  /** A database that forgets nothing. */
  function aMemory() {
    const kept = new Map<string, unknown>();
    return {
      fetch: (id: string) => Promise.resolve(kept.get(id)),
      save: (id: string, value: unknown) =>
        Promise.resolve(void kept.set(id, value))
    } as unknown as IStateDB;
  }

  it('are open in the next form where they were left open', async () => {
    const memory = aMemory();
    const { clusters, json } = serve(async () => json(PLAN));
    const first = new LaunchModel(clusters, memory);
    await first.start();
    expect([...first.state.openSections]).toEqual([]);
    first.toggleSection('limits');
    first.toggleSection('resources');
    first.toggleSection('limits');
    const next = new LaunchModel(clusters, memory);
    await next.start();
    expect([...next.state.openSections]).toEqual(['resources']);
  });

  it('are closed where what was kept is no list', async () => {
    const memory = aMemory();
    await memory.save('tfcluster-labextension:launch-sections', { a: 1 });
    const { clusters, json } = serve(async () => json(PLAN));
    const model = new LaunchModel(clusters, memory);
    await model.start();
    expect(model.state.openSections.size).toBe(0);
  });
});
