/*
 * The table of clusters, requested every two seconds while it is visible, and the button that
 * stops clusters.
 */

import { drawChips, drawColumns, drawPlace } from './columns.js';
import { LIMIT, drawRows, follow } from './table.js';
import './leaks.js';
import { askWhy, keyOf } from './reasoned.js';
import { openLog } from './tasklog.js';
import { age, at, make, memory, named, t, tasksOf } from './shared.js';

const COLUMNS = [
  ['owner', t('Owner')],
  ['name', t('Cluster')],
  ['phase', t('Phase')],
  ['reason', t('Reason')],
  ['age', t('Age')],
  ['tasks', t('Tasks')],
  ['cpu', t('CPU')],
  ['memory', t('Memory')],
  ['gpu', t('GPU')],
  ['node', t('Node')]
];

const view = {
  text: '',
  phases: new Set(),
  ended: false,
  sort: 'age',
  offset: 0
};
/** The phases of ended clusters, which have a filter of their own. */
const ENDED = new Set(['Succeeded', 'Failed', 'Stopped']);
const chosen = new Map();
let shown = { items: [], total: 0, all: 0, phases: {}, missed: [] };

function drawRow(row) {
  const line = make('tr');
  const box = make('input', '', {
    type: 'checkbox',
    class: 'form-check-input',
    'aria-label': t('Select {name} of {owner}', row)
  });
  box.disabled = !row.active;
  box.checked = chosen.has(row.uid);
  box.addEventListener('change', () => {
    choose(row, box.checked);
    drawChoice();
  });
  const pick = make('td');
  pick.append(box);
  const reason = make('td', '', { class: 'message' });
  reason.append(
    make('div', row.message || row.reason),
    make('small', row.reason, { class: 'code' })
  );
  const name = make('th', '', { scope: 'row' });
  const log = make('button', row.name, {
    type: 'button',
    class: 'btn btn-link btn-sm p-0',
    'aria-label': t('{name} of {owner}: last lines', row),
    title: t('Last lines of a task')
  });
  log.addEventListener('click', () => openLog(row));
  name.append(log);
  if (/^https?:/.test(row.graphs)) {
    const graphs = make('a', '', {
      href: row.graphs,
      target: '_blank',
      rel: 'noopener noreferrer',
      class: 'ms-2',
      'aria-label': t('{name} of {owner}: graphs in Grafana', row),
      title: t('Graphs in Grafana')
    });
    graphs.append(
      make('i', '', { class: 'fa fa-chart-line', 'aria-hidden': 'true' })
    );
    name.append(graphs);
  }
  const short = text => make('td', text, { class: 'short' });
  line.append(
    pick,
    short(row.owner),
    name,
    phaseOf(row.phase),
    reason,
    short(age(row.createdAt)),
    make('td', tasksOf(row)),
    ...[
      row.cpu ? String(row.cpu) : '–',
      memory(row.memory),
      row.gpu ? String(row.gpu) : '–'
    ].map(text => short(row.active ? text : '')), // ended clusters use nothing
    make('td', row.nodes.join(', '))
  );
  return line;
}

/** The icons of phases, shown beside their words. */
const ICONS = {
  Queued: 'fa-clock',
  Starting: 'fa-spinner',
  Running: 'fa-play',
  Stopping: 'fa-hourglass-half',
  Succeeded: 'fa-check',
  Failed: 'fa-xmark',
  Stopped: 'fa-stop'
};

function phaseOf(phase) {
  const cell = make('td', '', { class: 'short' });
  const chip = make('span', '', { class: `phase phase-${phase}` });
  chip.append(
    make('i', '', { class: `fa ${ICONS[phase] ?? ''}`, 'aria-hidden': 'true' }),
    ` ${named(phase)}`
  );
  cell.append(chip);
  return cell;
}

function choose(row, yes) {
  if (yes && row.active) {
    chosen.set(row.uid, row);
  } else {
    chosen.delete(row.uid);
  }
}

function drawChoice() {
  at('stop').disabled = chosen.size === 0;
  at('stop').textContent = chosen.size
    ? t('Stop {count}…', { count: chosen.size })
    : t('Stop…');
  const can = shown.items.filter(row => row.active);
  at('every').checked = can.length > 0 && can.every(row => chosen.has(row.uid));
}

function draw() {
  for (const row of shown.items) {
    if (chosen.has(row.uid)) {
      choose(row, true);
    }
  }
  drawRows(shown.items.map(drawRow));
  drawColumns(COLUMNS, view, change);
  drawChips(at('phases'), shown.phases, view.phases, change);
  for (const chip of at('phases').children) {
    chip.hidden = ENDED.has(chip.dataset.word) && !view.ended;
  }
  drawChoice();
  drawPlace(shown, view.offset, LIMIT);
  at('empty').textContent = shown.all
    ? view.ended || view.text || view.phases.size
      ? t('No cluster matches. Clear the filter, or choose other phases.')
      : t('No cluster is active. Show ended ones to see the others.')
    : t(
        'There are no clusters yet. A user starts one in a notebook: `%tfcluster launch train.py`'
      );
}

const { look, change } = follow({
  path: 'api/clusters',
  view,
  words: asked => {
    asked.set('kept', 'true');
    if (!view.ended) {
      asked.set('active', 'true');
    }
    for (const phase of view.phases) {
      asked.append('phase', phase);
    }
  },
  every: 2000,
  draw: told => {
    shown = told;
    draw();
  }
});

// -- stop ---------------------------------------------------------------------------------------

function stop() {
  const rows = [...chosen.values()];
  askWhy({
    title: t('Stop clusters'),
    about: t(
      'These clusters will be stopped. Their records, output and checkpoints stay.'
    ),
    label: t('Reason, shown to each owner'),
    action: t('Stop'),
    needsReason: true,
    items: rows.map(row =>
      t('{name} of {owner} ({phase})', { ...row, phase: named(row.phase) })
    ),
    path: 'api/clusters/stop',
    body: { runs: rows.map(keyOf) },
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
at('ended').addEventListener('click', () => {
  view.ended = !view.ended;
  at('ended').setAttribute('aria-pressed', String(view.ended));
  at('ended').classList.toggle('active', view.ended);
  for (const phase of view.ended ? [] : ENDED) {
    view.phases.delete(phase);
  }
  change();
});
at('stop').addEventListener('click', stop);
look();
