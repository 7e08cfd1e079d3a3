import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { LineBuffer } from '../src/logs/buffer';
import { programLines, TensorFlowLog } from '../src/logs/noise';

/** Python must hide the same lines: tests/unit/runtime/test_tensorflow_log.py. */
const file = '../../tests/data/tensorflow_log.json';
const cases = Object.entries(
  JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8')) as Record<
    string,
    string[]
  >
);
const textOf = (line: string): string => line.slice(line.indexOf('| ') + 2);

describe('a remark of TensorFlow itself', () => {
  it.each([
    '2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is optimized',
    '2026-11-21 16:36:34.123456: W external/local_xla/xla/tsl/framework/cpu_allocator_impl.cc:83] Allocation of 5',
    'I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] made',
    'To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.',
    'WARNING: All log messages before absl::InitializeLog() is called are written to STDERR'
  ])('is told by its form: %s', line => {
    expect(new TensorFlowLog().hides(line)).toBe(true);
  });

  it.each([
    '2026-11-21 16:36:34.123456: E tensorflow/core/grpc.cc:1] UNAVAILABLE',
    'F0000 00:00:1732207594.123456    4711 check.cc:88] Check failed',
    'I1121 16:36:34.123456 140 train.py:12] step 3',
    '2026-11-21 16:36:34 INFO train.py:12] step 3',
    'step 3'
  ])('is never an error or a line of the program: %s', line => {
    expect(new TensorFlowLog().hides(line)).toBe(false);
  });
});

it.each(cases)('with all of its lines: %s', (_name, lines) => {
  const log = new TensorFlowLog();
  const told = lines.map(line => {
    const text = textOf(line);
    return `${log.hides(text) ? 'hidden' : 'shown '}| ${text}`;
  });
  expect(told).toEqual(lines);
  expect(programLines(lines.map(textOf))).toEqual(
    lines.filter(line => line.startsWith('shown')).map(textOf)
  );
});

it('its lines are told for each task, across batches, until the log is read anew', () => {
  const buffer = new LineBuffer();
  const first = 'I0000 00:00:1.2 4 a.cc:1] Options: goo.gle/debugstr  ';
  const hidden = (): boolean[] =>
    Array.from(
      { length: buffer.end - buffer.first },
      (_, index) => buffer.line(buffer.first + index).isNoise
    );
  buffer.append([
    ['ps-0', first],
    ['ps-1', 'experimental {']
  ]);
  buffer.append([
    ['ps-0', 'experimental {'],
    ['ps-1', '}'],
    ['ps-0', '}']
  ]);
  expect(hidden()).toEqual([true, false, true, false, true]);
  expect(buffer.counts.get('ps-0')).toEqual({ lines: 3, noise: 3 });
  buffer.clear();
  buffer.append([['ps-0', 'experimental {']]);
  expect(hidden()).toEqual([false]);
});
