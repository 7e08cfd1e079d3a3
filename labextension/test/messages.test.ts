import { readFileSync } from 'node:fs';
import type { TranslationBundle } from '@jupyterlab/translation';
import { expect, it } from 'vitest';
import { shown } from '../src/run/messages';
import { trans } from './runs';

interface ISample {
  readonly message?: string;
  readonly messages: never[];
  readonly en: string;
  readonly zh_CN: string;
}

const read = (file: string): unknown =>
  JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8'));
/** Python makes the same sentences from these: tests/unit/lifecycle/test_messages.py. */
const samples = read('../../tests/data/messages.json') as ISample[];
const catalog = read(
  '../../tfcluster_magic/locale/zh_CN/LC_MESSAGES/tfcluster.json'
) as Record<string, string[]>;

const chinese = {
  gettext: (text: string) => catalog[text]?.[0] ?? text,
  ngettext: (one: string) => catalog[one]?.[0] ?? one
} as unknown as TranslationBundle;

it.each(samples.map(sample => [sample.en, sample] as const))(
  'says %s',
  (sentence, sample) => {
    expect(shown(sample, trans)).toBe(sentence);
    expect(shown(sample, chinese)).toBe(sample.zh_CN);
  }
);
