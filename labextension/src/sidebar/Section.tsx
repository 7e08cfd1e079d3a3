/**
 * A section of the sidebar below the runs. Its content is loaded from the server, and again
 * whenever the runs change, so that nothing else is polled.
 */
import * as React from 'react';

/** Milliseconds after the last change of the runs in which further changes are collected. */
const QUIET = 500;

interface ISectionProps {
  readonly title: string;
  readonly count: number;
  readonly children: React.ReactNode;
}

/** A section that can be folded. An empty section is folded at first. */
export function Section({
  title,
  count,
  children
}: ISectionProps): React.JSX.Element {
  const [chosen, setChosen] = React.useState<boolean | null>(null);
  const open = chosen ?? count > 0;
  return (
    <details className="tfc-Fold" open={open}>
      {/* React alone opens the section, because its first content opens it too */}
      <summary
        onClick={event => {
          event.preventDefault();
          setChosen(!open);
        }}
      >
        {title}
        {count > 0 && <small>{count}</small>}
      </summary>
      {children}
    </details>
  );
}

interface IServerListProps<T> {
  /** Request the list; with `again` the server searches anew. */
  ask(again: boolean): Promise<T>;
  /** The list is loaded again when this text changes. */
  readonly watched: string;
  /** The number of refreshes that the user has requested. */
  readonly refreshed: number;
}

/** Return a list of the server; null until it has answered. A failure keeps the last answer. */
export function useServerList<T>({
  ask,
  watched,
  refreshed
}: IServerListProps<T>): T | null {
  const [list, setList] = React.useState<T | null>(null);
  const asked = React.useRef(0);
  React.useEffect(
    () => () => {
      asked.current = Infinity; // an answer that arrives later is dropped
    },
    []
  );
  const load = React.useCallback(
    (again: boolean): void => {
      const number = ++asked.current;
      ask(again).then(
        found => number === asked.current && setList(found),
        () => undefined // the list of runs says why the server does not answer
      );
    },
    [ask]
  );
  React.useEffect(() => {
    const timer = setTimeout(() => load(false), QUIET);
    return () => clearTimeout(timer);
  }, [watched, load]);
  React.useEffect(() => {
    if (refreshed) {
      load(true);
    }
  }, [refreshed, load]);
  return list;
}
