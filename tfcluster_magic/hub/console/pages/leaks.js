/* The list of leaks: objects and processes that runs have left behind. */

import { ask, at, make, t } from './shared.js';

let leak = null;

async function lookForLeaks() {
  at('look').disabled = true;
  try {
    const { told } = await ask('api/leaks');
    const found = told.items.map(item => {
      const line = make('li');
      const button = make('button', t('Remove…'), {
        type: 'button',
        class: 'btn btn-sm btn-outline-danger me-2'
      });
      button.addEventListener('click', () => {
        leak = item;
        at('leak-what').textContent = `${item.owner}: ${item.what}`;
        at('remove-said').textContent = '';
        at('ask-remove').showModal();
      });
      line.append(button, make('span', `${item.owner}: ${item.what}`));
      return line;
    });
    const missed = told.missed.map(({ owner, detail }) =>
      make('li', `${owner}: ${detail}`)
    );
    const none =
      found.length + missed.length
        ? []
        : [make('li', t('There are no leaks.'))];
    at('leaks').replaceChildren(...found, ...missed, ...none);
  } catch (error) {
    at('leaks').replaceChildren(make('li', error.message));
  } finally {
    at('look').disabled = false;
  }
}

async function remove(event) {
  event.preventDefault();
  try {
    const { owner, id } = leak;
    await ask('api/leaks', { method: 'DELETE', body: { owner, id } });
    at('ask-remove').close();
  } catch (error) {
    at('remove-said').textContent = error.message;
  }
  await lookForLeaks();
}

at('look').addEventListener('click', lookForLeaks);
at('look').disabled = false;
at('ask-remove').querySelector('form').addEventListener('submit', remove);
