/**
 * The arguments of a program as a shell line. Pure functions.
 *
 * Splitting and joining are inverse; nothing is expanded.
 */

/** Return the words of a line; null if a quote is not closed. */
export function splitArguments(line: string): ReadonlyArray<string> | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote = '';
  for (let at = 0; at < line.length; at++) {
    const char = line[at];
    if (quote) {
      if (char === quote) {
        quote = '';
      } else if (char === '\\' && quote === '"' && /["\\]/.test(line[at + 1])) {
        word += line[++at];
      } else {
        word += char;
      }
    } else if (char === '"' || char === "'") {
      quote = char;
      word ??= '';
    } else if (char === '\\' && at + 1 < line.length) {
      word = (word ?? '') + line[++at];
    } else if (/\s/.test(char)) {
      if (word !== null) {
        words.push(word);
      }
      word = null;
    } else {
      word = (word ?? '') + char;
    }
  }
  if (quote) {
    return null;
  }
  return word === null ? words : [...words, word];
}

/** Return a line from which `splitArguments` returns these words. */
export const joinArguments = (words: ReadonlyArray<string>): string =>
  words
    .map(word =>
      /^[\w@%+=:,./-]+$/.test(word)
        ? word
        : `'${word.replace(/'/g, "'\"'\"'")}'`
    )
    .join(' ');

/** Return the program in a cell, without the line of the magic above it. */
export const programOfCell = (source: string): string =>
  source.replace(/^\s*%%tfcluster[^\n]*(\n|$)/, '');
