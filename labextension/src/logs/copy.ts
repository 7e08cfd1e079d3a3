/**
 * The lines that are shown, as text for the clipboard: what the command line prints, `worker-0 | step 300`.
 */
import type { LogsModel } from './model';

/** All lines that are shown now. */
export function linesAsText(model: LogsModel): string {
  const { rows, buffer, state } = model;
  const longest = Math.max(0, ...state.tasks.map(task => task.name.length));
  const lines: string[] = [];
  for (let index = 0; index < rows.length; index++) {
    const { task, text } = buffer.line(rows.number(index));
    lines.push(
      state.tasks.length > 1 ? `${task.padEnd(longest)} | ${text}` : text
    );
  }
  return lines.join('\n');
}
