/**
 * What an output shows of its run: the run now, or what is known of it and why that is not now. Pure.
 *
 * A run is the same only if its uid is: under an old output stands never the state of a new run of the same name.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { isMissing } from '../api/lookup';
import { uidOf } from '../api/runs';
import type { ServerProblem } from '../api/problem';
import type { IClustersState } from '../api/state';
import type { IRun } from '../api/types';
import type { IStoredRun } from './stored';

/** What an output has to go by. */
export interface IKnown {
  readonly stored: IStoredRun;
  /** The run of this name that the server has. */
  readonly found: IRun | undefined;
  /** The run as this page saw it last, and when, in seconds since 1970. */
  readonly seen: { readonly run: IRun; readonly at: number } | null;
  readonly state: IClustersState;
  /** Why it could not be asked for. */
  readonly failed: ServerProblem | null;
}

export interface IShown {
  readonly run: IRun;
  /** When it was so, null for now. */
  readonly asOf: number | null;
  /** Why it is not known how the run is now, empty when it is, or is being asked for. */
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
