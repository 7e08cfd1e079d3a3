/** The matches in lines that the view lacks: their number, and a list with a link to each. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { plain, settled } from './ansi';
import type { TaskLine } from './buffer';
import { stamp } from './line';
import type { LogsModel } from './model';
import { expression, ranges } from './search';

/** Maximum matches in the list, which shows the newest. */
const MOST_LISTED = 300;
/** Maximum characters of an excerpt: before the match, and in total. */
const [BEFORE, SHOWN] = [40, 300];

interface IOlderProps {
  readonly model: LogsModel;
  readonly trans: TranslationBundle;
}

/** The number of older matches, shown next to the count of the search. */
export function OlderCount({
  model,
  trans,
  isOpen,
  onToggle
}: IOlderProps & {
  readonly isOpen: boolean;
  readonly onToggle: () => void;
}): React.JSX.Element | null {
  const { state, matches, hasMore, problem } = model.older;
  const count = matches.length;
  const words = {
    off: '',
    busy: trans.__('searching older lines…'),
    done: trans.__('none in older lines'),
    failed: problem?.message ?? trans.__('Older lines could not be searched.')
  }[state];
  if (count === 0) {
    return words ? (
      <span className="tfc-Log-older" role="status" title={words}>
        {words}
      </span>
    ) : null;
  }
  const total = `${count}${hasMore ? '+' : ''}`;
  return (
    <button
      type="button"
      className="tfc-Button tfc-Log-older"
      aria-expanded={isOpen}
      title={trans.__('List the matches in lines that are not shown here')}
      onClick={onToggle}
    >
      {trans._n('%2 in older lines', '%2 in older lines', count, total)}
    </button>
  );
}

/** The list of older matches, newest first. */
export function OlderMatches({
  model,
  trans
}: IOlderProps): React.JSX.Element | null {
  const { matches } = model.older;
  const wanted = expression(model.searcher.query);
  if (matches.length === 0 || !(wanted instanceof RegExp)) {
    return null;
  }
  const listed = matches.slice(-MOST_LISTED).reverse();
  const left = matches.length - listed.length;
  const onKeyDown = (event: React.KeyboardEvent): void => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      const buttons = [...event.currentTarget.querySelectorAll('button')];
      const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
      buttons[Math.max(0, Math.min(buttons.length - 1, at + by))]?.focus();
      event.preventDefault();
    }
  };
  return (
    <section
      className="tfc-Log-oldermatches"
      aria-label={trans.__('Matches in older lines')}
    >
      <ul
        role="presentation"
        // keys bubble here from the buttons, which have the focus
        onKeyDown={onKeyDown}
      >
        {listed.map((line, index) => (
          <li key={index}>
            <button type="button" onClick={() => void model.showAround(line)}>
              <span className="tfc-Log-time">{stamp(line[2], true)}</span>{' '}
              <b>{line[0]}</b> <Excerpt line={line} wanted={wanted} />
            </button>
          </li>
        ))}
      </ul>
      {left > 0 && (
        <p>
          {trans._n(
            '%1 older match is not listed. Search for a longer text, or select one task.',
            '%1 older matches are not listed. Search for a longer text, or select one task.',
            left
          )}
        </p>
      )}
    </section>
  );
}

function Excerpt({
  line,
  wanted
}: {
  readonly line: TaskLine;
  readonly wanted: RegExp;
}): React.JSX.Element {
  const text = plain(settled(line[1]));
  const [from, to] = ranges(text, wanted)[0] ?? [0, 0];
  const start = Math.max(0, from - BEFORE);
  return (
    <>
      {start > 0 && '…'}
      {text.slice(start, from)}
      <mark className="tfc-Log-mark">{text.slice(from, to)}</mark>
      {text.slice(to, start + SHOWN)}
    </>
  );
}
