/** The projects of the file browser below the list of runs: each opens the launch form, filled in. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { nameOf } from '../api/runs';
import { listProjects } from '../api/rest';
import type { IClusters } from '../api/state';
import type { IProject, IRun } from '../api/types';
import { useServerList } from '../run/hooks';
import { PhaseBadge, Sentence } from '../run/parts';
import { CommandIDs } from '../tokens';
import { Section } from './Section';

interface IProjectsProps {
  readonly model: IClusters;
  readonly runs: ReadonlyArray<IRun>;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  /** The number of refreshes that the user has requested. */
  readonly refreshed: number;
  /** Open the row of a run. */
  onReveal(name: string): void;
}

/** The projects, or how to make the first one; nothing until the server has answered. */
export function Projects(props: IProjectsProps): React.JSX.Element | null {
  const { model, runs, trans, refreshed } = props;
  const list = useServerList({
    ask: React.useCallback(
      (again: boolean) => listProjects(model.caller, again),
      [model]
    ),
    watched: runs.map(nameOf).join(),
    refreshed
  });
  if (!list) {
    return null;
  }
  return (
    <Section title={trans.__('Projects')} count={list.projects.length}>
      {list.projects.length > 0 ? (
        <ul className="tfc-Projects">
          {list.projects.map(project => (
            <Project key={project.path} {...props} project={project} />
          ))}
        </ul>
      ) : (
        <p className="tfc-Fold-note">
          {trans.__(
            'A project is a folder with a program and the options of its launch.'
          )}{' '}
          <Sentence
            text={trans.__(
              'Turn a folder into a project: `tfcluster project init .`'
            )}
          />
        </p>
      )}
      {!list.complete && (
        <p className="tfc-Fold-note">
          {trans.__('There may be more: the search ended at its limit.')}
        </p>
      )}
    </Section>
  );
}

function Project({
  project,
  runs,
  commands,
  trans,
  onReveal
}: IProjectsProps & { readonly project: IProject }): React.JSX.Element {
  const { path, configurations, problems, lastRun } = project;
  const open = (config?: string): void =>
    void commands.execute(CommandIDs.launch, {
      program: path,
      ...(config !== undefined && { config })
    });
  const last = runs.find(run => nameOf(run) === lastRun);
  return (
    <li className="tfc-Project" data-project={path}>
      <button
        type="button"
        className="tfc-Link tfc-Project-name"
        title={trans.__('Open the launch form with this project')}
        onClick={() => open()}
      >
        <bdi>{path}</bdi>
      </button>
      {configurations.map(config => (
        <button
          key={config}
          type="button"
          className="tfc-Chip"
          title={trans.__('Open the launch form with configuration %1', config)}
          onClick={() => open(config)}
        >
          <bdi>{config}</bdi>
        </button>
      ))}
      {problems.length > 0 && (
        <small className="tfc-Project-wrong" title={problems.join('\n')}>
          {trans._n('%1 problem', '%1 problems', problems.length)}
        </small>
      )}
      {lastRun !== null && (
        <span className="tfc-Project-last">
          {last && (
            <PhaseBadge phase={last.cluster.status.phase} trans={trans} />
          )}
          <button
            type="button"
            className="tfc-Link"
            title={trans.__('Show the last run')}
            onClick={() => onReveal(lastRun)}
          >
            <bdi>{lastRun}</bdi>
          </button>
        </span>
      )}
    </li>
  );
}
