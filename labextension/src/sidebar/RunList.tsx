/**
 * The rows of the sidebar: one tab stop, arrow keys from row to row, a key for each action.
 *
 * Only rows that were scrolled to are in the document; rows off the screen cost no layout.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { nameOf } from '../api/runs';
import type { IClusters } from '../api/state';
import type { IRun } from '../api/types';
import { argumentsOf, enabledActions } from '../run/actions';
import { IRowHandlers, RunRow } from './RunRow';

const PAGE = 50;
const NONE: ReadonlySet<string> = new Set();

export interface IRunListProps {
  readonly runs: ReadonlyArray<IRun>;
  readonly model: IClusters;
  readonly trans: TranslationBundle;
  readonly commands: CommandRegistry;
  readonly selected: ReadonlySet<string>;
  /** A run whose row is opened once it exists. */
  readonly revealed: string | null;
  /** Called once this row is open. */
  onRevealed(): void;
  onSelect(name: string): void;
  /** Called for Escape if nothing in the list can be closed. */
  onEscape(): void;
}

/** The list; the Tab key reaches the row `active`. */
export function RunList({
  runs,
  model,
  trans,
  commands,
  selected,
  revealed,
  onRevealed,
  onSelect,
  onEscape
}: IRunListProps): React.JSX.Element {
  const [active, setActive] = React.useState<string | null>(null);
  const [expanded, setExpanded] = React.useState(NONE);
  const [most, setMost] = React.useState(PAGE);
  const box = React.useRef<HTMLDivElement>(null);
  const found = runs.findIndex(run => nameOf(run) === active);
  // if the row is gone, use the row in its place
  const lastPlace = React.useRef(0);
  const place =
    found < 0 ? Math.min(lastPlace.current, runs.length - 1) : found;
  lastPlace.current = place;
  useFocusKept(box, runs, place);

  const select = React.useRef(onSelect);
  select.current = onSelect;
  const handlers = React.useMemo(
    (): IRowHandlers => ({
      activate: (name, focus) => {
        setActive(name);
        if (focus) {
          focusRow(box.current, name);
        }
      },
      expand: name =>
        setExpanded(names => (names.has(name) ? NONE : new Set([name]))),
      select: name => select.current(name)
    }),
    []
  );

  const opened = React.useRef(onRevealed);
  opened.current = onRevealed;
  React.useEffect(() => {
    if (revealed !== null && runs.some(run => nameOf(run) === revealed)) {
      setMost(Infinity);
      setActive(revealed);
      setExpanded(new Set([revealed]));
      requestAnimationFrame(() => {
        // on a slow page the focus may be on a link of the row by then
        const focused =
          document.activeElement?.closest<HTMLElement>('.tfc-RunRow');
        if (focused?.dataset.run !== revealed) {
          focusRow(box.current, revealed);
        }
      });
      opened.current();
    }
  }, [revealed, runs]);

  const go = (to: number): void => {
    const next = Math.min(Math.max(to, 0), runs.length - 1);
    const name = nameOf(runs[next]);
    setMost(count => Math.max(count, next + PAGE));
    setActive(name);
    // the row may be drawn only now
    requestAnimationFrame(() => focusRow(box.current, name));
  };

  const onKeyDown = (event: React.KeyboardEvent): void => {
    const run = runs[place];
    const name = nameOf(run);
    const onRow = (event.target as HTMLElement).getAttribute('role') === 'row';
    const done = (): void => {
      event.preventDefault();
      event.stopPropagation();
    };
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    switch (event.key) {
      case 'ArrowDown':
        go(place + 1);
        return done();
      case 'ArrowUp':
        go(place - 1);
        return done();
      case 'Home':
        go(0);
        return done();
      case 'End':
        go(runs.length - 1);
        return done();
      case 'ArrowRight':
      case 'ArrowLeft':
        if (onRow && expanded.has(name) !== (event.key === 'ArrowRight')) {
          handlers.expand(name);
          done();
        }
        return;
      case 'Enter':
      case ' ':
        if (onRow) {
          handlers[event.key === 'Enter' ? 'expand' : 'select'](name);
          done();
        }
        return;
      case 'Escape':
        done();
        if (!onRow) {
          focusRow(box.current, name);
        } else if (expanded.size > 0) {
          setExpanded(NONE);
        } else {
          onEscape();
        }
        return;
      default: {
        const action = enabledActions(run, commands).find(
          ({ key }) => key === event.key
        );
        if (action) {
          done();
          void commands.execute(action.command, argumentsOf(action, run));
        }
      }
    }
  };

  const shown = runs.slice(0, most);
  return (
    <div
      ref={box}
      className="tfc-RunList"
      role="treegrid"
      tabIndex={-1}
      aria-label={trans.__('Clusters')}
      aria-multiselectable
      aria-rowcount={runs.length}
      onKeyDown={onKeyDown}
    >
      {shown.map((run, index) => {
        const name = nameOf(run);
        return (
          <RunRow
            key={name}
            run={run}
            model={model}
            trans={trans}
            commands={commands}
            handlers={handlers}
            position={index + 1}
            expanded={expanded.has(name)}
            selected={selected.has(name)}
            active={index === place}
          />
        );
      })}
      {shown.length < runs.length && (
        <More box={box} onSeen={() => setMost(count => count + PAGE)} />
      )}
    </div>
  );
}

/** The end of the drawn rows; when it becomes visible, more rows are added. */
function More({
  box,
  onSeen
}: {
  readonly box: React.RefObject<HTMLDivElement>;
  onSeen(): void;
}): React.JSX.Element {
  const end = React.useRef<HTMLDivElement>(null);
  const seen = React.useRef(onSeen);
  seen.current = onSeen;
  React.useEffect(() => {
    const observer = new IntersectionObserver(
      entries => entries.some(e => e.isIntersecting) && seen.current(),
      { root: box.current, rootMargin: '600px' }
    );
    observer.observe(end.current!);
    return () => observer.disconnect();
  });
  return <div ref={end} className="tfc-RunList-more" aria-hidden="true" />;
}

/** Moves the focus to the next row when the focused row disappears, for example after a delete. */
function useFocusKept(
  box: React.RefObject<HTMLDivElement>,
  runs: ReadonlyArray<IRun>,
  place: number
): void {
  const focused = React.useRef<string | null>(null);
  React.useLayoutEffect(() => {
    const gone =
      focused.current !== null &&
      !runs.some(run => nameOf(run) === focused.current);
    if (gone && document.activeElement === document.body && runs.length > 0) {
      focusRow(box.current, nameOf(runs[place]));
    }
    const now = document.activeElement?.closest<HTMLElement>('.tfc-RunRow');
    focused.current =
      now && box.current?.contains(now) ? (now.dataset.run ?? null) : null;
  });
}

function focusRow(box: HTMLElement | null, name: string): void {
  const rows = box?.querySelectorAll<HTMLElement>('.tfc-RunRow') ?? [];
  for (const row of rows) {
    if (row.dataset.run === name) {
      row.focus();
      row.scrollIntoView({ block: 'nearest' });
    }
  }
}
