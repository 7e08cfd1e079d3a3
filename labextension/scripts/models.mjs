/**
 * Writes src/api/models.ts, the TypeScript of a TFCluster record and of the request bodies of verbs, from
 * docs/reference/tfcluster.schema.json. With --check it writes nothing, and fails if the file is not current.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { compile } from 'json-schema-to-typescript';

const SCHEMA = new URL(
  '../../docs/reference/tfcluster.schema.json',
  import.meta.url
);
const MODELS = new URL('../src/api/models.ts', import.meta.url);
const BANNER =
  '/* Made by `jlpm models` from docs/reference/tfcluster.schema.json: change the models in Python, not this file. */';

const schema = JSON.parse(await readFile(SCHEMA, 'utf8'));
const options = {
  additionalProperties: false,
  enableConstEnums: false,
  ignoreMinAndMaxItems: true, // else a list of at most 20 is a union of 21 tuples
  style: { singleQuote: true, trailingComma: 'none', arrowParens: 'avoid' }
};
const { $defs } = schema;
const made =
  (await compile(schema, 'TFCluster', { ...options, bannerComment: BANNER })) +
  (await compile({ ...$defs.VerbBodies, $defs }, 'VerbBodies', {
    ...options,
    bannerComment: ''
  }));

if (process.argv.includes('--check')) {
  const there = await readFile(MODELS, 'utf8').catch(() => '');
  if (there !== made) {
    console.error(
      'src/api/models.ts is not what docs/reference/tfcluster.schema.json says: run `jlpm models`.'
    );
    process.exit(1);
  }
} else {
  await mkdir(new URL('./', MODELS), { recursive: true });
  await writeFile(MODELS, made);
}
