/* The table of users, requested every five seconds while it is visible, and their servers. */

import { openArchive } from './archive.js';
import { drawChips, drawColumns, drawPlace } from './columns.js';
import { openImport } from './import.js';
import { openInvite } from './invite.js';
import { LIMIT, drawRows, follow } from './table.js';
import { openOverride } from './override.js';
import {
  age,
  ask,
  at,
  make,
  memory,
  moment,
  named,
  t,
  tell
} from './shared.js';

const COLUMNS = [
  ['name', t('Name')],
  ['group', t('Groups')],
  ['seen', t('Last seen')],
  ['server', t('Server')],
  ['clusters', t('Clusters')],
  ['cpu', t('CPU requested')],
  ['memory', t('Memory requested')],
  ['gpu', t('GPU requested')],
  ['storage', t('Storage')]
];

const view = { text: '', servers: new Set(), sort: 'name', offset: 0 };
const chosen = new Set();
let shown = { items: [], total: 0, all: 0, servers: {}, missed: [] };

/** Return `3 of 16`, or `3` without a limit. */
function part(used, allowed, text = String) {
  const part = used === null ? '–' : text(used);
  return allowed === null
    ? part
    : t('{part} of {whole}', { part, whole: text(allowed) });
}

const bytes = count => (count ? memory(count) : '0');

/** Return a user's sign-in state with the hub's own passwords, as text. */
function signIn({ state, linkUntil }) {
  const until = linkUntil && moment(linkUntil);
  if (state === 'password') {
    return until
      ? t('has a password; reset link until {time}', { time: until })
      : t('has a password');
  }
  return state === 'link'
    ? t('link until {time}', { time: until })
    : t('no password');
}

function drawRow(row) {
  const line = make('tr');
  const box = make('input', '', {
    type: 'checkbox',
    class: 'form-check-input',
    'aria-label': t('Select {name}', row)
  });
  box.checked = chosen.has(row.name);
  box.addEventListener('change', () => {
    chosen[box.checked ? 'add' : 'delete'](row.name);
    drawChoice();
  });
  const pick = make('td');
  pick.append(box);
  const name = make('th', row.name, { scope: 'row' });
  if (row.admin) {
    name.append(
      ' ',
      make('small', t('admin'), { class: 'badge text-bg-secondary' })
    );
  }
  if (row.account) {
    name.append(make('div', signIn(row.account), { class: 'fw-normal small' }));
  }
  const groups = make('td', '', { class: 'groups' });
  row.groups.forEach((group, place) => {
    groups.append(
      place ? ', ' : '',
      make(group === row.group ? 'strong' : 'span', group)
    );
  });
  const override = make(
    'button',
    row.override ? t('Override') : t('Override…'),
    {
      type: 'button',
      class: 'btn btn-sm btn-secondary',
      'aria-label': t('Override for {name}', row)
    }
  );
  override.addEventListener('click', () => openOverride(row, look));
  const more = make('td', '', { class: 'actions' });
  if (shown.ownAccounts) {
    const link = make('button', t('New link…'), {
      type: 'button',
      class: 'btn btn-sm btn-secondary',
      'aria-label': t('New link for {name}', row)
    });
    link.addEventListener('click', () => openInvite(look, row));
    more.append(link, ' ');
  }
  more.append(override);
  if (row.override) {
    const until = moment(row.override.until);
    more.append(
      make(
        'div',
        t('until {time}: {reason}', {
          time: until,
          reason: row.override.reason
        }),
        { class: 'small' }
      )
    );
  }
  const short = text => make('td', text, { class: 'short' });
  const { used, allowed } = row;
  line.append(
    pick,
    name,
    groups,
    short(row.lastSeen === null ? t('never') : age(row.lastSeen)),
    short(named(row.server)),
    short(String(row.clusters)),
    short(part(used.cpu, allowed.cpu)),
    short(part(used.memory, allowed.memory, bytes)),
    short(part(used.gpu, allowed.gpu)),
    short(part(used.storage, allowed.storage, bytes)),
    more
  );
  return line;
}

function drawChoice() {
  for (const id of ['start', 'stop', 'archive']) {
    at(id).disabled = chosen.size === 0;
  }
  const names = shown.items.map(row => row.name);
  at('every').checked =
    names.length > 0 && names.every(name => chosen.has(name));
}

function draw() {
  drawRows(shown.items.map(drawRow));
  drawColumns(COLUMNS, view, change);
  if (!at('more')) {
    at('columns').append(
      make('th', t('Actions'), { scope: 'col', id: 'more' })
    );
  }
  drawChips(at('servers'), shown.servers, view.servers, change);
  drawPlace(shown, view.offset, LIMIT);
  drawChoice();
}

const { look, change } = follow({
  path: 'api/users',
  view,
  words: asked => {
    asked.set('kept', 'true');
    for (const state of view.servers) {
      asked.append('server', state);
    }
  },
  every: 5000,
  draw: told => {
    shown = told;
    at('invite').hidden = !told.ownAccounts;
    draw();
  }
});

async function servers(what) {
  const { told } = await ask('api/users/servers', {
    method: 'POST',
    body: { users: [...chosen], do: what }
  });
  const failed = told.results.filter(result => !result.ok);
  at('said').textContent = failed
    .map(({ user, detail }) => `${user}: ${detail}`)
    .join('; ');
  chosen.clear();
  look();
}

function openStop() {
  at('chosen').replaceChildren(...[...chosen].map(name => make('li', name)));
  at('stop-said').textContent = '';
  at('ask-stop').showModal();
}

at('every').addEventListener('change', () => {
  for (const row of shown.items) {
    chosen[at('every').checked ? 'add' : 'delete'](row.name);
  }
  draw();
});
at('start').addEventListener('click', () => servers('start').catch(tell));
at('stop').addEventListener('click', openStop);
at('ask-stop')
  .querySelector('form')
  .addEventListener('submit', () => {
    servers('stop').catch(tell);
  });
at('archive').addEventListener('click', () => openArchive(chosen, look));
at('import').addEventListener('click', () => openImport(look));
at('invite').addEventListener('click', () => openInvite(look));
at('import').disabled = at('invite').disabled = false;
look();
