/** `2 clusters · 6 tasks` in the status bar: the active clusters. A click opens the sidebar. */
import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { ISignal, Signal } from '@lumino/signaling';
import * as React from 'react';
import { type IClusters, IClustersState, isActive } from '../api/clusters';
import { clusterIcon } from '../icons';
import { useClusters } from '../run/hooks';
import { clock } from '../run/quantities';
import { CommandIDs } from '../tokens';

export interface IStatusItemProps {
  readonly model: IClusters;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

/** The item, shown while a cluster is active. */
export class StatusItem extends ReactWidget {
  constructor(private readonly _props: IStatusItemProps) {
    super();
    this.addClass('tfc-Status');
    this._props.model.changed.connect(this._onChanged, this);
  }

  get isNeeded(): boolean {
    return this._isNeeded;
  }

  get neededChanged(): ISignal<this, void> {
    return this._neededChanged;
  }

  protected override render(): React.JSX.Element {
    return <Count {...this._props} />;
  }

  private _onChanged(_: IClusters, state: IClustersState): void {
    const needed = state.runs.some(isActive);
    if (needed !== this._isNeeded) {
      this._isNeeded = needed;
      this._neededChanged.emit();
    }
  }

  private _isNeeded = false;
  private readonly _neededChanged = new Signal<this, void>(this);
}

function Count({
  model,
  commands,
  trans
}: IStatusItemProps): React.JSX.Element {
  const state = useClusters(model);
  const active = state.runs.filter(isActive);
  const tasks = active.reduce((sum, run) => sum + run.ready.total, 0);
  const words = [
    trans._n('%1 cluster', '%1 clusters', active.length),
    trans._n('%1 task', '%1 tasks', tasks)
  ];
  if (state.state === 'stale') {
    words.push(trans.__('as of %1', clock(state.at / 1000)));
  }
  return (
    <button
      type="button"
      className="tfc-Status-button"
      data-state={state.state}
      title={
        state.problem?.message ??
        trans.__('Show active clusters in the sidebar')
      }
      onClick={() => void commands.execute(CommandIDs.openSidebar)}
    >
      <clusterIcon.react
        tag="span"
        className="tfc-Button-icon"
        aria-hidden="true"
      />
      {words.join(' · ')}
    </button>
  );
}
