/**
 * One run, as in the output of a launch; rows of the sidebar use the same parts.
 *
 * The card makes no requests and keeps no state.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { displayNameOf, isActive, nameOf, tagsOf } from '../api/runs';
import type { IRun } from '../api/types';
import { programLines } from '../logs/noise';
import { shown } from './messages';
import { RunActions } from './RunActions';
import { RunFacts } from './RunFacts';
import { PhaseBadge, RunProgress, Sentence, Tags } from './parts';
import { clock } from './quantities';
import { isFailing, taskWords } from './words';

export interface IRunCardProps {
  readonly run: IRun;
  readonly trans: TranslationBundle;
  /** With commands, the card has buttons. */
  readonly commands?: CommandRegistry;
  /** The time of this state in seconds since 1970, if it may be outdated. */
  readonly asOf?: number | null;
  /** Content below the facts. */
  readonly children?: React.ReactNode;
}

/** Name, phase, tasks, sentence, progress, facts, buttons. */
export const RunCard = React.memo(
  ({
    run,
    trans,
    commands,
    asOf = null,
    children
  }: IRunCardProps): React.JSX.Element => {
    const name = nameOf(run);
    const { status } = run.cluster;
    const message = shown(status, trans);
    return (
      <article
        className="tfc-RunCard"
        data-phase={status.phase}
        data-stale={asOf !== null || undefined}
        aria-label={name}
      >
        <header className="tfc-RunCard-head">
          <PhaseBadge
            phase={status.phase}
            failing={isFailing(status)}
            trans={trans}
          />
          <bdi className="tfc-RunCard-name">{displayNameOf(run)}</bdi>
          {run.cluster.metadata.displayName && (
            <bdi className="tfc-RunCard-dim">{name}</bdi>
          )}
          <span className="tfc-RunCard-dim">{taskWords(run, trans)}</span>
          {asOf !== null && <AsOf at={asOf} trans={trans} />}
        </header>
        <Tags tags={tagsOf(run)} trans={trans} />
        {message && (
          <p className="tfc-RunCard-message">
            <Sentence text={message} />
          </p>
        )}
        {/* above everything that grows, so that no button moves away from the mouse */}
        {commands && <RunActions run={run} commands={commands} trans={trans} />}
        {run.progress && (
          <RunProgress
            progress={run.progress}
            name={name}
            active={isActive(run)}
            full={status.phase === 'Succeeded'}
            trans={trans}
          />
        )}
        <LastLines run={run} trans={trans} />
        <RunFacts run={run} trans={trans} isOld={asOf !== null} />
        {children}
      </article>
    );
  }
);

const MOST_LAST_LINES = 10;

/**
 * The last lines of the task that ended the run, as `last_lines` of `output/report.py`; nothing if
 * the sentence above contains all of them.
 */
function LastLines({
  run,
  trans
}: {
  readonly run: IRun;
  readonly trans: TranslationBundle;
}): React.JSX.Element | null {
  const { status } = run.cluster;
  const failures = status.failures ?? [];
  const failure =
    failures.find(({ task }) => task === status.culprit) ?? failures[0];
  const lines = programLines(failure?.exit.lastLines ?? []).slice(
    -MOST_LAST_LINES
  );
  const said = shown(status, trans);
  if (
    !(status.phase === 'Failed' || isFailing(status)) ||
    lines.every(line => said.includes(line))
  ) {
    return null;
  }
  return (
    <figure className="tfc-LastLines">
      <figcaption>{trans.__('Last lines of %1', failure.task)}</figcaption>
      <pre>{lines.join('\n')}</pre>
    </figure>
  );
}

/** `as of 22:41`; `at` in seconds since 1970. */
export function AsOf({
  at,
  trans
}: {
  readonly at: number;
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  return <span className="tfc-AsOf">{trans.__('as of %1', clock(at))}</span>;
}
