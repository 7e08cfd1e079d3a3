/** Runs and a server for unit tests; only `fetch` is fake. */
import { ServerConnection } from '@jupyterlab/services';
import type { Event, ServiceManager } from '@jupyterlab/services';
import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { ClustersModel } from '../src/api/clusters';
import type { Phase, Reason } from '../src/api/models';
import { nameOf } from '../src/api/runs';
import {
  type IProblem,
  type IRun,
  type IRunEvent,
  RUN_EVENT
} from '../src/api/types';

export const trans = nullTranslator.load('tfcluster');

/** Return the run `<cluster>-<number>`, launched at `at`; if it has ended, `at` is also the end. */
export function aRun(
  cluster: string,
  number = 1,
  phase: Phase = 'Running',
  at = 1000,
  more: Partial<IRun> = {}
): IRun {
  const ended = ['Succeeded', 'Failed', 'Stopped'].includes(phase);
  return {
    cluster: {
      metadata: {
        name: `${cluster}-${number}`,
        cluster,
        run: number,
        uid: `${cluster}-${number}`,
        createdAt: at
      },
      spec: { mode: 'between-graph', replicas: { worker: { count: 2 } } },
      status: {
        phase,
        reason: phase as Reason,
        message: `${cluster} is ${phase}.`,
        ...(ended ? { finishedAt: at } : {})
      }
    },
    ready: { ready: 1, total: 2 },
    progress: null,
    notes: [],
    ...more
  };
}

/** A fake server extension: its responses and events. */
export class FakeServer {
  runs: IRun[] = [];
  stream = 'one';
  sequence = 0;
  /** The status of responses; 0 for no response. */
  status = 200;
  requests: string[] = [];
  /** The bodies of those requests that had a body. */
  bodies: unknown[] = [];
  /** Responses to requests, except requests for the list, such as `POST /tensorboards`. */
  answers: Record<string, unknown> = {};
  /** If set, responses wait for this promise. */
  gate: Promise<void> | null = null;

  /** Returns another response to some requests. */
  answer: ((url: URL) => Response | undefined) | null = null;

  private readonly _events = new Signal<this, Event.Emission>(this);

  readonly model = new ClustersModel(
    {
      settings: ServerConnection.makeSettings({
        baseUrl: 'http://server/a/b/',
        fetch: (request: RequestInfo) => this._answer(request as Request)
      }),
      trans,
      language: 'en'
    },
    {
      events: { stream: this._events },
      connectionFailure: new Signal<this, Error>(this)
    } as unknown as ServiceManager.IManager
  );

  /**
   * Push the current state of a run, or null for its removal; the event number increases by `step`.
   */
  push(name: string, run: IRun | null, step = 1): void {
    this.sequence += step;
    this.runs = [
      ...this.runs.filter(r => r.cluster.metadata.name !== name),
      ...(run ? [run] : [])
    ];
    this._emit(name, run ? 'changed' : 'removed', run);
  }

  /** Push that a request on a run has failed. */
  fail(run: IRun, detail: string): void {
    this.sequence += 1;
    const problem = { type: 'about:blank', title: 'Conflict', status: 409 };
    this._emit(nameOf(run), 'failed', run, { ...problem, detail });
  }

  private _emit(
    name: string,
    type: IRunEvent['type'],
    run: IRun | null,
    problem: IProblem | null = null
  ): void {
    const { stream, sequence } = this;
    const event: IRunEvent = {
      type,
      name,
      run,
      at: 0,
      stream,
      sequence,
      problem
    };
    this._events.emit({
      schema_id: RUN_EVENT,
      ...event
    } as unknown as Event.Emission);
  }

  private async _answer(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    const asked = `${request.method} ${pathname.replace('/a/b/tfcluster/api', '')}`;
    this.requests.push(asked);
    const body = this.answers[asked] ?? {
      runs: this.runs,
      at: 500,
      stream: this.stream,
      sequence: this.sequence
    };
    const sent = await request.text();
    if (sent) {
      this.bodies.push(JSON.parse(sent));
    }
    await this.gate;
    if (this.status === 0) {
      throw new TypeError('no network');
    }
    const other = this.answer?.(new URL(request.url));
    if (other) {
      return other;
    }
    return this.status === 200
      ? new Response(JSON.stringify(body))
      : new Response('<html>nginx</html>', { status: this.status });
  }
}
