/**
 * Draws `application/vnd.tfcluster.v1+json` in notebooks and consoles.
 *
 * Data that this version cannot draw is reported, and stays in the document.
 */
import { ReactWidget } from '@jupyterlab/apputils';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { Message } from '@lumino/messaging';
import * as React from 'react';
import type { IClusters } from '../api/state';
import { BoardOutput } from './BoardOutput';
import { FollowOutput } from './FollowOutput';
import { RunOutput } from './RunOutput';
import { MIME_TYPE, stored } from './stored';

export interface IRendererOptions {
  readonly clusters: IClusters;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  /** Return whether the cell that contains `node` is running, as far as this page knows. */
  isExecuting(node: HTMLElement): boolean;
}

export class Renderer extends ReactWidget implements IRenderMime.IRenderer {
  constructor(private readonly _options: IRendererOptions) {
    super();
    this.addClass('tfc-RunOutput');
  }

  /** Show the data of a model; called again when the cell updates it. */
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._data = model.data[MIME_TYPE];
    this._isTrusted = model.trusted;
    this.update();
    return this.renderPromise ?? Promise.resolve();
  }

  /** The cell is known only once the widget is attached. */
  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.update();
  }

  protected override render(): React.JSX.Element {
    const found = stored(this._data);
    switch (found?.kind) {
      case 'Run':
        return (
          <RunOutput
            key={found.run.cluster.metadata.uid}
            stored={found}
            {...this._options}
          />
        );
      case 'Follow':
        return (
          <FollowOutput
            stored={found}
            {...this._options}
            isExecuting={() =>
              !this.isAttached || this._options.isExecuting(this.node)
            }
          />
        );
      case 'TensorBoard':
        return (
          <BoardOutput
            stored={found}
            isTrusted={this._isTrusted}
            {...this._options}
          />
        );
      case undefined:
        return (
          <p className="tfc-RunOutput-why">
            {this._options.trans.__(
              'This output was made by another version of TFCluster and cannot be shown here.'
            )}
          </p>
        );
    }
  }

  private _data: unknown;
  private _isTrusted = false;
}

/** Makes renderers; preferred over HTML, which is for pages without this extension. */
export const rendererFactory = (
  options: IRendererOptions
): IRenderMime.IRendererFactory => ({
  safe: true,
  mimeTypes: [MIME_TYPE],
  defaultRank: 10,
  createRenderer: () => new Renderer(options)
});
