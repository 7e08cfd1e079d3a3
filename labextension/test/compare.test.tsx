import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { IComparison } from '../src/api/types';
import { ComparisonModel } from '../src/compare/model';
import { Comparison } from '../src/compare/widget';
import { Selection } from '../src/sidebar/Selection';
import { CommandIDs } from '../src/tokens';
import { aRun, FakeServer, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const ASKED = 'GET /comparison';
const EVIL = '<img src=x onerror=alert(1)>';
const COMPARED: IComparison = {
  runs: [
    { name: 'digits-1', displayName: EVIL, phase: 'Succeeded' },
    { name: 'digits-2', displayName: '', phase: 'Running' }
  ],
  rows: [
    { group: 'run', label: 'Tasks', values: ['2', '2'], differs: false },
    { group: 'run', label: 'Note', values: [EVIL, ''], differs: true },
    { group: 'results', label: 'Step', values: ['8', '8'], differs: false }
  ]
};

let server: FakeServer;
let host: HTMLElement;
let root: Root;
const asked = (): number => server.requests.filter(r => r === ASKED).length;

beforeEach(async () => {
  server = new FakeServer();
  server.runs = [aRun('digits'), aRun('digits', 2), aRun('other')];
  server.answers = { [ASKED]: COMPARED };
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  host = document.body.appendChild(document.createElement('div'));
  root = createRoot(host);
});

afterEach(() => {
  act(() => root.unmount());
  host.remove();
});

const draw = (model: ComparisonModel, onlyDifferences: boolean): void =>
  act(() =>
    root.render(
      <Comparison
        model={model}
        trans={trans}
        onlyDifferences={onlyDifferences}
        onOnlyDifferences={() => undefined}
        onCurves={null}
      />
    )
  );

it('shows what differs first, or alone, and everything as text', async () => {
  const model = new ComparisonModel(server.model, ['digits-1', 'digits-2']);
  draw(model, false);
  expect(host.textContent).toContain('Asking the server');
  await act(async () => {
    model.isSeen = true;
    await vi.waitFor(() => expect(model.state.comparison).not.toBeNull());
  });
  const rows = (): string[] =>
    [...host.querySelectorAll('th[scope=row] bdi')].map(
      each => each.textContent ?? ''
    );
  expect(rows()).toEqual(['Note', 'Tasks', 'Step']);
  expect(host.querySelector('img')).toBeNull();
  const heads = [...host.querySelectorAll('th[scope=col]')];
  expect(heads[0].textContent).toContain(`${EVIL}digits-1`);
  draw(model, true);
  expect(rows()).toEqual(['Note']);
  expect(host.textContent).not.toContain('Results');
  model.dispose();
});

it('is asked for again when one of its runs changes, while somebody looks', async () => {
  const model = new ComparisonModel(server.model, ['digits-1', 'digits-2']);
  await vi.waitFor(() => expect(asked()).toBe(0));
  model.isSeen = true;
  await vi.waitFor(() => expect(asked()).toBe(1));
  const changed = new Promise(done => server.model.changed.connect(done));
  server.push('other-1', aRun('other', 1, 'Failed'));
  await changed;
  await new Promise(done => setTimeout(done)); // so that the next change is pushed separately
  server.push('digits-2', aRun('digits', 2, 'Failed'));
  await vi.waitFor(() => expect(asked()).toBe(2));
  model.isSeen = false;
  const later = new Promise(done => server.model.changed.connect(done));
  server.push('digits-2', aRun('digits', 2, 'Succeeded'));
  await later;
  expect(asked()).toBe(2);
  model.isSeen = true;
  await vi.waitFor(() => expect(asked()).toBe(3));
  model.dispose();
});

it('keeps the table beside the sentence that says why it is old', async () => {
  const model = new ComparisonModel(server.model, ['digits-1', 'digits-2']);
  draw(model, false);
  await act(async () => {
    model.isSeen = true;
    await vi.waitFor(() => expect(model.state.comparison).not.toBeNull());
  });
  const title = 'NotFound';
  const problem = { type: '', title, status: 404, detail: 'There is no run.' };
  server.answer = url =>
    url.pathname.endsWith('/comparison')
      ? new Response(JSON.stringify(problem), { status: 404 })
      : undefined;
  await act(async () => {
    server.push('digits-1', null);
    await vi.waitFor(() => expect(model.state.problem).not.toBeNull());
  });
  expect(host.querySelector('[role=alert]')?.textContent).toContain('no run');
  expect(host.querySelector('table')).not.toBeNull();
  model.dispose();
});

it.each([
  [1, true],
  [2, false],
  [8, false],
  [9, true]
])('of %i selected runs the button is disabled: %s', (count, disabled) => {
  const commands = new CommandRegistry();
  const execute = vi.fn();
  commands.addCommand(CommandIDs.compare, { execute });
  const runs = Array.from({ length: count }, (_, n) => aRun('digits', n + 1));
  act(() =>
    root.render(
      <Selection
        runs={runs}
        model={server.model}
        commands={commands}
        trans={trans}
        onClear={() => undefined}
      />
    )
  );
  const button = [...host.querySelectorAll('button')].find(
    each => each.textContent === 'Compare'
  )!;
  expect(button.disabled).toBe(disabled);
  button.click();
  expect(execute).toHaveBeenCalledTimes(disabled ? 0 : 1);
});
