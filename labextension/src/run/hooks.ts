/** React hooks for the model of all runs and for the clock. */
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

/** Return all runs and whether they are current. */
export const useClusters = (model: IClusters): IClustersState =>
  useModel(model, () => model.state);

/** Return the current state of one run; undefined if none has this name. */
export const useRun = (model: IClusters, name: string): IRun | undefined =>
  useModel(model, () => model.find(name));

const BEAT = 1000;

/** One clock for all texts with an age. It ticks once a second while a visible page uses it. */
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

/** Return `text` for the current time; the component is redrawn only when it changes. */
export const useTicking = (text: (now: number) => string): string =>
  useSyncExternalStore(ticker.subscribe, () => text(ticker.now));
