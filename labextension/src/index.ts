/** The plugins of this extension. */
import { clustersPlugin } from './api/plugin';
import { linksPlugin } from './commands/links';
import { commandsPlugin } from './commands/plugin';
import { comparePlugin } from './compare/plugin';
import { launchPlugin } from './launch/plugin';
import { logsPlugin } from './logs/plugin';
import { outputPlugin } from './output/plugin';
import { resourcesPlugin } from './resources/plugin';
import { schedulesPlugin } from './schedules/plugin';
import { sidebarPlugin } from './sidebar/plugin';
import { statusPlugin } from './status/plugin';
import { tensorboardPlugin } from './tensorboard/plugin';

export default [
  clustersPlugin,
  commandsPlugin,
  linksPlugin,
  logsPlugin,
  resourcesPlugin,
  outputPlugin,
  launchPlugin,
  sidebarPlugin,
  statusPlugin,
  tensorboardPlugin,
  comparePlugin,
  schedulesPlugin
];
