import { readFileSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import { LineBuffer, MOST_SHOWN, type TaskLine } from '../src/logs/buffer';
import { pieces } from '../src/logs/line';
import { columns, Rows } from '../src/logs/rows';
import { expression, NO_QUERY, ranges } from '../src/logs/search';
import { Searcher } from '../src/logs/searcher';
import { inOrder } from '../src/logs/tasks';
import { slice, withSelected } from '../src/logs/viewport';

const read = (file: string): unknown =>
  JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8'));
/** Python must match the same lines: tests/server/test_expressions.py. */
const expressions = read('../../tests/data/expressions.json') as {
  source: string;
  text: string;
  matches: boolean;
}[];

const lines = (from: number, to: number, task = 'worker-0'): TaskLine[] =>
  Array.from({ length: to - from }, (_, i) => [task, `line ${from + i}`]);
const rowsOf = (count: number, width = Infinity, text = 'x'): Rows => {
  const rows = new Rows();
  for (let number = 0; number < count; number++) {
    rows.push(number, text, width);
  }
  return rows;
};

describe('the kept lines', () => {
  it('are the newest, and each keeps its number', () => {
    const buffer = new LineBuffer(100);
    for (let from = 0; from < 60_000; from += 500) {
      buffer.append(lines(from, from + 500));
    }
    expect([buffer.first, buffer.end, buffer.dropped]).toEqual([
      59_900, 60_000, 59_900
    ]);
    expect(buffer.line(59_900).text).toBe('line 59900');
    expect(buffer.line(59_999).text).toBe('line 59999');
    expect(buffer.counts.get('worker-0')).toEqual({ lines: 100, noise: 0 });
  });

  it('are bounded in characters, too', () => {
    const buffer = new LineBuffer(1000, 100);
    buffer.append([
      ['ps-0', 'x'.repeat(90)],
      ['ps-0', 'y'.repeat(90)],
      ['ps-0', 'z'.repeat(900)]
    ]);
    expect(buffer.end - buffer.first).toBe(1);
    expect(buffer.line(buffer.first).text[0]).toBe('z');
  });

  it('begin anew with other numbers after they were forgotten', () => {
    const buffer = new LineBuffer();
    buffer.append(lines(0, 3));
    buffer.clear();
    buffer.append(lines(7, 8));
    expect([buffer.first, buffer.end, buffer.dropped]).toEqual([3, 4, 0]);
    expect(buffer.line(3).text).toBe('line 7');
  });
});

describe('rows', () => {
  it('say which line covers a place, also with wrapped lines', () => {
    const rows = new Rows();
    ['short', 'x'.repeat(25), '', 'tail'].forEach((text, number) =>
      rows.push(number, text, 10)
    );
    expect(rows.height).toBe(6);
    expect([0, 1, 3, 4, 5].map(row => rows.at(row))).toEqual([0, 1, 1, 2, 3]);
    expect([0, 1, 2, 3, 4].map(index => rows.offset(index))).toEqual([
      0, 1, 4, 5, 6
    ]);
  });

  it('go on from where they are when old lines go', () => {
    const rows = rowsOf(50_000);
    rows.drop(30_000);
    expect([rows.length, rows.height, rows.number(0), rows.offset(5)]).toEqual([
      20_000, 20_000, 30_000, 5
    ]);
    expect(rows.indexOf(30_010)).toBe(10);
    rows.drop(50_000);
    expect([rows.length, rows.height]).toEqual([0, 0]);
    rows.push(50_000, 'x');
    expect([rows.length, rows.number(0), rows.at(0)]).toEqual([1, 50_000, 0]);
  });

  it('count wide characters and tabs as a terminal does', () => {
    expect([columns('abc'), columns('数字'), columns('a\tb')]).toEqual([
      3, 4, 10
    ]);
  });

  it('are drawn only where they can be seen, and at the end while following', () => {
    const rows = rowsOf(100_000);
    const seen = slice(rows, 17 * 50_000, 340, 17, false);
    expect(seen.from).toBeGreaterThan(49_900);
    expect(seen.to).toBeLessThan(50_100);
    expect(slice(rows, 0, 340, 17, true).to).toBe(100_000);
    expect(slice(new Rows(), 0, 340, 17, true)).toEqual({ from: 0, to: 0 });
  });

  it('stay drawn while they are selected, unless they are too many', () => {
    const rows = rowsOf(100_000);
    const seen = { from: 500, to: 550 };
    expect(withSelected(rows, seen, [10, 20])).toEqual({ from: 10, to: 550 });
    expect(withSelected(rows, seen, [10, 90_000])).toEqual(seen);
  });
});

describe('a search', () => {
  const query = (text: string, more = {}): RegExp | string | null =>
    expression({ ...NO_QUERY, text, ...more });

  it('takes what was typed as text, in any case', () => {
    expect(ranges('A+b a+B a1b', query('a+b') as RegExp)).toEqual([
      [0, 3],
      [4, 7]
    ]);
    const exact = query('a+B', { isCaseSensitive: true }) as RegExp;
    expect(ranges('A+b a+B', exact)).toEqual([[4, 7]]);
  });

  it('takes a regular expression on demand, and says what is wrong with one', () => {
    const digits = query('\\d*', { isRegExp: true }) as RegExp;
    expect(ranges('a1 b22', digits)).toEqual([
      [1, 2],
      [4, 6]
    ]);
    expect(query('(', { isRegExp: true })).toContain('(');
    expect(query('(')).toBeInstanceOf(RegExp);
  });

  it.each(expressions)(
    'an expression matches what it matches in the whole log: $source, $text',
    ({ source, text, matches }) => {
      const wanted = query(source, { isRegExp: true }) as RegExp;
      expect(ranges(text, wanted).length > 0).toBe(matches);
    }
  );

  it('begins at the line in view, goes around, and goes on with new lines', async () => {
    const buffer = new LineBuffer();
    const searcher = new Searcher(
      () => buffer,
      () => undefined
    );
    const rows = new Rows();
    const more = (batch: TaskLine[]): void => {
      const from = buffer.end;
      buffer.append(batch);
      for (let number = from; number < buffer.end; number++) {
        rows.push(number, buffer.line(number).text);
      }
    };
    more(lines(0, 20_000));
    searcher.start({ ...NO_QUERY, text: 'line 19' }, rows, 1000);
    await vi.waitFor(() => expect(searcher.isBusy).toBe(false));
    expect([searcher.count, searcher.currentLine]).toEqual([1111, 1900]);
    searcher.step(-1);
    expect(searcher.currentLine).toBe(199);
    more(lines(19_000, 19_001));
    searcher.more(0);
    await vi.waitFor(() => expect(searcher.count).toBe(1112));
    expect(searcher.currentLine).toBe(199);
    const { moves } = searcher;
    searcher.restart(rows);
    await vi.waitFor(() => expect(searcher.isBusy).toBe(false));
    expect([searcher.currentLine, searcher.moves]).toEqual([199, moves]);
    searcher.dispose();
  });

  it('has no current match once the lines with all of them have gone', async () => {
    const buffer = new LineBuffer(10);
    const rows = new Rows();
    const searcher = new Searcher(
      () => buffer,
      () => undefined
    );
    buffer.append(lines(0, 5));
    for (let number = 0; number < 5; number++) {
      rows.push(number, buffer.line(number).text);
    }
    searcher.start({ ...NO_QUERY, text: 'line 3' }, rows, 0);
    await vi.waitFor(() => expect(searcher.current).toBe(0));
    buffer.append(lines(100, 120));
    rows.drop(buffer.first);
    searcher.more(5);
    expect([searcher.count, searcher.current]).toEqual([0, -1]);
    searcher.dispose();
  });

  it('is marked across the colours of a line', () => {
    const red = { text: 'one t', className: 'red' };
    const cut = pieces(
      [red, { text: 'wo three', className: '' }],
      [
        [4, 7],
        [8, 9]
      ]
    );
    expect(
      cut.map(({ span, mark }) => [span.text, span.className, mark])
    ).toEqual([
      ['one ', 'red', -1],
      ['t', 'red', 0],
      ['wo', '', 0],
      [' ', '', -1],
      ['t', '', 1],
      ['hree', '', -1]
    ]);
  });

  it('draws a line of megabytes up to its bound', () => {
    const long = [{ text: 'x'.repeat(3 * MOST_SHOWN), className: '' }];
    expect(pieces(long, [])[0].span.text).toHaveLength(MOST_SHOWN);
  });
});

it('tasks stand in the order in which people read them', () => {
  expect(inOrder(['ps-0', 'worker-10', 'worker-2', 'x', 'chief-0'])).toEqual([
    'chief-0',
    'worker-2',
    'worker-10',
    'ps-0',
    'x'
  ]);
});
