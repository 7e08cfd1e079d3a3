/** The part of the form that makes a schedule of the launch: its name, when it is due, its rules. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IField, ILaunchOptions } from '../api/launchOptions';
import { moment } from '../run/quantities';
import { attributes, IFormProps, Row } from './fields';
import type { IRepeat, When } from './draft';
import { browserZone, cronOf, knownZones } from './repeat';
import { NameRow, Rows, Section } from './sections';

interface IScheduleProps extends IFormProps {
  readonly launchOptions: ILaunchOptions;
  readonly repeat: IRepeat;
  /** The options of the launch that this part shows. */
  readonly limits: ReadonlyArray<IField>;
}

export function Schedule(props: IScheduleProps): React.JSX.Element {
  const { state, launchOptions, repeat, limits, trans, id } = props;
  const title = React.useRef<HTMLHeadingElement>(null);
  const { schedule } = repeat;
  const first = state.plan?.schedule?.firstRun ?? 1;
  React.useEffect(() => {
    title.current?.scrollIntoView({ block: 'nearest' });
    title.current?.focus();
  }, [schedule]);
  const rules = launchOptions.schedule.filter(
    ({ kind }) => kind !== 'cron' && kind !== 'zone'
  );
  return (
    <section className="tfc-Repeat" aria-labelledby={`${id}-repeat`}>
      <h2 id={`${id}-repeat`} ref={title} tabIndex={-1}>
        {schedule
          ? trans.__('Change the schedule %1', schedule)
          : trans.__('Repeat this launch')}
      </h2>
      {!schedule && (
        <NameRow
          {...props}
          below={trans.__(
            'Its runs are called %1-%2, %1-%3 and so on.',
            state.draft.name.trim() || trans.__('NAME'),
            first,
            first + 1
          )}
        />
      )}
      <WhenRow {...props} />
      <ZoneRow {...props} />
      <Coming {...props} />
      <Section
        {...props}
        name="schedule"
        title={trans.__('Overlaps, retries and failures')}
        fields={[...rules, ...limits]}
      >
        <Rows {...props} fields={[...rules, ...limits]} explains />
      </Section>
    </section>
  );
}

/**
 * The row that sets when the schedule is due: a usual choice with its inputs, or a cron expression.
 */
function WhenRow(props: IScheduleProps): React.JSX.Element {
  const { state, model, repeat, trans, id } = props;
  const { when } = repeat;
  const typed = String(state.draft.values.cron ?? '');
  const choices: ReadonlyArray<readonly [When, string]> = [
    ['hour', trans.__('every hour')],
    ['day', trans.__('every day')],
    ['workday', trans.__('Monday to Friday')],
    ['week', trans.__('every week')],
    ['month', trans.__('every month')],
    ['cron', trans.__('cron expression…')]
  ];
  const cron = cronOf(repeat, typed);
  const choose = (next: When): void => {
    // start with the expression of the previous choice, which the user can edit
    const kept: Record<string, string> =
      next === 'cron' && when !== 'cron' ? { cron } : {};
    model.edit({
      repeat: { ...repeat, when: next },
      values: { ...state.draft.values, ...kept }
    });
  };
  const change =
    (key: keyof IRepeat) =>
    (event: React.ChangeEvent<HTMLInputElement | HTMLSelectElement>): void =>
      model.edit({ repeat: { ...repeat, [key]: event.target.value } });
  return (
    <Row
      {...props}
      option="cron"
      label={trans.__('When')}
      below={
        when === 'cron'
          ? trans.__(
              'minute (0–59), hour (0–23), day of month (1–31), month (1–12), day of week (0–6, 0 is Sunday): `*` is every, `*/15` every 15th, `1-5` a range, `1,15` a list; also `@daily`, `@hourly`, `@weekly`, `@monthly`'
            )
          : trans.__('Cron expression: %1', cron)
      }
    >
      <div className="tfc-When">
        <select
          {...attributes(props, 'cron')}
          value={when}
          onChange={event => choose(event.target.value as When)}
        >
          {choices.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
        {when === 'hour' && (
          <label>
            {trans.__('at minute')}{' '}
            <input
              type="number"
              min={0}
              max={59}
              value={repeat.minute}
              onChange={change('minute')}
            />
          </label>
        )}
        {when === 'week' && (
          <label>
            {trans.__('on')}{' '}
            <select value={repeat.weekday} onChange={change('weekday')}>
              {weekdays(trans).map(([value, label]) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          </label>
        )}
        {when === 'month' && (
          <label>
            {trans.__('on day')}{' '}
            <input
              type="number"
              min={1}
              max={31}
              value={repeat.day}
              onChange={change('day')}
            />
          </label>
        )}
        {when !== 'hour' && when !== 'cron' && (
          <label>
            {trans.__('at time')}{' '}
            <input type="time" value={repeat.time} onChange={change('time')} />
          </label>
        )}
        {when === 'cron' && (
          <input
            id={`${id}-expression`}
            type="text"
            className="tfc-When-cron"
            aria-label={trans.__('Cron expression')}
            spellCheck={false}
            placeholder="0 2 * * *"
            value={typed}
            onChange={event => model.setValue('cron', event.target.value)}
          />
        )}
      </div>
    </Row>
  );
}

const weekdays = (
  trans: TranslationBundle
): ReadonlyArray<readonly [string, string]> => [
  ['1', trans.__('Monday')],
  ['2', trans.__('Tuesday')],
  ['3', trans.__('Wednesday')],
  ['4', trans.__('Thursday')],
  ['5', trans.__('Friday')],
  ['6', trans.__('Saturday')],
  ['0', trans.__('Sunday')]
];

function ZoneRow(props: IScheduleProps): React.JSX.Element {
  const { state, model, trans, id } = props;
  const zone = String(state.draft.values.time_zone ?? '');
  const here = browserZone();
  return (
    <Row
      {...props}
      option="time_zone"
      label={trans.__('Time zone')}
      below={
        zone.trim() === here
          ? trans.__('The time zone of this browser.')
          : trans.__('This browser is in %1.', here)
      }
    >
      <input
        {...attributes(props, 'time_zone')}
        type="text"
        list={`${id}-zones`}
        spellCheck={false}
        autoComplete="off"
        placeholder={here}
        value={zone}
        onChange={event => model.setValue('time_zone', event.target.value)}
      />
      <datalist id={`${id}-zones`}>
        {knownZones().map(name => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </Row>
  );
}

/** The next due times, as the server answered for what is typed. */
function Coming(props: IScheduleProps): React.JSX.Element {
  const { state, model, trans } = props;
  const { rules, next } = state.plan?.schedule ?? { rules: null, next: [] };
  const zone = rules?.timeZone ?? 'UTC';
  return (
    <div className="tfc-Row">
      <span>{trans.__('Due next')}</span>
      <ul className="tfc-Coming" data-current={state.current}>
        {next.map((at, index) => (
          // a screen reader reads only the first due time, whose element is not replaced
          <li key={index} aria-live={index === 0 ? 'polite' : undefined}>
            {moment(at, zone, model.clusters.caller.language)}
          </li>
        ))}
        {next.length === 0 && (
          <li>
            {state.plan?.schedule
              ? trans.__('unknown until the problem is solved')
              : trans.__('Asking the server…')}
          </li>
        )}
      </ul>
    </div>
  );
}
