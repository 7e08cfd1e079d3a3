/**
 * One answer of the log route, message by message, whole lines of JSON from whatever pieces the network makes.
 */
import type { IProblem } from '../api/types';
import type { TaskLine } from './buffer';

/** One line of the stream; `{}` says that the server is still there. */
export interface IMessage {
  readonly lines?: ReadonlyArray<TaskLine>;
  readonly end?: boolean;
  /** With the end of a search: how many lines of each task it has read. */
  readonly printed?: Readonly<Record<string, number>>;
  readonly problem?: IProblem;
}

/** The server says something every 15 s: after this, the connection is dead, whatever TCP thinks. */
export const SILENCE = 40_000;

/** The connection ended in the middle, or nothing came for too long. */
export class StreamLost extends Error {}

/** Text in pieces becomes messages. */
export class MessageReader {
  /**
   * @throws StreamLost when a line is no JSON: a proxy has cut in.
   */
  push(piece: string): IMessage[] {
    const lines = (this._rest + piece).split('\n');
    this._rest = lines.pop() ?? '';
    return lines.filter(line => line.trim() !== '').map(parsed);
  }

  private _rest = '';
}

function parsed(line: string): IMessage {
  try {
    const message: unknown = JSON.parse(line);
    if (typeof message === 'object' && message !== null) {
      return message;
    }
  } catch {
    // said below
  }
  throw new StreamLost('not a message');
}

/**
 * The messages of an answer, those that came together at once.
 *
 * @throws StreamLost when nothing comes for `silence` milliseconds.
 */
export async function* messages(
  response: Response,
  silence = SILENCE
): AsyncGenerator<ReadonlyArray<IMessage>> {
  const reader = response.body?.getReader();
  if (!reader) {
    throw new StreamLost('no body');
  }
  const decoder = new TextDecoder();
  const joined = new MessageReader();
  try {
    for (;;) {
      const { done, value } = await within(reader.read(), silence);
      if (done) {
        return;
      }
      const found = joined.push(decoder.decode(value, { stream: true }));
      if (found.length > 0) {
        yield found;
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

async function within<T>(
  promise: Promise<T>,
  milliseconds: number
): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new StreamLost('silent')), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
