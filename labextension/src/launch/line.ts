/**
 * The line of a notebook that launches what is typed now.
 *
 * Promises never to give a line of fewer keys than were pressed: where the plan is older, the
 * server is asked anew.
 */
import * as rest from '../api/rest';
import { folderOf, launchOf } from './draft';
import type { LaunchModel } from './model';

/** The line, with the cell below it where that is the program; for a notebook's path, as from its folder. */
export async function lineOf(
  { state, clusters }: LaunchModel,
  notebook?: string
): Promise<string> {
  const { draft, launchOptions, plan, current } = state;
  if (!launchOptions) {
    throw new Error('no launch options'); // there is no line to be asked for yet
  }
  const launch = launchOf(draft, launchOptions);
  const known = plan && current && notebook === undefined;
  const { line } = known
    ? plan
    : await rest.planLaunch(clusters.caller, {
        ...launch,
        ...(notebook !== undefined && { folder: folderOf(notebook) })
      });
  return launch.cell === undefined ? line : `${line}\n${launch.cell}`;
}
