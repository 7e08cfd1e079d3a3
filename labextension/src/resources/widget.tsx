/** What the tasks of one run use over time, as a widget for a tab. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { isActive } from '../api/runs';
import type { IClusters } from '../api/state';
import type { IRun, IRunGraphs } from '../api/types';
import { resourcesIcon } from '../icons';
import { useRun } from '../run/hooks';
import { PhaseBadge, Sentence } from '../run/parts';
import { isFailing } from '../run/words';
import { SeenWidget } from '../tabs';
import { CommandIDs } from '../tokens';
import { Advice, Graphs } from './graphs';
import { ResourcesModel } from './model';

export interface IResourcesOptions {
  readonly clusters: IClusters;
  readonly name: string;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

export class ResourcesWidget extends SeenWidget<ResourcesModel> {
  constructor(private readonly _options: IResourcesOptions) {
    super(new ResourcesModel(_options.clusters, _options.name));
    const { name, trans } = _options;
    this.addClass('tfc-Resources');
    this.title.label = trans.__('%1 · Resources', name);
    this.title.caption = trans.__('What the tasks of %1 use', name);
    this.title.icon = resourcesIcon;
    this.title.closable = true;
    this.node.tabIndex = -1;
  }

  get name(): string {
    return this._options.name;
  }

  protected override onActivateRequest(): void {
    this.node.focus();
  }

  protected override render(): React.JSX.Element {
    const { commands, trans } = this._options;
    return <Resources model={this.model} commands={commands} trans={trans} />;
  }
}

export interface IResourcesProps {
  readonly model: ResourcesModel;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

/** The run, the advice and the graphs; or why there are none, and what to do. */
export function Resources({
  model,
  commands,
  trans
}: IResourcesProps): React.JSX.Element {
  const { clusters, name } = model;
  const { graphs, problem } = React.useSyncExternalStore(
    React.useCallback(
      listener => {
        model.changed.connect(listener);
        return () => void model.changed.disconnect(listener);
      },
      [model]
    ),
    () => model.state
  );
  const run = useRun(clusters, name);
  const isEmpty = graphs !== null && graphs.types.length === 0;
  return (
    <>
      {run && (
        <header className="tfc-Resources-head">
          <PhaseBadge
            phase={run.cluster.status.phase}
            failing={isFailing(run.cluster.status)}
            trans={trans}
          />
          <bdi>{name}</bdi>
          <span className="tfc-Resources-hint">
            {legend(graphs, trans).join(' ')}
          </span>
        </header>
      )}
      {problem && (
        <p className="tfc-Trouble" role="alert">
          <Sentence text={problem.message} />
        </p>
      )}
      {graphs === null && !problem && (
        <p className="tfc-Resources-none">{trans.__('Asking the server…')}</p>
      )}
      {graphs && !isEmpty && (
        <Advice advice={graphs.advice} reason={graphs.noAdvice} trans={trans} />
      )}
      {isEmpty ? (
        <Nothing run={run} commands={commands} trans={trans} />
      ) : (
        graphs && (
          <Graphs
            graphs={graphs}
            trans={trans}
            onTask={task =>
              void commands.execute(CommandIDs.logs, { name, task })
            }
          />
        )
      )}
    </>
  );
}

/** Return the meaning of those lines and words that occur on the graphs. */
const legend = (
  graphs: IRunGraphs | null,
  trans: TranslationBundle
): ReadonlyArray<string> => [
  ...(graphs?.types.some(({ graphs: own }) =>
    own.some(({ requested }) => requested !== null)
  )
    ? [trans.__('Grey line: what one task asked for.')]
    : []),
  ...(graphs?.steps.length ? [trans.__('#: the step of the training.')] : [])
];

/** The reason why nothing was sampled, and what to do. */
function Nothing({
  run,
  commands,
  trans
}: {
  readonly run: IRun | undefined;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  const name = run?.cluster.metadata.name;
  if (run === undefined || isActive(run)) {
    return (
      <p className="tfc-Resources-none" role="status">
        {trans.__(
          'No task has been sampled yet. The graphs appear a few seconds after the first task has started; the sidebar says what the run waits for.'
        )}
      </p>
    );
  }
  return (
    <div className="tfc-Resources-none" role="status">
      <p>
        {trans.__(
          'This run has no samples: none of its tasks ran, or its output was deleted. Launch it again to see what its tasks use.'
        )}
      </p>
      <button
        type="button"
        className="tfc-Button"
        onClick={() => void commands.execute(CommandIDs.rerun, { name })}
      >
        {trans.__('Rerun')}
      </button>
    </div>
  );
}
