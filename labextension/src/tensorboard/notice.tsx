/** The content of the tab without a TensorBoard: it is starting, failed, or was stopped. */
import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { BoardModel, BoardState } from './model';

export class Notice extends ReactWidget {
  constructor(
    private readonly _model: BoardModel,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.addClass('tfc-Board-notice');
    _model.changed.connect(() => this.update());
  }

  protected override render(): React.JSX.Element {
    return (
      <Words
        state={this._model.state}
        trans={this._trans}
        onOpen={() => void this._model.open()}
        onShow={() => this._model.show()}
      />
    );
  }
}

interface IWordsProps {
  readonly state: BoardState;
  readonly trans: TranslationBundle;
  readonly onOpen: () => void;
  readonly onShow: () => void;
}

export function Words({
  state,
  trans,
  onOpen,
  onShow
}: IWordsProps): React.JSX.Element {
  switch (state.kind) {
    case 'refused': {
      const [first, ...more] = state.problem.message.split('\n');
      return (
        <div role="alert">
          <p>{first}</p>
          {more.length > 0 && <pre>{more.join('\n')}</pre>}
          <Button label={trans.__('Try Again')} onClick={onOpen} />
        </div>
      );
    }
    case 'stopped':
      return (
        <div role="status">
          <p>
            {trans.__(
              'This TensorBoard was stopped. The runs that it shows stay.'
            )}
          </p>
          <Button label={trans.__('Start Again')} onClick={onOpen} />
        </div>
      );
    case 'open':
      return state.waits ? (
        <div role="status">
          <p>{trans.__('No curves yet, waiting for the first step.')}</p>
          <p>
            {trans.__(
              'They appear here automatically. The progress of a program that writes no event files is in the sidebar.'
            )}
          </p>
          <Button label={trans.__('Show TensorBoard Now')} onClick={onShow} />
        </div>
      ) : (
        <Starting trans={trans} />
      );
    case 'new':
    case 'starting':
      return <Starting trans={trans} />;
  }
}

/** The notice until the page has loaded. */
function Starting({
  trans
}: {
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  return <p role="status">{trans.__('TensorBoard is starting …')}</p>;
}

function Button(props: {
  readonly label: string;
  readonly onClick: () => void;
}): React.JSX.Element {
  return (
    <button
      type="button"
      className="jp-mod-styled jp-mod-accept"
      onClick={props.onClick}
    >
      {props.label}
    </button>
  );
}
