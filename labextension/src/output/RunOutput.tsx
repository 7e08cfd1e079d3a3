/**
 * The run below a cell: its current state, without a kernel; or its last known state, and why no
 * newer state is known.
 *
 * The component reads the model of all runs, and requests unknown runs from the model. `keeper.ts`
 * does all writing.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { nameOf, uidOf } from '../api/runs';
import { ServerProblem } from '../api/problem';
import type { IClusters } from '../api/state';
import type { IRun } from '../api/types';
import { RunCard } from '../run/RunCard';
import { TaskFold } from '../run/TaskTable';
import { useClusters, useRun } from '../run/hooks';
import { shown } from './shown';
import type { IStoredRun } from './stored';

export interface IRunOutputProps {
  readonly stored: IStoredRun;
  readonly clusters: IClusters;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

export function RunOutput({
  stored,
  clusters,
  commands,
  trans
}: IRunOutputProps): React.JSX.Element {
  const name = nameOf(stored.run);
  const uid = uidOf(stored.run);
  const state = useClusters(clusters);
  const found = useRun(clusters, name);
  const seen = useSeen(found, uid, state.at);
  // load even a known run, because lists leave it out once its name is launched again
  const isWanted = state.state === 'live';
  const failed = useEnsured(clusters, name, isWanted, found !== undefined);

  const { run, asOf, why } = shown(
    { stored, found, seen, state, failed },
    trans
  );
  const isNow = asOf === null;
  const tasks = React.useMemo(
    () => isNow && <TaskFold {...{ clusters, run, commands, trans }} />,
    [isNow, clusters, run, commands, trans]
  );
  return (
    <>
      <RunCard
        run={run}
        trans={trans}
        asOf={asOf}
        commands={asOf === null ? commands : undefined}
      >
        {tasks}
      </RunCard>
      {why && (
        <p className="tfc-RunOutput-why" role="status">
          {why}
        </p>
      )}
    </>
  );
}

/** The run in the state that this page saw last, and when. */
function useSeen(
  found: IRun | undefined,
  uid: string,
  at: number
): { readonly run: IRun; readonly at: number } | null {
  const seen = React.useRef<{ run: IRun; at: number } | null>(null);
  if (found && uidOf(found) === uid) {
    seen.current = { run: found, at: at / 1000 };
  }
  return seen.current;
}

/**
 * Load a run that the list leaves out, and again when it is no longer `known`; return why that
 * failed.
 */
function useEnsured(
  clusters: IClusters,
  name: string,
  isWanted: boolean,
  isKnown: boolean
): ServerProblem | null {
  const [failed, setFailed] = React.useState<ServerProblem | null>(null);
  React.useEffect(() => {
    let isCurrent = true;
    if (isWanted) {
      clusters.ensure(name).then(
        () => isCurrent && setFailed(null),
        error =>
          isCurrent && setFailed(error instanceof ServerProblem ? error : null)
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [clusters, name, isWanted, isKnown]);
  return failed;
}
