/**
 * Writes lib/core.package.json: which packages JupyterLab brings, and which versions of them the extension accepts.
 *
 * Otherwise `jupyter-builder` would require the versions of the JupyterLab with which it was released, and an older
 * JupyterLab would log "Unsatisfied version" for each package although all packages work. The ranges are those of
 * package.json. yarn.lock has their lowest versions, so that the compiler refuses anything that the oldest supported
 * JupyterLab lacks.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

const core = createRequire(import.meta.url)(
  '@jupyterlab/core-meta/core.package.json'
);
const root = new URL('../', import.meta.url);
const { dependencies } = JSON.parse(
  await readFile(new URL('package.json', root), 'utf8')
);

const brought = { ...core.dependencies, ...core.resolutions };
const bundled = Object.keys(dependencies).filter(name => !(name in brought));
if (bundled.length) {
  console.error(
    `JupyterLab does not bring ${bundled.join(', ')}: it would be copied into the extension.`
  );
  process.exit(1);
}
await mkdir(new URL('lib/', root), { recursive: true });
await writeFile(
  new URL('lib/core.package.json', root),
  JSON.stringify({
    jupyterlab: { singletonPackages: core.jupyterlab.singletonPackages },
    resolutions: dependencies
  })
);
