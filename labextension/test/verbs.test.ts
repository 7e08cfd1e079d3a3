/**
 * The commands on runs, with JupyterLab's own dialogs: the answer applies to the run that the
 * question showed.
 */
import { Clipboard } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ProgramKind } from '../src/api/models';
import { displayNameOf } from '../src/api/runs';
import type { IRun } from '../src/api/types';
import { linkIn } from '../src/commands/links';
import { addVerbs } from '../src/commands/verbs';
import { Settings } from '../src/settings';
import { CommandIDs } from '../src/tokens';
import { aRun, FakeServer, trans } from './runs';

let server: FakeServer;
let commands: CommandRegistry;
const running = aRun('digits');
const args = { name: 'digits-1' };
const yes = (): HTMLButtonElement | null =>
  document.querySelector<HTMLButtonElement>('.jp-Dialog .jp-mod-accept');
const asked = (verb: string): string[] =>
  server.requests.filter(request => request.startsWith(verb));

function withProgram(run: IRun, kind: ProgramKind): IRun {
  const program = { kind, source: 'x', entrypoint: 'x', sha256: '' };
  const { cluster } = run;
  return {
    ...run,
    cluster: { ...cluster, spec: { ...cluster.spec, program } }
  };
}

beforeEach(async () => {
  server = new FakeServer();
  server.runs = [running];
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  commands = new CommandRegistry();
  const settings = new Settings();
  const notebooks = null;
  addVerbs({ commands, model: server.model, settings, notebooks, trans });
});

afterEach(() => document.body.replaceChildren());

test.each([CommandIDs.stop, CommandIDs.remove])(
  '%s cannot be confirmed for another run that has the name by now',
  async command => {
    const done = commands.execute(command, args);
    await vi.waitFor(() => expect(yes()?.disabled).toBe(false));
    const metadata = { ...running.cluster.metadata, uid: 'another' };
    const cluster = { ...running.cluster, metadata };
    server.push('digits-1', { ...running, cluster });
    await vi.waitFor(() => expect(yes()?.disabled).toBe(true));
    document
      .querySelector('.jp-Dialog')
      ?.dispatchEvent(
        new KeyboardEvent('keydown', { key: 'Enter', keyCode: 13 })
      );
    document.querySelector<HTMLElement>('.jp-Dialog .jp-mod-reject')?.click();
    await done;
    expect([...asked('POST'), ...asked('DELETE')]).toEqual([]);
  }
);

test('a stop cannot be confirmed for a run that has ended meanwhile', async () => {
  const done = commands.execute(CommandIDs.stop, args);
  await vi.waitFor(() => expect(yes()?.disabled).toBe(false));
  server.push('digits-1', aRun('digits', 1, 'Succeeded', 2000));
  await vi.waitFor(() => expect(yes()?.disabled).toBe(true));
  document.querySelector<HTMLElement>('.jp-Dialog .jp-mod-reject')?.click();
  await done;
  expect(asked('POST')).toEqual([]);
});

test('a confirmed stop is sent', async () => {
  const stop = 'POST /clusters/digits-1/stop';
  server.answers = { [stop]: aRun('digits', 1, 'Stopping') };
  const done = commands.execute(CommandIDs.stop, args);
  await vi.waitFor(() => expect(yes()).not.toBeNull());
  yes()?.click();
  await done;
  expect(asked('POST')).toEqual([stop]);
});

test('a run is renamed for display, and its name stays', async () => {
  const rename = 'POST /clusters/digits-1/rename';
  const { cluster } = running;
  const metadata = { ...cluster.metadata, displayName: 'First try' };
  const renamed = { ...running, cluster: { ...cluster, metadata } };
  server.answers = { [rename]: renamed };
  const done = commands.execute(CommandIDs.rename, args);
  await vi.waitFor(() => expect(yes()).not.toBeNull());
  const input = document.querySelector<HTMLInputElement>('.jp-Dialog input')!;
  input.value = 'First try';
  yes()?.click();
  await done;
  expect(server.bodies).toEqual([{ text: 'First try' }]);
  expect(displayNameOf(server.model.find('digits-1')!)).toBe('First try');
});

test('tags are changed by what was added and taken away', async () => {
  const tag = 'POST /clusters/digits-1/tag';
  const { cluster } = running;
  const metadata = { ...cluster.metadata, tags: ['baseline', 'lr'] };
  const tagged = { ...running, cluster: { ...cluster, metadata } };
  server.push('digits-1', tagged);
  server.answers = { [tag]: tagged };
  const done = commands.execute(CommandIDs.tag, args);
  await vi.waitFor(() => expect(yes()).not.toBeNull());
  const input = document.querySelector<HTMLInputElement>('.jp-Dialog input')!;
  expect(input.value).toBe('baseline lr');
  input.value = ' lr, final  final';
  yes()?.click();
  await done;
  expect(server.bodies).toEqual([
    {
      add: ['final'],
      remove: ['baseline']
    }
  ]);
});

test('a note is written over the one that was', async () => {
  const note = 'POST /clusters/digits-1/note';
  const { cluster } = running;
  const metadata = { ...cluster.metadata, note: 'rate 0.1' };
  const noted = { ...running, cluster: { ...cluster, metadata } };
  server.push('digits-1', noted);
  server.answers = { [note]: noted };
  const done = commands.execute(CommandIDs.note, args);
  await vi.waitFor(() => expect(yes()).not.toBeNull());
  const input = document.querySelector<HTMLInputElement>('.jp-Dialog input');
  expect(input?.value).toBe('rate 0.1');
  yes()?.click();
  await done;
  expect(asked('POST')).toEqual([note]);
});

test('what is copied for a cell is its line, for a shell its command', async () => {
  const copied: string[] = [];
  vi.spyOn(Clipboard, 'copyToSystem').mockImplementation(
    text => void copied.push(String(text))
  );
  const line = '%tfcluster launch /a/x.py';
  const command = 'cd /a && tfcluster launch x.py';
  server.answers = {
    'GET /clusters/digits-1': { ...running, line, command, yaml: '', tasks: [] }
  };
  await commands.execute(CommandIDs.copyCommand, args);
  await commands.execute(CommandIDs.copyCommand, { ...args, shell: true });
  expect(copied).toEqual([line, command]);
});

test('a run of a cell has no command for a shell', () => {
  const isOffered = (): boolean =>
    commands.isVisible(CommandIDs.copyCommand, { ...args, shell: true });
  server.push('digits-1', withProgram(running, 'file'));
  expect(isOffered()).toBe(true);
  server.push('digits-1', withProgram(running, 'cell'));
  expect(isOffered()).toBe(false);
  expect(commands.isVisible(CommandIDs.copyCommand, args)).toBe(true);
});

test('a link names a run, and shows it, its logs or its curves', () => {
  const { openSidebar, logs, tensorboard } = CommandIDs;
  const name = 'digits-1';
  expect(linkIn('?reset&tfcluster=run:digits-1')).toEqual({
    command: openSidebar,
    name
  });
  expect(linkIn('?tfcluster=logs%3Adigits-1')).toEqual({ command: logs, name });
  expect(linkIn('?tfcluster=tensorboard:digits-1')).toEqual({
    command: tensorboard,
    name
  });
  for (const other of ['stop:digits-1', 'logs:', 'logs:../x', 'toString:a']) {
    expect(linkIn(`?tfcluster=${other}`)).toBeNull();
  }
  expect(linkIn('?tfcluster')).toBeNull();
});
