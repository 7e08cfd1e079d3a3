/**
 * The commands that act on a run: stop, delete, rerun, connect, note, rename, tag, copy.
 *
 * Each takes `{ name }`; without a name, as from the palette, the user chooses a run. A refusal of
 * the server is shown as its sentence.
 */
import { Clipboard, InputDialog, Notification } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  copyIcon,
  deleteIcon,
  editIcon,
  LabIcon,
  tagIcon
} from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { type IClusters, isActive, nameOf } from '../api/clusters';
import { ServerProblem } from '../api/problem';
import { isStoppable, tagsOf } from '../api/runs';
import type { IRun } from '../api/types';
import { clusterIcon, rerunIcon, sessionIcon, stopRunIcon } from '../icons';
import { modeOf } from '../run/words';
import type { Settings } from '../settings';
import { CommandIDs } from '../tokens';
import { chooseRun } from './choose';
import { insertConnect } from './connect';
import { asksToDelete, asksToStop } from './dialogs';

type Args = ReadonlyPartialJSONObject;

export interface IVerbs {
  readonly commands: CommandRegistry;
  readonly model: IClusters;
  readonly settings: Settings;
  readonly notebooks: INotebookTracker | null;
  readonly trans: TranslationBundle;
}

interface IVerb {
  readonly label: (args: Args) => string;
  /** The label of the command if no run is named. */
  readonly question: string;
  readonly caption: (args: Args) => string;
  readonly icon: LabIcon;
  readonly fits: (run: IRun, args: Args) => boolean;
  readonly none: string;
  readonly execute: (run: IRun, args: Args) => Promise<void>;
  readonly more?: Record<string, { type: string; enum?: string[] }>;
}

const isInGraph = (run: IRun): boolean =>
  isActive(run) && modeOf(run) === 'in-graph';
/** Return whether the program has no file that a shell command could name. */
const isWordless = (run: IRun): boolean =>
  ['cell', 'inline', 'command'].includes(run.cluster.spec.program?.kind ?? '');
const isAny = (): boolean => true;

/** Add all commands to JupyterLab; return their ids. */
export function addVerbs(context: IVerbs): ReadonlyArray<string> {
  const verbs = verbsOf(context);
  for (const [id, verb] of Object.entries(verbs)) {
    addVerb(id, verb, context);
  }
  return Object.keys(verbs);
}

function addVerb(id: string, verb: IVerb, context: IVerbs): void {
  const { commands, model, trans } = context;
  const fitting = (args: Args): boolean => {
    const run = typeof args.name === 'string' && model.find(args.name);
    return run ? verb.fits(run, args) : true;
  };
  commands.addCommand(id, {
    label: args => (args.name ? verb.label(args) : verb.question),
    caption: args => verb.caption(args),
    icon: verb.icon,
    isEnabled: fitting,
    isVisible: fitting,
    describedBy: {
      args: {
        type: 'object',
        properties: {
          name: {
            type: 'string',
            description: trans.__('The run, such as digits-2')
          },
          ...verb.more
        }
      }
    },
    execute: async args => {
      try {
        const title = verb.label(args).replace('…', '');
        const run = await chooseRun(args, {
          model,
          trans,
          title,
          fits: run => verb.fits(run, args),
          none: verb.none
        });
        if (run) {
          await verb.execute(run, args);
        }
      } catch (error) {
        if (!(error instanceof ServerProblem)) {
          throw error;
        }
        Notification.error(error.message, { autoClose: 10_000 });
      }
    }
  });
}

function verbsOf(context: IVerbs): Record<string, IVerb> {
  const { commands, model, notebooks, settings, trans } = context;
  const nothing = trans.__('There are no clusters.');
  const copied = (text: string, what: string): void => {
    Clipboard.copyToSystem(text);
    Notification.info(what, { autoClose: 3000 });
  };
  /** Ask for a line of text; null if the user cancels. */
  const typed = async (
    question: Pick<InputDialog.ITextOptions, 'title'> &
      Partial<InputDialog.ITextOptions>
  ): Promise<string | null> => {
    const { value } = await InputDialog.getText({
      okLabel: trans.__('Save'),
      cancelLabel: trans.__('Cancel'),
      ...question
    });
    return value;
  };
  return {
    [CommandIDs.stop]: {
      label: () => trans.__('Stop…'),
      question: trans.__('Stop a Cluster…'),
      caption: () => trans.__('End its tasks; its logs and output stay'),
      icon: stopRunIcon,
      fits: isStoppable,
      none: trans.__('No cluster runs.'),
      execute: async run => {
        const asks = settings.current.confirmStop;
        if (!asks || (await asksToStop({ model, run, trans }))) {
          await model.stop(run);
        }
      }
    },
    [CommandIDs.remove]: {
      label: () => trans.__('Delete…'),
      question: trans.__('Delete a Cluster…'),
      caption: () => trans.__('Remove it from the list'),
      icon: deleteIcon,
      fits: isAny,
      none: nothing,
      execute: async run => {
        const asked = await asksToDelete({ model, run, trans });
        if (asked) {
          await model.remove(run, asked.withLogs);
        }
      }
    },
    [CommandIDs.rerun]: {
      label: args =>
        args.resume ? trans.__('Rerun, Resuming') : trans.__('Rerun'),
      question: trans.__('Rerun a Cluster…'),
      caption: args =>
        args.resume
          ? trans.__('Launch it again, from its last checkpoint')
          : trans.__(
              'Launch the same copy of the program again, even if its file has changed'
            ),
      icon: rerunIcon,
      fits: run => !isActive(run),
      none: trans.__('No cluster has ended.'),
      more: { resume: { type: 'boolean' } },
      execute: async (run, args) => {
        const resume = args.resume === true;
        const next = await model.rerun(nameOf(run), resume ? { resume } : {});
        Notification.info(trans.__('%1 was launched.', nameOf(next)), {
          autoClose: 3000
        });
      }
    },
    [CommandIDs.editAndLaunch]: {
      label: () => trans.__('Edit and Launch Again…'),
      question: trans.__('Edit a Cluster and Launch It Again…'),
      caption: () =>
        trans.__('Open the launch form with its program and options'),
      icon: clusterIcon,
      fits: () => commands.hasCommand(CommandIDs.launch),
      none: nothing,
      execute: run => commands.execute(CommandIDs.launch, { from: nameOf(run) })
    },
    [CommandIDs.connect]: {
      label: args =>
        args.with === 'session'
          ? trans.__('Connect a Session (TensorFlow 1)')
          : trans.__('Connect the Notebook'),
      question: trans.__('Connect the Notebook to a Cluster…'),
      caption: args =>
        args.with === 'session'
          ? trans.__('Insert a cell that opens a session on this cluster')
          : trans.__('Insert a cell that makes a strategy for this cluster'),
      icon: sessionIcon,
      fits: isInGraph,
      none: trans.__(
        'No running cluster can be used from a notebook: launch one with “Use the cluster from this notebook”.'
      ),
      more: { with: { type: 'string', enum: ['strategy', 'session'] } },
      execute: (run, args) =>
        insertConnect(
          nameOf(run),
          args.with === 'session' ? 'session' : 'strategy',
          notebooks,
          trans
        )
    },
    [CommandIDs.note]: {
      label: () => trans.__('Note…'),
      question: trans.__('Write a Note on a Cluster…'),
      caption: () =>
        trans.__(
          'Write one line about the cluster; an empty line removes the note'
        ),
      icon: editIcon,
      fits: isAny,
      none: nothing,
      execute: async run => {
        const text = await typed({
          title: trans.__('Note on %1', nameOf(run)),
          text: run.cluster.metadata.note
        });
        if (text !== null) {
          await model.act(run, 'note', { text });
        }
      }
    },
    [CommandIDs.rename]: {
      label: () => trans.__('Rename…'),
      question: trans.__('Rename a Cluster…'),
      caption: () =>
        trans.__('Change the name that is shown; commands keep the old one'),
      icon: editIcon,
      fits: isAny,
      none: nothing,
      execute: async run => {
        const text = await typed({
          title: trans.__('Rename %1', nameOf(run)),
          label: trans.__(
            'It is shown by this name; commands still take %1. Leave it empty to show %1.',
            nameOf(run)
          ),
          text: run.cluster.metadata.displayName,
          okLabel: trans.__('Rename')
        });
        if (text !== null) {
          await model.act(run, 'rename', { text });
        }
      }
    },
    [CommandIDs.tag]: {
      label: () => trans.__('Tags…'),
      question: trans.__('Tag a Cluster…'),
      caption: () => trans.__('Add words by which you find it'),
      icon: tagIcon,
      fits: isAny,
      none: nothing,
      execute: async run => {
        const before = tagsOf(run);
        const text = await typed({
          title: trans.__('Tags of %1', nameOf(run)),
          label: trans.__(
            'Words separated by spaces; the filter “tag:baseline” finds the runs tagged “baseline”.'
          ),
          text: before.join(' ')
        });
        if (text !== null) {
          const tags = new Set(text.split(/[\s,]+/).filter(Boolean));
          await model.act(run, 'tag', {
            add: [...tags].filter(tag => !before.includes(tag)),
            remove: before.filter(tag => !tags.has(tag))
          });
        }
      }
    },
    [CommandIDs.copyCommand]: {
      label: args =>
        args.shell
          ? trans.__('Copy as Shell Command')
          : trans.__('Copy as Line for a Cell'),
      question: trans.__('Copy a Cluster as Command…'),
      caption: () =>
        trans.__('Copy the command line that launches this cluster again'),
      icon: copyIcon,
      fits: (run, args) => !args.shell || !isWordless(run),
      none: nothing,
      more: { shell: { type: 'boolean' } },
      execute: async (run, args) => {
        const { command, line } = await model.details(nameOf(run));
        const text = args.shell ? command : line;
        if (text !== null) {
          copied(text, trans.__('Copied: %1', text));
        }
      }
    },
    [CommandIDs.copyYaml]: {
      label: () => trans.__('Copy as YAML'),
      question: trans.__('Copy a Cluster as YAML…'),
      caption: () =>
        trans.__('Copy the manifest that launches this cluster again'),
      icon: copyIcon,
      fits: isAny,
      none: nothing,
      execute: async run => {
        const name = nameOf(run);
        const { yaml } = await model.details(name);
        copied(yaml, trans.__('The manifest of %1 was copied.', name));
      }
    }
  };
}
