/*
 * The table of everyone's folders and their sizes, requested every half minute while it is visible.
 */

import { drawColumns, drawPlace } from './columns.js';
import { LIMIT, drawRows, follow } from './table.js';
import { at, make, t } from './shared.js';

const WARN = 0.8;
const COLUMNS = [
  ['owner', t('User')],
  ['name', t('Folder')],
  ['used', t('Used')],
  ['allowed', t('Allowed')],
  ['share', t('Full')]
];

const view = { text: '', full: false, sort: '-share', offset: 0 };

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
      make('span', row.share >= 1 ? t('full') : t('nearly full'), {
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
    make('td', row.atLeast ? t('at least {used}', { used }) : used),
    make('td', row.allowed === null ? '–' : bytes(row.allowed)),
    share
  );
  return line;
}

const { look, change } = follow({
  path: 'api/storage',
  view,
  words: asked => {
    if (view.full) {
      asked.set('full', 'true');
    }
  },
  every: 30000,
  draw: told => {
    drawColumns(COLUMNS, view, change);
    drawRows(told.items.map(drawRow));
    at('many').textContent = `(${told.full})`;
    drawPlace(told, view.offset, LIMIT);
  }
});

at('full').addEventListener('change', () => {
  view.full = at('full').checked;
  change();
});
look();
