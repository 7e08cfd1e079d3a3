import { Notification } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';
import { beforeEach, expect, it, vi } from 'vitest';
import { problemOf } from '../src/api/problem';
import { Settings } from '../src/settings';
import { notifyEnds } from '../src/status/notifications';
import { CommandIDs } from '../src/tokens';
import { aRun, FakeServer, trans } from './runs';

let server: FakeServer;
const LATER = 2000;

beforeEach(async () => {
  Notification.dismiss();
  server = new FakeServer();
  const commands = new CommandRegistry();
  for (const id of [CommandIDs.logs, CommandIDs.openSidebar]) {
    commands.addCommand(id, { label: id, execute: () => undefined });
  }
  const settings = new Settings();
  notifyEnds({ model: server.model, settings, commands, trans });
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
});

const told = (): string[] =>
  Notification.manager.notifications.map(({ message }) => message);
const fail = (name: string): void =>
  server.push(`${name}-1`, aRun(name, 1, 'Failed', LATER));
const tells = (...texts: string[]): Promise<void> =>
  vi.waitFor(() => expect(told()).toEqual(texts));

it('failures that come together are one notification, which closes by itself', async () => {
  fail('a');
  await tells('a-1 failed. a is Failed.');
  fail('b');
  fail('c');
  await tells('3 clusters failed: a-1, b-1, c-1.');
  const [{ options }] = Notification.manager.notifications;
  expect(options.autoClose).toBeGreaterThan(0);
  expect(options.actions?.map(({ label }) => label)).toEqual(['Show']);
});

it('a notification goes with its run', async () => {
  fail('a');
  fail('b');
  await tells('2 clusters failed: a-1, b-1.');
  server.push('a-1', null);
  await tells('b-1 failed. b is Failed.');
  server.push('b-1', null);
  await tells();
});

it('a notification stays when the name of its run is launched again', async () => {
  fail('a');
  await tells('a-1 failed. a is Failed.');
  server.push('a-2', aRun('a', 2, 'Running', LATER));
  const changed = vi.fn();
  server.model.changed.connect(changed);
  // like the server's lists, which have only the newest run of a name
  server.runs = [aRun('a', 2, 'Running', LATER)];
  await server.model.refresh();
  expect(changed).toHaveBeenCalled();
  expect(told()).toEqual(['a-1 failed. a is Failed.']);
  server.push('a-1', null);
  await tells();
});

it('a deletion that failed after its answer is told until the run is gone', async () => {
  const run = aRun('a', 1, 'Stopped', LATER);
  server.push('a-1', run);
  await tells('a-1 was stopped. a is Stopped.');
  server.fail(run, 'a-1 was not deleted: use `tfcluster delete a-1`');
  const [refusal] = told();
  expect(refusal).toBe('a-1 was not deleted: use %tfcluster delete a-1');
  server.push('a-1', null);
  await tells();
});

it('successes and failures are told apart', async () => {
  fail('a');
  server.push('b-1', aRun('b', 1, 'Succeeded', LATER));
  await tells('b-1 has finished.', 'a-1 failed. a is Failed.');
});

it.each([
  [424, /not running.*Start it/],
  [503, /is not available/],
  [500, /log has the cause/],
  [418, /error 418. Reload/]
])(
  'an answer %i of a proxy says what is away and what to do',
  (status, says) => {
    const problem = problemOf(status, '<html>nginx</html>', trans);
    expect(problem.message).toMatch(says);
  }
);
