import { describe, expect, it } from 'vitest';
import type { Phase, Status } from '../src/api/models';
import type { IProgress, IRun } from '../src/api/types';
import { curve } from '../src/run/parts';
import * as quantities from '../src/run/quantities';
import * as words from '../src/run/words';
import { filtered, NO_FILTER, phaseCounts } from '../src/sidebar/filter';
import { aRun, trans } from './runs';

const PROGRESS: IProgress = {
  step: 400,
  total: 800,
  stepsPerSecond: 187.4,
  loss: 0.1234,
  etaSeconds: 2.04,
  at: 0,
  unit: 'step',
  epoch: null,
  history: [
    [1, 2],
    [400, 0.1234]
  ]
};

describe('words for a run', () => {
  it('are those of the command line', () => {
    expect(words.describeProgress(PROGRESS, true, trans)).toBe(
      'step 400/800 · 187 steps/s · loss 0.123 · 2 s left'
    );
  });

  it('say at once that a run is failing, while only its cause is open', () => {
    const failing: Status = {
      ...aRun('digits').cluster.status,
      reason: 'Investigating'
    };
    expect(words.stateWord(failing, trans)).toBe('Failing');
    expect(words.stateWord({ ...failing, phase: 'Failed' }, trans)).toBe(
      'Failed'
    );
    expect(words.stateWord({ ...failing, reason: 'Running' }, trans)).toBe(
      'Running'
    );
  });

  it('count tasks as the card of a saved notebook does (test_report.py)', () => {
    const said = (phase: Phase, ready: number, total: number): string =>
      words.taskWords(
        aRun('digits', 1, phase, 1000, { ready: { ready, total } }),
        trans
      );
    expect(said('Queued', 0, 3)).toBe('0 of 3 running');
    expect(said('Running', 2, 3)).toBe('2 of 3 running');
    expect(said('Succeeded', 2, 2)).toBe('2 tasks finished');
    expect(said('Failed', 0, 3)).toBe('3 tasks');
    const served = aRun('digits', 1, 'Succeeded', 1000, {
      ready: { ready: 3, total: 3 }
    });
    const { cluster } = served;
    const counts = {
      worker: { desired: 2, succeeded: 2 },
      ps: { desired: 1, running: 1 }
    } as unknown as Status['counts'];
    expect(
      words.taskWords(
        {
          ...served,
          cluster: { ...cluster, status: { ...cluster.status, counts } }
        },
        trans
      )
    ).toBe('2 tasks finished, 1 running');
  });

  it('show three further figures', () => {
    const metrics = { accuracy: 0.9123, mae: null, lr: 0.1, f1: 0.5, auc: 1 };
    expect(words.describeProgress({ ...PROGRESS, metrics }, false, trans)).toBe(
      'step 400/800 · loss 0.123 · accuracy 0.912 · lr 0.1 · f1 0.5'
    );
  });

  it('leave out speed and time left when it has ended', () => {
    expect(words.describeProgress(PROGRESS, false, trans)).toBe(
      'step 400/800 · loss 0.123'
    );
  });

  it('do not count a success as unfinished', () => {
    expect(words.describeProgress(PROGRESS, false, trans, true)).toBe(
      'last reported step 400/800 · loss 0.123'
    );
    const all = { ...PROGRESS, step: 800 };
    expect(words.describeProgress(all, false, trans, true)).toBe(
      'step 800/800 · loss 0.123'
    );
  });

  it('say that a loss has diverged', () => {
    const diverged = { ...PROGRESS, loss: null };
    expect(words.describeProgress(diverged, false, trans)).toContain(
      'not a number'
    );
  });

  it.each([
    [75, '75s'],
    [130, '2m'],
    [7500, '2h5m'],
    [200_000, '2d']
  ])('give %i seconds of age as %s', (seconds, text) => {
    expect(quantities.age(seconds)).toBe(text);
  });

  it.each([
    [0.25, '0.3s'],
    [5400, '1h 30m'],
    [0, '0s'],
    [90_061, '1d 1h'],
    [-0.4, '0s']
  ])('give a duration of %d seconds as %s', (seconds, text) => {
    expect(quantities.duration(seconds)).toBe(text);
  });

  it('name the day of a time that is not today', () => {
    const noon = new Date(2026, 4, 3, 12, 5).getTime();
    expect(quantities.clock(noon / 1000, noon)).toBe('12:05');
    expect(quantities.clock(noon / 1000, noon + 86_400_000)).toBe(
      '2026-05-03 12:05'
    );
  });

  it('give memory as the command line does', () => {
    expect([2147483648, 1610612736, 1000].map(quantities.bytes)).toEqual([
      '2Gi',
      '1536Mi',
      '1000'
    ]);
  });
});

describe('the curve of the loss', () => {
  it('goes from the left edge down to the right edge', () => {
    expect(curve(PROGRESS.history)).toBe('M2.0 2.0L62.0 16.0');
  });

  it('has a gap where the loss is not a number', () => {
    const drawn = curve([
      [0, 1],
      [1, null],
      [2, 0]
    ]);
    expect(drawn.match(/M/g)).toHaveLength(2);
  });

  it('is a flat line when the loss never changes', () => {
    expect(
      curve([
        [0, 1],
        [1, 1]
      ])
    ).not.toContain('NaN');
  });
});

describe('the filter', () => {
  const runs = [
    aRun('digits', 1, 'Running'),
    aRun('broken', 1, 'Failed'),
    aRun('digits', 2, 'Failed')
  ];

  it('finds all words of the text, in any case, in name, phase or sentence', () => {
    const found = filtered(
      runs,
      { ...NO_FILTER, text: 'DIGITS failed' },
      trans
    );
    expect(found).toEqual([runs[2]]);
  });

  it('finds display names and tags, and tags alone by tag:', () => {
    const tagged = aRun('digits', 4);
    tagged.cluster.metadata.displayName = 'First Try';
    tagged.cluster.metadata.tags = ['Baseline', 'lr-search'];
    const all = [...runs, tagged];
    const found = (text: string): ReadonlyArray<IRun> =>
      filtered(all, { ...NO_FILTER, text }, trans);
    for (const text of [
      'first try',
      'baseli',
      'tag:baseline',
      'tag:',
      'tag:lr-search first'
    ]) {
      expect(found(text), text).toEqual([tagged]);
    }
    for (const text of ['tag:base', 'tag:baseline tag:other', 'tag:first']) {
      expect(found(text), text).toEqual([]);
    }
  });

  it('finds words of the note', () => {
    const noted = aRun('digits', 3);
    noted.cluster.metadata.note = 'Rate 0.1';
    const found = filtered(
      [...runs, noted],
      { ...NO_FILTER, text: 'rate' },
      trans
    );
    expect(found).toEqual([noted]);
  });

  it('shows only the phases that are chosen', () => {
    const phases = new Set(['Failed'] as const);
    expect(filtered(runs, { ...NO_FILTER, phases }, trans)).toEqual(
      runs.slice(1)
    );
  });

  it('counts the phases that there are, lively ones first', () => {
    expect(phaseCounts(runs)).toEqual([
      ['Running', 1],
      ['Failed', 2]
    ]);
  });
});
