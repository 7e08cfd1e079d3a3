/**
 * Errors of the server extension, as one class with the sentence for a person.
 *
 * Whatever goes wrong on the way (network, a proxy's page, a login that expired) becomes such an
 * error, too, so that a view never shows a stack or markup.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IProblem } from './types';

/** The title of the error when the person is known, and may not do it. */
const NOT_ALLOWED = 'NotAllowed';

/** Why there is no answer: `status` 0 means that the server was not reached. */
export class ServerProblem extends Error {
  constructor(readonly problem: IProblem) {
    super(problem.detail);
    this.name = 'ServerProblem';
  }

  get status(): number {
    return this.problem.status;
  }

  /** Whether trying again may help: the server or its backend is away, not the request wrong. */
  get isAway(): boolean {
    return this.status === 0 || this.status >= 502 || this.status === 503;
  }

  /** Whether the person has to sign in again: not when they may see the page, and not do this. */
  get isSignedOut(): boolean {
    const isRefused = this.status === 401 || this.status === 403;
    return isRefused && this.problem.title !== NOT_ALLOWED;
  }
}

/** The server was not reached. */
export function unreachable(trans: TranslationBundle): ServerProblem {
  return new ServerProblem({
    type: 'about:blank',
    title: 'Unreachable',
    status: 0,
    detail: trans.__('The Jupyter server does not answer. What runs goes on.')
  });
}

/** What an answer that is not 2xx says; `text` is its body. A bare "Forbidden" helps nobody. */
export function problemOf(
  status: number,
  text: string,
  trans: TranslationBundle
): ServerProblem {
  try {
    const told = JSON.parse(text) as Partial<IProblem>;
    const hasSentence =
      typeof told.detail === 'string' && told.detail !== told.title;
    if (hasSentence && typeof told.status === 'number') {
      return new ServerProblem(told as IProblem);
    }
  } catch {
    // not ours: a proxy's page, Jupyter's own 404
  }
  return new ServerProblem({
    type: 'about:blank',
    title: String(status),
    status,
    detail: explained(status, trans)
  });
}

function explained(status: number, trans: TranslationBundle): string {
  switch (status) {
    case 401:
    case 403:
      return trans.__('You are signed out: reload this page to sign in again.');
    case 404:
      return trans.__(
        'The server extension of TFCluster is not running: enable it with `jupyter server extension enable tfcluster_magic.server` and restart the server.'
      );
    default:
      return trans.__('The Jupyter server answered with the error %1.', status);
  }
}
