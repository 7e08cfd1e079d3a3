/**
 * The model of all runs and the clock, as React sees them.
 */
import { useCallback, useSyncExternalStore } from 'react';
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

/** All runs and how fresh they are. */
export const useClusters = (model: IClusters): IClustersState =>
  useModel(model, () => model.state);

/** One run as it is now; undefined when there is none of this name. */
export const useRun = (model: IClusters, name: string): IRun | undefined =>
  useModel(model, () => model.find(name));

const BEAT = 1000;

/** One clock for all texts that age: it beats once a second while somebody looks, else not at all. */
class Ticker {
  /** Milliseconds since 1970, as of the last beat. */
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

/** What `text` says about now; the component is drawn again only when that changes. */
export const useTicking = (text: (now: number) => string): string =>
  useSyncExternalStore(ticker.subscribe, () => text(ticker.now));
