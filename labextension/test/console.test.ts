import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import { ESLint } from 'eslint';
import { check, resolveConfig } from 'prettier';
import { expect, it } from 'vitest';

// The pages of the hub's admin console are not part of this extension and are not built. These
// tests read the files that the hub serves.
const root = resolve(__dirname, '../..');
const pages = join(root, 'tfcluster_magic/hub/console/pages');
const files = readdirSync(pages).filter(name => /\.(js|css)$/.test(name));
const styles = ['look.css', 'page.css'].map(name => `../../templates/${name}`);

it('finds nothing wrong in the scripts of the admin console', async () => {
  const eslint = new ESLint({
    cwd: root,
    overrideConfigFile: join(root, 'labextension/eslint.console.mjs')
  });
  const results = await eslint.lintFiles([`${pages}/*.js`]);
  const said = results.flatMap(({ filePath, messages }) =>
    messages.map(({ line, message }) => `${filePath}:${line} ${message}`)
  );
  expect(said).toEqual([]);
  expect(results.length).toBe(
    files.filter(name => name.endsWith('.js')).length
  );
});

it('shows a phase with the icon and the colour of the home page', () => {
  const of = (text: string): [string, string][] =>
    [...text.matchAll(/['"]?(\w+)['"]?: ['"](fa-[a-z-]+)['"]/g)].map(
      ([, phase, icon]): [string, string] => [phase, icon]
    );
  const hub = join(root, 'tfcluster_magic/hub/templates');
  const icons = of(readFileSync(join(pages, 'console.js'), 'utf-8'));
  expect(icons).toHaveLength(7);
  expect(of(readFileSync(join(hub, 'clusters.html'), 'utf-8'))).toEqual(icons);
});

it.each([...files, ...styles])(
  'finds %s written as prettier writes it',
  async name => {
    const style = await resolveConfig(join(root, 'labextension/package.json'));
    const text = readFileSync(join(pages, name), 'utf-8');
    expect(await check(text, { ...style, filepath: name })).toBe(true);
  }
);
