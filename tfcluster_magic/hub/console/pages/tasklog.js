/* The dialog with the last log lines of a task. */

import { ask, at, make, t } from './shared.js';

/** Return every task of a run, failed ones first. */
function namesOf(row) {
  const all = Object.entries(row.tasks).flatMap(([type, count]) =>
    Array.from({ length: count }, (_, index) => `${type}-${index}`)
  );
  return [...new Set([...row.failed, ...all])];
}

export async function openLog(row) {
  const names = namesOf(row);
  at('log-title').textContent = t('Last lines of {name} of {owner}', row);
  at('task').replaceChildren(
    ...names.map(name => make('option', name, { value: name }))
  );
  const read = async () => {
    at('log').textContent = '';
    at('log-said').textContent = t(
      'The audit log records that you read these lines.'
    );
    const task = encodeURIComponent(at('task').value);
    const path = `${encodeURIComponent(row.owner)}/${encodeURIComponent(row.name)}`;
    try {
      const { told } = await ask(
        `api/clusters/${path}/logs?task=${task}&lines=100`
      );
      at('log').textContent =
        told.lines.join('\n') || t('The task has printed nothing.');
    } catch (error) {
      at('log-said').textContent = error.message;
    }
  };
  at('task').onchange = read;
  at('show-log').showModal();
  await read();
}
