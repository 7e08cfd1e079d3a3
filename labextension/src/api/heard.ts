/**
 * Which of the server's events a page has heard: they are numbered, so that what is lost is noticed.
 *
 * A number that is left out is a loss; so is a list that knows of more than was heard, as where a proxy lets requests
 * through and no pushes. Pure bookkeeping: it asks nobody.
 */
import type { IRunEvent, IRunList } from './types';

/** `known`: a list that came before includes it; `missed`: so is this one, and others before it were lost. */
export type Hearing = 'known' | 'next' | 'missed';

export class Heard {
  /** Whether the list knew of more than was heard, and nothing was heard since. */
  get isDeaf(): boolean {
    return this._isDeaf;
  }

  event({ stream, sequence }: IRunEvent): Hearing {
    this._isDeaf = false;
    const isSame = stream === this._stream;
    if (isSame && sequence <= this._sequence) {
      return 'known';
    }
    const isMissed = !isSame || sequence > this._sequence + 1;
    this._stream = stream;
    this._sequence = sequence;
    return isMissed ? 'missed' : 'next';
  }

  /** Take a list; gives whether it knows of events that were lost. While it came, one may have been heard. */
  list({ stream, sequence }: IRunList, isHearing: boolean): boolean {
    const isSame = stream === this._stream;
    const isLost = isSame && sequence > this._sequence && !isHearing;
    this._isDeaf ||= isLost;
    this._stream = stream;
    this._sequence = isSame ? Math.max(sequence, this._sequence) : sequence;
    return isLost;
  }

  private _stream = '';
  private _sequence = 0;
  private _isDeaf = false;
}
