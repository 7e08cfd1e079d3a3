/** The setup of every unit test: a happy-dom that JupyterLab's components accept. */

import { vi } from 'vitest';

// Files share one page (`isolate` in vitest.config.mts). A file that uses act() sets this variable
// to true.
(
  globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }
).IS_REACT_ACT_ENVIRONMENT = false;

// Vitest's own limit of a second is too short on a busy machine.
const waitFor = vi.waitFor;
vi.waitFor = (condition, limits) =>
  waitFor(condition, limits ?? { timeout: 30_000 });

// A happy-dom document is not an instance of the global Document, but the toolkit of JupyterLab's
// buttons requires that to place its styles.
globalThis.Document = HTMLDocument as unknown as typeof Document;

// Browsers have this function; JupyterLab's React widgets draw in it.
globalThis.requestIdleCallback ??= callback =>
  Number(
    setTimeout(() => callback({ didTimeout: false, timeRemaining: () => 50 }))
  );
