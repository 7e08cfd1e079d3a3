/**
 * Which lines are TensorFlow's own remarks and not the program's: what its C++ code logs at level I or W.
 *
 * Errors (E, F) are never hidden, nor is anything that a Python file logs, absl included; nor that TensorFlow waits for
 * another task, which says why nothing happens. Pure.
 */

const PATTERNS = [
  // 2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] …
  /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(?:cc|h|cpp|cu):\d+\](?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))/,
  // I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] …
  /^[IW]\d{4} \d\d:\d\d:[\d.]+\s+\d+ \S+\.(?:cc|h|cpp|cu):\d+\](?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))/,
  // the second line of the first one above
  /^To enable the following instructions: .* rebuild TensorFlow with the appropriate compiler flags\.$/,
  /^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$/
];

/** Whether a line is a remark of TensorFlow's own. */
export function isNoise(text: string): boolean {
  return PATTERNS.some(pattern => pattern.test(text));
}
