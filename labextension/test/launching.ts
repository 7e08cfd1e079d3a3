/** The requests of the launch form, and the server's responses. */
import { ServerConnection, type ServiceManager } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { ClustersModel } from '../src/api/clusters';
import type { IField, ILaunchOptions, IPlan } from '../src/api/launchOptions';
import type { IRunAsLaunch } from '../src/api/types';
import { aRun, trans } from './runs';

const BOTH = ['between-graph', 'in-graph'] as const;
const field = (
  key: string,
  kind: IField['kind'],
  path: string,
  more: Partial<IField> = {}
): IField => ({
  key,
  kind,
  path: path.split('.'),
  flag: `--${key}`,
  section: 'basic',
  label: key,
  help: '',
  modes: [...BOTH],
  default: {},
  words: [],
  ...more
});
const default2 = { 'between-graph': '2', 'in-graph': '2' };
export const LAUNCH_OPTIONS: ILaunchOptions = {
  options: {
    backend: 'local',
    cpu: { total: 2, free: 2 },
    memory: { total: 8, free: 8 },
    gpu: { total: 0, free: 0 }
  },
  form: [
    field('mode', 'word', 'mode', {
      words: BOTH,
      default: { 'between-graph': 'between-graph', 'in-graph': 'between-graph' }
    }),
    field('workers', 'whole', 'replicas.worker.count', { default: default2 }),
    field('chief', 'switch', 'replicas.chief.count', {
      modes: ['between-graph']
    }),
    field('memory', 'memory', '*.memory', { section: 'resources' }),
    field('chief_memory', 'memory', 'replicas.chief.resources.memory', {
      modes: ['between-graph']
    }),
    field('env', 'pairs', 'env'),
    field('python', 'file', 'interpreter'),
    field('idle_timeout', 'duration', 'lifecycle.idleTimeout', {
      modes: ['in-graph'],
      default: { 'in-graph': '1h' }
    })
  ],
  schedule: [
    field('cron', 'cron', 'cron', { section: 'schedule' }),
    field('time_zone', 'zone', 'timeZone', { section: 'schedule' }),
    field('overlap', 'word', 'overlap', {
      section: 'schedule',
      words: ['allow', 'forbid'],
      default: { 'between-graph': 'forbid' }
    }),
    field('retry_delays', 'durations', 'retryDelays', { section: 'schedule' }),
    field('track', 'switch', 'track', { section: 'schedule' })
  ],
  kernelspecs: [{ name: 'py', title: 'Py', python: '/p', why: null }],
  defaults: { kernelspec: 'py' }
};
export const PLAN: IPlan = {
  name: 'train',
  problems: [],
  warnings: [],
  line: '%tfcluster launch train.py',
  folder: ''
};

/** Return a response of the server. */
const json = (data: unknown, status = 200): Response =>
  new Response(JSON.stringify(data), { status });

/**
 * Respond as the server does: `plan` makes plans, `launch` makes launches, `repeat` returns a run
 * as a launch. Nothing responds unless `isUp`.
 */
export function serve(
  plan: (body: { name?: string }) => Promise<Response>,
  launch: (body: unknown) => Response = () => json(aRun('train'), 201),
  repeat: (name: string) => IRunAsLaunch | Promise<IRunAsLaunch> = name => ({
    name,
    launch: {},
    notes: []
  }),
  isUp: () => boolean = () => true
): {
  clusters: ClustersModel;
  sent: string[];
  json: typeof json;
} {
  const sent: string[] = [];
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://h/a/b/',
    fetch: async (input: RequestInfo | URL, init?: RequestInit) => {
      const request = new Request(input, init);
      const { pathname } = new URL(request.url);
      const path = pathname.replace('/a/b/tfcluster/api', '');
      sent.push(`${request.method} ${path}`);
      if (!isUp()) {
        throw new TypeError('no network');
      }
      const [, run] = /^\/clusters\/([^/]+)\/form$/.exec(path) ?? [];
      if (run) {
        return json(await repeat(run));
      }
      if (path === '/clusters/plan') {
        return plan((await request.json()) as { name?: string });
      }
      if (path === '/options') {
        return json(LAUNCH_OPTIONS);
      }
      return request.method === 'POST'
        ? launch(await request.json())
        : json({}, 404);
    }
  });
  const services = {
    events: { stream: new Signal({}) },
    connectionFailure: new Signal({})
  } as unknown as ServiceManager.IManager;
  const clusters = new ClustersModel(
    { settings, trans, language: 'en' },
    services
  );
  return { clusters, sent, json };
}
