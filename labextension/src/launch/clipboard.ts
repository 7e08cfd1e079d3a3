/**
 * Text into the clipboard that is still being made when a button is clicked.
 *
 * Promises that it counts as part of that click, and that a failure is one: whoever pastes next
 * must not get something older without a word.
 */
import { Clipboard } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

/** Copy a text once it is there; rejects when there is none, or when the browser refuses. */
export async function copyOnceMade(
  text: Promise<string>,
  trans: TranslationBundle
): Promise<void> {
  if (await copiedAsPromise(text)) {
    return;
  }
  let heard = false;
  const hear = (): void => {
    heard = true;
  };
  const made = await text;
  document.body.addEventListener('copy', hear);
  Clipboard.copyToSystem(made);
  document.body.removeEventListener('copy', hear);
  if (!heard) {
    throw new Error(
      trans.__('The browser let nothing be copied: select the line instead.')
    );
  }
}

/** Safari takes nothing after a wait, but a promise; pages without TLS have no such clipboard. */
async function copiedAsPromise(text: Promise<string>): Promise<boolean> {
  const clipboard = navigator.clipboard as
    typeof navigator.clipboard | undefined;
  if (!clipboard || typeof ClipboardItem === 'undefined') {
    return false;
  }
  const blob = text.then(made => new Blob([made], { type: 'text/plain' }));
  blob.catch(() => undefined); // told by `text`
  try {
    await clipboard.write([new ClipboardItem({ 'text/plain': blob })]);
    return true;
  } catch {
    return false; // no permission, an older browser, or no text: `text` says which
  }
}
