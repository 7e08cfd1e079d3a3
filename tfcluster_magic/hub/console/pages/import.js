/*
 * The dialog that imports a class: first a dry run, then the import. Links of new accounts are
 * shown only once.
 */

import { ask, at, copy, make, t } from './shared.js';

/** Milliseconds between two requests for the progress of an import. */
const EVERY = 500;

const MOST_BYTES = Number(document.body.dataset.mostBytes);
const TOO_LARGE = t(
  'The class is larger than {most} MiB, so nothing was uploaded. Import it in parts.',
  { most: MOST_BYTES / 2 ** 20 }
);

const given = dryRun => ({
  csv: at('csv').value,
  group: at('group').value.trim(),
  withoutNotebook: at('without-notebook').checked,
  dryRun
});

let done = () => {};

export function openImport(then) {
  done = then;
  at('import-said').textContent = '';
  at('lines').replaceChildren();
  at('links').hidden = true;
  at('import-now').disabled = true;
  at('ask-import').showModal();
}

function line(told) {
  const where = t('Line {line}, {name}: ', told);
  if (!told.ok) {
    return make('li', where + told.detail, { class: 'wrong' });
  }
  const made = make(
    'li',
    where + (told.steps.join(', ') || t('nothing to do'))
  );
  if (told.link) {
    made.append(' ', make('code', told.link), ' ', copyButton(told));
  }
  return made;
}

function copyButton({ name, link }) {
  const button = make('button', t('Copy'), {
    type: 'button',
    class: 'btn btn-sm btn-secondary',
    'aria-label': t('Copy the link of {name}', { name })
  });
  button.addEventListener('click', () => copy(link, button));
  return button;
}

/** Quote a CSV cell so that no spreadsheet reads it as a formula. */
function quoted(text) {
  const cell = /^\s*[=+\-@]/.test(text) ? `'${text}` : text;
  return `"${cell.replaceAll('"', '""')}"`;
}

function offerLinks(lines) {
  const links = lines.filter(told => told.link);
  at('links').hidden = links.length === 0;
  const rows = links.map(({ name, link }) => `${quoted(name)},${quoted(link)}`);
  const text = ['name,link', ...rows].join('\n');
  at('links').href = `data:text/csv;charset=utf-8,${encodeURIComponent(text)}`;
}

/** Show the progress until the returned function is called; failed requests are ignored. */
function tellProgress() {
  let isOver = false;
  let timer = 0;
  async function look() {
    const found = await ask('api/users/import').catch(() => null);
    if (isOver) {
      return;
    }
    if (found?.told.total) {
      const { done: ready, total } = found.told;
      at('import-said').textContent = t('{ready} of {total} are imported…', {
        ready,
        total
      });
    }
    timer = setTimeout(look, EVERY);
  }
  timer = setTimeout(look, EVERY);
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

async function send(dryRun) {
  const body = JSON.stringify(given(dryRun));
  if (new Blob([body]).size > MOST_BYTES) {
    at('import-said').textContent = TOO_LARGE;
    return;
  }
  at('dry').disabled = at('import-now').disabled = true;
  at('import-said').textContent = t('One moment…');
  at('lines').replaceChildren();
  const end = dryRun ? () => {} : tellProgress();
  try {
    const { told } = await ask('api/users/import', {
      method: 'POST',
      body: given(dryRun)
    }).finally(end);
    const counts = { ...told, all: told.lines.length };
    const said = dryRun
      ? t('{changed} of {all} lines would be imported.', counts)
      : t('{changed} of {all} lines were imported.', counts);
    const wrong = told.wrong ? ` ${t('Wrong: {wrong}.', counts)}` : '';
    at('import-said').textContent = said + wrong;
    at('lines').replaceChildren(...told.lines.map(line));
    at('import-now').disabled = !dryRun || told.changed === 0;
    if (!dryRun) {
      offerLinks(told.lines);
      done();
    }
  } catch (error) {
    at('import-said').textContent = error.message;
  } finally {
    at('dry').disabled = false;
  }
}

at('file').addEventListener('change', async () => {
  const [file] = at('file').files;
  at('import-said').textContent =
    file && file.size > MOST_BYTES ? TOO_LARGE : '';
  if (file && file.size <= MOST_BYTES) {
    at('csv').value = await file.text();
    at('import-now').disabled = true;
  }
});
for (const id of ['csv', 'group', 'without-notebook']) {
  at(id).addEventListener('input', () => {
    at('import-now').disabled = true;
  });
}
at('ask-import')
  .querySelector('form')
  .addEventListener('submit', event => {
    event.preventDefault();
    send(true);
  });
at('import-now').addEventListener('click', () => send(false));
