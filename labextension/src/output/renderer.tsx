/**
 * Draws `application/vnd.tfcluster.v1+json` in notebooks and consoles.
 *
 * What this version cannot draw is said, and stays as it is in the document.
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
  /** Whether the cell that `node` is an output of runs, as far as this page knows. */
  isExecuting(node: HTMLElement): boolean;
}

export class Renderer extends ReactWidget implements IRenderMime.IRenderer {
  constructor(private readonly _options: IRendererOptions) {
    super();
    this.addClass('tfc-RunOutput');
  }

  /** Show what a model holds; called again when the cell brings it up to date. */
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._data = model.data[MIME_TYPE];
    this._isTrusted = model.trusted;
    this.update();
    return this.renderPromise ?? Promise.resolve();
  }

  /** In which cell it is, is known only now. */
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
              'This output of TFCluster was made by another version, which can show it.'
            )}
          </p>
        );
    }
  }

  private _data: unknown;
  private _isTrusted = false;
}

/** Makes renderers; before HTML, which is what is left where this extension is missing. */
export const rendererFactory = (
  options: IRendererOptions
): IRenderMime.IRendererFactory => ({
  safe: true,
  mimeTypes: [MIME_TYPE],
  defaultRank: 10,
  createRenderer: () => new Renderer(options)
});
