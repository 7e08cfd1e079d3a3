/*
 * Functions that the console's pages share: elements, requests, numbers as text, dialogs. Texts of
 * users (names, reasons, messages, log lines) are put into the page as text, never as HTML.
 */

export const { prefix, xsrf } = document.body.dataset;

export const at = id => document.getElementById(id);

/** Translations of the texts in these scripts; empty for English. */
const words = JSON.parse(at('words').textContent);

const filled = (text, values) =>
  text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

/** A text in the reader's language, with values for its `{name}`s. */
export const t = (text, values = {}) => filled(words[text] ?? text, values);

/** The singular or plural of a text for `count`, in the reader's language. */
export function tn(one, many, count, values = {}) {
  const forms = words[one] ?? [one, many];
  return filled(forms[count === 1 ? 0 : 1], { count, ...values });
}

/** Translations of words in the API: phases, states of servers, of schedules and of due times. */
const NAMES = {
  Queued: t('Queued'),
  Starting: t('Starting'),
  Running: t('Running'),
  Stopping: t('Stopping'),
  Succeeded: t('Succeeded'),
  Failed: t('Failed'),
  Stopped: t('Stopped'),
  Active: t('Active'),
  Paused: t('Paused'),
  Invalid: t('Does not work'),
  Waiting: t('Waiting'),
  Launching: t('Launching'),
  Retrying: t('Retrying'),
  Skipped: t('Skipped'),
  Missed: t('Missed'),
  Unknown: t('Unknown'),
  running: t('running'),
  starting: t('starting'),
  stopping: t('stopping'),
  stopped: t('stopped')
};

export const named = word => NAMES[word] ?? word;

/** Make an element with a text and the attributes `set`. */
export function make(name, text = '', set = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(set)) {
    made.setAttribute(key, value);
  }
  return made;
}

/**
 * Send a request to the API. Return the answer, or null if its tag is still `known`. Throws an
 * error with the API's message.
 */
export async function ask(path, { method = 'GET', body, known } = {}) {
  const headers = {
    'Accept-Language': document.documentElement.lang,
    'X-XSRFToken': xsrf
  };
  if (known) {
    headers['If-None-Match'] = known;
  }
  const answer = await fetch(prefix + path, {
    method,
    headers,
    cache: 'no-store',
    body: body && JSON.stringify(body)
  });
  if (answer.status === 304) {
    return null;
  }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const why = told.detail ?? `${answer.status} ${answer.statusText}`;
    const { status } = answer;
    throw Object.assign(new Error(why), { status, title: told.title });
  }
  return { told, tag: answer.headers.get('Etag') ?? '' };
}

/** The DOM nodes of a text; a command in backticks becomes a code element. */
export const sentence = text =>
  text.split('`').map((part, place) => (place % 2 ? make('code', part) : part));

export function tell(error) {
  const place = at('trouble');
  place.hidden = !error;
  if (!error) {
    return;
  }
  place.textContent = `${error.message[0].toUpperCase()}${error.message.slice(1)}. `;
  if (error.status === 401 || error.status === 403) {
    place.append(
      make('a', t('Load the page again'), { href: document.URL }),
      '.'
    );
  }
}

export function age(from, to = Date.now() / 1000) {
  const left = Math.max(0, Math.round(to - from));
  const units = [
    [86400, 'd'],
    [3600, 'h'],
    [60, 'm']
  ];
  const [size, unit] = units.find(([seconds]) => left >= 2 * seconds) ?? [
    1,
    's'
  ];
  return `${Math.floor(left / size)}${unit}`;
}

/** A time in the language of the page; `timeStyle` says whether it has seconds. */
export const moment = (at, timeStyle = 'short') =>
  new Date(at * 1000).toLocaleString(document.documentElement.lang, {
    dateStyle: 'medium',
    timeStyle
  });

export function memory(bytes) {
  return bytes ? `${+(bytes / 2 ** 30).toFixed(1)} GiB` : '–';
}

/** A size of files, which may be small: `1.5 GiB`, `12 MiB`, `3.2 KiB`. */
export function bytes(count) {
  const units = [
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB']
  ];
  const [size, unit] = units.find(([least]) => count >= least) ?? [1, 'B'];
  return `${+(count / size).toFixed(1)} ${unit}`;
}

const TASKS = {
  chief: count => tn('{count} chief', '{count} chiefs', count),
  worker: count => tn('{count} worker', '{count} workers', count),
  ps: count =>
    tn('{count} parameter server', '{count} parameter servers', count),
  evaluator: count => tn('{count} evaluator', '{count} evaluators', count)
};

/** `2 workers, 1 parameter server`. */
export const tasksOf = row =>
  Object.entries(row.tasks)
    .map(([type, count]) => TASKS[type]?.(count) ?? `${count} ${type}`)
    .join(', ');

/**
 * Copy a text to the clipboard and say so on `button`; if that fails, select `field`, so that the
 * user can copy it with the keyboard.
 */
export async function copy(text, button, field) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = t('Copied');
    setTimeout(() => {
      button.textContent = t('Copy');
    }, 3000);
  } catch {
    // without TLS, pages cannot use the clipboard
    field?.focus();
    field?.select();
    button.textContent = t('Press Ctrl+C');
  }
}

for (const button of document.querySelectorAll('[data-close]')) {
  button.addEventListener('click', () => button.closest('dialog').close());
}
