/**
 * Copies text that is still being made when a button is clicked.
 *
 * The copy counts as part of that click, and a failure is reported: otherwise the user would paste
 * older text without noticing.
 */
import { Clipboard } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

/** Copy a text once it is available; reject if there is none, or if the browser refuses. */
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
      trans.__(
        'The browser does not allow copying: select the line and copy it.'
      )
    );
  }
}

/**
 * Copy a promise, because Safari refuses to copy after a wait. Pages without TLS lack this
 * clipboard API.
 */
async function copiedAsPromise(text: Promise<string>): Promise<boolean> {
  const clipboard = navigator.clipboard as
    typeof navigator.clipboard | undefined;
  if (!clipboard || typeof ClipboardItem === 'undefined') {
    return false;
  }
  const blob = text.then(made => new Blob([made], { type: 'text/plain' }));
  blob.catch(() => undefined); // `text` reports the error
  try {
    await clipboard.write([new ClipboardItem({ 'text/plain': blob })]);
    return true;
  } catch {
    return false; // no permission, an older browser, or no text; `text` says which
  }
}
