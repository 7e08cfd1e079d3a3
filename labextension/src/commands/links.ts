/**
 * Links into this page: `lab?tfcluster=logs:digits-1` opens the logs of a run. The hub's home page has such links.
 *
 * A link only shows something: anybody may write one, so none stops, deletes or launches a run.
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
      // `search` as it was when the page was asked for: JupyterLab writes its own address meanwhile
      execute: async ({ search }) => {
        const asked = linkIn(String(search ?? ''));
        if (!asked) {
          return;
        }
        // in place of this address, so that neither F5 nor Back opens it once more
        const left = new URL(window.location.href);
        left.searchParams.delete(PARAMETER);
        window.history.replaceState(window.history.state, '', left);
        await restored; // the tab may be one of the layout's
        await commands.execute(asked.command, { name: asked.name });
      }
    });
    router.register({
      command: COMMAND,
      pattern: new RegExp(`[?&]${PARAMETER}=`)
    });
  }
};

/** The command that a query asks for, and the run that it is about; null if it asks for nothing that a link may do. */
export function linkIn(
  search: string
): { command: string; name: string } | null {
  const said = URLExt.queryStringToObject(search)[PARAMETER] ?? '';
  const [, what = '', name = ''] = /^(\w+):([a-z0-9-]+)$/.exec(said) ?? [];
  const command = SHOWN.get(what);
  return command ? { command, name } : null;
}
