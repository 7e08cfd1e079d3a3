/**
 * Errors of the server extension, as one class with a sentence for the user.
 *
 * Every failure of a request (network, a proxy's page, an expired login) becomes such an error, so
 * a view never shows a stack or markup.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IProblem } from './types';

/** The title of the error if the user is known but lacks the permission. */
const NOT_ALLOWED = 'NotAllowed';

/** An error response; `status` 0 means that the server was not reached. */
export class ServerProblem extends Error {
  constructor(readonly problem: IProblem) {
    super(problem.detail);
    this.name = 'ServerProblem';
  }

  get status(): number {
    return this.problem.status;
  }

  /**
   * Whether a retry may help: the request was valid, but the server or its backend is unreachable.
   */
  get isAway(): boolean {
    return [0, 424, 429].includes(this.status) || this.status >= 502;
  }

  /** Whether the user must sign in again; false if the user only lacks the permission. */
  get isSignedOut(): boolean {
    const isRefused = this.status === 401 || this.status === 403;
    return isRefused && this.problem.title !== NOT_ALLOWED;
  }
}

/** Return the problem of an unreachable server. */
export function unreachable(trans: TranslationBundle): ServerProblem {
  return new ServerProblem({
    type: 'about:blank',
    title: 'Unreachable',
    status: 0,
    detail: trans.__('The Jupyter server does not answer. Your clusters go on.')
  });
}

/**
 * Return the problem in a response that is not 2xx; `text` is its body. A response without a
 * sentence, such as a bare "Forbidden", gets a sentence for its status.
 */
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
    // not from our routes: a proxy's page, or Jupyter's own 404
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
    case 413:
      return trans.__(
        'The request is larger than the server accepts. Make it smaller, or name a file instead.'
      );
    case 424: // JupyterHub's answer for a stopped server
      return trans.__(
        'Your notebook server is not running. Your clusters go on. Start it on the home page of the hub, then reload this page.'
      );
    case 429:
      return trans.__('The server is overloaded. Try again in a minute.');
    case 500:
      return trans.__(
        'Something went wrong in the Jupyter server; its log has the cause. Try again.'
      );
    case 502:
    case 503:
    case 504:
      return trans.__(
        'The Jupyter server is not available: it is starting, or it has ended. Your clusters go on, and this page retries automatically.'
      );
    default:
      return trans.__(
        "The Jupyter server answered with the error %1. Reload this page; if the error remains, look into the server's log.",
        status
      );
  }
}
