/** The scrolled lines: only the visible ones are in the page, however many there are. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { Line, TIME_COLUMNS } from './line';
import type { LogsModel } from './model';
import type { ILogsState } from './state';
import { slice, Viewport, withSelected } from './viewport';

export interface ILinesProps {
  readonly model: LogsModel;
  readonly state: ILogsState;
  readonly trans: TranslationBundle;
  /** Called with the viewport once it exists. */
  readonly onViewport: (viewport: Viewport) => void;
  readonly isAllSelected: boolean;
}

/** A scrolled list of lines, which takes the keyboard focus. */
export function Lines({
  model,
  state,
  trans,
  onViewport,
  isAllSelected
}: ILinesProps): React.JSX.Element {
  const scroller = React.useRef<HTMLDivElement>(null);
  const probe = React.useRef<HTMLSpanElement>(null);
  const viewport = React.useRef<Viewport | null>(null);
  const frame = React.useRef(0);
  const [, redraw] = React.useReducer((count: number) => count + 1, 0);
  const measure = useMeasure(scroller, probe);
  const selected = useSelectedLines(scroller);
  const { rows, buffer, searcher } = model;
  const { wraps, tasks } = state;
  const { follows } = model; // `state` is updated later: drawing its old value would scroll to the end
  const gutter =
    tasks.length > 1 ? Math.max(...tasks.map(task => task.name.length)) : 0;
  const time = timeShown(model, state);
  const indent = (gutter && gutter + 3) + TIME_COLUMNS[time];

  React.useEffect(() => {
    const made = new Viewport(scroller.current!, follows =>
      model.follow(follows)
    );
    viewport.current = made;
    onViewport(made);
    return () => cancelAnimationFrame(frame.current);
  }, [model, onViewport]);

  React.useEffect(() => {
    model.setColumns(Math.max(20, measure.columns - indent));
  }, [model, measure.columns, indent]);

  React.useLayoutEffect(() => {
    if (measure.height > 0) {
      viewport.current?.settle(model.rows, measure.row, follows);
      redraw();
    }
  }, [model, state.revision, follows, measure.row, measure.height]);

  // This effect compares with a ref, not with the values of the last rendering: React may discard a
  // rendering together with its effects.
  const brought = React.useRef({ moves: 0, row: 0 });
  const [shown, setShown] = React.useState(0);
  React.useLayoutEffect(() => {
    const { moves, currentLine, isBusy, isTyped } = model.searcher;
    const view = viewport.current;
    if (currentLine < 0 && !isBusy) {
      const isToFollow = view?.goBack(model.rows, measure.row) ?? null;
      if (isToFollow !== null) {
        model.follow(isToFollow);
        redraw();
      }
    }
    const isThere =
      brought.current.moves === moves && brought.current.row === measure.row;
    if (currentLine >= 0 && !isThere) {
      brought.current = { moves, row: measure.row };
      if (isTyped) {
        view?.seek(model.rows, measure.row, currentLine, model.follows);
      } else {
        view?.show(model.rows, measure.row, currentLine);
      }
      if (model.rows.height * measure.row > measure.height) {
        model.follow(false); // stop following the end, unless all lines fit into the view
      }
      setShown(moves);
      redraw();
    }
  }, [model, state.revision, measure.row, measure.height]);

  React.useEffect(() => {
    scroller.current
      ?.querySelector('[data-current]')
      ?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [shown]);

  const onScroll = (): void => {
    viewport.current?.scrolled(model.rows, measure.row);
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(redraw);
  };

  const top = viewport.current?.top ?? 0;
  const seen = slice(rows, top, measure.height, measure.row, follows);
  const { from, to } = withSelected(rows, seen, selected);
  const places = new Map(tasks.map(task => [task.name, task.place]));
  const more = React.useCallback(
    (count: number) =>
      trans._n('… and %1 more character', '… and %1 more characters', count),
    [trans]
  );
  const drawn: React.JSX.Element[] = [];
  for (let index = from; index < to; index++) {
    const number = rows.number(index);
    const line = buffer.line(number);
    drawn.push(
      <Line
        key={number}
        number={number}
        line={line}
        place={places.get(line.task) ?? 0}
        gutter={gutter}
        time={time}
        more={more}
        {...searcher.found(number)}
      />
    );
  }
  return (
    <div
      ref={scroller}
      className="tfc-Log-lines"
      role="log"
      aria-live="off"
      aria-label={trans.__('Output of %1', model.name)}
      // a scrolled region must be reachable by keyboard
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={0}
      data-wraps={wraps || undefined}
      data-selected={isAllSelected || undefined}
      data-stale={state.connection === 'lost' || undefined}
      onScroll={onScroll}
    >
      <span ref={probe} className="tfc-Log-probe" aria-hidden="true">
        {'0'.repeat(100)}
      </span>
      <div style={{ height: rows.offset(from) * measure.row }} />
      <div
        className="tfc-Log-drawn"
        style={
          {
            '--tfc-indent': `${indent}ch`,
            minWidth: wraps ? undefined : `${rows.widest + indent}ch`
          } as React.CSSProperties
        }
      >
        {drawn}
      </div>
      <div style={{ height: (rows.height - rows.offset(to)) * measure.row }} />
    </div>
  );
}

/** Return which times are shown: with the day, unless all lines were printed today. */
function timeShown(
  { buffer }: LogsModel,
  { showsTimes }: ILogsState
): 'none' | 'time' | 'date' {
  const at = buffer.first < buffer.end ? buffer.line(buffer.first).at : null;
  if (!showsTimes || at === null) {
    return 'none'; // a run of an older version has no times
  }
  const isToday = new Date(at).toDateString() === new Date().toDateString();
  return isToday ? 'time' : 'date';
}

/** The size of a row and a column, and how many fit. The theme's fonts may change at any time. */
interface IMeasure {
  /** Pixels of a row. */
  readonly row: number;
  /** Pixels of the window. */
  readonly height: number;
  /** Columns that fit into a row. */
  readonly columns: number;
}

/** Number of characters in the measured element. */
const PROBED = 100;
const GUESS: IMeasure = { row: 17, height: 0, columns: 80 };

/** Measure again whenever the window or the font changes. */
function useMeasure(
  scroller: React.RefObject<HTMLElement>,
  probe: React.RefObject<HTMLElement>
): IMeasure {
  const [measure, setMeasure] = React.useState(GUESS);
  React.useLayoutEffect(() => {
    const [outer, inner] = [scroller.current!, probe.current!];
    const take = (): void => {
      const { height: row, width } = inner.getBoundingClientRect();
      const { paddingLeft, paddingRight } = getComputedStyle(outer);
      const room =
        outer.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
      if (row > 0 && width > 0 && outer.clientHeight > 0) {
        const columns = Math.floor((room * PROBED) / width);
        setMeasure({ row, height: outer.clientHeight, columns });
      }
    };
    const observer = new ResizeObserver(take);
    observer.observe(outer);
    observer.observe(inner);
    take();
    return () => observer.disconnect();
  }, [scroller, probe]);
  return measure;
}

/**
 * Return the first and last selected line of a list, or null. They stay in the page while the user
 * scrolls to the other end.
 */
function useSelectedLines(
  list: React.RefObject<HTMLElement>
): readonly [number, number] | null {
  const [from, setFrom] = React.useState(-1);
  const [to, setTo] = React.useState(-1);
  React.useEffect(() => {
    const look = (): void => {
      const selection = document.getSelection();
      const ends = [selection?.anchorNode, selection?.focusNode].flatMap(
        node => lineOf(node ?? null, list.current) ?? []
      );
      const isWhole = ends.length === 2 && !selection?.isCollapsed;
      setFrom(isWhole ? Math.min(...ends) : -1);
      setTo(isWhole ? Math.max(...ends) : -1);
    };
    document.addEventListener('selectionchange', look);
    return () => document.removeEventListener('selectionchange', look);
  }, [list]);
  return React.useMemo(() => (from < 0 ? null : [from, to]), [from, to]);
}

function lineOf(node: Node | null, list: HTMLElement | null): number | null {
  const element = node instanceof Element ? node : node?.parentElement;
  const line = element?.closest<HTMLElement>('[data-line]');
  return line && list?.contains(line) ? Number(line.dataset.line) : null;
}
