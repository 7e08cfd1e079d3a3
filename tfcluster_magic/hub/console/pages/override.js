/* The dialog of an override: temporary limits of one user. */

import { ask, at, t } from './shared.js';

const QUOTA = ['cpu', 'memory', 'gpu', 'pods'];
const DAY = 86400;
let row = null;
let done = () => {};

export function openOverride(whose, then) {
  row = whose;
  done = then;
  at('override-title').textContent = t('Override for {name}', row);
  for (const id of [...QUOTA, 'reason']) {
    at(id).value = '';
  }
  const until = row.override?.until ?? Date.now() / 1000 + DAY;
  const local = new Date(until * 1000);
  local.setMinutes(local.getMinutes() - local.getTimezoneOffset());
  at('until').value = local.toISOString().slice(0, 16);
  at('reason').value = row.override?.reason ?? '';
  at('override-clear').hidden = !row.override;
  at('override-said').textContent = '';
  at('ask-override').showModal();
}

function quota() {
  const said = {};
  for (const id of QUOTA) {
    const text = at(id).value.trim();
    if (text) {
      said[id] = id === 'memory' || isNaN(Number(text)) ? text : Number(text);
    }
  }
  return said;
}

async function change(method, body) {
  try {
    await ask(`api/overrides/${encodeURIComponent(row.name)}`, {
      method,
      body
    });
    at('ask-override').close();
    done();
  } catch (error) {
    at('override-said').textContent = error.message;
  }
}

at('ask-override')
  .querySelector('form')
  .addEventListener('submit', event => {
    event.preventDefault();
    const until = new Date(at('until').value).getTime() / 1000;
    const reason = at('reason').value.trim();
    change('PUT', { until: until || 0, reason, quota: quota() });
  });
at('override-clear').addEventListener('click', () => change('DELETE'));
