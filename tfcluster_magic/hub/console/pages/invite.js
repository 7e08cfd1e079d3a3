/*
 * The dialog that makes a link which sets a password, for a new user or to replace a password. The
 * link is shown only once.
 */

import { ask, at, copy, make, sentence, t } from './shared.js';

const NEW = t(
  'The account is created with the link. The link sets a password once.'
);
const RESET = t(
  'The password, all sessions and all tokens stop working at once. An open notebook asks for a new sign-in. Running clusters go on.'
);

let done = () => {};
let reset = false;

/** Show why no link was made, and what the user can do. */
function refuse(error) {
  const parts = error ? sentence(error.message) : [];
  at('invite-said').replaceChildren(...parts);
  const command = at('invite-said').querySelector('code');
  if (command) {
    const button = make('button', t('Copy'), {
      type: 'button',
      class: 'btn btn-sm btn-secondary ms-2'
    });
    button.addEventListener('click', () => copy(command.textContent, button));
    command.after(button);
  }
  const isConflict = error?.title === 'Conflict';
  at('invite-anyway').hidden = !isConflict;
  const now = at('invite-now');
  now.textContent = isConflict ? t('Try again') : t('Create a link');
  now.classList.toggle('btn-primary', !isConflict);
  now.classList.toggle('btn-secondary', isConflict);
}

/** Open the dialog for the user in `row`; without a row, it asks for a name. */
export function openInvite(then, row = null) {
  done = then;
  at('invite-title').textContent = row
    ? t('New link for {name}', row)
    : t('Invite');
  at('invitee').value = row?.name ?? '';
  at('invitee').readOnly = row !== null;
  reset = row?.account?.state === 'password';
  at('invite-what').textContent = reset ? RESET : NEW;
  refuse(null);
  at('invited').hidden = true;
  at('invite-now').hidden = false;
  at('ask-invite').showModal();
}

async function invite(withoutNotebook) {
  const name = at('invitee').value.trim();
  at('invite-said').textContent = '';
  at('invite-now').disabled = at('invite-anyway').disabled = true;
  try {
    const { told } = await ask('api/users/links', {
      method: 'POST',
      body: { names: [name], reset, withoutNotebook }
    });
    const [[account, link]] = Object.entries(told.links);
    at('link-label').textContent = t(
      'Give this link to {account}. It works once, within {hours} hours, and is shown only now.',
      { account, hours: told.hours }
    );
    at('link').value = link;
    at('invited').hidden = false;
    at('invite-now').hidden = at('invite-anyway').hidden = true;
    at('copy').textContent = t('Copy');
    at('copy').focus();
    done();
  } catch (error) {
    refuse(error);
  } finally {
    at('invite-now').disabled = at('invite-anyway').disabled = false;
  }
}

at('invitee').addEventListener('input', () => {
  refuse(null);
});
at('ask-invite')
  .querySelector('form')
  .addEventListener('submit', event => {
    event.preventDefault();
    if (at('invited').hidden) {
      invite(false);
    }
  });
at('invite-anyway').addEventListener('click', () => invite(true));
at('copy').addEventListener('click', () =>
  copy(at('link').value, at('copy'), at('link'))
);
at('ask-invite').addEventListener('close', () => {
  at('link').value = '';
});
