/** Paths of a run, which are links if the file browser shows them. */
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { expect, it } from 'vitest';
import type { IPlaces, IRun } from '../src/api/types';
import { RunFacts } from '../src/run/RunFacts';
import { aRun, trans } from './runs';

declare const globalThis: { IS_REACT_ACT_ENVIRONMENT: boolean };
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const OPEN = 'filebrowser:open-path';

function runWith(places: IPlaces): IRun {
  const run = aRun('digits', 1, 'Running', 1000, { places });
  const { cluster } = run;
  return {
    ...run,
    cluster: {
      ...cluster,
      spec: {
        ...cluster.spec,
        program: {
          kind: 'file',
          source: 'a/train.py',
          workingDir: '/home/ada/a',
          arguments: ['--steps', '60']
        }
      },
      status: { ...cluster.status, paths: { output: '/log/digits/1' } }
    }
  };
}

function drawn(run: IRun, commands?: CommandRegistry): HTMLElement {
  const host = document.body.appendChild(document.createElement('div'));
  const root = createRoot(host);
  act(() =>
    root.render(<RunFacts run={run} trans={trans} commands={commands} />)
  );
  return host;
}

const links = (host: HTMLElement): HTMLElement[] => [
  ...host.querySelectorAll<HTMLElement>('button.tfc-Link')
];

it('links to the graphs of a run if they are at a web address', () => {
  const run = runWith({});
  const link = (graphs?: string | null) =>
    drawn({ ...run, graphs }).querySelector<HTMLAnchorElement>('a.tfc-Link');
  const address =
    'https://grafana.example.com/d/tfcluster-run?var-run=digits-1';
  expect(link(address)?.href).toBe(address);
  expect(link(address)?.textContent).toBe('Open in Grafana');
  expect(link('javascript:alert(1)')).toBeNull();
  expect(link(null)).toBeNull();
  expect(link()).toBeNull();
});

it('says what advice changed in a run of a schedule, and why', () => {
  const run = runWith({});
  const { metadata } = run.cluster;
  const advised = [
    {
      option: 'worker_memory',
      own: '8Gi',
      value: '4Gi',
      run: 'nightly-1',
      why: {
        code: 'AdviceMemoryTooHigh',
        params: { type: 'worker', limit: '8Gi', peak: '2Gi', task: 'worker-0' }
      }
    }
  ];
  const scheduled = { schedule: 'nightly', uid: 'u', due: 1000, advised };
  const cluster = { ...run.cluster, metadata: { ...metadata, scheduled } };
  expect(drawn({ ...run, cluster }).textContent).toContain(
    '--worker-memory 8Gi → 4Gi, because of nightly-1: worker needs less memory'
  );
  expect(drawn(run).textContent).not.toContain('Advised');
});

it('opens a file in its editor and a folder in the file browser', () => {
  const commands = new CommandRegistry();
  const opened: unknown[] = [];
  commands.addCommand(OPEN, { execute: args => opened.push(args) });
  const run = runWith({ program: 'a/train.py', folder: '' });
  const host = drawn(run, commands);
  expect(links(host).map(link => link.textContent)).toEqual([
    'train.py',
    '/home/ada/a'
  ]);
  expect(host.textContent).toContain('train.py --steps 60');
  expect(host.textContent).toContain('/log/digits/1'); // outside the file browser: plain text
  links(host).forEach(link => link.click());
  expect(opened).toEqual([
    { path: 'a/train.py', dontShowBrowser: true },
    { path: '/', dontShowBrowser: false }
  ]);
});

it('has no links where there is no file browser', () => {
  const run = runWith({ program: 'a/train.py', output: 'log/digits/1' });
  expect(links(drawn(run, new CommandRegistry()))).toEqual([]);
  const host = drawn(run);
  expect(links(host)).toEqual([]);
  expect(host.textContent).toContain('train.py');
});
