/** React hooks for the model of all runs, for other lists of the server, and for the clock. */
import {
  useCallback,
  useEffect,
  useRef,
  useState,
  useSyncExternalStore
} from 'react';
import type { IClusters, IClustersState } from '../api/clusters';
import type { IRun } from '../api/types';

const useModel = <T>(model: IClusters, look: () => T): T => {
  const subscribe = useCallback(
    (listener: () => void) => {
      model.changed.connect(listener);
      return () => void model.changed.disconnect(listener);
    },
    [model]
  );
  return useSyncExternalStore(subscribe, look);
};

/** Return all runs and whether they are current. */
export const useClusters = (model: IClusters): IClustersState =>
  useModel(model, () => model.state);

/** Return the current state of one run; undefined if none has this name. */
export const useRun = (model: IClusters, name: string): IRun | undefined =>
  useModel(model, () => model.find(name));

const BEAT = 1000;

/**
 * One clock for all texts with an age. The clock ticks once a second while a visible page uses it.
 */
class Ticker {
  /** Milliseconds since 1970 at the last tick. */
  now = Date.now();

  readonly subscribe = (listener: () => void): (() => void) => {
    if (this._listeners.size === 0) {
      this.now = Date.now();
      this._timer = setInterval(() => this._beat(), BEAT);
    }
    this._listeners.add(listener);
    return () => {
      this._listeners.delete(listener);
      if (this._listeners.size === 0) {
        clearInterval(this._timer);
      }
    };
  };

  private _beat(): void {
    this.now = Date.now();
    for (const listener of this._listeners) {
      listener();
    }
  }

  private readonly _listeners = new Set<() => void>();
  private _timer: ReturnType<typeof setInterval> | undefined;
}

const ticker = new Ticker();

/** Return `text` for the current time; the component is redrawn only when that text changes. */
export const useTicking = (text: (now: number) => string): string =>
  useSyncExternalStore(ticker.subscribe, () => text(ticker.now));

/**
 * Milliseconds after the last change of the runs in which further changes are collected before a
 * list is loaded again.
 */
const QUIET = 500;

/**
 * Milliseconds until a list that is older than the runs is loaded again: the first delay, and the
 * longest delay.
 */
const BEHIND = 2000;
const LONGEST_BEHIND = 60_000;

/**
 * Call `again` while a list of the server is behind the list of runs: after a pause, which doubles
 * with each `answer` that is still behind.
 */
export function useBehind(
  isBehind: boolean,
  answer: unknown,
  again: () => void
): void {
  const pause = useRef(BEHIND);
  useEffect(() => {
    if (!isBehind) {
      pause.current = BEHIND;
      return;
    }
    const timer = setTimeout(() => {
      pause.current = Math.min(pause.current * 2, LONGEST_BEHIND);
      again();
    }, pause.current);
    return () => clearTimeout(timer);
  }, [isBehind, answer, again]);
}

interface IServerListProps<T> {
  /** Request the list; with `again` the server searches anew. */
  ask(again: boolean): Promise<T>;
  /** The list is loaded again when this text changes. */
  readonly watched: string;
  /** The number of refreshes that the user has requested. */
  readonly refreshed?: number;
  /**
   * Whether the list is requested without a pause when `ask` changes, because the user waits for
   * it.
   */
  readonly eager?: boolean;
}

/**
 * Return a list of the server other than the list of runs; null until the server has answered. The
 * list is loaded again when `watched` changes, and is not polled. A failure keeps the last answer.
 */
export function useServerList<T>({
  ask,
  watched,
  refreshed = 0,
  eager = false
}: IServerListProps<T>): T | null {
  const [list, setList] = useState<T | null>(null);
  const asked = useRef(0);
  useEffect(
    () => () => {
      asked.current = Infinity; // later answers are ignored
    },
    []
  );
  const load = useCallback(
    (again: boolean): void => {
      const number = ++asked.current;
      ask(again).then(
        found => number === asked.current && setList(found),
        () => undefined // the list of runs says why the server does not answer
      );
    },
    [ask]
  );
  const before = useRef<typeof load | null>(null);
  useEffect(() => {
    const wait = eager && before.current !== load ? 0 : QUIET;
    before.current = load;
    const timer = setTimeout(() => load(false), wait);
    return () => clearTimeout(timer);
  }, [watched, load, eager]);
  useEffect(() => {
    if (refreshed) {
      load(true);
    }
  }, [refreshed, load]);
  return list;
}
