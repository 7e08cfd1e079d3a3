/*
 * The table of schedules, requested every five seconds while it is visible, and the buttons that
 * pause and resume them.
 */

import { drawChips, drawColumns, drawPlace } from './columns.js';
import { LIMIT, drawRows, follow } from './table.js';
import { askWhy, keyOf } from './reasoned.js';
import { at, make, moment, named, sentence, t } from './shared.js';

const COLUMNS = [
  ['owner', t('Owner')],
  ['name', t('Schedule')],
  ['cron', t('Due')],
  ['next', t('Next')],
  ['last', t('Last ten')],
  ['state', t('State')]
];

const view = { text: '', states: new Set(), sort: 'owner', offset: 0 };
const chosen = new Map();
let shown = { items: [], total: 0, all: 0, states: {}, missed: [] };

/** Whether an administrator paused a schedule, so that only an administrator can resume it. */
const isLocked = row => row.state === 'Paused' && row.locked;

/** The mark and the colour for each result of a due time. */
const MARKS = {
  Succeeded: ['●', 'phase-Succeeded'],
  Failed: ['✗', 'phase-Failed'],
  Stopped: ['■', ''],
  Skipped: ['○', ''],
  Missed: ['○', ''],
  Unknown: ['?', '']
};

function marksOf(row) {
  const cell = make('td', '', { class: 'short' });
  const counts = {};
  const marks = make('span', '', { 'aria-hidden': 'true', class: 'marks' });
  for (const each of row.marks) {
    const [mark, look] = MARKS[each.state] ?? ['…', ''];
    const about = [moment(each.due), named(each.state), each.run];
    const title = about.filter(Boolean).join(' · ');
    marks.append(make('span', mark, { class: look, title }));
    counts[each.state] = (counts[each.state] ?? 0) + 1;
  }
  const words = Object.entries(counts).map(
    ([state, count]) => `${named(state)} ${count}`
  );
  cell.append(
    marks,
    make('span', words.join(', '), { class: 'visually-hidden' })
  );
  return cell;
}

/** The phase whose style each state has, and the icon of the state. */
const LOOKS = {
  Active: ['Running', 'fa-clock'],
  Paused: ['Queued', 'fa-pause'],
  Invalid: ['Failed', 'fa-xmark']
};

function stateOf(row) {
  const cell = make('td', '', { class: 'message' });
  const [look, icon] = LOOKS[row.state] ?? ['', ''];
  const chip = make('span', '', { class: `phase phase-${look}` });
  const word =
    row.state === 'Paused' && row.by
      ? t('Paused by {by}', row)
      : named(row.state);
  chip.append(
    make('i', '', { class: `fa ${icon}`, 'aria-hidden': 'true' }),
    ` ${word}`
  );
  cell.append(chip);
  if (row.reason) {
    cell.append(make('div', row.reason));
  }
  return cell;
}

function drawRow(row) {
  const line = make('tr');
  const box = make('input', '', {
    type: 'checkbox',
    class: 'form-check-input',
    'aria-label': t('Select {name} of {owner}', row)
  });
  box.checked = chosen.has(row.uid);
  box.addEventListener('change', () => {
    choose(row, box.checked);
    drawChoice();
  });
  const pick = make('td');
  pick.append(box);
  const due = make('td');
  due.append(
    make('code', row.cron),
    make('div', row.timeZone, { class: 'small' })
  );
  line.append(
    pick,
    make('td', row.owner, { class: 'short' }),
    make('th', row.name, { scope: 'row' }),
    due,
    make('td', row.next || '–', { class: 'short', title: row.timeZone }),
    marksOf(row),
    stateOf(row)
  );
  return line;
}

function choose(row, yes) {
  if (yes) {
    chosen.set(row.uid, row);
  } else {
    chosen.delete(row.uid);
  }
}

/** The chosen schedules that can be resumed if `locked`, else those that can be paused. */
const ofChosen = locked =>
  [...chosen.values()].filter(row => isLocked(row) === locked);

function drawChoice() {
  const [others, paused] = [ofChosen(false).length, ofChosen(true).length];
  at('pause').disabled = !others;
  at('pause').textContent = others
    ? t('Pause {count}…', { count: others })
    : t('Pause…');
  at('resume').disabled = !paused;
  at('resume').textContent = paused
    ? t('Resume {count}…', { count: paused })
    : t('Resume…');
  at('every').checked =
    shown.items.length > 0 && shown.items.every(row => chosen.has(row.uid));
}

function draw() {
  for (const row of shown.items) {
    if (chosen.has(row.uid)) {
      choose(row, true);
    }
  }
  drawRows(shown.items.map(drawRow));
  drawColumns(COLUMNS, view, change);
  drawChips(at('states'), shown.states, view.states, change);
  drawChoice();
  drawPlace(shown, view.offset, LIMIT);
  const empty = shown.all
    ? t('No schedule matches. Clear the filter, or choose other states.')
    : t(
        'There are no schedules yet. A user creates one in a notebook: `%tfcluster schedule create nightly --cron "0 2 * * *" train.py`'
      );
  at('empty').replaceChildren(...sentence(empty));
}

const { look, change } = follow({
  path: 'api/schedules',
  view,
  words: asked => {
    asked.set('kept', 'true');
    for (const state of view.states) {
      asked.append('state', state);
    }
  },
  every: 5000,
  draw: told => {
    shown = told;
    draw();
  }
});

// -- pause and resume ---------------------------------------------------------------------------

/** The dialog of each verb: its texts, whether it needs a reason, and the path of its request. */
const VERBS = {
  pause: {
    title: t('Pause schedules'),
    about: t(
      'These schedules launch nothing until an administrator resumes them. Active runs go on.'
    ),
    label: t('Reason, shown to each owner'),
    action: t('Pause'),
    needsReason: true,
    path: 'api/schedules/pause'
  },
  resume: {
    title: t('Resume schedules'),
    about: t(
      'These schedules launch again when they are due next. Due times of the pause are not caught up.'
    ),
    label: t('Reason, for the audit log (optional)'),
    action: t('Resume'),
    isHarmless: true,
    path: 'api/schedules/resume'
  }
};

function open(verb) {
  const rows = ofChosen(verb === 'resume');
  askWhy({
    ...VERBS[verb],
    items: rows.map(row => t('{name} of {owner}', row)),
    body: { schedules: rows.map(keyOf) },
    done: () => {
      chosen.clear();
      change(view.offset);
    }
  });
}

at('every').addEventListener('change', () => {
  for (const row of shown.items) {
    choose(row, at('every').checked);
  }
  draw();
});
at('pause').addEventListener('click', () => open('pause'));
at('resume').addEventListener('click', () => open('resume'));
look();
