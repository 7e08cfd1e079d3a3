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
/** Options for waits: the interval is shorter than the time between two drawings. */
const SOON = { interval: 1, timeout: 30_000 };
/** Pixels of a row and of the window. */
const [ROW, HEIGHT] = [10, 400];

let root: Root;
let host: HTMLElement;
let model: LogsModel;
const log = (): HTMLElement => host.querySelector('[role="log"]')!;
const current = (): string | null | undefined =>
  host.querySelector('mark[data-current]')?.textContent;
/** Wait for the drawing, which follows a change of the state. */
const drawn = (condition: () => void): Promise<void> =>
  vi.waitFor(async () => {
    await act(() => new Promise(resolve => setTimeout(resolve, 20)));
    condition();
  });

beforeEach(async () => {
  vi.spyOn(HTMLElement.prototype, 'clientHeight', 'get').mockReturnValue(
    HEIGHT
  );
  vi.spyOn(HTMLElement.prototype, 'scrollHeight', 'get').mockReturnValue(
    LINES * ROW
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
  // each reading of this clock ends a slice of the search, so a search lasts until after the next
  // drawing
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
    // nothing is selected, as before; React may still render once more, and discard the result
    act(() => void document.dispatchEvent(new Event('selectionchange')));
    await drawn(() => expect(current()).toBe(`line ${number}.`));
    expect(log().scrollTop).toBe(number * ROW - HEIGHT / 2);
  }
});

/**
 * A user types slowly: the search and the drawing of each text end before the next text is typed.
 */
async function typed(...texts: string[]): Promise<void> {
  const input = host.querySelector('input')!;
  const { set } = Object.getOwnPropertyDescriptor(
    HTMLInputElement.prototype,
    'value'
  )!;
  for (const text of texts) {
    act(() => {
      set!.call(input, text);
      input.dispatchEvent(new Event('input', { bubbles: true }));
    });
    let isTold = false;
    const told = (): void => void (isTold = !model.searcher.isBusy);
    model.changed.connect(told);
    await drawn(() => {
      expect(isTold).toBe(true);
      expect(current() === undefined).toBe(model.searcher.count === 0);
    });
    model.changed.disconnect(told);
  }
}

it('leaves the newest line in view when nothing has what was typed, however slowly that was', async () => {
  const newest = `line ${LINES - 1}.`;
  expect(log().textContent).toContain(newest);
  await typed('line 7');
  expect(current()).toBe('line 7');
  expect(log().textContent).not.toContain(newest);
  await typed('line 7 ', 'line 7 of');
  await drawn(() => expect(model.state.follows).toBe(true));
  expect(log().textContent).toContain(newest);
});

it('goes back to the line where one began to type, and leads from there', async () => {
  const scrollTo = (top: number): void =>
    act(() => {
      log().scrollTop = top;
      log().dispatchEvent(new Event('scroll'));
    });
  const below = 50_005 * ROW;
  scrollTo(below + 10 * ROW);
  scrollTo(below); // after scrolling up, the view no longer follows
  await drawn(() => expect(model.state.follows).toBe(false));
  await typed('line 9');
  expect(log().scrollTop).toBe(90_000 * ROW - HEIGHT / 2);
  await typed('line 9z');
  expect(log().scrollTop).toBe(below);
  expect(model.state.follows).toBe(false);
  await typed('line 70');
  expect(log().scrollTop).toBe(70_000 * ROW - HEIGHT / 2);
  const currentLine = (): number =>
    Number(
      host
        .querySelector('mark[data-current]')
        ?.closest<HTMLElement>('[data-line]')?.dataset.line
    );
  // a step to the next match sets the position to which the view returns, and so does a scroll
  act(() => model.searcher.step(1));
  await drawn(() => expect(currentLine()).toBe(70_001));
  await typed('line 70z');
  expect(log().scrollTop).toBe(70_000 * ROW - HEIGHT / 2);
  await typed('line 9');
  scrollTo(below);
  await typed('line 9z');
  expect(log().scrollTop).toBe(below);
});

it('stops following at the wheel or a key, before its scroll has begun', async () => {
  await drawn(() => expect(model.state.follows).toBe(true));
  log().dispatchEvent(new WheelEvent('wheel', { deltaY: 1, bubbles: true }));
  expect(model.follows).toBe(true);
  log().dispatchEvent(new WheelEvent('wheel', { deltaY: -1, bubbles: true }));
  expect(model.follows).toBe(false);
  act(() => model.follow(true));
  log().dispatchEvent(
    new KeyboardEvent('keydown', { key: 'PageUp', bubbles: true })
  );
  expect(model.follows).toBe(false);
});
