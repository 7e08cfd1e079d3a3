/*
 * The dialog that archives the data of users one after the other, for example at the end of a term,
 * and shows each result.
 */

import { ask, at, bytes, make, prefix, t } from './shared.js';

let names = [];
let done = () => {};

export function openArchive(whom, then) {
  names = [...whom];
  done = then;
  at('archived').replaceChildren(...names.map(name => make('li', name)));
  at('archives').replaceChildren();
  at('archive-said').textContent = '';
  at('archive-now').disabled = false;
  at('ask-archive').showModal();
}

function line(archive) {
  if (archive.state !== 'done') {
    const so = archive.size ? `${archive.step}, ${bytes(archive.size)}` : '';
    const state = archive.detail || so || archive.step || archive.state;
    const wrong = archive.state === 'failed' ? { class: 'wrong' } : {};
    return make('li', `${archive.user}: ${state}`, wrong);
  }
  const made = make('li', `${archive.user}: `);
  const href = `${prefix}api/archives/${encodeURIComponent(archive.file)}`;
  const text = t('{file} ({files} files, {size})', {
    ...archive,
    size: bytes(archive.size)
  });
  made.append(make('a', text, { href, download: '' }));
  if (archive.missed) {
    made.append(
      ` ${t('{missed} could not be packed: see MANIFEST.json', archive)}.`
    );
  }
  if (archive.detail) {
    made.append(make('div', archive.detail, { class: 'wrong' }));
  }
  return made;
}

async function follow(files) {
  const { told } = await ask('api/archives');
  const mine = told.items.filter(one => files.includes(one.file));
  at('archives').replaceChildren(...mine.map(line));
  if (mine.some(one => one.state === 'packing')) {
    await new Promise(resolve => setTimeout(resolve, 1000));
    await follow(files);
  }
}

async function archive(event) {
  event.preventDefault();
  const reason = at('archive-reason').value.trim();
  if (!reason) {
    at('archive-said').textContent = t('Give a reason; the users see it.');
    at('archive-reason').focus();
    return;
  }
  at('archive-now').disabled = true;
  const files = [];
  const wrong = [];
  for (const user of names) {
    at('archive-said').textContent = `${user}…`;
    try {
      const body = { user, reason, remove: at('archive-remove').checked };
      const { told } = await ask('api/archives', { method: 'POST', body });
      files.push(told.file);
      await follow(files);
    } catch (error) {
      wrong.push(`${user}: ${error.message}`);
    }
  }
  at('archive-said').textContent = wrong.join('; ') || t('All is done.');
  done();
}

at('ask-archive').querySelector('form').addEventListener('submit', archive);
