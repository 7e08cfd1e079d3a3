/**
 * The graphs of a run: for each task type CPU, memory, network and steps a second, all on one time
 * axis, with what happened and the steps that were reached.
 *
 * Each graph says in words what it shows. Text from programs and users is never markup.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IAdvice, IGraph, IRunGraphs } from '../api/types';
import { shown } from '../run/messages';
import { Sentence } from '../run/parts';
import { clock, sizeOf, sizeUnit } from '../run/quantities';
import { usedWords } from '../run/words';
import * as layout from './layout';

const { WIDTH, HEIGHT, PLOT } = layout;

export interface IGraphsProps {
  readonly graphs: IRunGraphs;
  readonly trans: TranslationBundle;
  /** Shows the output of a task. */
  onTask(task: string): void;
}

/** The time axis that all graphs share, and the position of the mouse on it. */
interface IAxis {
  readonly began: number;
  readonly end: number;
  readonly at: IRunGraphs['at'];
  readonly xs: ReadonlyArray<number>;
  readonly steps: IRunGraphs['steps'];
  readonly marks: ReadonlyArray<layout.IMark>;
  /** The index in `at` of the time under the mouse, or null. */
  readonly pointed: number | null;
  onPoint(place: number | null): void;
}

/** The marks, and the graphs of each type. */
export function Graphs({
  graphs,
  trans,
  onTask
}: IGraphsProps): React.JSX.Element {
  const [pointed, setPointed] = React.useState<number | null>(null);
  const { began, at, steps } = graphs;
  const fixed = React.useMemo(() => {
    const end = at[at.length - 1] ?? began;
    const half = (end - began) / (2 * at.length || 1);
    return {
      end,
      // the value of a part of the time is drawn in the middle of that part
      xs: at.map(time => layout.xOf(time - half, began, end)),
      marks: layout.marks(graphs)
    };
  }, [graphs, at, began]);
  const axis = { began, at, steps, pointed, onPoint: setPointed, ...fixed };
  return (
    <>
      {graphs.types.map(({ usage, graphs: own }) => (
        <section key={usage.taskType} className="tfc-Resources-type">
          <h2>
            {usage.taskType}
            <span>
              {trans._n('%1 task', '%1 tasks', usage.tasks)} ·{' '}
              {usedWords(usage, trans)}
            </span>
          </h2>
          <div className="tfc-Resources-graphs">
            {own.map(graph => (
              <Figure
                key={graph.figure}
                graph={graph}
                tasks={usage.tasks}
                axis={axis}
                trans={trans}
                onTask={onTask}
              />
            ))}
          </div>
        </section>
      ))}
      <Marks axis={axis} trans={trans} />
    </>
  );
}

function titleOf(
  figure: IGraph['figure'],
  trans: TranslationBundle
): readonly [string, string] {
  switch (figure) {
    case 'cpu':
      return [trans.__('CPU'), trans.__('cores')];
    case 'memory':
      return [trans.__('Memory'), ''];
    case 'network':
      return [trans.__('Network'), trans.__('received and sent')];
    case 'steps':
      return [trans.__('Steps'), trans.__('a second')];
  }
}

interface IFigureProps {
  readonly graph: IGraph;
  /** The number of tasks that the graph shows. */
  readonly tasks: number;
  readonly axis: IAxis;
  readonly trans: TranslationBundle;
  onTask(task: string): void;
}

/** One graph with its title, its value at the mouse, and the tasks that stand out. */
function Figure({
  graph,
  tasks,
  axis,
  trans,
  onTask
}: IFigureProps): React.JSX.Element {
  const { figure, lines, middle } = graph;
  const [title, unit] = titleOf(figure, trans);
  const top = layout.topOf(graph);
  const { pointed } = axis;
  const newest = lastOf(middle);
  const place = pointed ?? newest;
  const value = place === null ? null : middle[place];
  const isBand = lines.length < tasks;
  return (
    <figure className="tfc-Graph">
      <figcaption>
        <span className="tfc-Graph-title">{title}</span>
        {unit && <span className="tfc-Graph-unit">{unit}</span>}
        <output>
          {value === null ? '–' : layout.figureWords(figure, value, top)}
          {tasks > 1 && (
            <span className="tfc-Graph-unit"> {trans.__('median')}</span>
          )}
        </output>
      </figcaption>
      <Plot {...{ graph, axis, trans, title, top, isBand, tasks }} />
      <ul className="tfc-Graph-tasks">
        {lines
          .filter(({ outlier }) => outlier || (tasks > 1 && !isBand))
          .map(({ task, outlier, values }) => {
            const index = lines.findIndex(each => each.task === task);
            const now = values[pointed ?? lastOf(values) ?? 0];
            return (
              <li key={task} data-outlier={outlier || undefined}>
                <svg width="18" height="8" aria-hidden="true">
                  <path
                    d="M1 4H17"
                    className="tfc-Graph-line"
                    data-line={index}
                  />
                </svg>
                <button
                  type="button"
                  className="tfc-Link"
                  title={trans.__('Show what %1 prints', task)}
                  onClick={() => onTask(task)}
                >
                  {task}
                </button>
                <span>
                  {now === null ? '–' : layout.figureWords(figure, now, top)}
                </span>
                {outlier && <em>{trans.__('differs from the others')}</em>}
              </li>
            );
          })}
      </ul>
    </figure>
  );
}

/** Return the last index with a known value. */
function lastOf(values: IGraph['middle']): number | null {
  for (let place = values.length - 1; place >= 0; place--) {
    if (values[place] !== null) {
      return place;
    }
  }
  return null;
}

interface IPlotProps {
  readonly graph: IGraph;
  readonly axis: IAxis;
  readonly trans: TranslationBundle;
  readonly title: string;
  readonly top: number;
  readonly isBand: boolean;
  readonly tasks: number;
}

function Plot(props: IPlotProps): React.JSX.Element {
  const { graph, axis, top, isBand } = props;
  const { began, end, at, xs, pointed, onPoint } = axis;
  const { figure, requested, lines, middle } = graph;
  const x = (time: number): number => layout.xOf(time, began, end);
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={graphWords(props)}
      onMouseMove={event => {
        const box = event.currentTarget.getBoundingClientRect();
        const at = ((event.clientX - box.left) * WIDTH) / box.width;
        onPoint(nearest(xs, at));
      }}
      onMouseLeave={() => onPoint(null)}
    >
      <g className="tfc-Graph-axis" aria-hidden="true">
        {layout.heightsOf(graph).map(value => (
          <React.Fragment key={value}>
            <path
              d={`M${PLOT.left} ${layout.yOf(value, top)}H${PLOT.right}`}
              className="tfc-Graph-grid"
            />
            <text
              x={PLOT.left - 4}
              y={layout.yOf(value, top) + 3}
              textAnchor="end"
            >
              {axisWords(figure, value, top)}
            </text>
          </React.Fragment>
        ))}
        <TimeAxis axis={axis} x={x} />
      </g>
      {layout
        .markLabels(axis.marks.map(({ at }) => x(at)))
        .map(({ label, place }) => (
          <g key={label} className="tfc-Graph-mark">
            <path d={`M${place} ${PLOT.top - 3}V${PLOT.bottom}`} />
            <text
              x={Math.min(place, WIDTH - 3 * label.length)}
              y={PLOT.top - 5}
              textAnchor="middle"
            >
              {label}
            </text>
          </g>
        ))}
      {requested !== null && requested <= top && (
        <path
          className="tfc-Graph-requested"
          d={`M${PLOT.left} ${layout.yOf(requested, top)}H${PLOT.right}`}
        />
      )}
      {isBand && (
        <>
          <path
            className="tfc-Graph-band"
            d={layout.bandPath(graph, xs, top)}
          />
          <path
            className="tfc-Graph-middle"
            d={layout.linePath(middle, xs, top)}
          />
        </>
      )}
      {lines.map(({ task, outlier, values }, index) => (
        <path
          key={task}
          className="tfc-Graph-line"
          data-line={index}
          data-outlier={outlier || undefined}
          d={layout.linePath(values, xs, top)}
        />
      ))}
      {pointed !== null && at[pointed] !== undefined && (
        <g className="tfc-Graph-pointed" aria-hidden="true">
          <path d={`M${xs[pointed]} ${PLOT.top}V${PLOT.bottom}`} />
          <text
            x={Math.min(Math.max(xs[pointed], 60), WIDTH - 50)}
            y={HEIGHT - 20}
            textAnchor="middle"
          >
            {pointedWords(axis, pointed)}
          </text>
        </g>
      )}
    </svg>
  );
}

/** The time since the beginning, and below it the step that was reached then. */
function TimeAxis({
  axis,
  x
}: {
  readonly axis: IAxis;
  x(time: number): number;
}): React.JSX.Element {
  const { began, end, steps, pointed } = axis;
  return (
    <>
      {layout.ticks(end - began).map(seconds => {
        const step = layout.stepAt(steps, began + seconds);
        const anchor = x(began + seconds) > PLOT.right - 12 ? 'end' : 'middle';
        return (
          <g key={seconds}>
            <path
              d={`M${x(began + seconds)} ${PLOT.bottom}v3`}
              className="tfc-Graph-tick"
            />
            {pointed === null && (
              <text
                x={x(began + seconds)}
                y={PLOT.bottom + 12}
                textAnchor={anchor}
              >
                {layout.since(seconds)}
              </text>
            )}
            {step !== null && (
              <text
                x={x(began + seconds)}
                y={PLOT.bottom + 23}
                textAnchor={anchor}
                className="tfc-Graph-step"
              >
                {`#${layout.shortStep(step)}`}
              </text>
            )}
          </g>
        );
      })}
    </>
  );
}

/** Return the time of day at an index of `at`, and the time since the beginning. */
function pointedWords({ at, began }: IAxis, place: number): string {
  const time = at[place];
  return `${clock(time, Date.now(), true)} · ${layout.since(time - began)}`;
}

/** Return a value on the vertical axis, with the unit only at the top. */
function axisWords(
  figure: IGraph['figure'],
  value: number,
  top: number
): string {
  if (figure === 'cpu' || figure === 'steps') {
    return String(Number(value.toPrecision(2)));
  }
  return value === top
    ? `${sizeOf(value, top)} ${sizeUnit(top)[0].charAt(0)}`
    : sizeOf(value, top);
}

/** Return what the graph shows, for users who do not see it. */
function graphWords({ graph, title, top, trans }: IPlotProps): string {
  const { figure, low, high, middle, requested, lines } = graph;
  const known = (values: IGraph['middle']): number[] =>
    values.filter((value): value is number => value !== null);
  const all = known(middle);
  if (all.length === 0) {
    return trans.__('%1: no data', title);
  }
  const words = (value: number): string =>
    layout.figureWords(figure, value, top);
  const outliers = lines.filter(({ outlier }) => outlier);
  return [
    trans.__(
      '%1: %2 at the end; between %3 and %4',
      title,
      words(all[all.length - 1]),
      words(Math.min(...known(low))),
      words(Math.max(...known(high)))
    ),
    ...(requested === null ? [] : [trans.__('asked for %1', words(requested))]),
    ...(outliers.length === 0
      ? []
      : [
          trans.__(
            'differ from the others: %1',
            outliers.map(({ task }) => task).join(', ')
          )
        ])
  ].join('; ');
}

/** Return the index of the value in `xs` that is nearest to `x`; null if `xs` is empty. */
function nearest(xs: ReadonlyArray<number>, x: number): number | null {
  const away = xs.map(each => Math.abs(each - x));
  return xs.length === 0 ? null : away.indexOf(Math.min(...away));
}

/** The list of what happened, with the numbers of the marks. */
function Marks({
  axis: { marks },
  trans
}: {
  readonly axis: IAxis;
  readonly trans: TranslationBundle;
}): React.JSX.Element | null {
  return marks.length === 0 ? null : (
    <section className="tfc-Resources-marks">
      <h2>{trans.__('What happened')}</h2>
      <ol>
        {marks.map(({ at, event, restarted }, index) => (
          <li key={index}>
            <time dateTime={new Date(at * 1000).toISOString()}>
              {clock(at, Date.now(), true)}
            </time>{' '}
            <Sentence
              text={[
                ...(event ? [shown(event, trans)] : []),
                ...(restarted.length > 0
                  ? [trans.__('Started again: %1', some(restarted))]
                  : [])
              ].join(' ')}
            />
          </li>
        ))}
      </ol>
    </section>
  );
}

const some = (tasks: ReadonlyArray<string>): string =>
  tasks.length > 8 ? `${tasks.slice(0, 8).join(', ')}, …` : tasks.join(', ');

/** The advised changes, each with the command that makes it; or why there is no advice. */
export function Advice({
  advice,
  reason,
  trans
}: {
  readonly advice: ReadonlyArray<IAdvice>;
  readonly reason: string;
  readonly trans: TranslationBundle;
}): React.JSX.Element | null {
  if (advice.length === 0) {
    return reason === '' ? null : (
      <p className="tfc-Resources-hint">
        <Sentence text={reason} />
      </p>
    );
  }
  return (
    <section className="tfc-Resources-advice" aria-label={trans.__('Advice')}>
      <ul>
        {advice.map(({ code, task, message, command }) => (
          <li key={`${code} ${task}`}>
            <Sentence text={message} />
            {command && !message.includes(command) && (
              <code>{command.replace(/^tfcluster /, '%tfcluster ')}</code>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
