/**
 * Links into this page: `lab?tfcluster=logs:digits-1` opens the logs of a run. The hub's home page
 * has such links.
 *
 * A link only shows something. It never stops, deletes or launches a run, because anybody may write
 * a link.
 */
import {
  IRouter,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { URLExt } from '@jupyterlab/coreutils';
import { CommandIDs } from '../tokens';

const PARAMETER = 'tfcluster';
const COMMAND = 'tfcluster:open-link';
const SHOWN: ReadonlyMap<string, string> = new Map([
  ['run', CommandIDs.openSidebar],
  ['logs', CommandIDs.logs],
  ['tensorboard', CommandIDs.tensorboard]
]);

export const linksPlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:links',
  description: 'Links from other pages to a run, its logs and its curves.',
  autoStart: true,
  requires: [IRouter],
  activate: ({ commands, restored }: JupyterFrontEnd, router: IRouter) => {
    commands.addCommand(COMMAND, {
      // `search` of the address with which the page was opened; JupyterLab changes the address
      // afterwards
      execute: async ({ search }) => {
        const asked = linkIn(String(search ?? ''));
        if (!asked) {
          return;
        }
        // replace the address, so that neither F5 nor Back opens the link again
        const left = new URL(window.location.href);
        left.searchParams.delete(PARAMETER);
        window.history.replaceState(window.history.state, '', left);
        await restored; // wait, because the layout may be restoring the same tab
        await commands.execute(asked.command, { name: asked.name });
      }
    });
    router.register({
      command: COMMAND,
      pattern: new RegExp(`[?&]${PARAMETER}=`)
    });
  }
};

/**
 * Return the command and the run that a query names; null for a query without a command that links
 * may use.
 */
export function linkIn(
  search: string
): { command: string; name: string } | null {
  const said = URLExt.queryStringToObject(search)[PARAMETER] ?? '';
  const [, what = '', name = ''] = /^(\w+):([a-z0-9-]+)$/.exec(said) ?? [];
  const command = SHOWN.get(what);
  return command ? { command, name } : null;
}
