/** The messages of the sidebar without a current list: loading, no clusters, no response. */
import { Clipboard } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { copyIcon, refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { IClustersState } from '../api/clusters';
import type { ServerProblem } from '../api/problem';
import type { IRun } from '../api/types';
import { clusterIcon } from '../icons';
import { AsOf } from '../run/RunCard';
import { IconButton, Sentence } from '../run/parts';

const EXAMPLE = `%load_ext tfcluster_magic
%tfcluster launch train.py`;

interface IEmptyProps {
  readonly trans: TranslationBundle;
  /** Opens the launch form; absent if there is no form. */
  readonly onLaunch?: () => void;
  /** Shows the examples; absent if there are none. */
  readonly onExamples?: () => void;
}

/** The sidebar of a user without clusters: what a cluster is, and three ways to launch one. */
export function Empty({
  trans,
  onLaunch,
  onExamples
}: IEmptyProps): React.JSX.Element {
  const [copied, setCopied] = React.useState(false);
  return (
    <section className="tfc-Empty" aria-label={trans.__('No clusters yet')}>
      <clusterIcon.react
        tag="div"
        className="tfc-Empty-icon"
        aria-hidden="true"
      />
      <h3>{trans.__('No clusters yet')}</h3>
      <p>
        {trans.__(
          'A cluster is a set of TensorFlow tasks, workers and parameter servers, that run your program together or wait for your notebook to drive them.'
        )}
      </p>
      {onLaunch && (
        <button
          type="button"
          className="tfc-Button tfc-mod-accept"
          onClick={onLaunch}
        >
          {trans.__('Launch a Cluster…')}
        </button>
      )}
      <p>
        {onLaunch
          ? trans.__('Or in a cell of a notebook:')
          : trans.__('Launch one in a cell of a notebook:')}
      </p>
      <div className="tfc-Empty-code">
        <pre>{EXAMPLE}</pre>
        <IconButton
          icon={copyIcon}
          label={trans.__('Copy these lines')}
          title={trans.__('Copy')}
          onClick={() => {
            Clipboard.copyToSystem(EXAMPLE);
            setCopied(true);
          }}
        />
      </div>
      <div role="status" className="tfc-Empty-note">
        {copied ? trans.__('Copied.') : ''}
      </div>
      {onExamples && (
        <button type="button" className="tfc-Link" onClick={onExamples}>
          {trans.__('Show the examples in the file browser')}
        </button>
      )}
    </section>
  );
}

interface ITroubleProps {
  readonly state: IClustersState;
  readonly trans: TranslationBundle;
  onRetry(): void;
}

/** The reason why the list is old or missing; the model retries automatically. */
export function Trouble({
  state,
  trans,
  onRetry
}: ITroubleProps): React.JSX.Element | null {
  const { problem, at } = state;
  if (problem === null) {
    return null;
  }
  return (
    <section
      className={at ? 'tfc-Trouble' : 'tfc-Trouble tfc-mod-alone'}
      role="alert"
    >
      <strong>{titleOf(problem, trans)}</strong>
      <p>
        <Sentence text={problem.message} />
      </p>
      <div className="tfc-Trouble-foot">
        {at > 0 && <AsOf at={at / 1000} trans={trans} />}
        <button type="button" className="tfc-Button" onClick={onRetry}>
          <refreshIcon.react
            tag="span"
            className="tfc-Button-icon"
            aria-hidden="true"
          />
          {trans.__('Try Again')}
        </button>
      </div>
    </section>
  );
}

interface IAwayProps {
  readonly runs: ReadonlyArray<IRun>;
  readonly trans: TranslationBundle;
}

/** Shows that no operator handles requests, until an operator does again. */
export function Away({ runs, trans }: IAwayProps): React.JSX.Element | null {
  const away = runs.find(run => run.away)?.away;
  if (!away) {
    return null;
  }
  return (
    <section className="tfc-Trouble" role="status">
      <strong>{trans.__('The operator does not answer')}</strong>
      <p>
        <Sentence text={away} />
      </p>
    </section>
  );
}

function titleOf(problem: ServerProblem, trans: TranslationBundle): string {
  if (problem.isSignedOut) {
    return trans.__('You are signed out');
  }
  if (problem.status === 404) {
    return trans.__('The server extension is off');
  }
  return problem.status === 0
    ? trans.__('The server is not available')
    : trans.__('The clusters cannot be loaded');
}
