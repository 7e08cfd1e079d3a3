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
  /** Whether the time is shown, and the day with it. */
  readonly time: 'none' | 'time' | 'date';
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
            title={
              line.at === null ? undefined : new Date(line.at).toLocaleString()
            }
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

/** Columns of a time, without and with its day, and the blank behind it. */
export const TIME_COLUMNS = { none: 0, time: 13, date: 19 };

/** When a line was printed, on the clock of this browser; blanks of the same width when nobody knows. */
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
