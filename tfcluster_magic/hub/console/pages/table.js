/* A page's table: asked for again while it is seen; its filter, its pages, and its focus. */

import { ask, at, tell } from './shared.js';

export const LIMIT = 100;
/** Milliseconds after which new rows are asked for while those of the last look are shown. */
const SOON = 500;

/**
 * Ask for what is at `path()` every so many milliseconds while the page is seen, and `draw` what is
 * new. Who may not look any more has no rows, `refused` forgets what else is known. Gives `look`,
 * which asks now; `anew`: the answer is drawn also when nothing has changed.
 */
export function poll({ path, every, draw, refused = () => {} }) {
  let timer = 0;
  let asked = 0;
  let tag = '';
  let isLast = false;

  async function look({ anew = false } = {}) {
    clearTimeout(timer);
    if (anew) {
      tag = '';
    }
    const number = ++asked;
    try {
      const answer = await ask(path(), { known: tag });
      if (number !== asked) {
        return; // the answer to a later question is the one that counts
      }
      tell(null);
      if (answer) {
        const note = answer.told.note ?? '';
        tag = answer.tag;
        isLast = note !== '';
        draw(answer.told);
        drawNote(note);
      }
    } catch (error) {
      if (number === asked) {
        tell(error);
        if (error.status === 401 || error.status === 403) {
          at('rows').replaceChildren();
          refused();
          return; // whoever may not look does not go on asking
        }
      }
    }
    if (number === asked && !document.hidden) {
      timer = setTimeout(look, isLast ? SOON : every);
    }
  }

  document.addEventListener(
    'visibilitychange',
    () => document.hidden || look()
  );
  return look;
}

/**
 * Follow the rows at `path` and `draw` each answer. `view` has the order, the page, the text of the
 * filter and what else is asked for, which `words` adds. Gives `look` (now) and `change` (of what
 * is asked for: the first page of it, or the one at an offset).
 */
export function follow({ path, view, words, every, draw }) {
  function question() {
    const found = new URLSearchParams({
      sort: view.sort,
      limit: LIMIT,
      offset: view.offset
    });
    if (view.text) {
      found.set('q', view.text);
    }
    words(found);
    return `${path}?${found}`;
  }

  const look = poll({ path: question, every, draw });

  function change(offset = 0) {
    view.offset = Math.max(0, offset);
    look({ anew: true }); // whoever changes something sees the rows drawn anew
  }

  view.text = at('filter').value; // typed before this was loaded
  at('filter').addEventListener('input', () => {
    view.text = at('filter').value;
    change();
  });
  at('back').addEventListener('click', () => change(view.offset - LIMIT));
  at('forth').addEventListener('click', () => change(view.offset + LIMIT));
  return { look, change };
}

/** Say of when the rows are, where they are not of now. */
function drawNote(note) {
  const place = at('note');
  if (place && place.textContent !== note) {
    place.textContent = note;
    place.hidden = !note;
  }
}

/** Put these rows into the table; what had the focus has it again. */
export function drawRows(lines) {
  const focus = document.activeElement?.getAttribute('aria-label');
  const inRows = at('rows').contains(document.activeElement);
  at('rows').replaceChildren(...lines);
  if (inRows && focus) {
    const again = [...at('rows').querySelectorAll('[aria-label]')];
    again.find(one => one.getAttribute('aria-label') === focus)?.focus();
  }
}
