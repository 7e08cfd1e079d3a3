/* The audit log, newest first. */

import { ask, at, make, moment, tell } from './shared.js';

let older = null;

async function audit(before) {
  const { told } = await ask(
    `api/audit?limit=50${before ? `&before=${before}` : ''}`
  );
  const lines = told.items.map(entry => {
    const line = make('tr');
    const when = moment(entry.at, 'medium');
    const { who, what, owner, target, reason, source, result } = entry;
    line.append(
      ...[when, who, what, owner, target, reason, source, result].map(text =>
        make('td', text)
      )
    );
    return line;
  });
  if (!before) {
    at('audit').replaceChildren();
  }
  at('audit').append(...lines);
  older = told.next;
  at('empty').hidden = at('audit').children.length > 0;
  at('audit-more').hidden = older === null;
}

at('audit-more').addEventListener('click', () => audit(older).catch(tell));
audit().catch(tell);
