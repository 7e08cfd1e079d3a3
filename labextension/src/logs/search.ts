/** A search as a regular expression, and its matches in lines. Pure functions. */

export interface IQuery {
  readonly text: string;
  readonly isRegExp: boolean;
  readonly isCaseSensitive: boolean;
}

/** A match in a line: from, to. */
export type Range = readonly [from: number, to: number];

export const NO_QUERY: IQuery = {
  text: '',
  isRegExp: false,
  isCaseSensitive: false
};

/**
 * Maximum characters of a line that are searched; a program may print megabytes without a line
 * break.
 */
const MOST_SEARCHED = 20_000;
const MOST_RANGES = 500;

/** Return the expression of a query, null for an empty one, or a string that says what is wrong. */
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

/** Return the matches in a text; empty matches do not count. */
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
