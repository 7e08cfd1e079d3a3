/**
 * The facts of a run besides phase and progress: sentence, tasks that need attention, notes,
 * warnings, reclaimed resources, places.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import type { Dependency, TaskStatus } from '../api/models';
import type { IRun } from '../api/types';
import { joinArguments } from './commandLine';
import { shown } from './messages';
import { Parts, Sentence, Times } from './parts';
import {
  phaseWord,
  programWords,
  reclaimedWords,
  shape,
  sourceWord,
  usedWords
} from './words';

const MOST_TASKS = 5;

/** Return whether a task says more than the counts and the run's own sentence. */
function isTelling(task: TaskStatus, trans: TranslationBundle, said: string) {
  const message = shown(task, trans);
  return (
    (task.state === 'Failed' || message !== '' || Boolean(task.restarts)) &&
    !(message !== '' && said.includes(message))
  );
}

interface IRunFactsProps {
  readonly run: IRun;
  readonly trans: TranslationBundle;
  /** With commands, paths that the file browser shows are links. */
  readonly commands?: CommandRegistry;
  /** The tab index of the links. */
  readonly tabIndex?: number;
  /** Whether the state is outdated. */
  readonly isOld?: boolean;
  /** Whether all tasks are shown beside the facts. */
  readonly hasTasks?: boolean;
}

/** All facts, the most important first. */
export const RunFacts = React.memo(
  ({
    run,
    trans,
    commands,
    tabIndex,
    isOld = false,
    hasTasks = false
  }: IRunFactsProps): React.JSX.Element => {
    const { metadata, spec, status } = run.cluster;
    const { program } = spec;
    const places = run.places ?? {};
    const opening = { commands, tabIndex, trans };
    const inferred = (status.inferred ?? [])
      .map(part => shown({ messages: [part] }, trans))
      .filter(Boolean);
    const notes = [
      ...run.notes,
      ...(status.reclaimed ? [reclaimedWords(status.reclaimed, trans)] : [])
    ];
    return (
      <div className="tfc-Facts">
        {(status.warnings ?? []).map(warning => (
          <p className="tfc-Facts-warning" key={warning}>
            <span className="tfc-Facts-label">{trans.__('Warning')}</span>
            <Sentence text={warning} />
          </p>
        ))}
        {metadata.note && (
          <p className="tfc-Facts-note">
            <span className="tfc-Facts-label">{trans.__('Note')}</span>
            {metadata.note}
          </p>
        )}
        {notes.filter(Boolean).map(note => (
          <p key={note}>
            <Sentence text={note} />
          </p>
        ))}
        {(run.used ?? []).map(usage => (
          <p key={usage.taskType}>
            <span className="tfc-Facts-label">{usage.taskType}</span>
            {usedWords(usage, trans)}
          </p>
        ))}
        {!hasTasks && (
          <Tasks
            tasks={(status.attention ?? []).filter(task =>
              isTelling(task, trans, shown(status, trans))
            )}
            trans={trans}
          />
        )}
        <p className="tfc-Facts-dim">
          <Parts text={shape(run, trans)} />
        </p>
        <p className="tfc-Facts-dim">
          <Times run={run} trans={trans} isOld={isOld} />
        </p>
        {(spec.after ?? []).length > 0 && (
          <p className="tfc-Facts-dim">
            <span className="tfc-Facts-label">{trans.__('After')}</span>
            {(spec.after ?? []).map(awaitedWords).join(', ')}
          </p>
        )}
        {program && (
          <p className="tfc-Facts-dim">
            <code title={programWords(run)}>
              <Place
                {...opening}
                path={places.program}
                text={sourceWord(run)}
                isFolder={program.kind === 'folder'}
              />
              {` ${joinArguments(program.arguments ?? [])}`}
            </code>
          </p>
        )}
        {program?.workingDir?.startsWith('/') && (
          <p className="tfc-Facts-dim">
            <span className="tfc-Facts-label">{trans.__('Folder')}</span>
            <code>
              <Place
                {...opening}
                path={places.folder}
                text={program.workingDir}
                isFolder
              />
            </code>
          </p>
        )}
        {(metadata.scheduled?.advised ?? []).map(each => (
          <p className="tfc-Facts-dim" key={each.option}>
            <span className="tfc-Facts-label">{trans.__('Advised')}</span>
            <Sentence
              text={trans.__(
                '--%1 %2 → %3, because of %4: %5',
                each.option.replace(/_/g, '-'),
                each.own,
                each.value,
                each.run,
                shown({ message: each.why.code, messages: [each.why] }, trans)
              )}
            />
          </p>
        ))}
        {inferred.length > 0 && (
          <details className="tfc-Facts-inferred">
            {/* otherwise the click would also close the row around this element */}
            <summary onClick={event => event.stopPropagation()}>
              {trans._n(
                'Read from the program: %1 setting',
                'Read from the program: %1 settings',
                inferred.length
              )}
            </summary>
            {inferred.map(text => (
              <p key={text}>
                <Sentence text={text} />
              </p>
            ))}
          </details>
        )}
        {status.paths?.output && (
          <p className="tfc-Facts-dim">
            <span className="tfc-Facts-label">{trans.__('Output')}</span>
            <code>
              <Place
                {...opening}
                path={places.output}
                text={status.paths.output}
                isFolder
              />
            </code>
          </p>
        )}
        {run.graphs && /^https?:/.test(run.graphs) && (
          <p className="tfc-Facts-dim">
            <span className="tfc-Facts-label">{trans.__('Graphs')}</span>
            <a
              className="tfc-Link"
              href={run.graphs}
              target="_blank"
              rel="noopener noreferrer"
              tabIndex={tabIndex}
              onClick={event => event.stopPropagation()}
            >
              {trans.__('Open in Grafana')}
            </a>
          </p>
        )}
      </div>
    );
  }
);

/** A run that this one waited for, in the words of the command line. */
const awaitedWords = ({ run, until }: Dependency): string =>
  until === 'end' ? `${run}:end` : run;

/** JupyterLab's own command; it reports a missing path itself. */
const OPEN = 'filebrowser:open-path';

/**
 * A path. If the file browser shows it, a link opens a folder in the file browser, or a file in its
 * editor.
 */
function Place({
  text,
  path,
  isFolder,
  commands,
  trans,
  tabIndex
}: {
  readonly text: string;
  /** The path in the file browser; undefined if the file browser does not show it. */
  readonly path: string | undefined;
  readonly isFolder: boolean;
  readonly commands: CommandRegistry | undefined;
  readonly trans: TranslationBundle;
  readonly tabIndex: number | undefined;
}): React.JSX.Element {
  if (path === undefined || !commands?.hasCommand(OPEN)) {
    return <>{text}</>;
  }
  return (
    <button
      type="button"
      className="tfc-Link"
      tabIndex={tabIndex}
      title={
        isFolder
          ? trans.__('Show %1 in the file browser', `/${path}`)
          : trans.__('Open %1', `/${path}`)
      }
      onClick={event => {
        event.stopPropagation(); // otherwise the click would also close the row around the link
        void commands.execute(OPEN, {
          path: path || '/',
          dontShowBrowser: !isFolder
        });
      }}
    >
      {text}
    </button>
  );
}

function Tasks({
  tasks,
  trans
}: {
  readonly tasks: ReadonlyArray<TaskStatus>;
  readonly trans: TranslationBundle;
}): React.JSX.Element | null {
  if (tasks.length === 0) {
    return null;
  }
  const more = tasks.length - MOST_TASKS;
  return (
    <ul
      className="tfc-Tasks"
      aria-label={trans.__('Tasks that need attention')}
    >
      {tasks.slice(0, MOST_TASKS).map(task => (
        <li key={task.name}>
          <span className="tfc-Tasks-name">{task.name}</span>{' '}
          {task.state === 'Pending'
            ? trans.__('Pending')
            : phaseWord(task.state, trans)}
          {task.restarts
            ? ` · ${trans._n('%1 restart', '%1 restarts', task.restarts)}`
            : ''}
          {task.message && (
            <>
              {': '}
              <Sentence text={shown(task, trans)} />
            </>
          )}
        </li>
      ))}
      {more > 0 && <li>{trans._n('and %1 more', 'and %1 more', more)}</li>}
    </ul>
  );
}
