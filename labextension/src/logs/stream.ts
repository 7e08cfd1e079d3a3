/** One response of the log route: JSON messages from arbitrary pieces of text. */
import type { IProblem } from '../api/types';
import type { TaskLine } from './buffer';

/** One line of the stream; `{}` is a heartbeat. */
export interface IMessage {
  readonly lines?: ReadonlyArray<TaskLine>;
  readonly end?: boolean;
  /** At the end of a search: the number of lines read from each task. */
  readonly printed?: Readonly<Record<string, number>>;
  readonly problem?: IProblem;
}

/**
 * The server sends something every 15 s; after this time the connection is dead, whatever TCP
 * reports.
 */
export const SILENCE = 40_000;

/** The connection broke, or nothing arrived for too long. */
export class StreamLost extends Error {}

/** Assembles messages from pieces of text. */
export class MessageReader {
  /** @throws StreamLost if a line is not JSON: a proxy has interfered. */
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
    // the error is reported below
  }
  throw new StreamLost('not a message');
}

/**
 * Yield the messages of a response, in batches as they arrive.
 *
 * @throws StreamLost if nothing arrives for `silence` milliseconds.
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
