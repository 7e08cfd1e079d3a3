/**
 * The end of the form: the equivalent line, the reason why the launch is disabled, and the button.
 */
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { shown } from '../run/messages';
import { isActive, nameOf, isSame } from '../api/runs';
import type { IRun, IScheduleView } from '../api/types';
import { PhaseBadge, Sentence } from '../run/parts';
import { RunActions } from '../run/RunActions';
import { useRun } from '../run/hooks';
import { moment } from '../run/quantities';
import { CommandIDs } from '../tokens';
import type { IFormProps } from './fields';
import { Marks } from './fields';
import { hindrance, otherWarnings, whyNoRepeat } from './problems';

export interface IFooterProps extends IFormProps {
  readonly commands: CommandRegistry;
  /** Insert a line into the notebook; null if there is none. */
  readonly insert: (() => void) | null;
  /** Copy the line for the current input. */
  copy(): void;
}

/** The line for a notebook, with buttons to insert or copy it. */
export function Line(props: IFooterProps): React.JSX.Element | null {
  const { state, trans, insert, copy } = props;
  const { plan } = state;
  if (!plan) {
    return null;
  }
  return (
    <section className="tfc-Line" aria-label={trans.__('As a command line')}>
      <div className="tfc-Line-head">
        <span>
          {plan.folder
            ? trans.__('In a notebook of %1', plan.folder)
            : trans.__('In a notebook')}
        </span>
        <button type="button" className="tfc-Button" onClick={copy}>
          {trans.__('Copy')}
        </button>
        <button
          type="button"
          className="tfc-Button"
          disabled={insert === null}
          title={
            insert === null ? trans.__('Open a notebook first') : undefined
          }
          onClick={insert ?? undefined}
        >
          {trans.__('Insert into notebook')}
        </button>
      </div>
      <code>{plan.line}</code>
    </section>
  );
}

/** The launch button, or why it is disabled. */
export function Footer(props: IFooterProps): React.JSX.Element {
  const { state, model, trans, id } = props;
  const { repeat } = state.draft;
  const why = hindrance(state, trans);
  const noRepeat = whyNoRepeat(state, trans);
  return (
    <div className="tfc-Launch-foot">
      <div role="status" className="tfc-Launch-status">
        {[...(state.plan?.told ?? []), ...(state.plan?.inferred ?? [])].map(
          text => (
            <div key={text} className="tfc-Launch-told">
              <Sentence text={text} />
            </div>
          )
        )}
        <Marks {...props} option="" />
        {otherWarnings(state).map(text => (
          <div key={text} className="tfc-Mark tfc-mod-warning">
            <Sentence text={text} />
          </div>
        ))}
      </div>
      {state.refusal && (
        <div role="alert" className="tfc-Mark tfc-mod-wrong">
          <Sentence text={state.refusal.message} />
        </div>
      )}
      {state.launched && <Launched {...props} launched={state.launched} />}
      {state.saved && <Saved {...props} saved={state.saved} />}
      <div className="tfc-Launch-go">
        <button
          type="submit"
          className="tfc-Button tfc-mod-accept"
          aria-disabled={why !== null || state.launching}
          aria-describedby={`${id}-why`}
        >
          {repeat
            ? state.launching
              ? trans.__('Saving…')
              : trans.__('Save schedule')
            : state.launching
              ? trans.__('Launching…')
              : trans.__('Launch')}
        </button>
        {repeat ? (
          <button
            type="button"
            className="tfc-Button"
            onClick={() => model.closeRepeat()}
          >
            {trans.__('Do not repeat')}
          </button>
        ) : (
          <button
            type="button"
            className="tfc-Button"
            title={noRepeat ?? trans.__('Save it as a schedule')}
            disabled={noRepeat !== null}
            onClick={() => void model.openRepeat()}
          >
            {trans.__('Repeat…')}
          </button>
        )}
        <span id={`${id}-why`} role="status">
          {why ?? ''}
        </span>
      </div>
    </div>
  );
}

/** The schedule that the form saved, and when it is due first. */
function Saved({
  saved: { schedule, next },
  model,
  commands,
  trans
}: IFooterProps & { readonly saved: IScheduleView }): React.JSX.Element {
  const { name, rules } = schedule;
  const { language } = model.clusters.caller;
  return (
    <div role="status" className="tfc-Launched">
      <strong>{trans.__('The schedule %1 was saved.', name)}</strong>{' '}
      {next.length > 0
        ? trans.__(
            'It is due at %1.',
            moment(next[0], rules.timeZone ?? 'UTC', language)
          )
        : trans.__('It is paused.')}{' '}
      <button
        type="button"
        className="tfc-Link"
        onClick={() =>
          void commands.execute(CommandIDs.scheduleHistory, { name })
        }
      >
        {trans.__('Show its due times')}
      </button>
    </div>
  );
}

/** The current state of the run that the form launched; nothing once it is deleted. */
function Launched({
  launched,
  model,
  commands,
  trans
}: IFooterProps & { readonly launched: IRun }): React.JSX.Element | null {
  const run = useRun(model.clusters, nameOf(launched));
  if (!run || !isSame(run, launched)) {
    return null;
  }
  const { phase } = run.cluster.status;
  const message = shown(run.cluster.status, trans);
  return (
    <div role="status" className="tfc-Launched" data-phase={phase}>
      <strong>{trans.__('%1 was launched.', nameOf(run))}</strong>
      {!isActive(run) && (
        <div className="tfc-Launched-end">
          <PhaseBadge phase={phase} trans={trans} />
          {message && <Sentence text={message} />}
        </div>
      )}
      <RunActions run={run} commands={commands} trans={trans} />
    </div>
  );
}
