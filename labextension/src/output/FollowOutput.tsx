/**
 * The part below the output of a cell that follows a run. It is empty while the lines arrive from
 * the kernel.
 *
 * If the page was closed before the run ended, this part says so. While the run is active, it also
 * shows the lines from the server, as in the log tab, because a reopened page gets no output of a
 * cell that was already running.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { isActive, uidOf } from '../api/runs';
import { logsFile } from '../api/rest';
import type { IClusters } from '../api/state';
import { LogsModel } from '../logs/model';
import { LogsView } from '../logs/view';
import { useClusters, useRun } from '../run/hooks';
import { CommandIDs } from '../tokens';
import type { IStoredFollow } from './stored';

export interface IFollowOutputProps {
  readonly stored: IStoredFollow;
  readonly clusters: IClusters;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  /**
   * Whether the cell of this output is running, as far as this page knows; its lines then arrive
   * from the kernel.
   */
  isExecuting(): boolean;
}

export function FollowOutput({
  stored,
  clusters,
  commands,
  trans,
  isExecuting
}: IFollowOutputProps): React.JSX.Element | null {
  const { name, uid, tasks, ended } = stored;
  const { state } = useClusters(clusters); // each change checks again whether the cell is running
  const found = useRun(clusters, name);
  const isHere = found !== undefined && uidOf(found) === uid;
  const isCut = !ended && !isExecuting();
  const goesOn = isCut && isHere && isActive(found);
  // once shown, the lines stay, so that the end of the run is visible below them
  const [wentOn, setWentOn] = React.useState(false);
  React.useEffect(() => setWentOn(before => before || goesOn), [goesOn]);
  if (!isCut || (state !== 'live' && !wentOn)) {
    return null;
  }
  return (
    <div className="tfc-Follow">
      <p className="tfc-Follow-why" role="status">
        {goesOn || wentOn
          ? trans.__(
              'The page was closed while this cell followed %1. The output continues here:',
              name
            )
          : trans.__(
              'The page was closed before %1 ended: lines are missing above.',
              name
            )}{' '}
        {isHere && (
          <button
            type="button"
            className="tfc-Link"
            onClick={() =>
              void commands.execute(CommandIDs.logs, {
                name,
                task: tasks.join(' ')
              })
            }
          >
            {trans.__('Show the whole output')}
          </button>
        )}
      </p>
      {(goesOn || wentOn) && (
        <Going name={name} tasks={tasks} clusters={clusters} trans={trans} />
      )}
    </div>
  );
}

function Going({
  name,
  tasks,
  clusters,
  trans
}: Pick<IFollowOutputProps, 'clusters' | 'trans'> &
  Pick<IStoredFollow, 'name' | 'tasks'>): React.JSX.Element | null {
  const [model, setModel] = React.useState<LogsModel | null>(null);
  const shown = tasks.join(' ');
  React.useEffect(() => {
    const made = new LogsModel(clusters, name);
    made.show(shown ? shown.split(' ') : []);
    setModel(made);
    return () => made.dispose();
  }, [clusters, name, shown]);
  return (
    model && (
      <div className="tfc-Follow-lines">
        <LogsView
          model={model}
          trans={trans}
          onDownload={() => {
            const link = document.createElement('a');
            link.href = logsFile(clusters.caller, name, tasks);
            link.download = '';
            link.click();
          }}
        />
      </div>
    )
  );
}
