/**
 * The language that JupyterLab shows, as HTTP names it. English where JupyterLab does not say.
 */
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

export function languageOf(translator: ITranslator | null): string {
  // JupyterLab 4.2 without a language pack has none, whatever its types say.
  const code: string | undefined = (translator ?? nullTranslator).languageCode;
  return !code || code === 'default' ? 'en' : code.replace('_', '-');
}
