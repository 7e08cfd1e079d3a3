/**
 * Retries a refused form: when it comes into sight, when its window does, and every few seconds while it is seen.
 * What is retried is the model's.
 */
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';

/** Milliseconds; as often as a list of runs that is not sure of itself. */
const FREQUENCY = { interval: 5_000, backoff: false, max: 5_000 };

export class RetryPoll implements IDisposable {
  constructor(
    ask: () => Promise<void>,
    private readonly _isSeen: () => boolean
  ) {
    this._poll = new Poll({
      name: 'tfcluster-labextension:launch',
      factory: ask,
      frequency: FREQUENCY,
      standby: () => !_isSeen() || 'when-hidden'
    });
    window.addEventListener('focus', this.now);
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    window.removeEventListener('focus', this.now);
    this._poll.dispose();
  }

  /** Somebody looks: ask now. */
  readonly now = (): void => {
    if (this._isSeen()) {
      void this._poll.refresh();
    }
  };

  private readonly _poll: Poll<void>;
}
