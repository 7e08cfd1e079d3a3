/*
 * The dialog that makes a link which sets a password, for a new user or to replace a password. The
 * link is shown only once.
 */

import { ask, at, copy, t } from './shared.js';

const NEW = t(
  'The account is created with the link. The link sets a password once.'
);
const RESET = t(
  'The password, all sessions and all tokens stop working at once. An open notebook asks for a new sign-in. Running clusters go on.'
);

let done = () => {};
let reset = false;

/** Open the dialog, which asks for a name; `row` is an existing user. */
export function openInvite(then, row = null) {
  done = then;
  at('invite-title').textContent = row
    ? t('New link for {name}', row)
    : t('Invite');
  at('invitee').value = row?.name ?? '';
  at('invitee').readOnly = row !== null;
  reset = row?.account?.state === 'password';
  at('invite-what').textContent = reset ? RESET : NEW;
  at('invite-said').textContent = '';
  at('invited').hidden = true;
  at('invite-anyway').hidden = true;
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
    at('invite-said').textContent = error.message;
    at('invite-anyway').hidden = error.title !== 'Conflict';
  } finally {
    at('invite-now').disabled = at('invite-anyway').disabled = false;
  }
}

at('invitee').addEventListener('input', () => {
  at('invite-said').textContent = '';
  at('invite-anyway').hidden = true;
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
