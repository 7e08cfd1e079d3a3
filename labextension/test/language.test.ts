import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';
import { languageOf } from '../src/api/rest';

const speaking = (languageCode: string | undefined): ITranslator =>
  ({ ...nullTranslator, languageCode }) as ITranslator;

describe('the language of messages', () => {
  it.each([
    [undefined, 'en'], // JupyterLab 4.2 without a language pack
    ['default', 'en'],
    ['en', 'en'],
    ['zh_CN', 'zh-CN'],
    ['zh-CN', 'zh-CN']
  ])('of a JupyterLab that says %s is %s', (code, language) => {
    expect(languageOf(speaking(code))).toBe(language);
  });

  it('is English without a translator', () => {
    expect(languageOf(null)).toBe('en');
  });
});
