/**
 * Writes lib/core.package.json: which packages JupyterLab brings, and which versions of them the extension accepts.
 *
 * `jupyter-builder` would otherwise take the versions of the JupyterLab it was released with, and an older one would
 * log "Unsatisfied version" for each package although all of them work. The ranges are those of package.json; yarn.lock
 * holds their lowest versions, so that the compiler refuses what the oldest supported JupyterLab has not.
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
