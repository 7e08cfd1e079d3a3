/**
 * The output of one run as a widget for a tab.
 */
import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IClusters } from '../api/state';
import { logsFile } from '../api/rest';
import { logsIcon } from '../icons';
import { LogsModel } from './model';
import { LogsView } from './view';

export class LogsWidget extends ReactWidget {
  constructor(
    private readonly _clusters: IClusters,
    readonly name: string,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.model = new LogsModel(_clusters, name);
    this.addClass('tfc-LogsWidget');
    this.title.label = _trans.__('%1 · Logs', name);
    this.title.caption = _trans.__('What the tasks of %1 print', name);
    this.title.icon = logsIcon;
    this.title.closable = true;
  }

  readonly model: LogsModel;

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override onActivateRequest(): void {
    this.node.querySelector<HTMLElement>('[role="log"]')?.focus();
  }

  protected override render(): React.JSX.Element {
    return (
      <LogsView
        model={this.model}
        trans={this._trans}
        onDownload={() => this._download()}
      />
    );
  }

  private _download(): void {
    const link = document.createElement('a');
    const { caller } = this._clusters;
    link.href = logsFile(caller, this.name, this.model.shown);
    link.download = '';
    link.click();
  }
}
