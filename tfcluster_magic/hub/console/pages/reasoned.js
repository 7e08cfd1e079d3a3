/*
 * A dialog that asks for a reason before it changes the chosen rows of a table, and says which of
 * them could not be changed. Its HTML is in reasoned.html.
 */

import { ask, at, make, t } from './shared.js';

/** The change that the dialog asks about. */
let shown = null;

/**
 * Open the dialog.
 *
 * `items` are the names of the chosen rows. The request is `body` with the reason, sent to `path`.
 * `done` is called once the server has answered, even if some rows were not changed.
 */
export function askWhy(change) {
  shown = change;
  at('ask-title').textContent = change.title;
  at('ask-about').textContent = change.about;
  at('reason-label').textContent = change.label;
  at('now').textContent = change.action;
  at('now').className = change.isHarmless
    ? 'btn btn-primary'
    : 'btn btn-danger';
  at('chosen').replaceChildren(...change.items.map(item => make('li', item)));
  at('said').textContent = '';
  at('reason').value = '';
  at('ask').showModal();
  at('reason').focus();
}

async function carryOut(event) {
  event.preventDefault();
  const { path, body, needsReason, done } = shown;
  const reason = at('reason').value.trim();
  if (needsReason && !reason) {
    at('said').textContent = t('Give a reason; the owner sees it.');
    at('reason').focus();
    return;
  }
  at('now').disabled = true;
  try {
    const { told } = await ask(path, {
      method: 'POST',
      body: { ...body, reason }
    });
    const failed = told.results.filter(result => !result.ok);
    done();
    if (failed.length) {
      at('said').textContent = failed
        .map(result => t('{name} of {owner}: {detail}', result))
        .join('; ');
    } else {
      at('ask').close();
    }
  } catch (error) {
    at('said').textContent = error.message;
  } finally {
    at('now').disabled = false;
  }
}

/** The fields that identify a row in a request. */
export const keyOf = ({ owner, name, uid }) => ({ owner, name, uid });

at('reason').addEventListener('input', () => {
  at('said').textContent = '';
});
at('ask').querySelector('form').addEventListener('submit', carryOut);
