/* What lies in everyone's folders, asked for again every half minute while it is seen. */

import { drawColumns, drawPlace } from './columns.js';
import { ask, at, make, tell } from './shared.js';

const EVERY = 30000;
const LIMIT = 100;
const WARN = 0.8;
const COLUMNS = [
  ['owner', 'User'],
  ['name', 'Folder'],
  ['used', 'Used'],
  ['allowed', 'Allowed'],
  ['share', 'Full']
];

const view = { text: '', full: false, sort: '-share', offset: 0 };
let timer = 0;
let asked = 0;

/** `1.5 GiB`, `12 MiB`. */
function bytes(count) {
  const [size, unit] = count >= 2 ** 30 ? [2 ** 30, 'GiB'] : [2 ** 20, 'MiB'];
  return `${+(count / size).toFixed(1)} ${unit}`;
}

function drawRow(row) {
  const line = make('tr');
  const used = row.used === null ? '–' : bytes(row.used);
  const share = make(
    'td',
    row.used === null || row.allowed === null
      ? ''
      : `${Math.floor(100 * row.share)} %`
  );
  if (row.share >= WARN) {
    share.append(
      ' ',
      make('span', row.share >= 1 ? 'full' : 'nearly full', {
        class: `badge text-bg-${row.share >= 1 ? 'danger' : 'warning'}`
      })
    );
  }
  const folder = make('td', row.name);
  const most = row.largest.map(part => `${part.name} ${bytes(part.used)}`);
  const about = [row.path, row.note, most.join(', ')].filter(Boolean);
  folder.append(make('div', about.join(' · '), { class: 'small' }));
  line.append(
    make('th', row.owner, { scope: 'row' }),
    folder,
    make('td', row.atLeast ? `at least ${used}` : used),
    make('td', row.allowed === null ? '–' : bytes(row.allowed)),
    share
  );
  return line;
}

async function show() {
  clearTimeout(timer);
  const number = ++asked;
  const words = new URLSearchParams({
    sort: view.sort,
    limit: LIMIT,
    offset: view.offset
  });
  if (view.text) {
    words.set('q', view.text);
  }
  if (view.full) {
    words.set('full', 'true');
  }
  try {
    const { told } = await ask(`api/storage?${words}`);
    if (number !== asked) {
      return;
    }
    tell(null);
    drawColumns(COLUMNS, view, again);
    at('rows').replaceChildren(...told.items.map(drawRow));
    at('many').textContent = `(${told.full})`;
    drawPlace(told, view.offset, LIMIT);
  } catch (error) {
    tell(error);
  }
  if (number === asked && !document.hidden) {
    timer = setTimeout(show, EVERY);
  }
}

function again() {
  view.offset = 0;
  show();
}

at('filter').addEventListener('input', () => {
  view.text = at('filter').value;
  again();
});
at('full').addEventListener('change', () => {
  view.full = at('full').checked;
  again();
});
for (const [name, step] of [
  ['back', -LIMIT],
  ['forth', LIMIT]
]) {
  at(name).addEventListener('click', () => {
    view.offset = Math.max(0, view.offset + step);
    show();
  });
}
document.addEventListener('visibilitychange', () => document.hidden || show());
show();
