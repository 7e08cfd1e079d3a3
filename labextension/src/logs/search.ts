/**
 * What a person looks for, as a regular expression, and where lines have it. Pure.
 */

export interface IQuery {
  readonly text: string;
  readonly isRegExp: boolean;
  readonly isCaseSensitive: boolean;
}

/** Where a line has what is looked for: from, to. */
export type Range = readonly [from: number, to: number];

export const NO_QUERY: IQuery = {
  text: '',
  isRegExp: false,
  isCaseSensitive: false
};

/** Of a line; beyond, it is not searched: a program may print megabytes without an end of line. */
const MOST_SEARCHED = 20_000;
const MOST_RANGES = 500;

/** The expression of a query, null when nothing is looked for; a string says what is wrong with it. */
export function expression(query: IQuery): RegExp | string | null {
  if (!query.text) {
    return null;
  }
  const source = query.isRegExp
    ? query.text
    : query.text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  try {
    return new RegExp(source, query.isCaseSensitive ? 'gu' : 'giu');
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    return said.replace(/^Invalid regular expression: /, '');
  }
}

/** Where a text has it; matches of nothing do not count. */
export function ranges(text: string, wanted: RegExp): Range[] {
  const found: Range[] = [];
  wanted.lastIndex = 0;
  const searched =
    text.length > MOST_SEARCHED ? text.slice(0, MOST_SEARCHED) : text;
  for (
    let match = wanted.exec(searched);
    match;
    match = wanted.exec(searched)
  ) {
    if (match[0] === '') {
      wanted.lastIndex += 1;
      if (wanted.lastIndex > searched.length) {
        break;
      }
      continue;
    }
    found.push([match.index, match.index + match[0].length]);
    if (found.length >= MOST_RANGES) {
      break;
    }
  }
  return found;
}
