/**
 * Detects log lines of TensorFlow itself: its C++ code at level I or W.
 *
 * Errors (E, F) are never hidden, nor is any log line of Python code, including absl. A line about
 * waiting for another task stays too, because it says why nothing happens. Pure functions.
 */

const PATTERNS = [
  // 2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] …
  /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(?:cc|h|cpp|cu):\d+\](?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))/,
  // I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] …
  /^[IW]\d{4} \d\d:\d\d:[\d.]+\s+\d+ \S+\.(?:cc|h|cpp|cu):\d+\](?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))/,
  // the second line of the first message above
  /^To enable the following instructions: .* rebuild TensorFlow with the appropriate compiler flags\.$/,
  /^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$/
];

/** Return whether a line is a log line of TensorFlow itself. */
export function isNoise(text: string): boolean {
  return PATTERNS.some(pattern => pattern.test(text));
}
