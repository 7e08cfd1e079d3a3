/**
 * One line of output: the task in its colour, the text in the program's colours, matches marked.
 */
import * as React from 'react';
import { ISpan, spans } from './ansi';
import { ILine, MOST_SHOWN } from './buffer';
import type { Range } from './search';

/** Number of colours, which tasks use in turn. */
const COLOURS = 6;

export interface ILineProps {
  readonly number: number;
  readonly line: ILine;
  /** The position of the line's task in the order of tasks. */
  readonly place: number;
  /** Columns of the longest task name; 0 hides the name. */
  readonly gutter: number;
  /** Whether the time is shown, with or without the day. */
  readonly time: 'none' | 'time' | 'date';
  readonly found: ReadonlyArray<Range>;
  /** Index in `found` of the current match; -1 for none. */
  readonly current: number;
  /** Returns the text for characters that are not drawn. */
  readonly more: (characters: number) => string;
}

/** A row; `data-line` is its number. */
export const Line = React.memo(
  ({
    number,
    line,
    place,
    gutter,
    time,
    found,
    current,
    more
  }: ILineProps): React.JSX.Element => {
    const rest = line.text.length - MOST_SHOWN;
    return (
      <div className="tfc-Log-line" data-line={number}>
        {time !== 'none' && (
          <span
            className="tfc-Log-time"
            title={line.at === null ? undefined : stamp(line.at, true)}
          >
            {`${stamp(line.at, time === 'date')} `}
          </span>
        )}
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

/** Columns of a time, without and with the day, including the space after it. */
export const TIME_COLUMNS = { none: 0, time: 13, date: 19 };

/** Return the local time of a line; spaces of the same width if unknown. */
export function stamp(
  at: number | null | undefined,
  isWithDate: boolean
): string {
  if (at == null) {
    return ' '.repeat(TIME_COLUMNS[isWithDate ? 'date' : 'time'] - 1);
  }
  const when = new Date(at);
  const two = (value: number): string => String(value).padStart(2, '0');
  const date = `${two(when.getMonth() + 1)}-${two(when.getDate())} `;
  const clock = [when.getHours(), when.getMinutes(), when.getSeconds()]
    .map(two)
    .join(':');
  const rest = String(when.getMilliseconds()).padStart(3, '0');
  return `${isWithDate ? date : ''}${clock}.${rest}`;
}

interface IPiece {
  readonly span: ISpan;
  /** The index of the match that this piece belongs to; -1 for none. */
  readonly mark: number;
}

/** Cut spans at the bounds of matches, up to the drawn part of a line. */
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
