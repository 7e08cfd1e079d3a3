import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'happy-dom',
    isolate: false, // a third of the CPU time: each file would load JupyterLab anew
    include: ['src/**/*.test.{ts,tsx}', 'test/**/*.test.{ts,tsx}'],
    restoreMocks: true,
    setupFiles: ['test/setup.ts'],
    testTimeout: 60_000,
    unstubGlobals: true
  }
});
