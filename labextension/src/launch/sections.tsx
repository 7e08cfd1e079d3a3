/** The options of a launch beyond its program: number of tasks, sizes, limits. */
import * as React from 'react';
import type { IField, ILimit, ILaunchOptions } from '../api/launchOptions';
import { fieldsOf, hasLines, kernelOf } from './draft';
import { attributes, IFormProps, Input, Marks, Row } from './fields';
import { countIn } from './problems';

interface IOptionsProps extends IFormProps {
  readonly launchOptions: ILaunchOptions;
}

/** Counts, name and Python; free resources are below the counts. */
export function Basics(props: IOptionsProps): React.JSX.Element {
  const { state, launchOptions } = props;
  const { draft } = state;
  const counts = fieldsOf(launchOptions, draft).filter(
    field => field.path[2] === 'count'
  );
  return (
    <>
      <div className="tfc-Counts">
        {counts.map(field => (
          <Row
            key={field.key}
            {...props}
            option={field.key}
            label={field.label}
            help={field.help}
          >
            <Input {...props} field={field} />
          </Row>
        ))}
      </div>
      <p className="tfc-Room">{roomOf(launchOptions, props)}</p>
      {draft.repeat === null && <NameRow {...props} />}
      <Python {...props} />
    </>
  );
}

/** The name of the run, or of the schedule. */
export function NameRow(
  props: IFormProps & { readonly below?: string }
): React.JSX.Element {
  const { state, model, trans } = props;
  const { draft, plan } = state;
  return (
    <Row {...props} option="name" label={trans.__('Name')}>
      <input
        {...attributes(props, 'name')}
        type="text"
        spellCheck={false}
        placeholder={
          draft.repeat === null
            ? (plan?.name ?? trans.__('from the program'))
            : 'nightly'
        }
        value={draft.name}
        onChange={event => model.edit({ name: event.target.value })}
      />
    </Row>
  );
}

function Python(props: IOptionsProps): React.JSX.Element | null {
  const { state, model, launchOptions, trans } = props;
  const chosen = kernelOf(state.draft, launchOptions);
  const field = launchOptions.form.find(({ key }) => key === 'python');
  const said =
    state.draft.kernelspec === null && state.plan?.project?.values.python;
  const ofProject = typeof said === 'string' && said;
  if (!launchOptions.kernelspecs.length) {
    return null; // tasks use the Python of their image
  }
  return (
    <>
      <Row
        {...props}
        option="kernelspec"
        label={trans.__('Python of kernel')}
        help={trans.__('Tasks run with the Python of this kernel')}
        below={
          ofProject &&
          trans.__('The project chooses another Python: %1', ofProject)
        }
      >
        <select
          {...attributes(props, 'kernelspec')}
          value={chosen}
          onChange={event => model.edit({ kernelspec: event.target.value })}
        >
          {launchOptions.kernelspecs.map(({ name, title, python, why }) => (
            <option
              key={name}
              value={name}
              disabled={why !== null}
              title={why ?? python ?? undefined}
            >
              {title}
            </option>
          ))}
          <option value="">{trans.__('another Python…')}</option>
        </select>
      </Row>
      {chosen === '' && field && (
        <Row {...props} option="python" label={field.label} help={field.help}>
          <Input {...props} field={field} />
        </Row>
      )}
    </>
  );
}

/** A part of the form that most launches do not need. */
export function Section(
  props: IFormProps & {
    /** The key under which the form remembers whether the section is open. */
    readonly name: string;
    readonly title: string;
    readonly fields: ReadonlyArray<IField>;
    readonly children: React.ReactNode;
  }
): React.JSX.Element {
  const { name, title, fields, marks, state, model, trans, children } = props;
  const wrong = countIn(marks, fields);
  const said = fields.filter(({ key }) => state.draft.values[key]).length;
  return (
    <details
      className="tfc-Section"
      open={state.openSections.has(name) || wrong > 0}
    >
      {/* React opens it, not the browser: an error can open it too, but only clicks are remembered */}
      <summary
        onClick={event => {
          event.preventDefault();
          model.toggleSection(name);
        }}
      >
        {title}
        {said > 0 && (
          <small>{trans._n('%1 changed', '%1 changed', said)}</small>
        )}
      </summary>
      {children}
    </details>
  );
}

/** Options in rows; with `explains`, the help of each option is below it. */
export function Rows(
  props: IFormProps & {
    readonly fields: ReadonlyArray<IField>;
    readonly explains?: boolean;
  }
): React.JSX.Element {
  const { explains, trans } = props;
  return (
    <>
      {props.fields.map(field => (
        <Row
          key={field.key}
          {...props}
          option={field.key}
          label={field.label}
          help={field.help}
          below={
            explains && hasLines(field)
              ? trans.__('%1 (one on each line)', field.help)
              : explains && field.help
          }
        >
          <Input {...props} field={field} />
        </Row>
      ))}
    </>
  );
}

const COLUMNS = ['cpu', 'memory', 'gpu'] as const;

/** Sizes as a table: a row for each task type, a column for each resource. */
export function Sizes(
  props: IFormProps & { readonly fields: ReadonlyArray<IField> }
): React.JSX.Element {
  const { fields, trans } = props;
  const rows: ReadonlyArray<readonly [string, string]> = [
    ['*', trans.__('Each task')],
    ['worker', trans.__('Worker')],
    ['ps', trans.__('Parameter server')],
    ['chief', trans.__('Chief')],
    ['evaluator', trans.__('Evaluator')]
  ];
  const cell = (type: string, column: string): IField | undefined =>
    fields.find(
      ({ path }) =>
        path[path.length - 1] === column &&
        (type === '*' ? path[0] === '*' : path[1] === type)
    );
  return (
    <table className="tfc-Sizes">
      <thead>
        <tr>
          <td />
          {COLUMNS.map(column => (
            <th key={column} scope="col">
              {cell('*', column)?.label}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows
          .filter(([type]) => cell(type, 'cpu'))
          .map(([type, label]) => (
            <tr key={type}>
              <th scope="row">{label}</th>
              {COLUMNS.map(column => {
                const field = cell(type, column);
                return (
                  <td key={column} data-option={field?.key}>
                    {field && (
                      <>
                        <Input
                          {...props}
                          field={field}
                          name={`${label}: ${field.label}`}
                        />
                        <Marks {...props} option={field.key} />
                      </>
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
      </tbody>
    </table>
  );
}

/** `Free now: 1.5 of 2 CPU cores · 18 GiB of 23 GiB memory`. */
function roomOf(
  { options: { cpu, memory, gpu } }: ILaunchOptions,
  { trans }: IFormProps
): string {
  const of = (limit: ILimit, show: (amount: number) => string): string =>
    trans.__('%1 of %2', show(limit.free), show(limit.total));
  const plain = (amount: number): string =>
    String(Math.round(amount * 10) / 10);
  const gib = (amount: number): string => `${plain(amount / 2 ** 30)} GiB`;
  const parts = [
    trans.__('%1 CPU cores', of(cpu, plain)),
    trans.__('%1 memory', of(memory, gib)),
    gpu.total ? trans.__('%1 GPUs', of(gpu, plain)) : trans.__('no GPU')
  ];
  return trans.__('Free now: %1', parts.join(' · '));
}
