/** "Open in TensorBoard" in the file browser's menu on folders. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import type { TranslationBundle } from '@jupyterlab/translation';
import { boardIcon } from '../icons';
import { CommandIDs } from '../tokens';

const COMMAND = 'tfcluster:tensorboard-folder';
/** Drives whose paths are those of the server's own files. */
const DRIVES = ['', 'RTC'];

export function addFolderMenu(
  app: JupyterFrontEnd,
  browsers: IFileBrowserFactory,
  trans: TranslationBundle
): void {
  const { commands, contextMenu, serviceManager } = app;
  const { contents } = serviceManager;
  const chosen = (): string | null => {
    const items = browsers.tracker.currentWidget?.selectedItems();
    for (const { type, path } of items ?? []) {
      if (type === 'directory' && DRIVES.includes(contents.driveName(path))) {
        return contents.localPath(path);
      }
    }
    return null;
  };
  commands.addCommand(COMMAND, {
    label: trans.__('Open in TensorBoard'),
    caption: trans.__('Show the event files in this folder'),
    icon: boardIcon,
    isVisible: () => chosen() !== null,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () =>
      commands.execute(CommandIDs.tensorboard, { folder: chosen() ?? '' })
  });
  contextMenu.addItem({
    command: COMMAND,
    selector: '.jp-DirListing-item[data-isdir="true"]',
    rank: 4.5
  });
}
