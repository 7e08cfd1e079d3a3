import * as React from 'react';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { LogsModel } from '../src/logs/model';
import { NO_QUERY } from '../src/logs/search';
import { LogsView } from '../src/logs/view';
import { aRun, FakeServer, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const LINES = 100_000;
/** Sooner than the next drawing. */
const SOON = { interval: 1, timeout: 30_000 };
/** Pixels of a row and of the window. */
const [ROW, HEIGHT] = [10, 400];

let root: Root;
let host: HTMLElement;
let model: LogsModel;
const log = (): HTMLElement => host.querySelector('[role="log"]')!;
const current = (): string | null | undefined =>
  host.querySelector('mark[data-current]')?.textContent;
/** Time for drawings, which come later than what they show. */
const drawn = (condition: () => void): Promise<void> =>
  vi.waitFor(async () => {
    await act(() => new Promise(resolve => setTimeout(resolve, 20)));
    condition();
  });

beforeEach(async () => {
  vi.spyOn(HTMLElement.prototype, 'clientHeight', 'get').mockReturnValue(
    HEIGHT
  );
  vi.spyOn(HTMLElement.prototype, 'getBoundingClientRect').mockReturnValue(
    new DOMRect(0, 0, 1000, ROW)
  );
  const server = new FakeServer();
  server.runs = [aRun('digits')];
  const lines = Array.from({ length: LINES }, (_, n) => [
    'worker-0',
    `line ${n}.`
  ]);
  server.answer = url =>
    url.pathname.endsWith('/logs')
      ? new Response(`${JSON.stringify({ lines })}\n{"end":true}\n`)
      : undefined;
  server.model.start();
  await vi.waitFor(() => expect(server.model.state.state).toBe('live'));
  model = new LogsModel(server.model, 'digits-1');
  host = document.body.appendChild(document.createElement('div'));
  root = createRoot(host);
  act(() =>
    root.render(
      <LogsView model={model} trans={trans} onDownload={() => undefined} />
    )
  );
  await drawn(() => expect(model.rows.length).toBe(LINES));
});

afterEach(() => {
  act(() => root.unmount());
  model.dispose();
  host.remove();
});

it('brings what a search found into view, also when it began anew before that was drawn', async () => {
  // each slice of a search ends at the next look at the clock: it takes longer than until the next drawing
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (now += 10));
  model.search({ ...NO_QUERY, text: 'line 90000.' }, 0);
  await vi.waitFor(() => expect(model.searcher.currentLine).toBe(90_000), SOON);
  model.setNoise(true);
  expect(model.searcher.currentLine).toBe(-1);
  await drawn(() => expect(current()).toBe('line 90000.'));
  expect(log().scrollTop).toBe(90_000 * ROW - HEIGHT / 2);
});

it('brings what a search found into view, also when a drawing before that was dropped', async () => {
  log().dispatchEvent(new Event('scroll'));
  await drawn(() => expect(model.rows.length).toBe(LINES));
  for (const number of [70_000, 80_000, 90_000]) {
    model.search({ ...NO_QUERY, text: `line ${number}.` }, 0);
    await vi.waitFor(
      () => expect(model.searcher.currentLine).toBe(number),
      SOON
    );
    // nothing is selected, as before: React may draw once more to find that out, and keeps nothing of it
    act(() => void document.dispatchEvent(new Event('selectionchange')));
    await drawn(() => expect(current()).toBe(`line ${number}.`));
    expect(log().scrollTop).toBe(number * ROW - HEIGHT / 2);
  }
});
