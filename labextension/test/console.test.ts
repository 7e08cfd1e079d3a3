import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import { ESLint } from 'eslint';
import { check, resolveConfig } from 'prettier';
import { expect, it } from 'vitest';

// The pages of the hub's admin console are no part of this extension and go through no build: what
// is here reads them as they are served.
const root = resolve(__dirname, '../..');
const pages = join(root, 'tfcluster_magic/hub/console/pages');
const files = readdirSync(pages).filter(name => /\.(js|css)$/.test(name));

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

it.each(files)('finds %s written as prettier writes it', async name => {
  const style = await resolveConfig(join(root, 'labextension/package.json'));
  const text = readFileSync(join(pages, name), 'utf-8');
  expect(await check(text, { ...style, filepath: name })).toBe(true);
});
