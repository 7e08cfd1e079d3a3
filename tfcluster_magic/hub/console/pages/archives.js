/*
 * The table of archives, requested every five seconds while the page is visible, and their
 * deletion.
 */

import { drawRows, poll } from './table.js';
import { ask, at, bytes, make, moment, prefix, t } from './shared.js';

let items = [];
let chosen = '';

function about(archive) {
  if (archive.state === 'done') {
    const href = `${prefix}api/archives/${encodeURIComponent(archive.file)}`;
    const made = make('td');
    made.append(make('a', archive.file, { href, download: '' }));
    const more = [
      archive.missed
        ? t('{missed} could not be packed: see MANIFEST.json', archive)
        : '',
      archive.detail
    ].filter(Boolean);
    made.append(make('div', more.join('; '), { class: 'small' }));
    return made;
  }
  const state = archive.detail || archive.step || archive.state;
  const wrong = archive.state === 'failed' ? { class: 'wrong' } : {};
  return make('td', state, wrong);
}

function drawRow(archive) {
  const line = make('tr');
  const last = make('td');
  if (archive.state === 'done') {
    const button = make('button', t('Delete…'), {
      type: 'button',
      class: 'btn btn-sm btn-secondary',
      'aria-label': t('Delete {file}', archive)
    });
    button.addEventListener('click', () => {
      chosen = archive.file;
      at('which').textContent = archive.file;
      at('delete-said').textContent = '';
      at('ask-delete').showModal();
    });
    last.append(button);
  }
  line.append(
    make('th', archive.user, { scope: 'row' }),
    make('td', moment(archive.at)),
    make('td', archive.size ? bytes(archive.size) : '–'),
    make('td', archive.state === 'done' ? String(archive.files) : '–'),
    about(archive),
    last
  );
  return line;
}

function draw() {
  const text = at('filter').value.toLowerCase();
  const fits = items.filter(one =>
    `${one.user}\n${one.file}`.toLowerCase().includes(text)
  );
  const size = fits.reduce((sum, one) => sum + one.size, 0);
  at('count').textContent = t('{count} of {all}, {size} in total', {
    count: fits.length,
    all: items.length,
    size: bytes(size)
  });
  at('empty').hidden = items.length > 0;
  drawRows(fits.map(drawRow));
}

const look = poll({
  path: () => 'api/archives',
  every: 5000,
  draw: told => {
    items = told.items;
    draw();
  },
  refused: () => {
    items = [];
  }
});

at('filter').addEventListener('input', draw);
at('ask-delete')
  .querySelector('form')
  .addEventListener('submit', async event => {
    event.preventDefault();
    const path = `api/archives/${encodeURIComponent(chosen)}`;
    try {
      await ask(path, { method: 'DELETE' });
      at('ask-delete').close();
      look();
    } catch (error) {
      at('delete-said').textContent = error.message;
    }
  });
look();
