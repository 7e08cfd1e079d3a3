/**
 * The model of all runs with events that arrive late, twice, or about another run of the same name.
 */
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { nameOf } from '../src/api/clusters';
import type { ITransition } from '../src/api/state';
import type { IRun } from '../src/api/types';
import { aRun, FakeServer } from './runs';

let server: FakeServer;
let told: ITransition[];
const phaseOf = (name: string): string | undefined =>
  server.model.find(name)?.cluster.status.phase;
const running = aRun('digits');
const ended = aRun('digits', 1, 'Stopped', 2000);

/** Another run with the name of `run`. */
function renewed(run: IRun): IRun {
  const metadata = { ...run.cluster.metadata, uid: 'another' };
  return { ...run, cluster: { ...run.cluster, metadata } };
}

/** Answers to verbs, and the query with which each was requested. */
function answering(status: number, body: unknown): string[] {
  const asked: string[] = [];
  server.answer = url => {
    if (!url.pathname.includes('/clusters/')) {
      return undefined;
    }
    const search = url.search.replace(/[?&]\d+$/, ''); // without the parameter that prevents caching
    asked.push(url.pathname.split('/clusters/')[1] + search);
    return new Response(body === null ? null : JSON.stringify(body), {
      status
    });
  };
  return asked;
}

beforeEach(async () => {
  server = new FakeServer();
  server.runs = [running];
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  server.requests = [];
  told = [];
  server.model.transitioned.connect((_, transition) => told.push(transition));
});

describe('a run that has ended', () => {
  it('does not come back by an event that is late', () => {
    server.push('digits-1', ended);
    server.push('digits-1', running);
    expect(phaseOf('digits-1')).toBe('Stopped');
    expect(told).toHaveLength(1);
  });

  it('does not come back by a list that is late', async () => {
    server.push('digits-1', ended);
    server.runs = [running];
    await server.model.refresh();
    expect(phaseOf('digits-1')).toBe('Stopped');
  });

  it('gives its name to another run, whose phases are news of their own', () => {
    server.push('digits-1', renewed(aRun('digits', 1, 'Running')));
    server.push('digits-1', renewed(aRun('digits', 1, 'Failed', 3000)));
    expect(
      told.map(({ run, before }) => [before, run.cluster.status.phase])
    ).toEqual([
      [null, 'Running'],
      ['Running', 'Failed']
    ]);
    expect(phaseOf('digits-1')).toBe('Failed');
  });
});

describe('an end that a person asks for', () => {
  it('names the very run that was shown, and is no news when it comes', async () => {
    const asked = answering(200, ended);
    await server.model.stop(running);
    expect(asked).toEqual(['digits-1/stop?uid=digits-1']);
    expect(told.map(one => one.asked)).toEqual([true]);
  });

  it('says nothing of the next run of that name', async () => {
    answering(200, ended);
    await server.model.stop(running);
    server.push('digits-1', renewed(running));
    server.push('digits-1', renewed(ended));
    expect(told.map(one => one.asked)).toEqual([true, false, false]);
  });

  it('is forgotten when the server refuses it', async () => {
    const problem = { title: 'Conflict', status: 409, detail: 'Another run.' };
    answering(409, problem);
    await expect(server.model.stop(running)).rejects.toThrow('Another run.');
    server.push('digits-1', ended);
    expect(told.map(one => one.asked)).toEqual([false]);
  });

  it('leaves a run in the list until its deletion is told, where it is stopped first', async () => {
    const asked = answering(202, aRun('digits', 1, 'Stopping'));
    await server.model.remove(running, true);
    expect(asked).toEqual(['digits-1?uid=digits-1&logs=1']);
    expect(phaseOf('digits-1')).toBe('Stopping');
    server.push('digits-1', null);
    expect(server.model.find('digits-1')).toBeUndefined();
  });

  it('takes a run that has ended from the list at once', async () => {
    answering(204, null);
    await server.model.remove(running);
    expect(server.model.find('digits-1')).toBeUndefined();
  });
});

describe('a page that hears nothing', () => {
  it('asks again soon when a list knows of more than was pushed, until it hears', async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    try {
      server.sequence += 3; // all pushed events were lost
      await server.model.refresh();
      server.requests = [];
      await vi.advanceTimersByTimeAsync(6000);
      expect(server.requests).toEqual(['GET /clusters']);
      server.push('digits-1', running);
      await vi.advanceTimersByTimeAsync(6000);
      server.requests = [];
      await vi.advanceTimersByTimeAsync(20_000);
      expect(server.requests).toEqual([]);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('a run that the list leaves out', () => {
  it('is asked for again when it was not there a moment ago', async () => {
    await expect(server.model.ensure('late-1')).rejects.toThrow('late-1');
    server.runs = [...server.runs, aRun('late')];
    expect(nameOf(await server.model.ensure('late-1'))).toBe('late-1');
  });

  it('is asked for once by two who want it', async () => {
    server.runs = [...server.runs, aRun('late')];
    await Promise.all([
      server.model.ensure('late-1'),
      server.model.ensure('late-1')
    ]);
    await new Promise(resolve => setTimeout(resolve, 100));
    expect(server.requests).toEqual(['GET /clusters']);
  });
});

it('a person who may not do something is not told to sign in', async () => {
  const detail = 'You may not stop clusters here.';
  answering(403, { title: 'NotAllowed', status: 403, detail });
  const refused = await server.model.stop(running).catch(error => error);
  expect(refused.message).toBe(detail);
  expect(refused.isSignedOut).toBe(false);
});
