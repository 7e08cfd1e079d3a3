/**
 * The launch form as one component, drawn from the model's state. Only this state holds the input.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { Sentence } from '../run/parts';
import { Cards } from './cards';
import { fieldsOf, type IDraft, type IOrigin } from './draft';
import { Input, Marks } from './fields';
import { Footer, IFooterProps, Line } from './footer';
import { IPlaces, Program } from './program';
import { cautionsOf, marksOf } from './problems';
import { Schedule } from './schedule';
import { Basics, Rows, Section, Sizes } from './sections';

export interface ILaunchFormProps extends Omit<
  IFooterProps,
  'state' | 'marks' | 'cautions' | 'id'
> {
  readonly places: IPlaces;
  /** Launch the current input; the form has found no error in it. */
  launch(): void;
  /** Save the current input as a schedule; the form has found no error in it. */
  save(): void;
}

export function LaunchForm(props: ILaunchFormProps): React.JSX.Element {
  const { model, trans } = props;
  const id = `tfc${React.useId().replace(/:/g, '-')}`;
  const [state, setState] = React.useState(model.state);
  const form = React.useRef<HTMLFormElement>(null);
  /** The draft when Launch was pressed before the server had answered. */
  const pressed = React.useRef<IDraft | null>(null);
  React.useEffect(() => {
    const take = (): void => setState(model.state);
    model.changed.connect(take);
    take();
    return () => void model.changed.disconnect(take);
  }, [model]);

  const marks = marksOf(state, trans);
  const launch = (): void => {
    if (state.launching) {
      return;
    }
    const against = marksOf({ ...state, tried: true }, trans);
    if (state.launchOptions && state.plan && !state.away && !against.size) {
      if (state.draft.repeat) {
        props.save();
      } else {
        props.launch();
      }
      return;
    }
    if (!state.current && !state.away) {
      // launch later, if the response for the current input has no problems
      pressed.current = state.draft;
      return;
    }
    model.tried();
    focusFirst(form.current, option => against.has(option));
  };
  React.useEffect(() => {
    const { current: draft } = pressed;
    if (draft !== null && (draft !== state.draft || state.current)) {
      pressed.current = null;
      if (draft === state.draft) {
        launch();
      }
    }
  });
  const all = { ...props, state, marks, cautions: cautionsOf(state), id };
  const { launchOptions, draft } = state;
  const fields = launchOptions ? fieldsOf(launchOptions, draft) : [];
  const sized = fields.filter(
    ({ path, section }) =>
      section === 'resources' && (path[0] === '*' || path[2] === 'resources')
  );
  const resources = fields.filter(({ section }) => section === 'resources');
  const isRecurring = draft.repeat !== null;
  const bounded = fields.filter(({ section }) => section === 'limits');
  // the time limit of each run is shown with the other rules of a schedule
  const moved = bounded.filter(
    ({ key }) => isRecurring && key === 'max_duration'
  );
  const limits = bounded.filter(field => !moved.includes(field));
  const pods = fields
    .filter(({ section }) => section === 'pods')
    .sort((a, b) => Number(b.key === 'image') - Number(a.key === 'image'));
  const others = resources.filter(field => !sized.includes(field));
  return (
    <form
      ref={form}
      className="tfc-LaunchForm"
      noValidate
      aria-label={trans.__('Launch a TFCluster')}
      onSubmit={event => {
        event.preventDefault(); // Enter was pressed in an input
        launch();
      }}
    >
      {state.away && (
        <div role="alert" className="tfc-Away">
          <span>
            {state.away.message}
            <br />
            {trans.__('Your input is kept.')}
          </span>
          <button
            type="button"
            className="tfc-Button"
            onClick={() => void model.retry()}
          >
            {trans.__('Try again')}
          </button>
        </div>
      )}
      <h2 className="tfc-Launch-title">{trans.__('Launch a cluster')}</h2>
      {state.origin && (
        <Origin
          origin={state.origin}
          isSchedule={draft.repeat !== null}
          trans={trans}
        />
      )}
      <Cards {...all} />
      <Marks {...all} option="mode" />
      {draft.mode === 'between-graph' && <Program {...all} />}
      {launchOptions && (
        <>
          <Basics {...all} launchOptions={launchOptions} />
          <Section
            {...all}
            name="resources"
            title={trans.__('Resources')}
            fields={resources}
          >
            <Sizes {...all} fields={sized} />
            <Rows {...all} fields={others} />
          </Section>
          {pods.length > 0 && (
            <Section
              {...all}
              name="pods"
              title={trans.__('Pods')}
              fields={pods}
            >
              <Rows {...all} fields={pods} explains />
            </Section>
          )}
          <Section
            {...all}
            name="limits"
            title={trans.__('Limits')}
            fields={limits}
          >
            <div className="tfc-Limits">
              {limits.map(field => (
                <div
                  key={field.key}
                  className="tfc-Limit"
                  data-option={field.key}
                >
                  <label htmlFor={`${id}-${field.key}`}>{field.label}</label>
                  <Input {...all} field={field} />
                  <small>{field.help}</small>
                  <Marks {...all} option={field.key} />
                </div>
              ))}
            </div>
          </Section>
        </>
      )}
      {draft.repeat && launchOptions && (
        <Schedule
          {...all}
          launchOptions={launchOptions}
          repeat={draft.repeat}
          limits={moved}
        />
      )}
      {!draft.repeat?.schedule && <Line {...all} />}
      <Footer {...all} />
    </form>
  );
}

/**
 * Shows the name of the run from which the form was filled in, and what the form lacks of this run.
 */
function Origin({
  origin,
  isSchedule,
  trans
}: {
  readonly origin: IOrigin;
  readonly isSchedule: boolean;
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  const { name, notes } = origin;
  const box = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    box.current?.scrollIntoView({ block: 'nearest' });
  }, [origin]);
  return (
    <div ref={box} role="status" className="tfc-Origin">
      <strong>{trans.__('These values come from %1.', name)}</strong>{' '}
      {!isSchedule && trans.__('Launching creates a new run.')}
      {notes.length > 0 && (
        <ul>
          {notes.map(note => (
            <li key={note}>
              <Sentence text={note} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Focus the first input, in page order, that `wanted` names. */
function focusFirst(
  form: HTMLElement | null,
  wanted: (option: string) => boolean
): void {
  const rows = form?.querySelectorAll<HTMLElement>('[data-option]') ?? [];
  const row = [...rows].find(({ dataset }) => wanted(dataset.option ?? ''));
  row
    ?.querySelector<HTMLElement>(
      ':is(input, select, textarea, button):not([type="radio"])'
    )
    ?.focus();
}
