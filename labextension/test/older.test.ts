import { afterEach, expect, it, vi } from 'vitest';
import { ServerProblem } from '../src/api/problem';
import { LineBuffer, type TaskLine } from '../src/logs/buffer';
import { LogsModel } from '../src/logs/model';
import { OlderSearch } from '../src/logs/older';
import { NO_QUERY } from '../src/logs/search';
import { aRun, FakeServer } from './runs';

const answer = (...messages: ReadonlyArray<object>): Response =>
  new Response(messages.map(one => `${JSON.stringify(one)}\n`).join(''));
const SOON = { interval: 1, timeout: 30_000 };
const QUERY = { query: { ...NO_QUERY, text: 'x' }, tasks: [] };

/**
 * The request and the results of a search in older lines, with a buffer that keeps some of them.
 */
async function search(
  kept: LineBuffer,
  showsNoise: boolean,
  ...messages: ReadonlyArray<object>
): Promise<{ older: OlderSearch; asked: Record<string, string> }> {
  let asked: Record<string, string> = {};
  const older = new OlderSearch({
    open: async query => {
      asked = query;
      return answer(...messages);
    },
    kept,
    onChange: () => undefined
  });
  older.look({ ...QUERY, showsNoise });
  await vi.waitFor(() => expect(older.state).not.toBe('busy'), SOON);
  older.dispose();
  return { older, asked };
}

it('asks only for what the view does not have', async () => {
  const kept = new LineBuffer();
  kept.append([
    ['worker-0', 'x', 2000],
    ['worker-1', 'x', 3000]
  ]);
  const lines: TaskLine[] = [
    ['worker-0', 'x', 1000, 0],
    ['worker-0', 'x', 2000, 1],
    ['worker-1', 'x', 500, 0]
  ];
  const { older, asked } = await search(kept, false, { lines }, { end: true });
  expect(asked).toEqual({
    search: 'x',
    case: '0',
    regex: '0',
    most: '5000',
    before: '3001',
    hide_tensorflow_logs: '1'
  });
  expect(older.state).toBe('done');
  expect(older.hasMore).toBe(false);
  // in order of time, although the lines arrived task by task
  expect(older.matches).toEqual([lines[2], lines[0]]);
});

it('knows lines without a time by their numbers', async () => {
  const kept = new LineBuffer();
  kept.append([
    ['worker-0', 'x'],
    ['worker-0', 'x']
  ]);
  const lines = [0, 1, 2, 3].map(n => ['worker-0', 'x', null, n]);
  const { older, asked } = await search(
    kept,
    true,
    { lines },
    { end: true, printed: { 'worker-0': 4 } }
  );
  expect(asked).not.toHaveProperty('before');
  expect(older.matches.map(line => line[3])).toEqual([0, 1]);
});

it.each([4, 2])(
  'finds older lines of the same millisecond; the view keeps at most %i',
  async most => {
    const at = 2000;
    const printed: TaskLine[] = [0, 1, 2, 3].map(n => [
      'worker-0',
      'x',
      n < 3 ? at : at + 10,
      n
    ]);
    const kept = new LineBuffer(most);
    kept.append(
      printed.slice(most === 4 ? 2 : 0).map(line => line.slice(0, 3) as never)
    );
    const lines = printed.slice(0, 3);
    const { older, asked } = await search(
      kept,
      true,
      { lines },
      { end: true, printed: { 'worker-0': 3 } }
    );
    expect(asked.before).toBe('2001');
    expect(older.matches.map(line => line[3])).toEqual([0, 1]);
  }
);

it('asks for an expression, and says why the server refuses one', async () => {
  const asked: Record<string, string>[] = [];
  const problem = { type: '', title: '', status: 422, detail: 'Use a text.' };
  const older = new OlderSearch({
    open: async query => {
      asked.push(query);
      throw new ServerProblem(problem);
    },
    kept: new LineBuffer(),
    onChange: () => undefined
  });
  const query = { ...NO_QUERY, text: '\\p{L}', isRegExp: true };
  older.look({ query, tasks: [], showsNoise: true });
  await vi.waitFor(() => expect(older.state).toBe('failed'), SOON);
  older.dispose();
  expect(asked).toMatchObject([{ search: '\\p{L}', regex: '1' }]);
  expect(older.problem?.message).toBe('Use a text.');
});

it('says when an answer was cut', async () => {
  const lines = [['worker-0', 'x', 1, 0]];
  const { older } = await search(new LineBuffer(), true, { lines });
  expect(older.state).toBe('failed');
});

let model: LogsModel;
afterEach(() => model?.dispose());

it('leaves the view as it is when the lines around a match cannot be read', async () => {
  const server = new FakeServer();
  server.runs = [aRun('digits')];
  const around: URL[] = [];
  let answers: () => Response = () => answer({ end: true });
  server.answer = url => {
    if (!url.pathname.endsWith('/logs')) {
      return undefined;
    }
    if (url.searchParams.has('around')) {
      around.push(url);
      return answers();
    }
    return answer({ lines: [['worker-0', 'newest', 9000]] }, { end: true });
  };
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  model = new LogsModel(server.model, 'digits-1');
  await vi.waitFor(() => expect(model.rows.length).toBe(1), SOON);
  const state = async (): Promise<LogsModel['state']> => {
    const { revision } = model.state;
    await vi.waitFor(
      () => expect(model.state.revision).toBeGreaterThan(revision),
      SOON
    );
    return model.state;
  };
  const line: TaskLine = ['worker-0', 'old', 1000, 3];

  await model.showAround(line);
  expect(await state()).toMatchObject({ missed: { problem: null } });
  expect(model.buffer.line(model.buffer.first).text).toBe('newest');

  const problem = { type: '', title: '', status: 503, detail: 'It hangs.' };
  answers = () => answer({ lines: [line] }, { problem });
  await model.showAround(line);
  expect((await state()).missed?.problem?.message).toBe('It hangs.');
  expect(model.state.around).toBeNull();

  answers = () =>
    answer({ lines: [['worker-1', 'later', 2000, 0], line] }, { end: true });
  await model.showAround(line);
  expect(await state()).toMatchObject({
    missed: null,
    around: { at: 1000, isInTimeOrder: false }
  });
  expect(model.rows.length).toBe(2);
  expect(around[0].searchParams.get('around')).toBe('worker-0:3');

  // the user requests something else before the answer arrives
  const asked = model.showAround(['worker-0', 'old', 1000, 7]);
  model.showNewest();
  await asked;
  expect(await state()).toMatchObject({ missed: null, around: null });
});
