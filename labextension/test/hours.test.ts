import { describe, expect, it } from 'vitest';
import type { IRun } from '../src/api/types';
import { heldHours } from '../src/run/words';
import { timeWords } from '../src/run/words';
import { aRun, trans } from './runs';

const NOON = 1795348800;

/**
 * A run with two workers since noon, each with two cores and a GPU, and one worker-hour before
 * noon.
 */
function run(releasedAt: number | null = null): IRun {
  const made = aRun('digits');
  const usage = {
    at: NOON,
    holding: { worker: 2 },
    days: { '2026-11-22': { worker: 3600 } },
    cores: { worker: 2 }
  };
  const worker = { count: 2, resources: { gpu: 1 } };
  return {
    ...made,
    cluster: {
      ...made.cluster,
      spec: { mode: 'between-graph', replicas: { worker } },
      status: { ...made.cluster.status, usage, releasedAt }
    }
  };
}

describe('hours of a run', () => {
  it('count what is held until now', () => {
    expect(heldHours(run(), NOON)).toEqual([2, 1]);
    expect(heldHours(run(), NOON + 1800)).toEqual([4, 2]);
  });

  it('end with the run', () => {
    expect(heldHours(run(NOON + 1800), NOON + 9999)).toEqual([4, 2]);
  });

  it('are told where they are worth a word', () => {
    const told = timeWords(run(), (NOON + 1800) * 1000, trans);
    expect(told).toContain('reserved 4.00 CPU·h · reserved 2.00 GPU·h');
    expect(timeWords(aRun('digits'), NOON * 1000, trans)).not.toContain(
      'reserved'
    );
  });
});
