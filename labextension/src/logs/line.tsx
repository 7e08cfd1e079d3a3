/**
 * One line of output: its task in the task's colour, its text in the program's colours, what is looked for marked.
 */
import * as React from 'react';
import { ISpan, spans } from './ansi';
import { ILine, MOST_SHOWN } from './buffer';
import type { Range } from './search';

/** Colours that tasks have in turn. */
const COLOURS = 6;

export interface ILineProps {
  readonly number: number;
  readonly line: ILine;
  /** The place of its task in the order of tasks. */
  readonly place: number;
  /** Columns of the longest task's name; 0 leaves the name out. */
  readonly gutter: number;
  readonly found: ReadonlyArray<Range>;
  /** Which of `found` is the current one, -1 for none. */
  readonly current: number;
  /** What is said of characters that are not drawn. */
  readonly more: (characters: number) => string;
}

/** A row; `data-line` is its number. */
export const Line = React.memo(
  ({
    number,
    line,
    place,
    gutter,
    found,
    current,
    more
  }: ILineProps): React.JSX.Element => {
    const rest = line.text.length - MOST_SHOWN;
    return (
      <div className="tfc-Log-line" data-line={number}>
        {gutter > 0 && (
          <span className="tfc-Log-task" data-colour={place % COLOURS}>
            {`${line.task.padEnd(gutter)} | `}
          </span>
        )}
        {pieces(spans(line.raw), found).map(({ span, mark }, index) =>
          mark < 0 ? (
            <span key={index} className={span.className} style={span.style}>
              {span.text}
            </span>
          ) : (
            <mark
              key={index}
              className={`${span.className} tfc-Log-mark`}
              data-current={mark === current || undefined}
            >
              {span.text}
            </mark>
          )
        )}
        {rest > 0 && <em className="tfc-Log-more">{more(rest)}</em>}
      </div>
    );
  }
);

interface IPiece {
  readonly span: ISpan;
  /** Which match this is a part of, -1 for none. */
  readonly mark: number;
}

/** Spans cut where matches begin and end, up to what is drawn of a line. */
export function pieces(
  styled: ReadonlyArray<ISpan>,
  found: ReadonlyArray<Range>
): IPiece[] {
  const cut: IPiece[] = [];
  let at = 0;
  let next = 0;
  for (const span of styled) {
    const end = Math.min(at + span.text.length, MOST_SHOWN);
    let from = at;
    while (from < end) {
      while (next < found.length && found[next][1] <= from) {
        next += 1;
      }
      const match = found[next];
      const isInside = match !== undefined && match[0] <= from;
      const stop = !match ? end : isInside ? match[1] : match[0];
      const to = Math.min(end, stop);
      const text = span.text.slice(from - at, to - at);
      cut.push({ span: { ...span, text }, mark: isInside ? next : -1 });
      from = to;
    }
    at += span.text.length;
  }
  return cut;
}
