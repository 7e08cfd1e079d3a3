import { beforeEach, describe, expect, it, vi } from 'vitest';
import { listed, nameOf } from '../src/api/clusters';
import { aRun, FakeServer } from './runs';

let server: FakeServer;
const names = (): string[] => server.model.state.runs.map(nameOf);
const phaseOf = (name: string): string | undefined =>
  server.model.find(name)?.cluster.status.phase;

beforeEach(async () => {
  server = new FakeServer();
  server.runs = [aRun('digits'), aRun('old', 1, 'Failed', 400)];
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  server.requests = [];
});

describe('the model of all runs', () => {
  it('takes what is pushed without asking the server', async () => {
    server.push('digits-1', aRun('digits', 1, 'Succeeded', 2000));
    await vi.waitFor(() => expect(phaseOf('digits-1')).toBe('Succeeded'));
    expect(server.requests).toEqual([]);
  });

  it('asks for the list again when the numbers of events have a gap', async () => {
    server.push('late-1', aRun('late'), 2);
    await vi.waitFor(() => expect(server.requests).toEqual(['GET /clusters']));
  });

  it('asks again when the server was started anew, and knows its runs', async () => {
    server.stream = 'two';
    server.sequence = 0;
    server.runs = [];
    server.push('new-1', aRun('new'));
    await vi.waitFor(() => expect(names()).toEqual(['new-1']));
    expect(server.requests).toEqual(['GET /clusters']);
  });

  it('does not let a list that was late undo what was pushed meanwhile', async () => {
    let open = (): void => undefined;
    server.gate = new Promise(resolve => (open = resolve));
    const asked = server.model.refresh();
    await vi.waitFor(() => expect(server.requests).toHaveLength(1));
    server.push('digits-1', aRun('digits', 1, 'Failed', 2000));
    server.push('old-1', null);
    open();
    await asked;
    expect(phaseOf('digits-1')).toBe('Failed');
    expect(names()).toEqual(['digits-1']);
  });

  it('keeps what it knows while the server is away, and recovers by itself', async () => {
    server.status = 0;
    await server.model.refresh();
    expect(server.model.state).toMatchObject({ state: 'stale' });
    expect(server.model.state.problem?.isAway).toBe(true);
    expect(names()).toEqual(['digits-1', 'old-1']);
    server.status = 200;
    await vi.waitFor(() => expect(server.model.state.state).toBe('live'), 8000);
    expect(server.model.state.problem).toBeNull();
  }, 10_000);

  it('says that the extension is off when the routes are not there', async () => {
    server.status = 404;
    await server.model.refresh();
    expect(server.model.state.problem?.message).toContain('enable');
  });

  it('says that the person is signed out, never a page of a proxy', async () => {
    server.status = 403;
    await server.model.refresh();
    expect(server.model.state.problem?.isSignedOut).toBe(true);
    expect(server.model.state.problem?.message).not.toContain('html');
  });

  it('tells of each new phase once, and not of runs that ended before this page', async () => {
    const told: string[] = [];
    server.model.transitioned.connect((_, { run, before }) => {
      told.push(`${nameOf(run)} ${before} ${run.cluster.status.phase}`);
    });
    server.push('digits-1', aRun('digits', 1, 'Succeeded', 2000));
    server.push('digits-1', aRun('digits', 1, 'Succeeded', 2000));
    server.push('before-1', aRun('before', 1, 'Failed', 499));
    server.push('after-1', aRun('after', 1, 'Failed', 501));
    expect(told).toEqual(['digits-1 Running Succeeded', 'after-1 null Failed']);
  });

  it('draws a burst of changes a few times, not once for each', async () => {
    let drawn = 0;
    server.model.changed.connect(() => (drawn += 1));
    for (let step = 0; step < 100; step++) {
      server.push('digits-1', aRun('digits', 1, 'Running', 1000));
    }
    await vi.waitFor(() => expect(drawn).toBeGreaterThan(0));
    expect(drawn).toBeLessThan(5);
  });
});

describe('the list', () => {
  const runs = [
    aRun('digits', 1, 'Failed', 10),
    aRun('digits', 2, 'Running', 20),
    aRun('digits', 3, 'Failed', 30),
    aRun('other', 1, 'Stopped', 40)
  ];

  it('has those that have not ended, then the newest run of each name, newest first', () => {
    expect(listed(runs, false).map(nameOf)).toEqual([
      'digits-2',
      'other-1',
      'digits-3'
    ]);
  });

  it('has every run when all are wanted', () => {
    expect(listed(runs, true)).toHaveLength(4);
  });
});
