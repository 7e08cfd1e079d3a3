/**
 * The results of a schedule's due times: a month with a mark for each, and below it the chosen day
 * as a list. One request loads a month; it is loaded again when a run of the schedule changes.
 */
import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  caretLeftIcon,
  caretRightIcon,
  editIcon
} from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { type IClusters, nameOf } from '../api/clusters';
import { ServerProblem } from '../api/problem';
import { scheduleHistory, showSchedule } from '../api/rest';
import type {
  IOccurrence,
  IScheduleHistory,
  IScheduleView
} from '../api/types';
import { calendarIcon, logsIcon } from '../icons';
import { useBehind, useClusters, useServerList } from '../run/hooks';
import { shown } from '../run/messages';
import { IconButton, Sentence } from '../run/parts';
import { duration } from '../run/quantities';
import { CommandIDs } from '../tokens';
import * as months from './month';
import { isBehind, Mark, occurrenceWord, standing, told } from './occurrences';

/** Maximum due times of a day that are shown individually; more are counted by state. */
const MOST_MARKS = 6;
/** A day with at most this many due times also shows how long each run took. */
const MOST_TIMED = 2;

export interface ICalendarProps {
  readonly name: string;
  readonly model: IClusters;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

/** The tab of one schedule. */
export class CalendarWidget extends ReactWidget {
  constructor(private readonly _props: ICalendarProps) {
    super();
    this.addClass('tfc-Calendar');
    this.title.label = _props.trans.__('%1 · Schedule', _props.name);
    this.title.caption = this.title.label;
    this.title.icon = calendarIcon;
    this.title.closable = true;
    this.node.tabIndex = -1;
  }

  get schedule(): string {
    return this._props.name;
  }

  protected override onActivateRequest(): void {
    const day = '[role="gridcell"] button[tabindex="0"]';
    (this.node.querySelector<HTMLElement>(day) ?? this.node).focus();
  }

  protected override render(): React.JSX.Element {
    return <Calendar {...this._props} />;
  }
}

interface ILoaded extends IScheduleHistory {
  readonly view: IScheduleView;
  readonly month: months.IMonth;
}

/** The header, the month and the chosen day. */
export function Calendar(props: ICalendarProps): React.JSX.Element {
  const { name, model, commands, trans } = props;
  const [zone, setZone] = React.useState('UTC');
  const today = months.dayOf(Date.now() / 1000, zone);
  // until the user chooses a month, the current month in the zone of the schedule is shown
  const [picked, setMonth] = React.useState<months.IMonth | null>(null);
  const ofToday = today.slice(0, 7);
  const month = React.useMemo(
    () => picked ?? months.monthOf(`${ofToday}-01`),
    [picked, ofToday]
  );
  const [chosen, choose] = React.useState<string | null>(null);
  const [saved, note] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    model.scheduleSaved.connect(note);
    return () => void model.scheduleSaved.disconnect(note);
  }, [model]);
  const { runs, state } = useClusters(model);
  const phases = runs
    .filter(({ cluster }) => cluster.metadata.scheduled?.schedule === name)
    .map(run => `${nameOf(run)} ${run.cluster.status.phase}`);
  const found = useServerList<ILoaded | ServerProblem>({
    ask: React.useCallback(async () => {
      try {
        const [from, to] = months.spanOf(month);
        const [view, history] = await Promise.all([
          showSchedule(model.caller, name),
          scheduleHistory(model.caller, name, from, to)
        ]);
        setZone(view.schedule.rules.timeZone ?? 'UTC');
        return { ...history, view, month };
      } catch (error) {
        if (error instanceof ServerProblem && !error.isAway) {
          return error;
        }
        throw error;
      }
    }, [model, name, month]),
    // when the server is back, the list may have missed changes
    watched: [saved, state === 'live', ...phases].join(),
    eager: true
  });
  const problem = found instanceof ServerProblem ? found : null;
  const loaded = found instanceof ServerProblem ? null : found;
  const isCurrent = loaded?.month === month;
  useBehind(isBehind(loaded?.occurrences ?? [], runs), loaded, note);
  const days = React.useMemo(
    () => months.byDay(isCurrent ? loaded.occurrences : [], zone),
    [loaded, isCurrent, zone]
  );
  const ofMonth = [...days.keys()].filter(day => isIn(day, month)).sort();
  const open =
    chosen !== null && isIn(chosen, month)
      ? chosen
      : ofMonth[ofMonth.length - 1];
  const focusDay = isIn(today, month) ? today : firstOf(month);
  const title = new Date(`${firstOf(month)}T12:00:00Z`).toLocaleDateString(
    model.caller.language,
    { year: 'numeric', month: 'long', timeZone: 'UTC' }
  );
  return (
    <>
      <div className="tfc-Calendar-head">
        <h2>
          <bdi>{name}</bdi>
        </h2>
        {loaded && (
          <small>
            <code>{loaded.view.schedule.rules.cron}</code> {zone} ·{' '}
            {standing(loaded.view, model.caller)}
          </small>
        )}
        <span className="tfc-Calendar-actions">
          <IconButton
            icon={editIcon}
            label={trans.__('Edit %1…', name)}
            onClick={() =>
              void commands.execute(CommandIDs.launch, { schedule: name })
            }
          />
        </span>
      </div>
      {problem && (
        <p className="tfc-Trouble" role="alert">
          <Sentence text={problem.message} />
        </p>
      )}
      <div className="tfc-Calendar-bar">
        <IconButton
          icon={caretLeftIcon}
          label={trans.__('Previous month')}
          onClick={() => setMonth(months.moved(month, -1))}
        />
        <h3 aria-live="polite">{title}</h3>
        <IconButton
          icon={caretRightIcon}
          label={trans.__('Next month')}
          disabled={isIn(today, month)}
          onClick={() => setMonth(months.moved(month, 1))}
        />
        {!isIn(today, month) && (
          <button
            type="button"
            className="tfc-Button"
            onClick={() => setMonth(months.monthOf(today))}
          >
            {trans.__('Today')}
          </button>
        )}
        <small role="status">
          {isCurrent
            ? ofMonth.length === 0 && trans.__('Nothing was due in this month.')
            : !problem && trans.__('Asking the server…')}
        </small>
      </div>
      <Month
        month={month}
        days={days}
        runs={loaded?.runs ?? {}}
        today={today}
        chosen={open ?? focusDay}
        title={title}
        language={model.caller.language}
        trans={trans}
        onChoose={day => {
          choose(day);
          if (!isIn(day, month)) {
            setMonth(months.monthOf(day));
          }
        }}
      />
      {open !== undefined && isCurrent && (
        <Day
          {...props}
          day={open}
          zone={zone}
          occurrences={days.get(open) ?? []}
          runs={loaded.runs}
        />
      )}
    </>
  );
}

const isIn = (day: string, { year, month }: months.IMonth): boolean => {
  const of = months.monthOf(day);
  return of.year === year && of.month === month;
};

const firstOf = ({ year, month }: months.IMonth): string =>
  new Date(Date.UTC(year, month, 1)).toISOString().slice(0, 10);

interface IMonthProps {
  readonly month: months.IMonth;
  readonly days: ReadonlyMap<string, ReadonlyArray<IOccurrence>>;
  readonly runs: IScheduleHistory['runs'];
  readonly today: string;
  readonly chosen: string;
  readonly title: string;
  readonly language: string;
  readonly trans: TranslationBundle;
  onChoose(day: string): void;
}

/** Days by which an arrow key moves. */
const STEPS: Readonly<Record<string, number>> = {
  ArrowLeft: -1,
  ArrowRight: 1,
  ArrowUp: -7,
  ArrowDown: 7
};

/** Return the day to which a key moves; null for any other key. */
function dayAt(
  key: string,
  chosen: string,
  week: ReadonlyArray<string | null>
): string | null {
  const days = week.filter(day => day !== null);
  switch (key) {
    case 'Home':
      return days[0];
    case 'End':
      return days[days.length - 1];
    case 'PageUp':
      return months.sameDay(chosen, -1);
    case 'PageDown':
      return months.sameDay(chosen, 1);
    default:
      return key in STEPS ? months.dayAfter(chosen, STEPS[key]) : null;
  }
}

/**
 * The month as a grid. Arrow keys move between days, also into another month; Home and End move to
 * the ends of the week, PageUp and PageDown by a month. No key moves to a day after today.
 */
function Month(props: IMonthProps): React.JSX.Element {
  const { month, title, language, chosen, today, trans, onChoose } = props;
  const grid = React.useRef<HTMLTableElement>(null);
  const moved = React.useRef(false);
  React.useEffect(() => {
    if (moved.current) {
      moved.current = false;
      grid.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus();
    }
  }, [chosen]);
  const first = months.firstDayOf(language);
  const weeks = months.weeksOf(month, first);
  const weekday = (column: number, form: 'short' | 'long'): string =>
    // 1 November 2026 was a Sunday
    new Date(Date.UTC(2026, 10, 1 + first + column)).toLocaleDateString(
      language,
      { weekday: form, timeZone: 'UTC' }
    );
  const onKey = (event: React.KeyboardEvent): void => {
    const week = weeks.find(days => days.includes(chosen)) ?? [chosen];
    const wanted = dayAt(event.key, chosen, week);
    if (wanted === null) {
      return;
    }
    event.preventDefault();
    const isStep = event.key in STEPS;
    const day = wanted <= today ? wanted : isStep ? chosen : today;
    if (day !== chosen) {
      moved.current = true;
      onChoose(day);
    }
  };
  return (
    <table
      ref={grid}
      className="tfc-Calendar-month"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-element-to-interactive-role -- arrow keys move between its days
      role="grid"
      aria-label={trans.__('Due times of %1', title)}
      onKeyDown={onKey}
    >
      <thead>
        <tr>
          {weeks[0].map((_, column) => (
            <th key={column} scope="col" abbr={weekday(column, 'long')}>
              {weekday(column, 'short')}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {weeks.map((week, index) => (
          <tr key={index}>
            {week.map((day, column) =>
              day === null ? (
                <td key={column} role="gridcell" />
              ) : (
                <td key={column} role="gridcell" aria-selected={day === chosen}>
                  <DayButton {...props} day={day} />
                </td>
              )
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function DayButton({
  day,
  days,
  runs,
  today,
  chosen,
  language,
  trans,
  onChoose
}: IMonthProps & { readonly day: string }): React.JSX.Element {
  const due = days.get(day) ?? [];
  const counts = months
    .countsOf(due)
    .map(([state, count]) => `${count} ${occurrenceWord(state, trans)}`);
  const label = `${longDay(day, language)}: ${
    counts.join(', ') || trans.__('nothing was due')
  }`;
  return (
    <button
      type="button"
      className="tfc-Calendar-day"
      aria-label={label}
      title={label}
      aria-current={day === today ? 'date' : undefined}
      data-due={due.length > 0}
      tabIndex={day === chosen ? 0 : -1}
      onClick={() => onChoose(day)}
    >
      <span className="tfc-Calendar-number">{Number(day.slice(8))}</span>
      {due.length <= MOST_MARKS ? (
        <span className="tfc-Calendar-marks">
          {[...due].reverse().map(each => (
            <span key={keyOf(each)} className="tfc-Calendar-one">
              <Mark state={each.state} />
              {due.length <= MOST_TIMED && (
                <small>{durationOf(each, runs)}</small>
              )}
            </span>
          ))}
        </span>
      ) : (
        <span className="tfc-Calendar-marks">
          {months.countsOf(due).map(([state, count]) => (
            <span key={state} className="tfc-Calendar-one">
              <Mark state={state} />
              {count}
            </span>
          ))}
        </span>
      )}
    </button>
  );
}

const keyOf = ({ due, kind }: IOccurrence): string => `${due} ${kind}`;

const longDay = (day: string, language: string): string =>
  new Date(`${day}T12:00:00Z`).toLocaleDateString(language, {
    dateStyle: 'long',
    timeZone: 'UTC'
  });

function durationOf(
  { run }: IOccurrence,
  runs: IScheduleHistory['runs']
): string {
  const { startedAt, finishedAt } = runs[run] ?? {};
  return startedAt != null && finishedAt != null
    ? duration(finishedAt - startedAt)
    : '';
}

/** The due times of one day, newest first. */
function Day({
  day,
  zone,
  occurrences,
  runs,
  model,
  commands,
  trans
}: ICalendarProps & {
  readonly day: string;
  readonly zone: string;
  readonly occurrences: ReadonlyArray<IOccurrence>;
  readonly runs: IScheduleHistory['runs'];
}): React.JSX.Element {
  const result = (each: IOccurrence): string =>
    each.reason
      ? told(each.reason, trans)
      : each.run in runs
        ? shown(runs[each.run], trans)
        : '';
  return (
    <section className="tfc-Calendar-list">
      <h3 aria-live="polite">{longDay(day, model.caller.language)}</h3>
      {occurrences.length === 0 ? (
        <p>{trans.__('Nothing was due on this day.')}</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">{trans.__('Due (%1)', zone)}</th>
              <th scope="col">{trans.__('Result')}</th>
              <th scope="col">{trans.__('Run')}</th>
              <th scope="col">{trans.__('Took')}</th>
              <th scope="col">{trans.__('Message')}</th>
            </tr>
          </thead>
          <tbody>
            {occurrences.map(each => (
              <tr key={keyOf(each)}>
                <td>{months.timeOf(each.due, zone)}</td>
                <td>
                  <Mark state={each.state} />{' '}
                  {occurrenceWord(each.state, trans)}
                  {each.attempt > 1 && (
                    <small> {trans.__('attempt %1', each.attempt)}</small>
                  )}
                </td>
                <td>
                  {each.run in runs ? (
                    <span className="tfc-Calendar-run">
                      <button
                        type="button"
                        className="tfc-Link"
                        title={trans.__('Show the run')}
                        onClick={() =>
                          void commands.execute(CommandIDs.openSidebar, {
                            name: each.run
                          })
                        }
                      >
                        <bdi>{each.run}</bdi>
                      </button>
                      <IconButton
                        icon={logsIcon}
                        label={trans.__('Logs of %1', each.run)}
                        onClick={() =>
                          void commands.execute(CommandIDs.logs, {
                            name: each.run
                          })
                        }
                      />
                    </span>
                  ) : (
                    each.run && (
                      <span title={trans.__('The run was deleted.')}>
                        <bdi>{each.run}</bdi>
                      </span>
                    )
                  )}
                </td>
                <td>{durationOf(each, runs)}</td>
                <td>
                  <Sentence text={result(each)} />
                  {each.advice && (
                    <>
                      {' '}
                      <Sentence text={told(each.advice, trans)} />
                    </>
                  )}
                  {each.missed > 0 && (
                    <small>
                      {' '}
                      {trans._n(
                        '%1 earlier due time was missed, too.',
                        '%1 earlier due times were missed, too.',
                        each.missed
                      )}
                    </small>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
