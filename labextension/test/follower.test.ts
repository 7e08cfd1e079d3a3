import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Connection, Follower } from '../src/logs/follower';
import { LogsModel } from '../src/logs/model';
import { MessageReader, messages, StreamLost } from '../src/logs/stream';
import { aRun, FakeServer } from './runs';

const encoder = new TextEncoder();
const body = (
  pieces: ReadonlyArray<string | Uint8Array>,
  isOpen = false
): Response =>
  new Response(
    new ReadableStream<Uint8Array>({
      start: controller => {
        for (const piece of pieces) {
          controller.enqueue(
            typeof piece === 'string' ? encoder.encode(piece) : piece
          );
        }
        if (!isOpen) {
          controller.close();
        }
      }
    })
  );
const batch = (...texts: string[]): string =>
  `${JSON.stringify({ lines: texts.map(text => ['worker-0', text]) })}\n`;
const END = '{"end":true}\n';

describe('a stream', () => {
  it('is read in whole messages from whatever pieces the network makes', async () => {
    const bytes = encoder.encode(`${batch('ü数🎉', 'b')}{}\n${END}`);
    const pieces = Array.from(bytes, byte => new Uint8Array([byte]));
    const found = [];
    for await (const together of messages(body(pieces))) {
      found.push(...together);
    }
    expect(found).toEqual([
      {
        lines: [
          ['worker-0', 'ü数🎉'],
          ['worker-0', 'b']
        ]
      },
      {},
      { end: true }
    ]);
  });

  it('is lost when nothing comes for too long, not even a sign of life', async () => {
    const silent = messages(body(['{}\n'], true), 30);
    await silent.next();
    await expect(silent.next()).rejects.toBeInstanceOf(StreamLost);
  });

  it('is lost when a proxy says something in between', () => {
    expect(() => new MessageReader().push('<html>\n')).toThrow(StreamLost);
    expect(new MessageReader().push('{"end":tr')).toEqual([]);
  });
});

interface IFollowed {
  readonly lines: string[];
  readonly connections: Connection[];
  readonly tails: (number | null)[];
}

/** Follow streams one after another; after the last stream, the server does not answer. */
async function follow(
  tail: number,
  ...streams: (() => Response)[]
): Promise<IFollowed> {
  const seen: IFollowed = { lines: [], connections: [], tails: [] };
  let count = 0;
  const follower = new Follower({
    tail,
    open: async asked => {
      seen.tails.push(asked);
      return (streams[count++] ?? (() => body([END])))();
    },
    onLines: (lines, isReplacing) => {
      seen.lines.splice(0, isReplacing ? seen.lines.length : 0);
      seen.lines.push(...lines.map(([, text]) => text));
    },
    onConnection: connection => seen.connections.push(connection)
  });
  await follower.run();
  follower.dispose();
  return seen;
}

describe('following', () => {
  beforeEach(
    () =>
      void vi.useFakeTimers({ shouldAdvanceTime: true, advanceTimeDelta: 200 })
  );
  afterEach(() => void vi.useRealTimers());

  it('goes on after a lost stream without a line twice', async () => {
    const seen = await follow(
      100,
      () => body([batch('a', 'b')]),
      () => body([batch('a', 'b', 'c'), batch('c'), END])
    );
    expect(seen.lines).toEqual(['a', 'b', 'c', 'c']);
    expect(seen.tails).toEqual([100, null]);
    expect(seen.connections).toEqual(['live', 'lost', 'live', 'ended']);
  });

  it('shows a log that was begun anew from its beginning', async () => {
    const seen = await follow(
      100,
      () => body([batch('a', 'b')]),
      () => body([batch('x', 'y', 'z')], true),
      () => body([batch('x', 'y', 'z'), END])
    );
    expect(seen.lines).toEqual(['x', 'y', 'z']);
  });

  it('replaces everything where only the end of a long log was asked for', async () => {
    const seen = await follow(
      2,
      () => body([batch('7', '8')]),
      () => body([batch('8', '9'), batch('10'), END])
    );
    expect(seen.lines).toEqual(['8', '9', '10']);
    expect(seen.tails).toEqual([2, 2]);
  });

  it('replaces everything also where a sign of life comes before the lines', async () => {
    const seen = await follow(
      2,
      () => body([batch('7', '8')]),
      () => body(['{}\n', batch('8', '9'), END])
    );
    expect(seen.lines).toEqual(['8', '9']);
  });

  it('says that the stream is lost when the server tells of a problem in it', async () => {
    const problem = {
      title: 'BackendUnavailable',
      status: 503,
      detail: 'away'
    };
    const seen = await follow(
      9,
      () => body([`${JSON.stringify({ problem })}\n`]),
      () => body([END])
    );
    expect(seen.connections).toEqual(['live', 'lost', 'live', 'ended']);
  });
});

describe('the lines of a run', () => {
  let server: FakeServer;
  let model: LogsModel;
  let streams: ReadableStreamDefaultController<Uint8Array>[];
  const shown = (): string[] =>
    Array.from({ length: model.rows.length }, (_, index) => {
      const { task, text } = model.buffer.line(model.rows.number(index));
      return `${task} ${text}`;
    });

  beforeEach(async () => {
    server = new FakeServer();
    server.runs = [aRun('digits')];
    streams = [];
    server.answer = url =>
      url.pathname.endsWith('/logs')
        ? new Response(
            new ReadableStream({
              start: controller => void streams.push(controller)
            })
          )
        : undefined;
    server.model.start();
    await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
    model = new LogsModel(server.model, 'digits-1');
    await vi.waitFor(() => expect(streams).toHaveLength(1));
    streams[0].enqueue(
      encoder.encode(
        `${JSON.stringify({
          lines: [
            ['worker-0', 'step 1'],
            ['worker-1', 'I0000 00:00:1.2 4 a.cc:1] made'],
            ['worker-1', 'step 1']
          ]
        })}\n`
      )
    );
    await vi.waitFor(() => expect(shown()).toHaveLength(2));
  });
  afterEach(() => model.dispose());

  it('leave out remarks of TensorFlow, say how many, and show them on demand', async () => {
    await vi.waitFor(() => expect(model.state.hidden).toBe(1));
    model.setNoise(true);
    expect(shown()).toHaveLength(3);
    await vi.waitFor(() => expect(model.state.hidden).toBe(0));
  });

  it('are those of the chosen tasks, of which all are known before they print', async () => {
    model.show(['worker-1']);
    expect(shown()).toEqual(['worker-1 step 1']);
    await vi.waitFor(() =>
      expect(model.state.tasks.map(task => [task.name, task.isShown])).toEqual([
        ['worker-0', false],
        ['worker-1', true]
      ])
    );
    model.show([]);
    expect(shown()).toHaveLength(2);
  });

  it('are out of view once cleared, and come back', async () => {
    model.clear();
    expect(shown()).toEqual([]);
    await vi.waitFor(() => expect(model.state.cleared).toBe(3));
    model.showCleared();
    expect(shown()).toHaveLength(2);
  });

  it('stay when the run is deleted, which is said', async () => {
    server.push('digits-1', null);
    await vi.waitFor(() => expect(model.state.connection).toBe('gone'));
    expect(shown()).toHaveLength(2);
  });

  it('say what cannot be read of a run that is there, which was not deleted', async () => {
    const problem = {
      type: 'about:blank',
      title: 'NotFound',
      status: 404,
      detail: 'its pods are gone'
    };
    streams[0].enqueue(encoder.encode(`${JSON.stringify({ problem })}\n`));
    await vi.waitFor(() => expect(model.state.connection).toBe('ended'));
    expect(model.state.problem?.message).toBe('its pods are gone');
    expect(shown()).toHaveLength(2);
  });

  it('are never mixed with those of a new run of the same name', async () => {
    const other = aRun('digits');
    server.push('digits-1', {
      ...other,
      cluster: {
        ...other.cluster,
        metadata: { ...other.cluster.metadata, uid: 'another' }
      }
    });
    await vi.waitFor(() => expect(model.state.connection).toBe('gone'));
  });
});
