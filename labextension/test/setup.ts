/** The setup of every unit test: a happy-dom that JupyterLab's components accept. */

import { vi } from 'vitest';

// Files share one page (`isolate` in vitest.config.mts). A file that uses act() sets it to true.
(
  globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }
).IS_REACT_ACT_ENVIRONMENT = false;

// A second, vitest's own limit, is short on a machine that is busy with others.
const waitFor = vi.waitFor;
vi.waitFor = (condition, limits) =>
  waitFor(condition, limits ?? { timeout: 30_000 });

// A happy-dom document is no instance of the global Document, and the toolkit under JupyterLab's buttons asks for that
// to find the place for its styles.
globalThis.Document = HTMLDocument as unknown as typeof Document;

// Browsers have it; JupyterLab's React widgets draw in it.
globalThis.requestIdleCallback ??= callback =>
  Number(
    setTimeout(() => callback({ didTimeout: false, timeRemaining: () => 50 }))
  );
