/**
 * The model of all runs, as React sees it.
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
