/**
 * Sentences of a run's status in the reader's language, from codes and values.
 *
 * The texts are those of `tfcluster_magic/spec/message_table.py`, generated into `messageTable.ts`;
 * `Message` does the same in Python.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { FULL_STOP, SEPARATORS, TEXTS } from '../api/messageTable';
import type { Message } from '../api/models';
import { clock, duration } from './quantities';

/** A status, an event or a task: an English sentence, and the same sentence as codes. */
interface ITold {
  readonly message?: string;
  readonly messages?: ReadonlyArray<Message>;
}

type Value = Message['params'] extends infer P | undefined ? P[keyof P] : never;

const PLACE = /\{(\w+)(?::(\w+))?\}/g;
const ENDS = /[.。!?]$/;

const has = (table: object, key: string): boolean =>
  Object.prototype.hasOwnProperty.call(table, key);

/**
 * Return the sentence in the reader's language, or the stored sentence if not all its codes are
 * known.
 */
export function shown(told: ITold, trans: TranslationBundle): string {
  const { message = '', messages = [] } = told;
  const parts = messages.map(part => sentence(part, trans));
  return parts.length === 0 || parts.some(part => part === null)
    ? message
    : parts.reduce<string>(
        (whole, part) =>
          whole + (whole === '' || whole.endsWith('。') ? '' : ' ') + part,
        ''
      );
}

function sentence(part: Message, trans: TranslationBundle): string | null {
  const said = text(part, trans);
  if (said === null) {
    return null;
  }
  return ENDS.test(said) ? said : said + trans.gettext(FULL_STOP);
}

/** Return the text of a message; null if its text or one of its values is unknown. */
function text(part: Message, trans: TranslationBundle): string | null {
  const form = has(TEXTS, part.code) ? TEXTS[part.code] : undefined;
  if (form === undefined) {
    return null;
  }
  const params = part.params ?? {};
  const chosen =
    typeof form === 'string'
      ? trans.gettext(form)
      : trans.ngettext(form[0], form[1], Number(params.count));
  let isWhole = true;
  const said = chosen.replace(PLACE, (_, name: string, format?: string) => {
    const value = has(params, name)
      ? written(params[name], format, trans)
      : null;
    isWhole &&= value !== null;
    return value ?? '';
  });
  return isWhole ? said : null;
}

function written(
  value: Value,
  format: string | undefined,
  trans: TranslationBundle
): string | null {
  if (Array.isArray(value)) {
    const parts = value.map(each => written(each, undefined, trans));
    const separator = trans.gettext(SEPARATORS[format ?? ''] ?? ', ');
    return parts.some(each => each === null) ? null : parts.join(separator);
  }
  if (typeof value === 'object') {
    const said = text(value as Message, trans);
    return said !== null && format === 'quoted' ? `'${said}'` : said;
  }
  switch (format) {
    case 'clock':
      return clock(Number(value));
    case 'duration':
      return duration(Number(value));
    case 'g':
      return String(Number(Number(value).toPrecision(6)));
    case 'quoted':
      return `'${String(value)}'`;
    default:
      return String(value);
  }
}
