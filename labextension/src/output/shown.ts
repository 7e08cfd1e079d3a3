/**
 * The content of an output: the current run, or its last known state and the reason. Pure
 * functions.
 *
 * The uid identifies a run: an old output never shows a new run of the same name.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { isMissing } from '../api/lookup';
import { uidOf } from '../api/runs';
import type { ServerProblem } from '../api/problem';
import type { IClustersState } from '../api/state';
import type { IRun } from '../api/types';
import type { IStoredRun } from './stored';

/** The known facts about the run of an output. */
export interface IKnown {
  readonly stored: IStoredRun;
  /** The server's run of this name. */
  readonly found: IRun | undefined;
  /** The run as this page saw it last, and when, in seconds since 1970. */
  readonly seen: { readonly run: IRun; readonly at: number } | null;
  readonly state: IClustersState;
  /** Why the run could not be loaded. */
  readonly failed: ServerProblem | null;
}

export interface IShown {
  readonly run: IRun;
  /** The time of this state; null if it is current. */
  readonly asOf: number | null;
  /** Why the current state is unknown; empty if it is known or being loaded. */
  readonly why: string;
}

export function shown(known: IKnown, trans: TranslationBundle): IShown {
  const { stored, found, seen, state, failed } = known;
  const uid = uidOf(stored.run);
  const isSame = found !== undefined && uidOf(found) === uid;
  if (isSame && state.state === 'live') {
    return { run: found, asOf: null, why: '' };
  }
  const last = seen ?? { run: stored.run, at: stored.at };
  const old = { run: isSame ? found : last.run, asOf: last.at };
  if (state.state !== 'live') {
    return { ...old, why: state.problem?.message ?? '' };
  }
  if (found) {
    return {
      ...old,
      why: trans.__(
        'This run was deleted; another run has the name now and is not shown here.'
      )
    };
  }
  if (isMissing(failed)) {
    const why = seen
      ? trans.__('This run was deleted.')
      : trans.__(
          'This Jupyter server does not know the run: it was deleted, or launched elsewhere.'
        );
    return { ...old, why };
  }
  return { ...old, why: failed?.message ?? '' };
}
