/**
 * The tasks of a run: a table for each type, with tasks that need attention first. In a large run,
 * most of the other tasks are folded.
 *
 * The table has one tab stop; arrow keys move from task to task, and Enter shows a task's output.
 * The table draws the data of `TaskRows`.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import type { Phase, TaskState } from '../api/models';
import { nameOf, TASK_TYPES, uidOf } from '../api/runs';
import type { IClusters } from '../api/state';
import { type ITaskRowsState, TaskRows } from '../api/taskRows';
import type { ITaskLines, TaskLines } from '../api/taskUsage';
import type { IRun, ITaskRow } from '../api/types';
import { CommandIDs } from '../tokens';
import { useTicking } from './hooks';
import { shown } from './messages';
import { PhaseBadge, Sentence } from './parts';
import { age, clock } from './quantities';
import { type Observe, Uses, useTaskLines } from './TaskLines';
import { replicaCounts } from './words';

/** A type with at most this many tasks is never folded. */
const FEW = 12;
/** Rows that are added at a time. */
const PAGE = 100;

/** The tasks of one type: those that need attention come first; both parts are sorted by number. */
export interface ITaskGroup {
  readonly type: string;
  readonly first: ReadonlyArray<ITaskRow>;
  readonly others: ReadonlyArray<ITaskRow>;
  /** The machine of all tasks; null if there are several. */
  readonly node: string | null;
}

const FINE: ReadonlySet<TaskState | null> = new Set<TaskState | null>([
  'Running',
  'Succeeded',
  'Stopped'
]);
const RANKS: ReadonlyArray<TaskState | null> = [
  'Failed',
  'Pending',
  'Starting'
];

/**
 * Return whether a task needs attention: it neither runs normally nor has succeeded, or it was
 * restarted, or it has a message.
 */
const needsLook = ({ state, restarts, message }: ITaskRow): boolean =>
  !FINE.has(state) || restarts > 0 || message !== '';

function rankOf({ state }: ITaskRow): number {
  const rank = RANKS.indexOf(state);
  return rank < 0 ? RANKS.length : rank;
}

/** Return the rows by task type, in display order. */
export function taskGroups(
  rows: ReadonlyArray<ITaskRow>
): ReadonlyArray<ITaskGroup> {
  const typeOf = ({ name }: ITaskRow): string => name.replace(/-\d+$/, '');
  return TASK_TYPES.flatMap((type): ITaskGroup[] => {
    const own = rows.filter(row => typeOf(row) === type);
    if (own.length === 0) {
      return [];
    }
    const nodes = new Set(own.map(row => row.node).filter(Boolean));
    const first = own.filter(needsLook).sort((a, b) => rankOf(a) - rankOf(b));
    return [
      {
        type,
        first,
        others: own.filter(row => !needsLook(row)),
        node: nodes.size > 1 ? null : ([...nodes][0] ?? '')
      }
    ];
  });
}

interface ITaskTableProps {
  readonly clusters: IClusters;
  readonly run: IRun;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  /** Whether the Tab key reaches the table. */
  readonly isReachable?: boolean;
}

/** All tasks of a run; while it is drawn, the rows follow the run. */
export function TaskTable(props: ITaskTableProps): React.JSX.Element {
  const { run, trans, isReachable = true } = props;
  const { rows, problem } = useTaskRows(props);
  const { lines, observe } = useTaskLines(props.clusters, run);
  const [active, setActive] = React.useState('');
  const groups = React.useMemo(() => taskGroups(rows ?? []), [rows]);
  const stops = groups.flatMap(({ first, others }) => [...first, ...others]);
  const reached = stops.some(({ name }) => name === active)
    ? active
    : (stops[0]?.name ?? '');
  return (
    <section
      className="tfc-TaskTable"
      aria-label={trans.__('Tasks of %1', nameOf(run))}
    >
      {problem && (
        <p className="tfc-TaskTable-problem" role="status">
          {problem.message}
        </p>
      )}
      {rows === null && !problem && (
        <p className="tfc-TaskTable-problem">
          {trans.__('Asking the server…')}
        </p>
      )}
      {/* keys bubble here from the buttons, which have the focus */}
      <div role="presentation" onKeyDown={moveFocus}>
        {groups.map(group => (
          <Group
            key={group.type}
            {...props}
            group={group}
            lines={lines}
            observe={observe}
            reached={isReachable ? reached : null}
            onReached={setActive}
          />
        ))}
      </div>
    </section>
  );
}

/** The table of all tasks, folded; it makes no request until the user opens it. */
export function TaskFold(props: ITaskTableProps): React.JSX.Element {
  const { run, trans } = props;
  const [isOpen, setOpen] = React.useState(false);
  return (
    <details
      className="tfc-TaskFold"
      onToggle={event => setOpen(event.currentTarget.open)}
    >
      <summary>{trans._n('%1 task', '%1 tasks', taskCount(run))}</summary>
      {isOpen && <TaskTable {...props} />}
    </details>
  );
}

/** Return the number of tasks, also of those that were reclaimed. */
const taskCount = (run: IRun): number =>
  replicaCounts(run).reduce((sum, [, count]) => sum + count, 0);

function useTaskRows({ clusters, run }: ITaskTableProps): ITaskRowsState {
  const uid = uidOf(run);
  const first = React.useRef(run);
  first.current = run;
  const [state, setState] = React.useState<ITaskRowsState>({
    rows: null,
    problem: null
  });
  React.useEffect(() => {
    const rows = new TaskRows(clusters, first.current);
    rows.changed.connect((_, now) => setState(now));
    return () => rows.dispose();
  }, [clusters, uid]);
  return state;
}

interface IGroupProps extends ITaskTableProps {
  readonly group: ITaskGroup;
  readonly lines: TaskLines;
  readonly observe: Observe;
  readonly reached: string | null;
  onReached(name: string): void;
}

function Group(props: IGroupProps): React.JSX.Element {
  const { run, group, trans, reached } = props;
  const [most, setMost] = React.useState(0);
  const { type, first, others, node } = group;
  const isFolded = first.length + others.length > FEW;
  const seen = isFolded
    ? [...first.slice(0, Math.max(PAGE, most)), ...others.slice(0, most)]
    : [...first, ...others];
  const left = first.length + others.length - seen.length;
  const title = typeWords(run, group, trans);
  const said = shown(run.cluster.status, trans);
  return (
    <>
      <p className="tfc-TaskTable-type">
        <strong>{type}</strong> {title}
        {node && (
          <>
            {' · '}
            <bdi>{node}</bdi>
          </>
        )}
      </p>
      <div
        role="table"
        aria-label={`${type} ${title}`}
        aria-rowcount={first.length + others.length + 1}
        className="tfc-TaskTable-rows"
        data-nodes={node === null || undefined}
      >
        <div role="row" className="tfc-visually-hidden">
          <span role="columnheader">{trans.__('Task')}</span>
          <span role="columnheader">{trans.__('State')}</span>
          <span role="columnheader">{trans.__('Restarts')}</span>
          <span role="columnheader">{trans.__('Since')}</span>
          {node === null && <span role="columnheader">{trans.__('Node')}</span>}
          <span role="columnheader">{trans.__('Uses')}</span>
          <span role="columnheader">{trans.__('Last line')}</span>
        </div>
        {seen.map(row => (
          <Row
            key={row.name}
            row={row}
            lines={props.lines.get(row.name)}
            observe={props.observe}
            name={nameOf(run)}
            said={said}
            hasNode={node === null}
            commands={props.commands}
            trans={trans}
            isReached={row.name === reached}
            onReached={props.onReached}
          />
        ))}
      </div>
      {left > 0 && (
        <button
          type="button"
          className="tfc-Link tfc-TaskTable-more"
          tabIndex={reached === null ? -1 : 0}
          onClick={event => {
            event.stopPropagation();
            setMost(most + PAGE);
          }}
        >
          {left > PAGE
            ? trans.__('Show %1 of %2 more', PAGE, left)
            : trans._n('Show %1 more', 'Show %1 more', left)}
        </button>
      )}
    </>
  );
}

interface IRowProps {
  readonly row: ITaskRow;
  /** The usage of the task; undefined while it is unknown. */
  readonly lines: ITaskLines | undefined;
  readonly observe: Observe;
  /** The name of the run. */
  readonly name: string;
  /** The sentence above the tasks, which no task repeats. */
  readonly said: string;
  readonly hasNode: boolean;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  readonly isReached: boolean;
  onReached(name: string): void;
}

/** One task. */
const Row = React.memo(
  ({
    row,
    lines,
    observe,
    name,
    said,
    hasNode,
    commands,
    trans,
    isReached,
    onReached
  }: IRowProps): React.JSX.Element => {
    const task = row.name;
    const message = shown(row, trans);
    const ref = React.useCallback(
      (element: Element | null) => observe(task, element),
      [observe, task]
    );
    return (
      <div role="row" className="tfc-TaskRow" data-task={task} ref={ref}>
        <span role="rowheader" className="tfc-TaskRow-name">
          <button
            type="button"
            className="tfc-Link"
            title={trans.__('Show what %1 prints', task)}
            aria-label={trans.__('%1, show its logs', task)}
            tabIndex={isReached ? 0 : -1}
            onFocus={() => onReached(task)}
            onClick={event => {
              event.stopPropagation();
              void commands.execute(CommandIDs.logs, { name, task });
            }}
          >
            {task}
          </button>
        </span>
        <span role="cell" className="tfc-TaskRow-state">
          {row.state ? (
            <PhaseBadge
              phase={phaseOf(row.state)}
              word={row.state === 'Pending' ? trans.__('Pending') : undefined}
              trans={trans}
              iconOnly
            />
          ) : (
            <span title={trans.__('The state of this task is unknown')}>?</span>
          )}
        </span>
        <span role="cell" className="tfc-TaskRow-restarts">
          {row.restarts > 0 &&
            trans._n('%1 restart', '%1 restarts', row.restarts)}
        </span>
        <span role="cell" className="tfc-TaskRow-since">
          {row.since !== null && (
            <Since
              at={row.since}
              hasEnded={row.state !== null && ENDED.has(row.state)}
              trans={trans}
            />
          )}
        </span>
        {hasNode && (
          <span role="cell" className="tfc-TaskRow-node">
            <bdi>{row.node}</bdi>
          </span>
        )}
        <span role="cell" className="tfc-TaskRow-uses">
          {lines && <Uses lines={lines} trans={trans} />}
        </span>
        <span role="cell" className="tfc-TaskRow-line">
          {message && !said.includes(message) && <Sentence text={message} />}
          {row.line && !`${said} ${message}`.includes(row.line) && (
            <code title={row.line}>{row.line}</code>
          )}
        </span>
      </div>
    );
  },
  (before, after) =>
    before.name === after.name &&
    before.said === after.said &&
    before.isReached === after.isReached &&
    before.hasNode === after.hasNode &&
    before.lines === after.lines &&
    before.observe === after.observe &&
    JSON.stringify(before.row) === JSON.stringify(after.row)
);
Row.displayName = 'TaskRow';

/** Return the phase that is drawn like a task's state; a waiting task looks like a queued run. */
const phaseOf = (state: TaskState): Phase =>
  state === 'Pending' ? 'Queued' : state;

const ENDED: ReadonlySet<TaskState> = new Set<TaskState>([
  'Succeeded',
  'Failed',
  'Stopped'
]);

/** The time since a task reached its state: `for 9s`; for an ended task, `9s ago`. */
function Since({
  at,
  hasEnded,
  trans
}: {
  readonly at: number;
  readonly hasEnded: boolean;
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  const text = useTicking(now => {
    const seconds = age(now / 1000 - at);
    return hasEnded ? trans.__('%1 ago', seconds) : trans.__('for %1', seconds);
  });
  return (
    <time
      dateTime={new Date(at * 1000).toISOString()}
      title={trans.__('since %1', clock(at, Date.now(), true))}
    >
      {text}
    </time>
  );
}

/**
 * Return `2 of 3 running`; without running tasks `3 succeeded` or similar, by the record's counts.
 */
function typeWords(
  run: IRun,
  { type, first, others }: ITaskGroup,
  trans: TranslationBundle
): string {
  const total = first.length + others.length;
  const counts = run.cluster.status.counts?.[type];
  const running = counts?.running ?? 0;
  const parts = [
    ...(running || !counts
      ? [trans.__('%1 of %2 running', running, total)]
      : []),
    ...(counts?.starting ? [trans.__('%1 starting', counts.starting)] : []),
    ...(counts?.succeeded ? [trans.__('%1 succeeded', counts.succeeded)] : []),
    ...(counts?.failed ? [trans.__('%1 failed', counts.failed)] : []),
    ...(counts?.stopped ? [trans.__('%1 stopped', counts.stopped)] : [])
  ];
  return parts.length ? parts.join(' · ') : trans.__('%1 pending', total);
}

const STEPS: Readonly<Record<string, number>> = {
  ArrowDown: 1,
  ArrowUp: -1,
  Home: -Infinity,
  End: Infinity
};

/**
 * Move the focus between buttons by arrow keys; at the first and the last button, the surrounding
 * element gets the key.
 */
function moveFocus(event: React.KeyboardEvent<HTMLElement>): void {
  const step = STEPS[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const stops = [...event.currentTarget.querySelectorAll('button')];
  const place = stops.indexOf(event.target as HTMLButtonElement);
  const next = Math.min(Math.max(place + step, 0), stops.length - 1);
  if (place >= 0 && next !== place) {
    event.preventDefault();
    event.stopPropagation();
    stops[next].focus();
  }
}
