/* A page's table: polling while the page is visible, the filter, the pages, and the focus. */

import { ask, at, tell } from './shared.js';

export const LIMIT = 100;
/** Milliseconds after which rows are requested again while the page shows an old reading. */
const SOON = 500;

/**
 * Request `path()` every `every` milliseconds while the page is visible, and `draw` new answers. If
 * the user may no longer read the data, remove the rows, and call `refused` to remove other data.
 * Return `look`, which requests now; with `anew`, the answer is drawn even if nothing has changed.
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
        return; // only the answer to the newest request counts
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
          return; // no further requests without permission
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
 * Follow the rows at `path` and `draw` each answer. `view` has the order, the page and the text of
 * the filter; `words` adds other parameters. Return `look`, which requests now, and `change`, which
 * requests the rows after a change of `view`, from an offset (by default the first page).
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
    look({ anew: true }); // after a user's change, the rows are always drawn again
  }

  view.text = at('filter').value; // the user may have typed before this script was loaded
  at('filter').addEventListener('input', () => {
    view.text = at('filter').value;
    change();
  });
  at('back').addEventListener('click', () => change(view.offset - LIMIT));
  at('forth').addEventListener('click', () => change(view.offset + LIMIT));
  return { look, change };
}

/** Show the time of the rows if they are not current. */
function drawNote(note) {
  const place = at('note');
  if (place && place.textContent !== note) {
    place.textContent = note;
    place.hidden = !note;
  }
}

/** Put these rows into the table; the focus stays on the same button. */
export function drawRows(lines) {
  const focus = document.activeElement?.getAttribute('aria-label');
  const inRows = at('rows').contains(document.activeElement);
  at('rows').replaceChildren(...lines);
  if (inRows && focus) {
    const again = [...at('rows').querySelectorAll('[aria-label]')];
    again.find(one => one.getAttribute('aria-label') === focus)?.focus();
  }
}
