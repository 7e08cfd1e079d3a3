/** The top of the sidebar: launch, refresh, older runs, and the filter. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { addIcon, historyIcon, refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { Mode } from '../api/models';
import type { IRun } from '../api/types';
import { betweenGraphIcon, iconOfPhase, inGraphIcon } from '../icons';
import { IconButton } from '../run/parts';
import { phaseWord } from '../run/words';
import { IFilter, phaseCounts, toggled } from './filter';

const MODES: ReadonlyArray<Mode> = ['in-graph', 'between-graph'];

export interface IToolbarProps {
  readonly runs: ReadonlyArray<IRun>;
  readonly all: boolean;
  readonly filter: IFilter;
  readonly trans: TranslationBundle;
  readonly filterRef: React.RefObject<HTMLInputElement>;
  readonly onLaunch?: () => void;
  onRefresh(): void;
  onAll(all: boolean): void;
  onFilter(filter: IFilter): void;
  /** Called for the Down key in the filter. */
  onLeave(): void;
}

/** The toolbar and the filter. */
export function Toolbar(props: IToolbarProps): React.JSX.Element {
  const { runs, all, filter, trans, filterRef, onLaunch, onFilter } = props;
  return (
    <div className="tfc-Toolbar">
      <div className="tfc-Toolbar-line">
        {onLaunch && (
          <button
            type="button"
            className="tfc-Button"
            title={trans.__('Launch a cluster of TensorFlow tasks')}
            onClick={onLaunch}
          >
            <addIcon.react
              tag="span"
              className="tfc-Button-icon"
              aria-hidden="true"
            />
            {trans.__('Launch')}
          </button>
        )}
        <span className="tfc-Toolbar-space" />
        <IconButton
          icon={historyIcon}
          label={trans.__('Older runs')}
          title={
            all
              ? trans.__('Show only the newest run of each cluster')
              : trans.__('Show older runs, too')
          }
          aria-pressed={all}
          onClick={() => props.onAll(!all)}
        />
        <IconButton
          icon={refreshIcon}
          label={trans.__('Refresh')}
          title={trans.__('Load the list again')}
          onClick={() => props.onRefresh()}
        />
      </div>
      {runs.length > 0 && (
        <>
          <div className="tfc-Toolbar-line">
            <input
              ref={filterRef}
              type="search"
              className="tfc-Filter"
              placeholder={trans.__('Filter (/)')}
              aria-label={trans.__('Filter clusters')}
              spellCheck={false}
              value={filter.text}
              onChange={event =>
                onFilter({ ...filter, text: event.target.value })
              }
              onKeyDown={event => {
                if (event.key === 'ArrowDown' || event.key === 'Enter') {
                  event.preventDefault();
                  props.onLeave();
                } else if (event.key === 'Escape') {
                  event.preventDefault();
                  onFilter({ ...filter, text: '' });
                  props.onLeave();
                }
              }}
            />
            <Modes {...props} />
          </div>
          <Chips {...props} />
        </>
      )}
    </div>
  );
}

function Chips({
  runs,
  filter,
  trans,
  onFilter
}: IToolbarProps): React.JSX.Element {
  const counts = new Map(phaseCounts(runs));
  for (const phase of filter.phases) {
    counts.set(phase, counts.get(phase) ?? 0); // keep a selected phase, so that the user can deselect it
  }
  return (
    <div className="tfc-Chips" role="group" aria-label={trans.__('Show only')}>
      {[...counts].map(([phase, count]) => {
        const { react: Icon } = iconOfPhase(phase);
        const word = phaseWord(phase, trans);
        return (
          <button
            key={phase}
            type="button"
            className="tfc-Chip"
            data-phase={phase}
            aria-pressed={filter.phases.has(phase)}
            aria-label={`${word} ${count}`}
            title={trans.__('Show only: %1', word)}
            onClick={() =>
              onFilter({ ...filter, phases: toggled(filter.phases, phase) })
            }
          >
            <Icon tag="span" className="tfc-Phase-icon" aria-hidden="true" />
            {count}
          </button>
        );
      })}
    </div>
  );
}

function Modes({ filter, trans, onFilter }: IToolbarProps): React.JSX.Element {
  return (
    <div
      className="tfc-Modes"
      role="group"
      aria-label={trans.__('Show only one mode')}
    >
      {MODES.map(mode => {
        const word =
          mode === 'in-graph'
            ? trans.__('Used from a notebook (In-Graph)')
            : trans.__('Program on every worker (Between-Graph)');
        return (
          <IconButton
            key={mode}
            icon={mode === 'in-graph' ? inGraphIcon : betweenGraphIcon}
            label={word}
            title={trans.__('Show only: %1', word)}
            aria-pressed={filter.modes.has(mode)}
            onClick={() =>
              onFilter({ ...filter, modes: toggled(filter.modes, mode) })
            }
          />
        );
      })}
    </div>
  );
}
