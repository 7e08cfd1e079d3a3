/**
 * The shared names of this extension's plugins: the token of the model, and the ids of commands.
 *
 * This file has no side effects, so other extensions may import it.
 */
import { Token } from '@lumino/coreutils';
import type { IClusters } from './api/clusters';
import type { Settings } from './settings';

/** The runs of this user, from the server extension. */
export const IClustersToken = new Token<IClusters>(
  'tfcluster-labextension:IClusters',
  'The runs of TFCluster: what there is, its changes, and the verbs.'
);

/** The user's settings of this extension. */
export const ISettingsToken = new Token<Settings>(
  'tfcluster-labextension:ISettings',
  'The settings of TFCluster.'
);

/** The domain of this extension's texts in JupyterLab's translations. */
export const DOMAIN = 'tfcluster';

/** The commands; those on a run take `{ name: string }`. */
export namespace CommandIDs {
  export const openSidebar = 'tfcluster:open-sidebar';
  export const launch = 'tfcluster:launch';
  export const scheduleHistory = 'tfcluster:schedule-history';
  export const note = 'tfcluster:note';
  export const rename = 'tfcluster:rename';
  export const tag = 'tfcluster:tag';
  export const stop = 'tfcluster:stop';
  export const remove = 'tfcluster:delete';
  export const editAndLaunch = 'tfcluster:edit-and-launch';
  export const rerun = 'tfcluster:rerun';
  export const logs = 'tfcluster:logs';
  export const top = 'tfcluster:top';
  export const tensorboard = 'tfcluster:tensorboard';
  export const compare = 'tfcluster:compare';
  export const connect = 'tfcluster:connect';
  export const copyCommand = 'tfcluster:copy-command';
  export const copyYaml = 'tfcluster:copy-yaml';
  export const filter = 'tfcluster:filter';
  export const refresh = 'tfcluster:refresh';
}
