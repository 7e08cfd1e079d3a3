/* Last lines of a task, and leaks. */

import { ask, at, make } from './shared.js';

let leak = null;

/** Every task of a run, those that failed first. */
function namesOf(row) {
  const all = Object.entries(row.tasks).flatMap(([type, count]) =>
    Array.from({ length: count }, (_, index) => `${type}-${index}`)
  );
  return [...new Set([...row.failed, ...all])];
}

export async function openLog(row) {
  const names = namesOf(row);
  at('log-title').textContent = `Last lines of ${row.name} of ${row.owner}`;
  at('task').replaceChildren(
    ...names.map(name => make('option', name, { value: name }))
  );
  const read = async () => {
    at('log').textContent = '';
    at('log-said').textContent = 'This look is in the audit log.';
    const task = encodeURIComponent(at('task').value);
    const path = `${encodeURIComponent(row.owner)}/${encodeURIComponent(row.name)}`;
    try {
      const { told } = await ask(
        `api/clusters/${path}/logs?task=${task}&lines=100`
      );
      at('log').textContent =
        told.lines.join('\n') || 'It has printed nothing.';
    } catch (error) {
      at('log-said').textContent = error.message;
    }
  };
  at('task').onchange = read;
  at('show-log').showModal();
  await read();
}

// -- leaks --------------------------------------------------------------------------------------

async function lookForLeaks() {
  at('look').disabled = true;
  try {
    const { told } = await ask('api/leaks');
    const found = told.items.map(item => {
      const line = make('li');
      const button = make('button', 'Remove…', {
        type: 'button',
        class: 'btn btn-sm btn-outline-danger me-2'
      });
      button.addEventListener('click', () => {
        leak = item;
        at('leak-what').textContent = `${item.owner}: ${item.what}`;
        at('remove-said').textContent = '';
        at('ask-remove').showModal();
      });
      line.append(button, make('span', `${item.owner}: ${item.what}`));
      return line;
    });
    const missed = told.missed.map(({ owner, detail }) =>
      make('li', `${owner}: ${detail}`)
    );
    const none =
      found.length + missed.length ? [] : [make('li', 'There are none.')];
    at('leaks').replaceChildren(...found, ...missed, ...none);
  } catch (error) {
    at('leaks').replaceChildren(make('li', error.message));
  } finally {
    at('look').disabled = false;
  }
}

async function remove(event) {
  event.preventDefault();
  try {
    const { owner, id } = leak;
    await ask('api/leaks', { method: 'DELETE', body: { owner, id } });
    at('ask-remove').close();
  } catch (error) {
    at('remove-said').textContent = error.message;
  }
  await lookForLeaks();
}

at('look').addEventListener('click', lookForLeaks);
at('look').disabled = false;
at('ask-remove').querySelector('form').addEventListener('submit', remove);
