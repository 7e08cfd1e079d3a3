/**
 * `tfcluster:compare`: compares several runs in a tab, with their curves below; restored with the
 * layout.
 */
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { compareIcon } from '../icons';
import { tabPlugin } from '../tabs';
import { CommandIDs } from '../tokens';
import { ComparisonWidget } from './widget';

const NAMESPACE = 'tfcluster-compare';

export const comparePlugin = tabPlugin<ComparisonWidget>(
  {
    plugin: 'compare',
    description: 'Several runs as a table beside their curves.',
    namespace: NAMESPACE,
    command: CommandIDs.compare,
    args: ({ names, onlyDifferences }) => ({
      refs: [...names],
      onlyDifferences,
      curves: false // the curves have their own tab, which is restored separately
    }),
    key: ({ names }) => keyOf(names)
  },
  ({ app: { commands, shell }, clusters, trans, isLab, open }) => {
    const showCurves = async (names: ReadonlyArray<string>): Promise<void> => {
      // the curves are below the table, except in Notebook 7, whose page has room for only one
      // document
      const place = isLab ? { below: `${NAMESPACE}-${keyOf(names)}` } : {};
      const refs = [...names];
      await commands.execute(CommandIDs.tensorboard, { refs, ...place });
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
        const onCurves = commands.hasCommand(CommandIDs.tensorboard)
          ? () => void showCurves(names)
          : null;
        const only = args.onlyDifferences === true;
        const tab = await open(
          keyOf(names),
          () => new ComparisonWidget(clusters, names, trans, onCurves, only),
          { changes: content => content.onlyDifferencesChanged }
        );
        if (args.curves !== false && isLab) {
          await showCurves(names);
        }
        shell.activateById(tab.id);
        return tab;
      }
    });
  }
);

const keyOf = (names: ReadonlyArray<string>): string => names.join('+');

const namesIn = ({ refs }: ReadonlyPartialJSONObject): string[] =>
  Array.isArray(refs)
    ? [...new Set(refs.filter(ref => typeof ref === 'string'))]
    : [];
