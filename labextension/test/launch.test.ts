import { readFileSync } from 'node:fs';
import type { IStateDB } from '@jupyterlab/statedb';
import { describe, expect, it, vi } from 'vitest';
import type { IField, IPlan } from '../src/api/launchOptions';
import { EMPTY, fieldsOf, type IDraft, launchOf } from '../src/launch/draft';
import { LaunchModel } from '../src/launch/model';
import { draftOfLaunch, opened, restored } from '../src/launch/prefill';
import { hindrance, marksOf } from '../src/launch/problems';
import {
  joinArguments,
  programOfCell,
  splitArguments
} from '../src/run/commandLine';
import { LAUNCH_OPTIONS, PLAN, serve } from './launching';
import { aRun, trans } from './runs';

/** The fields of the form; tests/unit/launch/test_form.py has all options of a run in each mode. */
const FILE: string = '../../tests/data/launch_form.json';
const TABLE = JSON.parse(
  readFileSync(new URL(FILE, import.meta.url), 'utf8')
) as {
  readonly form: ReadonlyArray<IField>;
  readonly options: ReadonlyArray<Record<string, unknown>>;
};

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

  it.each(TABLE.options)(
    'is each option of a run, and asks for it again: %j',
    options => {
      const launchOptions = {
        ...LAUNCH_OPTIONS,
        form: TABLE.form,
        kernelspecs: []
      };
      const launch = { options, name: 'digits' };
      const { draft: made, left } = draftOfLaunch(launch, launchOptions);
      expect(left).toEqual([]);
      expect(launchOf(made, launchOptions)).toEqual(launch);
    }
  );

  it.each([
    { program: 'a/train.py', folder: '', arguments: ['a b', "it's"] },
    { cell: 'print(1)', folder: 'a', kernelspec: 'py' },
    { program: 'https://h/c.py', sha256: 'ab', options: { workers: '3' } },
    { program: '/outside/train.py', options: { chief: false } },
    { options: { mode: 'in-graph', idle_timeout: '2h' } }
  ])('is the program and the folder of a run: %j', launch => {
    const { draft: made } = draftOfLaunch(launch, LAUNCH_OPTIONS);
    expect(launchOf(made, LAUNCH_OPTIONS)).toEqual({ options: {}, ...launch });
    expect(restored(JSON.parse(JSON.stringify(made)))).toEqual({
      ...made,
      cell: null
    });
  });

  it('names the options of a run for which a line has no room', () => {
    const env = ['A=b', 'TEXT=a\nb', 'BLANK=x '];
    const launch = { options: { env, python: '/x/python' } };
    const { draft: made, left } = draftOfLaunch(launch, LAUNCH_OPTIONS);
    expect(left).toEqual(['env']);
    expect(launchOf(made, LAUNCH_OPTIONS).options).toEqual({
      env: ['A=b'],
      python: '/x/python'
    });
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
    origin: null,
    planned: null,
    launchOptions: LAUNCH_OPTIONS,
    plan: { ...PLAN, problems },
    current: true,
    away: null,
    launching: false,
    refusal: null,
    launched: null,
    saved: null,
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
    expect(marksOf(missing, trans).get('program')).toBeUndefined();
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

describe('a form whose program is a project', () => {
  const project = { config: null, configurations: ['big'], values: {} };

  it('asks once more if a default means a change there, and says what differs', async () => {
    const asked: unknown[] = [];
    const { clusters, json } = serve(body => {
      asked.push(body);
      // even if the server answers differently each time, the form does not ask again without end
      const workers = String(3 + asked.length);
      return Promise.resolve(
        json({ ...PLAN, project: { ...project, values: { workers } } })
      );
    });
    const model = new LaunchModel(clusters, null);
    await model.start();
    await vi.waitFor(() => expect(model.state.current).toBe(true));
    asked.length = 0;
    model.edit({ program: 'digits', values: { workers: '2' } });
    await vi.waitFor(() => expect(model.state.current).toBe(true));
    expect(asked).toEqual([
      { program: 'digits', options: {} },
      { program: 'digits', options: { workers: '2' } }
    ]);
    await new Promise(resolve => setTimeout(resolve, 600));
    expect(asked).toHaveLength(2);
    model.dispose();
  });

  it('does not take the values of the program before for those of the next', async () => {
    const sent: unknown[] = [];
    const { clusters, json } = serve(
      () =>
        Promise.resolve(
          json({ ...PLAN, project: { ...project, values: { memory: '2Gi' } } })
        ),
      body => {
        sent.push(body);
        return json(aRun('train'), 201);
      }
    );
    const model = new LaunchModel(clusters, null);
    await model.start();
    model.edit({ program: 'digits', config: 'big' });
    await vi.waitFor(() => expect(model.state.current).toBe(true));
    model.edit({ program: 'train.py', values: { memory: '2Gi' } });
    await model.launch();
    expect(sent).toEqual([{ program: 'train.py', options: { memory: '2Gi' } }]);
    model.dispose();
  });
});

describe('a form that is filled in with a run', () => {
  const asked = (name: string) => ({
    name,
    launch: {
      program: 'a/train.py',
      folder: 'b',
      name: 'digits',
      options: { workers: '3', env: ['A=b\nc'] }
    },
    notes: ['The program is read anew.']
  });

  it('says which one and what is not taken along, and launches a new run', async () => {
    const launched: unknown[] = [];
    const { clusters, json } = serve(
      () => Promise.resolve(json(PLAN)),
      body => {
        launched.push(body);
        return json(aRun('digits', 2), 201);
      },
      asked
    );
    const model = new LaunchModel(clusters, null);
    await model.start({ from: 'digits-1' });
    expect(model.state.origin?.name).toBe('digits-1');
    expect(model.state.origin?.notes).toHaveLength(2);
    expect(model.state.origin?.notes[1]).toContain('env');
    model.setValue('workers', '4');
    expect((await model.launch())?.cluster.metadata.name).toBe('digits-2');
    expect(launched).toEqual([
      {
        program: 'a/train.py',
        folder: 'b',
        name: 'digits',
        options: { workers: '4' }
      }
    ]);
    model.edit({ program: 'a/train.py' });
    expect(model.state.draft.folder).toBe('b');
    model.edit({ program: 'a/other.py' });
    expect(model.state.draft.folder).toBeNull();
    await model.prefill({ program: 'third.py' });
    expect(model.state.origin).toBeNull();
    model.dispose();
  });

  it('takes the run that was asked for last', async () => {
    const late: Array<() => void> = [];
    const { clusters, json } = serve(
      () => Promise.resolve(json(PLAN)),
      undefined,
      name =>
        new Promise(resolve => {
          const answer = (): void => resolve(asked(name));
          return name === 'slow-1' ? late.push(answer) : answer();
        })
    );
    const model = new LaunchModel(clusters, null);
    await model.start();
    const slow = model.prefill({ from: 'slow-1' });
    await vi.waitFor(() => expect(late).toHaveLength(1));
    await model.prefill({ from: 'quick-1' });
    late.forEach(answer => answer());
    await slow;
    expect(model.state.origin?.name).toBe('quick-1');
    model.dispose();
  });

  it('waits for a server that is away', async () => {
    let up = false;
    const { clusters, json } = serve(
      () => Promise.resolve(json(PLAN)),
      undefined,
      asked,
      () => up
    );
    const model = new LaunchModel(clusters, null);
    await model.start({ from: 'digits-1' });
    expect(model.state.away).not.toBeNull();
    expect(model.state.origin).toBeNull();
    up = true;
    await model.retry();
    expect(model.state.origin?.name).toBe('digits-1');
    expect(model.state.draft.program).toBe('a/train.py');
    model.dispose();
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
