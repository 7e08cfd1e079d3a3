/**
 * `tfcluster:compare`: compares several runs in a tab, with their curves below; restored with the
 * layout.
 */
import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { IClusters } from '../api/clusters';
import { compareIcon } from '../icons';
import { RestoredTabs } from '../tabs';
import { CommandIDs, DOMAIN, IClustersToken } from '../tokens';
import { ComparisonWidget } from './widget';

type Tab = MainAreaWidget<ComparisonWidget>;

export const comparePlugin: JupyterFrontEndPlugin<void> = {
  id: 'tfcluster-labextension:compare',
  description: 'Several runs as a table beside their curves.',
  autoStart: true,
  requires: [IClustersToken],
  optional: [ITranslator, ILayoutRestorer, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    clusters: IClusters,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    lab: ILabShell | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, shell } = app;
    const tabs = new RestoredTabs<Tab>(shell, restorer, {
      namespace: 'tfcluster-compare',
      command: CommandIDs.compare,
      args: ({ content }) => ({
        refs: [...content.names],
        onlyDifferences: content.onlyDifferences,
        curves: false // the tab of the curves restores itself
      }),
      name: ({ content }) => idOf(content.names)
    });

    const showCurves = async (names: ReadonlyArray<string>): Promise<void> => {
      // a page of Notebook 7 has room for only one document
      const place = lab ? { below: idOf(names) } : {};
      const refs = [...names];
      await commands.execute(CommandIDs.tensorboard, { refs, ...place });
    };

    const open = async (
      names: ReadonlyArray<string>,
      onlyDifferences: boolean
    ): Promise<Tab> => {
      const id = idOf(names);
      const found = tabs.find(tab => tab.id === id);
      if (found) {
        return found;
      }
      const content = new ComparisonWidget(
        clusters,
        names,
        trans,
        commands.hasCommand(CommandIDs.tensorboard)
          ? () => void showCurves(names)
          : null,
        onlyDifferences
      );
      const tab = new MainAreaWidget({ content });
      tab.toolbar.hide(); // the table has its own toolbar
      tab.id = id;
      content.onlyDifferencesChanged.connect(() => tabs.save(tab));
      await tabs.add(tab, lab ? 'main' : 'down');
      return tab;
    };

    commands.addCommand(CommandIDs.compare, {
      label: trans.__('Compare Clusters'),
      caption: trans.__('Show clusters side by side: table and curves'),
      icon: compareIcon,
      describedBy: {
        args: {
          type: 'object',
          required: ['refs'],
          properties: {
            refs: {
              type: 'array',
              items: { type: 'string' },
              description: trans.__('The runs, such as digits-1 and digits-2')
            },
            onlyDifferences: { type: 'boolean' },
            curves: {
              type: 'boolean',
              description: trans.__(
                'Whether their curves open below; default: yes'
              )
            }
          }
        }
      },
      isEnabled: args => namesIn(args).length > 1,
      execute: async args => {
        const names = namesIn(args);
        const tab = await open(names, args.onlyDifferences === true);
        if (args.curves !== false && lab) {
          await showCurves(names);
        }
        shell.activateById(tab.id);
        return tab;
      }
    });
  }
};

const idOf = (names: ReadonlyArray<string>): string =>
  `tfcluster-compare-${names.join('+')}`;

const namesIn = ({ refs }: ReadonlyPartialJSONObject): string[] =>
  Array.isArray(refs)
    ? [...new Set(refs.filter(ref => typeof ref === 'string'))]
    : [];
