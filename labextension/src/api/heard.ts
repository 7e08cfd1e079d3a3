/**
 * The sequence numbers of the server's events, so that a lost event is noticed.
 *
 * A gap in the numbers is a loss; so is a list that includes later events than were received, as where a proxy lets
 * requests through and no pushes. It asks nobody.
 */
import type { IRunEvent, IRunList } from './types';

/** `seen`: an earlier list includes the event; `gap`: it is new, and others before it were lost. */
type EventOrder = 'seen' | 'next' | 'gap';

export class EventSequence {
  /** Whether a list included later events than were received, and none was received since. */
  get isLagging(): boolean {
    return this._isLagging;
  }

  receive({ stream, sequence }: IRunEvent): EventOrder {
    this._isLagging = false;
    const isSame = stream === this._stream;
    if (isSame && sequence <= this._sequence) {
      return 'seen';
    }
    const isGap = !isSame || sequence > this._sequence + 1;
    this._stream = stream;
    this._sequence = sequence;
    return isGap ? 'gap' : 'next';
  }

  /** Take a list and return whether it includes events that were lost; not if one was received while it came. */
  receiveList({ stream, sequence }: IRunList, isReceiving: boolean): boolean {
    const isSame = stream === this._stream;
    const isLost = isSame && sequence > this._sequence && !isReceiving;
    this._isLagging ||= isLost;
    this._stream = stream;
    this._sequence = isSame ? Math.max(sequence, this._sequence) : sequence;
    return isLost;
  }

  private _stream = '';
  private _sequence = 0;
  private _isLagging = false;
}
