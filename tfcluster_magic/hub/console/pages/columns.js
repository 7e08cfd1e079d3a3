/* The column heads that sort a table, its filter buttons, and its pages. */

import { at, make, named, t } from './shared.js';

/** Add heads for `columns` ([key, text] each) after the existing ones; `view.sort` is the order. */
export function drawColumns(columns, view, change) {
  const line = at('columns');
  if (!line.querySelector('[data-key]')) {
    line.append(
      ...columns.map(([key, text]) => {
        const head = make('th', '', { scope: 'col', 'data-key': key });
        const button = make('button', text, { type: 'button' });
        button.addEventListener('click', () => {
          view.sort = view.sort === key ? `-${key}` : key;
          change();
        });
        head.append(button);
        return head;
      })
    );
  }
  for (const head of line.querySelectorAll('[data-key]')) {
    const { key } = head.dataset;
    if (view.sort.replace('-', '') === key) {
      head.setAttribute(
        'aria-sort',
        view.sort === key ? 'ascending' : 'descending'
      );
    } else {
      head.removeAttribute('aria-sort');
    }
  }
}

/** Draw a button for each word of `counts`; a click adds the word to `chosen` or removes it. */
export function drawChips(place, counts, chosen, change) {
  if (!place.children.length) {
    place.append(
      ...Object.keys(counts).map(word => {
        const chip = make('button', '', {
          type: 'button',
          class: 'btn btn-sm chip',
          'data-word': word
        });
        chip.addEventListener('click', () => {
          if (!chosen.delete(word)) {
            chosen.add(word);
          }
          change();
        });
        return chip;
      })
    );
  }
  for (const chip of place.children) {
    const { word } = chip.dataset;
    chip.textContent = `${named(word)} ${counts[word]}`;
    chip.setAttribute('aria-pressed', String(chosen.has(word)));
    chip.classList.toggle('active', chosen.has(word));
  }
}

/** Show which rows the table shows and what could not be read; enable the buttons to other rows. */
export function drawPlace(shown, offset, limit) {
  const last = Math.min(offset + limit, shown.total);
  const { total, all } = shown;
  const place = { first: offset + 1, last, total, all };
  const text =
    total < all
      ? t('{first}–{last} of {total} matches, of {all}', place)
      : t('{first}–{last} of {total}', place);
  at('count').textContent = total ? text : '';
  at('empty').hidden = total > 0;
  at('back').disabled = offset === 0;
  at('forth').disabled = last >= total;
  at('missed').hidden = shown.missed.length === 0;
  at('missed').replaceChildren(
    ...shown.missed.map(({ owner, detail }) =>
      make('li', owner ? `${owner}: ${detail}` : detail)
    )
  );
}
