/**
 * Several runs as a table in a tab, a column for each.
 *
 * Rows with differences come first and are marked; the user can hide all other rows. Text from
 * programs and users is never markup.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { ISignal, Signal } from '@lumino/signaling';
import * as React from 'react';
import type { IClusters } from '../api/clusters';
import type { IComparedRow, IComparison } from '../api/types';
import { boardIcon, compareIcon } from '../icons';
import { PhaseBadge, Sentence } from '../run/parts';
import { SeenWidget } from '../tabs';
import { ComparisonModel } from './model';

export class ComparisonWidget extends SeenWidget<ComparisonModel> {
  constructor(
    clusters: IClusters,
    readonly names: ReadonlyArray<string>,
    private readonly _trans: TranslationBundle,
    private readonly _onCurves: (() => void) | null,
    private _onlyDifferences = false
  ) {
    super(new ComparisonModel(clusters, names));
    this.addClass('tfc-Comparison');
    this.title.label = _trans.__('%1 · Comparison', names.join(', '));
    this.title.caption = this.title.label;
    this.title.icon = compareIcon;
    this.title.closable = true;
    this.node.tabIndex = -1;
  }

  /** Whether only rows with differences are shown. */
  get onlyDifferences(): boolean {
    return this._onlyDifferences;
  }

  get onlyDifferencesChanged(): ISignal<this, boolean> {
    return this._onlyDifferencesChanged;
  }

  protected override onActivateRequest(): void {
    (this.node.querySelector('input') ?? this.node).focus();
  }

  protected override render(): React.JSX.Element {
    return (
      <Comparison
        model={this.model}
        trans={this._trans}
        onlyDifferences={this._onlyDifferences}
        onOnlyDifferences={only => {
          this._onlyDifferences = only;
          this._onlyDifferencesChanged.emit(only);
          this.update();
        }}
        onCurves={this._onCurves}
      />
    );
  }

  private readonly _onlyDifferencesChanged = new Signal<this, boolean>(this);
}

export interface IComparisonProps {
  readonly model: ComparisonModel;
  readonly trans: TranslationBundle;
  readonly onlyDifferences: boolean;
  onOnlyDifferences(only: boolean): void;
  /** Shows the curves of the same runs; null if unavailable. */
  readonly onCurves: (() => void) | null;
}

/** The switch, the problem, and the table. */
export function Comparison({
  model,
  trans,
  onlyDifferences,
  onOnlyDifferences,
  onCurves
}: IComparisonProps): React.JSX.Element {
  const { comparison, problem } = React.useSyncExternalStore(
    React.useCallback(
      listener => {
        model.changed.connect(listener);
        return () => void model.changed.disconnect(listener);
      },
      [model]
    ),
    () => model.state
  );
  return (
    <>
      <div className="tfc-Comparison-bar">
        <label>
          <input
            type="checkbox"
            checked={onlyDifferences}
            onChange={event => onOnlyDifferences(event.target.checked)}
          />
          {trans.__('Only differences')}
        </label>
        {onCurves && (
          <button type="button" className="tfc-Button" onClick={onCurves}>
            <boardIcon.react
              tag="span"
              className="tfc-Button-icon"
              aria-hidden="true"
            />
            {trans.__('Curves')}
          </button>
        )}
      </div>
      {problem && (
        <p className="tfc-Trouble" role="alert">
          <Sentence text={problem.message} />
        </p>
      )}
      {comparison ? (
        <ComparisonTable
          comparison={comparison}
          onlyDifferences={onlyDifferences}
          trans={trans}
        />
      ) : (
        !problem && (
          <p className="tfc-Comparison-none">
            {trans.__('Asking the server…')}
          </p>
        )
      )}
    </>
  );
}

function groupWord(
  group: IComparedRow['group'],
  trans: TranslationBundle
): string {
  switch (group) {
    case 'run':
      return trans.__('Run');
    case 'arguments':
      return trans.__('Arguments');
    case 'options':
      return trans.__('Options');
    case 'results':
      return trans.__('Results');
  }
}

const GROUPS = ['run', 'arguments', 'options', 'results'] as const;

/** A table body for each group; rows with differences first. */
const ComparisonTable = React.memo(
  ({
    comparison: { runs, rows },
    onlyDifferences,
    trans
  }: {
    readonly comparison: IComparison;
    readonly onlyDifferences: boolean;
    readonly trans: TranslationBundle;
  }): React.JSX.Element => (
    <div
      className="tfc-Comparison-scroll"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolled region must be reachable by keyboard
      tabIndex={0}
      role="group"
      aria-label={trans.__('Comparison')}
    >
      <table>
        <thead>
          <tr>
            <td />
            {runs.map(({ name, displayName, phase }) => (
              <th key={name} scope="col">
                <PhaseBadge phase={phase} trans={trans} iconOnly />{' '}
                <bdi>{displayName || name}</bdi>
                {displayName && (
                  <bdi className="tfc-Comparison-name">{name}</bdi>
                )}
              </th>
            ))}
          </tr>
        </thead>
        {GROUPS.map(group => {
          const all = rows.filter(row => row.group === group);
          const differing = all.filter(row => row.differs);
          const equal = all.filter(row => !row.differs);
          const shown = onlyDifferences ? differing : [...differing, ...equal];
          return (
            shown.length > 0 && (
              <tbody key={group}>
                <tr>
                  <th scope="rowgroup" colSpan={runs.length + 1}>
                    {groupWord(group, trans)}
                  </th>
                </tr>
                {shown.map(row => (
                  <Row key={row.label} row={row} trans={trans} />
                ))}
              </tbody>
            )
          );
        })}
      </table>
      {onlyDifferences && !rows.some(row => row.differs) && (
        <p className="tfc-Comparison-none" role="status">
          {trans.__('Nothing differs.')}
        </p>
      )}
    </div>
  )
);

function Row({
  row,
  trans
}: {
  readonly row: IComparedRow;
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  return (
    <tr data-differs={row.differs}>
      <th scope="row">
        <bdi>{row.label}</bdi>
        {row.differs && (
          <span className="tfc-Comparison-mark" title={trans.__('differs')}>
            <span aria-hidden="true">≠</span>
            <span className="tfc-visually-hidden">{trans.__('differs')}</span>
          </span>
        )}
      </th>
      {row.values.map((value, place) => (
        <td key={place}>
          {value ? (
            <bdi>{value}</bdi>
          ) : (
            <span>
              <span aria-hidden="true">–</span>
              <span className="tfc-visually-hidden">{trans.__('none')}</span>
            </span>
          )}
        </td>
      ))}
    </tr>
  );
}
