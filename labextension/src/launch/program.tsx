/** The choice of the workers' program: a file or folder, a cell, or a URL. */
import * as React from 'react';
import type { ICellProgram, ProgramSource } from './draft';
import { attributes, IFormProps, Marks, Row } from './fields';

/** Functions of the page around the form. */
export interface IPlaces {
  /** Ask for a file or folder; null if the user cancels. */
  browse(): Promise<string | null>;
  /** Return the active cell of the notebook; null if there is none. */
  cell(): ICellProgram | null;
}

interface IProgramProps extends IFormProps {
  readonly places: IPlaces;
}

export function Program(props: IProgramProps): React.JSX.Element {
  const { state, model, trans, id, places } = props;
  const { draft } = state;
  const sources: ReadonlyArray<readonly [ProgramSource, string]> = [
    ['file', trans.__('File or folder')],
    ['cell', trans.__('This cell')],
    ['url', trans.__('URL')]
  ];
  const choose = (source: ProgramSource): void => {
    const cell = source === 'cell' ? (draft.cell ?? places.cell()) : draft.cell;
    model.edit({ source, cell });
  };
  return (
    <>
      <div className="tfc-Row" data-option="program">
        <fieldset className="tfc-Sources">
          <legend>{trans.__('Program')}</legend>
          {sources.map(([source, label]) => (
            <label key={source} htmlFor={`${id}-source-${source}`}>
              <input
                type="radio"
                id={`${id}-source-${source}`}
                name={`${id}-source`}
                checked={draft.source === source}
                onChange={() => choose(source)}
              />
              {label}
            </label>
          ))}
        </fieldset>
        <div className="tfc-Row-input">
          {draft.source === 'file' && <FileInput {...props} />}
          {draft.source === 'cell' && <CellInput {...props} />}
          {draft.source === 'url' && (
            <input
              {...attributes(props, 'program')}
              type="text"
              inputMode="url"
              spellCheck={false}
              placeholder="https://…/train.py"
              aria-label={trans.__('URL of the program')}
              value={draft.url}
              onChange={event => model.edit({ url: event.target.value })}
            />
          )}
        </div>
        {draft.folder !== null && (
          <small className="tfc-Row-below">
            {trans.__('Working folder: /%1', draft.folder)}
          </small>
        )}
        <Marks {...props} option="program" />
      </div>
      {draft.source === 'url' && (
        <Row {...props} option="sha256" label={trans.__('Checksum')}>
          <input
            {...attributes(props, 'sha256')}
            type="text"
            spellCheck={false}
            placeholder={trans.__('Expected SHA-256 of the program')}
            value={draft.sha256}
            onChange={event => model.edit({ sha256: event.target.value })}
          />
        </Row>
      )}
      {draft.source === 'file' && <Configuration {...props} />}
      <Row
        {...props}
        option="arguments"
        label={trans.__('Arguments')}
        help={trans.__('Arguments of the program, as in a shell')}
      >
        <input
          {...attributes(props, 'arguments')}
          type="text"
          spellCheck={false}
          placeholder={
            String(state.plan?.project?.values.arguments ?? '') || '--epochs 3'
          }
          value={draft.arguments}
          onChange={event => model.edit({ arguments: event.target.value })}
        />
      </Row>
    </>
  );
}

/** The configurations, if the program is a project. */
function Configuration(props: IProgramProps): React.JSX.Element | null {
  const { state, model, trans } = props;
  const { config } = state.draft;
  const names = state.plan?.project?.configurations ?? [];
  if (!names.length && !config) {
    return null;
  }
  return (
    <Row
      {...props}
      option="config"
      label={trans.__('Configuration')}
      help={trans.__(
        'The configuration in tfcluster.yaml whose options the launch uses'
      )}
    >
      <select
        {...attributes(props, 'config')}
        value={config}
        onChange={event => model.edit({ config: event.target.value })}
      >
        <option value="">{trans.__('none')}</option>
        {[...new Set([...names, ...(config ? [config] : [])])].map(name => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </Row>
  );
}

function FileInput(props: IProgramProps): React.JSX.Element {
  const { state, model, trans, places } = props;
  const browse = async (): Promise<void> => {
    const program = await places.browse();
    if (program !== null) {
      model.edit({ program });
    }
  };
  return (
    <>
      <input
        {...attributes(props, 'program')}
        type="text"
        spellCheck={false}
        placeholder="train.py"
        aria-label={trans.__('Path of the program')}
        value={state.draft.program}
        onChange={event => model.edit({ program: event.target.value })}
      />
      <button
        type="button"
        className="tfc-Button"
        onClick={() => void browse()}
      >
        {trans.__('Browse…')}
      </button>
    </>
  );
}

function CellInput(props: IProgramProps): React.JSX.Element {
  const { state, model, trans, places } = props;
  const { cell } = state.draft;
  const take = (): void => {
    const taken = places.cell();
    if (taken) {
      model.edit({ cell: taken });
    }
  };
  const lines = cell ? cell.text.trimEnd().split('\n').length : 0;
  return (
    <>
      <span className="tfc-CellProgram">
        {cell ? (
          <>
            <code>{cell.text.trim().split('\n', 1)[0]}</code>
            <small>
              {trans._n(
                '%2, %1 line',
                '%2, %1 lines',
                lines,
                cell.notebook || trans.__('a notebook')
              )}
            </small>
          </>
        ) : (
          <small>
            {trans.__('Click a cell of a notebook, then use it here.')}
          </small>
        )}
      </span>
      <button
        {...attributes(props, 'program')}
        type="button"
        className="tfc-Button"
        onClick={take}
      >
        {trans.__('Use the active cell')}
      </button>
    </>
  );
}
