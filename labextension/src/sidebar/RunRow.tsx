/**
 * One run in the sidebar: a row of the grid that opens to show the whole run.
 *
 * A row is redrawn only when the run or its place in the list changes.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { shown } from '../run/messages';
import { displayNameOf, isActive, nameOf, tagsOf } from '../api/runs';
import type { IClusters } from '../api/state';
import type { IRun } from '../api/types';
import { openRunMenu } from '../run/actions';
import { Age, PhaseBadge, RunProgress, Sentence, Tags } from '../run/parts';
import { RunActions } from '../run/RunActions';
import { RunFacts } from '../run/RunFacts';
import { TaskTable } from '../run/TaskTable';
import { isFailing, stateWord, taskWords } from '../run/words';

/** The user's actions on rows; one object for all rows, so that rows are not redrawn. */
export interface IRowHandlers {
  activate(name: string, focus: boolean): void;
  expand(name: string): void;
  select(name: string): void;
}

export interface IRunRowProps {
  readonly run: IRun;
  readonly model: IClusters;
  readonly trans: TranslationBundle;
  readonly commands: CommandRegistry;
  readonly handlers: IRowHandlers;
  readonly position: number;
  readonly expanded: boolean;
  readonly selected: boolean;
  /** Whether the Tab key reaches the row. */
  readonly active: boolean;
}

const PLAIN_REASONS: ReadonlySet<string> = new Set([
  'Running',
  'Completed',
  'Starting'
]);

/** The row; the focus is on it or on one of its buttons. */
export const RunRow = React.memo(
  ({
    run,
    model,
    trans,
    commands,
    handlers,
    position,
    expanded,
    selected,
    active
  }: IRunRowProps): React.JSX.Element => {
    const [hovered, setHovered] = React.useState(false);
    const name = nameOf(run);
    const shownName = displayNameOf(run);
    const { phase, reason, attention } = run.cluster.status;
    const word = stateWord(run.cluster.status, trans);
    const message = shown(run.cluster.status, trans);
    const isPlain =
      PLAIN_REASONS.has(reason) && !attention?.some(task => task.message);
    const tells = Boolean(message) && (expanded || !isPlain);
    const progress = run.progress && (
      <RunProgress
        progress={run.progress}
        name={name}
        active={isActive(run)}
        full={phase === 'Succeeded'}
        trans={trans}
      />
    );
    return (
      // eslint-disable-next-line jsx-a11y/click-events-have-key-events -- the grid handles the keys of all rows
      <div
        className="tfc-RunRow"
        role="row"
        data-run={name}
        data-phase={phase}
        aria-level={1}
        aria-posinset={position}
        aria-expanded={expanded}
        aria-selected={selected}
        aria-label={[
          ...new Set([shownName, name]),
          word,
          taskWords(run, trans)
        ].join(', ')}
        tabIndex={active ? 0 : -1}
        onFocus={() => handlers.activate(name, false)}
        onClick={event => {
          handlers.activate(name, true);
          if (event.ctrlKey || event.metaKey) {
            handlers.select(name);
          } else {
            handlers.expand(name);
          }
        }}
        onMouseEnter={() => setHovered(true)}
        onMouseLeave={() => setHovered(false)}
        onContextMenu={event => {
          if (event.shiftKey) {
            return; // keep the browser's own menu, as JupyterLab does everywhere
          }
          event.preventDefault();
          event.stopPropagation();
          handlers.activate(name, true);
          openRunMenu(run, commands, event.clientX, event.clientY);
        }}
      >
        <div role="gridcell" className="tfc-RunRow-what">
          <div className="tfc-RunRow-head">
            <span className="tfc-RunRow-mark">
              <PhaseBadge
                phase={phase}
                failing={isFailing(run.cluster.status)}
                trans={trans}
                iconOnly
              />
              <input
                type="checkbox"
                checked={selected}
                tabIndex={-1}
                aria-label={trans.__('Select %1', name)}
                onChange={() => handlers.select(name)}
                onClick={event => event.stopPropagation()}
              />
            </span>
            <bdi className="tfc-RunRow-name" title={shownName}>
              {shownName}
            </bdi>
            <Age run={run} trans={trans} />
          </div>
          <div className="tfc-RunRow-state">
            {shownName !== name && `${name} · `}
            {word} · {taskWords(run, trans)}
          </div>
          <Tags tags={tagsOf(run)} trans={trans} />
          {tells && (
            <div className="tfc-RunRow-message" data-whole={expanded}>
              <Sentence text={message} />
            </div>
          )}
          {!expanded && progress}
        </div>
        {/* above everything that grows, so that no button moves away from the mouse */}
        {(expanded || active || hovered) && (
          <div
            role="gridcell"
            className={
              expanded
                ? 'tfc-RunRow-actions'
                : 'tfc-RunRow-actions tfc-mod-over'
            }
          >
            <RunActions
              run={run}
              commands={commands}
              trans={trans}
              icons={expanded ? 6 : 3}
              tabIndex={active ? 0 : -1}
            />
          </div>
        )}
        {expanded && (
          <div role="gridcell" className="tfc-RunRow-what">
            {progress}
            <RunFacts
              run={run}
              trans={trans}
              commands={commands}
              tabIndex={active ? 0 : -1}
              hasTasks
            />
          </div>
        )}
        {expanded && (
          // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/interactive-supports-focus -- clicks must not reach the row, which they would close
          <div
            role="gridcell"
            className="tfc-RunRow-tasks"
            onClick={event => event.stopPropagation()}
          >
            <TaskTable
              clusters={model}
              run={run}
              commands={commands}
              trans={trans}
              isReachable={active}
            />
          </div>
        )}
      </div>
    );
  }
);
RunRow.displayName = 'RunRow';
