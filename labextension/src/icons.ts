/**
 * The icons of TFCluster, drawn in one colour that each theme chooses.
 *
 * Phases differ in shape, not only in colour: a clock waits, a ring begins, a triangle runs, a tick
 * is done, a cross failed, a square was stopped.
 */
import { LabIcon } from '@jupyterlab/ui-components';
import type { Phase } from './api/models';

const icon = (name: string, body: string): LabIcon =>
  new LabIcon({
    name: `tfcluster:${name}`,
    svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161" fill-rule="evenodd">${body}</g></svg>`
  });

const RING =
  'M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm0 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16z';
const DISC = 'M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20z';

/** The product's icon, as in `hub/logo.svg`: one task, connected to others. */
export const clusterIcon = icon(
  'cluster',
  '<path d="m4.1 6.2 1.6-1.78 7.1 6.39-1.6 1.78zM19.9 6.2l-1.6-1.78-7.1 6.39 1.6 1.78zM10.8 12h2.4v8.5h-2.4z"/>' +
    '<circle cx="12" cy="12" r="4"/><circle cx="4.75" cy="5.25" r="2.75"/><circle cx="19.25" cy="5.25" r="2.75"/><circle cx="12" cy="20.5" r="2.75"/>'
);

/** A notebook that drives the workers. */
export const inGraphIcon = icon(
  'in-graph',
  '<path d="M4 2h9v20H4zm2 3v2h5V5zm0 4v2h5V9zm9 2h3.2l-1.6-1.6L18 8l4 4-4 4-1.4-1.4 1.6-1.6H15z"/>'
);

/** Programs side by side. */
export const betweenGraphIcon = icon(
  'between-graph',
  '<path d="M3 4h5v16H3zm2 3v2h1V7zm4.5-3h5v16h-5zm2 3v2h1V7zM16 4h5v16h-5zm2 3v2h1V7z"/>'
);

export const sessionIcon = icon(
  'connect',
  '<path d="M7 3h2v5h6V3h2v5h2v3a7 7 0 0 1-6 6.9V22h-2v-4.1A7 7 0 0 1 5 11V8h2z"/>'
);

export const stopRunIcon = icon('stop', '<path d="M6 6h12v12H6z"/>');

export const pauseIcon = icon('pause', '<path d="M6 5h4v14H6zm8 0h4v14h-4z"/>');

export const logsIcon = icon(
  'logs',
  '<path d="M3 4h18v16H3zm2 2v12h14V6zm1.5 2.5L8 7l3.5 3.5L8 14l-1.5-1.5 2-2zM12 13h5v2h-5z"/>'
);

export const boardIcon = icon(
  'tensorboard',
  '<path d="M3 3h2v16h16v2H3zm4 12 4-6 4 3 4.5-7 1.7 1.1-5.6 8.7-4-3-2.9 4.4z"/>'
);

/** Bars for usage, below a line for what was requested. */
export const resourcesIcon = icon(
  'resources',
  '<path d="M3 3h18v2H3zM4 12h4v9H4zm6-5h4v14h-4zm6 8h4v6h-4z"/>'
);

/** A month with a day in it. */
export const calendarIcon = icon(
  'calendar',
  '<path d="M7 2h2v2h6V2h2v2h4v18H3V4h4zm-2 8v10h14V10zm2 2h4v4H7z"/>'
);

/** Two columns; the second differs. */
export const compareIcon = icon(
  'compare',
  '<path d="M3 3h8v18H3zm2 2v3h4V5zm0 5v4h4v-4zm0 6v3h4v-3zm8-13h8v18h-8zm2 2v3h4V5zm0 11v3h4v-3z"/>'
);

export const rerunIcon = icon(
  'rerun',
  '<path d="M12 4a8 8 0 1 1-7.7 5.8l1.9.600A6 6 0 1 0 12 6v3.5L7 5l5-4.5z"/>'
);

const phaseIcon = (name: string, path: string): LabIcon =>
  icon(`phase-${name}`, `<path d="${path}"/>`);

const PHASES: Readonly<Record<Phase, LabIcon>> = {
  Queued: phaseIcon('queued', `${RING}M11 6h2v5.6l4 2.3-1 1.8-5-2.9z`),
  Starting: phaseIcon(
    'starting',
    'M12 2a10 10 0 0 1 10 10h-2.5A7.5 7.5 0 0 0 12 4.5zM2 12a10 10 0 0 0 10 10v-2.5A7.5 7.5 0 0 1 4.5 12z'
  ),
  Running: phaseIcon('running', 'M6 3.5v17L20 12z'),
  Stopping: phaseIcon('stopping', 'M4 4h16v16H4zm2.5 2.5v11h11v-11z'),
  Succeeded: phaseIcon(
    'succeeded',
    `${DISC}m-1.4 14.7-4.3-4.3 1.6-1.6 2.7 2.7 5.7-5.7 1.6 1.6z`
  ),
  Failed: phaseIcon(
    'failed',
    'M7.9 2h8.2L22 7.9v8.2L16.1 22H7.9L2 16.1V7.9zm.7 5L7 8.6l3.4 3.4L7 15.4 8.6 17l3.4-3.4 3.4 3.4 1.6-1.6-3.4-3.4L17 8.6 15.4 7 12 10.4z'
  ),
  Stopped: phaseIcon('stopped', 'M5 5h14v14H5z')
};

export const iconOfPhase = (phase: Phase): LabIcon => PHASES[phase];
