/** What only pods have, in the form. */
import { describe, expect, it } from 'vitest';
import type { Spec } from '../src/api/models';
import type { IField, ILaunchOptions } from '../src/api/launchOptions';
import { EMPTY, launchOf } from '../src/launch/draft';
import { draftOfSpec } from '../src/launch/prefill';

const field = (key: string, kind: IField['kind'], path: string): IField => ({
  key,
  kind,
  path: path.split('.'),
  flag: `--${key}`,
  section: 'pods',
  label: key,
  help: '',
  modes: ['between-graph', 'in-graph'],
  default: {},
  words: []
});
const LAUNCH_OPTIONS: ILaunchOptions = {
  options: {
    backend: 'local',
    cpu: { total: 2, free: 2 },
    memory: { total: 8, free: 8 },
    gpu: { total: 0, free: 0 }
  },
  form: [
    field('image', 'image', 'image'),
    field('image_pull_secret', 'names', 'pods.imagePullSecrets'),
    field('volume', 'volumes', 'pods.volumes'),
    field('secret', 'secrets', 'pods.secrets'),
    field('annotation', 'annotations', 'pods.annotations'),
    field('data_claim', 'claim', 'pods.dataClaim')
  ],
  kernelspecs: [],
  defaults: { kernelspec: null }
};

describe('what only pods have', () => {
  it('is typed as lines, and asked for as words of the command line', () => {
    const values = {
      image: ' registry:5000/tf:1 ',
      volume: 'images:/mnt/images:ro\n\n old/sub:/mnt/old \n',
      data_claim: '10Gi',
      secret: '  '
    };
    expect(launchOf({ ...EMPTY, values }, LAUNCH_OPTIONS).options).toEqual({
      image: 'registry:5000/tf:1',
      volume: ['images:/mnt/images:ro', 'old/sub:/mnt/old'],
      data_claim: '10Gi'
    });
  });

  it('of a run stands in the form that launches it again', () => {
    const spec: Spec = {
      mode: 'in-graph',
      image: 'tf:1',
      pods: {
        imagePullSecrets: ['registry'],
        volumes: [
          { claim: 'images', path: '/mnt/images', readOnly: true },
          { claim: 'old', path: '/mnt/old', subPath: 'a/b' }
        ],
        secrets: [
          { name: 's3' },
          { name: 'key', path: '/mnt/key' },
          { name: 'minio', variables: { ID: 'user', KEY: 'a.b' } }
        ],
        annotations: { 'a.io/b': 'c=d' },
        dataClaim: { size: '10Gi', storageClass: 'shared' }
      }
    };
    expect(draftOfSpec(spec, 'digits', LAUNCH_OPTIONS).values).toEqual({
      image: 'tf:1',
      image_pull_secret: 'registry',
      volume: 'images:/mnt/images:ro\nold/a/b:/mnt/old',
      secret: 's3\nkey:/mnt/key\nminio:ID=user,KEY=a.b',
      annotation: 'a.io/b=c=d',
      data_claim: '10Gi:shared'
    });
  });

  it('is absent from the form of a run that asked for none', () => {
    expect(
      draftOfSpec({ mode: 'in-graph' }, 'digits', LAUNCH_OPTIONS).values
    ).toEqual({});
  });
});
