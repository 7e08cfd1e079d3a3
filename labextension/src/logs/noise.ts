/**
 * Detects the log lines of TensorFlow itself: its C++ code at level I or W.
 *
 * Errors (E, F) are never hidden, nor is any log line of Python code, including absl. A line about
 * waiting for another task stays too, because it says why nothing happens. The lines of a protobuf
 * are hidden only directly after a line of TensorFlow that announces it: a protobuf that the
 * program prints is shown. `runtime/tensorflow_log.py` has the same patterns and rules.
 */

const FIRST_LINES = [
  // 2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] …
  /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(?:cc|h|cpp|cu):\d+\](?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))/,
  // I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] …
  /^[IW]\d{4} \d\d:\d\d:[\d.]+\s+\d+ \S+\.(?:cc|h|cpp|cu):\d+\](?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))/,
  // the second line of the first message above
  /^To enable the following instructions: .* rebuild TensorFlow with the appropriate compiler flags\.$/,
  /^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$/
];
const ANNOUNCES =
  /^.*(?:\bgoo\.gle\/debug[a-z]+ *|[ :]name: ".*"|[ :][a-z_]+ (\{)|, but input \d+:)$/;
const FIELD =
  /^( *)(?:(\})|(?:[A-Za-z]\w*|\[[\w./-]+\])(?:( \{)|: (?:".*"|\[.*\]|[-+]?\w[-+.\w]*)))$/;
const SENTENCES =
  /^(?:\twhile inferring type of node '.*'| is neither a subtype nor a supertype of the combined inputs preceding it:|\. Consider either turning off auto-sharding .*)$/;
const OUTSIDE = -2;
const AFTER = -1;

/** TensorFlow's own log lines among the lines of one task, which are passed in order. */
export class TensorFlowLog {
  /** Return whether TensorFlow itself logged this line, the next one of the task. */
  hides(text: string): boolean {
    if (this._depth !== OUTSIDE && this._continues(text)) {
      return true;
    }
    this._depth = OUTSIDE;
    if (!FIRST_LINES.some(pattern => pattern.test(text))) {
      return false;
    }
    const found = ANNOUNCES.exec(text);
    if (found) {
      this._depth = found[1] ? 1 : 0;
    }
    return true;
  }

  private _continues(text: string): boolean {
    const depth = this._depth;
    if (depth <= 0 && SENTENCES.test(text)) {
      this._depth = text.endsWith(':') ? 0 : OUTSIDE;
      return true;
    }
    if (depth === 0 && (text === '' || text.startsWith('goo.gle/debug'))) {
      this._depth = text === '' ? AFTER : 0;
      return true;
    }
    const found = depth >= 0 ? FIELD.exec(text) : null;
    if (found) {
      const [, indent, closes, opens] = found;
      const outer = closes ? depth - 1 : depth;
      this._depth = opens ? outer + 1 : outer;
      return indent.length === 2 * outer;
    }
    return false;
  }

  /** Number of open messages of a protobuf; AFTER after the empty line at its end. */
  private _depth = OUTSIDE;
}

/** Return a task's consecutive lines without TensorFlow's own log lines. */
export function programLines(lines: ReadonlyArray<string>): string[] {
  const log = new TensorFlowLog();
  return lines.filter(line => !log.hides(line));
}
