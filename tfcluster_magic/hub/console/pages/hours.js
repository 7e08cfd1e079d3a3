/* CPU- and GPU-hours of a window. */

import { ask, at, make, prefix, t, tell } from './shared.js';

const figure = hours =>
  hours > 0 && hours < 0.01
    ? '< 0.01'
    : hours.toLocaleString(undefined, { maximumFractionDigits: 2 });

const used = row =>
  row.used === null
    ? t('not measured')
    : t('{part} of {whole}', {
        part: figure(row.used),
        whole: figure(row.measured)
      });

/* The unused amount, its fraction of the measured amount, and a bar for this fraction. */
function unused(row) {
  const cell = make('td');
  if (row.unused === null) {
    cell.textContent = '–';
    return cell;
  }
  const part = row.measured ? row.unused / row.measured : 0;
  const bounds = { min: 0, max: 1, low: 0.5, high: 0.8, optimum: 0 };
  const bar = make('meter', '', { ...bounds, value: part });
  bar.setAttribute('aria-hidden', 'true');
  const percent = new Intl.NumberFormat(undefined, { style: 'percent' });
  cell.append(`${figure(row.unused)} (${percent.format(part)}) `, bar);
  return cell;
}

function line(row, key) {
  const made = make('tr');
  made.append(
    make('th', key, { scope: 'row' }),
    ...[figure(row.cpu), figure(row.gpu), used(row)].map(text =>
      make('td', text)
    ),
    unused(row)
  );
  return made;
}

let latest = 0;

async function show() {
  const words = new URLSearchParams({
    by: at('by').value,
    sort: at('sort').value
  });
  for (const name of ['from', 'to']) {
    if (at(name).value) {
      words.set(name, at(name).value);
    }
  }
  const number = ++latest;
  const { told } = await ask(`api/hours?${words}`);
  if (number !== latest) {
    return;
  }
  tell(null);
  at('csv').href = `${prefix}api/hours.csv?${words}`;
  at('key').textContent = at('by').selectedOptions[0].textContent;
  const rest = told.by === 'group' ? t('(no group)') : t('(other clusters)');
  at('rows').replaceChildren(
    ...told.items.map(row => line(row, row.key || rest))
  );
  at('total').replaceChildren(line(told.total, t('Total')));
  at('from').value = told.from;
  at('to').value = told.to;
  at('count').textContent = told.items.length
    ? ''
    : t('Nothing was reserved in these days.');
  at('missed').hidden = told.missed.length === 0;
  at('missed').replaceChildren(
    ...told.missed.map(one => make('li', `${one.owner} ${one.detail}`.trim()))
  );
}

const again = () => show().catch(tell);
at('window').addEventListener('change', again);
at('window').addEventListener('submit', event => event.preventDefault());
again();
