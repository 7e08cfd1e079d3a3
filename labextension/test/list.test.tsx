import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { nameOf } from '../src/api/clusters';
import type { IRun } from '../src/api/types';
import { RunList } from '../src/sidebar/RunList';
import { CommandIDs } from '../src/tokens';
import { aRun, FakeServer, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const { model } = new FakeServer();
let root: Root;
let host: HTMLElement;
let commands: CommandRegistry;
const executed: string[] = [];
let revealed: string | null = null;

beforeEach(() => {
  host = document.body.appendChild(document.createElement('div'));
  root = createRoot(host);
  executed.length = 0;
  commands = new CommandRegistry();
  for (const id of [CommandIDs.stop, CommandIDs.remove]) {
    commands.addCommand(id, {
      label: id,
      execute: ({ name }) => void executed.push(`${id} ${String(name)}`)
    });
  }
});

afterEach(() => {
  act(() => root.unmount());
  host.remove();
});

const draw = (runs: ReadonlyArray<IRun>): void =>
  act(() =>
    root.render(
      <RunList
        runs={runs}
        model={model}
        trans={trans}
        commands={commands}
        selected={new Set()}
        revealed={revealed}
        onRevealed={() => (revealed = null)}
        onSelect={() => undefined}
        onEscape={() => undefined}
      />
    )
  );
const rows = (): HTMLElement[] => [
  ...host.querySelectorAll<HTMLElement>('[role="row"]')
];
const press = async (key: string): Promise<void> => {
  const target = document.activeElement ?? host;
  await act(async () => {
    target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    await new Promise(requestAnimationFrame);
  });
};

it('opens the row of a run that is told only after it was asked for', async () => {
  revealed = 'digits-1';
  draw([aRun('other')]);
  expect(revealed).toBe('digits-1');
  draw([aRun('other'), aRun('digits')]);
  await vi.waitFor(() => {
    expect(document.activeElement?.getAttribute('data-run')).toBe('digits-1');
  });
  expect(document.activeElement?.getAttribute('aria-expanded')).toBe('true');
  expect(revealed).toBeNull();
});

it('changes nothing in the document for rows whose run has not changed', async () => {
  const runs = [aRun('a'), aRun('b'), aRun('c')];
  draw(runs);
  const [first, second, third] = rows();
  const seen: Node[] = [];
  const observer = new MutationObserver(records =>
    seen.push(...records.map(record => record.target))
  );
  observer.observe(host, { subtree: true, childList: true, attributes: true });
  draw([runs[0], aRun('b', 1, 'Failed'), runs[2]]);
  await vi.waitFor(() => expect(second.dataset.phase).toBe('Failed'));
  await vi.waitFor(() => expect(seen.length).toBeGreaterThan(0));
  observer.disconnect();
  expect(seen.some(node => first.contains(node) || third.contains(node))).toBe(
    false
  );
});

it('puts a page of 200 runs into the document, and says how many there are', () => {
  draw(Array.from({ length: 200 }, (_, index) => aRun(`run${index}`)));
  expect(rows()).toHaveLength(50);
  expect(
    host.querySelector('[role="treegrid"]')?.getAttribute('aria-rowcount')
  ).toBe('200');
});

it('has one stop for Tab, which the arrows move', async () => {
  draw([aRun('a'), aRun('b'), aRun('c')]);
  const stops = (): string[] =>
    rows()
      .filter(row => row.tabIndex === 0)
      .map(row => row.dataset.run!);
  expect(stops()).toEqual(['a-1']);
  act(() => rows()[0].focus());
  await press('ArrowDown');
  expect(stops()).toEqual(['b-1']);
  expect(document.activeElement).toBe(rows()[1]);
  await press('End');
  expect(stops()).toEqual(['c-1']);
});

it('opens a row with Enter, closes it with Escape', async () => {
  draw([aRun('a')]);
  act(() => rows()[0].focus());
  await press('Enter');
  expect(rows()[0].getAttribute('aria-expanded')).toBe('true');
  expect(host.querySelector('.tfc-Facts')).not.toBeNull();
  await press('Escape');
  expect(rows()[0].getAttribute('aria-expanded')).toBe('false');
});

it('stops and deletes the run of the row that has the focus', async () => {
  draw([aRun('a'), aRun('b')]);
  act(() => rows()[1].focus());
  await press('s');
  await press('Delete');
  expect(executed).toEqual([
    `${CommandIDs.stop} b-1`,
    `${CommandIDs.remove} b-1`
  ]);
});

it('gives the focus to the next row when the one that had it is gone', async () => {
  const runs = [aRun('a'), aRun('b'), aRun('c')];
  draw(runs);
  act(() => rows()[1].focus());
  draw(runs.filter(run => nameOf(run) !== 'b-1'));
  await vi.waitFor(() =>
    expect((document.activeElement as HTMLElement).dataset.run).toMatch(
      /^[ac]-1$/
    )
  );
});

it('shows markup in a name and a message as text', () => {
  const evil = '<img src=x onerror=alert(1)>';
  draw([aRun(evil, 1, 'Failed')]);
  expect(host.querySelector('img')).toBeNull();
  expect(host.textContent).toContain(evil);
});
