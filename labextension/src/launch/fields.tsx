/** The inputs of the form, one for each kind of option, with label, help and errors. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IField } from '../api/launchOptions';
import { isActive, nameOf } from '../api/runs';
import type { IRun } from '../api/types';
import { Sentence } from '../run/parts';
import { baseOf, hasLines } from './draft';
import type { LaunchModel } from './model';
import type { ILaunchState } from './draft';
import type { IMark } from './problems';

/** The properties of every part of the form. */
export interface IFormProps {
  readonly state: ILaunchState;
  readonly model: LaunchModel;
  readonly trans: TranslationBundle;
  readonly marks: ReadonlyMap<string, ReadonlyArray<IMark>>;
  /** Warnings at an input, which do not prevent a launch. */
  readonly cautions: ReadonlyMap<string, ReadonlyArray<IMark>>;
  /** A prefix that makes the ids of this form's inputs unique. */
  readonly id: string;
}

/** Return the attributes that connect an input to its label, help and errors. */
export function attributes(
  { id, marks, cautions }: IFormProps,
  key: string
): React.AriaAttributes & { id: string } {
  const wrong = marks.get(key)?.some(mark => mark.wrong) ?? false;
  return {
    id: `${id}-${key}`,
    'aria-invalid': wrong || undefined,
    'aria-describedby':
      marks.has(key) || cautions.has(key) ? `${id}-${key}-marks` : undefined
  };
}

interface IMarksProps extends IFormProps {
  readonly option: string;
}

/** The sentences at an input, and a button for a number that would be accepted. */
export function Marks(props: IMarksProps): React.JSX.Element | null {
  const { id, marks, cautions, option, model, trans } = props;
  const against = marks.get(option) ?? [];
  const beside = cautions.get(option) ?? [];
  const isWrong = against.some(mark => mark.wrong);
  const found = [
    ...against.map(mark => ({
      ...mark,
      look: mark.wrong ? 'tfc-Mark tfc-mod-wrong' : 'tfc-Mark'
    })),
    // warnings suggest no number for an input that is refused anyway
    ...beside.map(mark => ({
      ...mark,
      fits: isWrong ? null : mark.fits,
      look: 'tfc-Mark tfc-mod-warning'
    }))
  ];
  if (found.length === 0) {
    return null;
  }
  return (
    <div
      className="tfc-Marks"
      id={`${id}-${option}-marks`}
      role={against.length ? undefined : 'status'}
    >
      {found.map(({ text, look, fits }, index) => (
        <div key={index} className={look}>
          <Sentence text={text} />
          {fits !== null && (
            <button
              type="button"
              className="tfc-Button tfc-Mark-fix"
              onClick={() => {
                model.setValue(option, String(fits));
                document.getElementById(`${id}-${option}`)?.focus();
              }}
            >
              {trans.__('Use %1', fits)}
            </button>
          )}
        </div>
      ))}
    </div>
  );
}

interface IRowProps extends IFormProps {
  readonly option: string;
  readonly label: string;
  readonly help?: string;
  /** Text below the input. */
  readonly below?: string | false;
  readonly children: React.ReactNode;
}

/** A label, its input and the errors. */
export function Row(props: IRowProps): React.JSX.Element {
  const { id, option, label, help, below, children } = props;
  return (
    <div className="tfc-Row" data-option={option}>
      <label htmlFor={`${id}-${option}`} title={help}>
        {label}
      </label>
      <div className="tfc-Row-input">{children}</div>
      {below && (
        <small className="tfc-Row-below">
          <Sentence text={below} />
        </small>
      )}
      <Marks {...props} />
    </div>
  );
}

interface IInputProps extends IFormProps {
  readonly field: IField;
  /** The accessible name, if there is no label beside it. */
  readonly name?: string;
}

/** The input of one option. */
export function Input(props: IInputProps): React.JSX.Element {
  const { field, state, model, name, trans } = props;
  const { mode, values } = state.draft;
  const project = state.plan?.project;
  const value = values[field.key] ?? '';
  const shared = {
    ...attributes(props, field.key),
    title: field.help,
    'aria-label': name
  };
  const change = (
    event: React.ChangeEvent<
      HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement
    >
  ): void => model.setValue(field.key, event.target.value);
  if (hasLines(field)) {
    return (
      <textarea
        {...shared}
        rows={2}
        spellCheck={false}
        placeholder={
          baseOf(field, mode, project) || (field.example ?? 'NAME=VALUE')
        }
        value={String(value)}
        onChange={change}
      />
    );
  }
  switch (field.kind) {
    case 'switch':
      return (
        <input
          {...shared}
          type="checkbox"
          checked={(values[field.key] ?? project?.values[field.key]) === true}
          onChange={event => model.setValue(field.key, event.target.checked)}
        />
      );
    case 'word':
      return (
        <select {...shared} value={String(value)} onChange={change}>
          {field.words.map(word => {
            const isDefault = word === baseOf(field, mode, project);
            return (
              <option key={word} value={isDefault ? '' : word}>
                {word}
              </option>
            );
          })}
        </select>
      );
    case 'whole':
      return (
        <input
          {...shared}
          type="number"
          step={1}
          min={field.minimum}
          max={field.maximum}
          placeholder={placeholderOf(field, state, trans)}
          value={String(value)}
          onChange={change}
        />
      );
    case 'image':
    case 'runs': {
      const isImage = field.kind === 'image';
      const images = state.launchOptions?.options.images ?? [];
      const offered = isImage
        ? images
        : awaitable(String(value), model.clusters.state.runs);
      return (
        <>
          <input
            {...shared}
            type="text"
            list={`${shared.id}-list`}
            spellCheck={false}
            autoComplete="off"
            placeholder={
              baseOf(field, mode, project) ||
              ((isImage ? images[0] : undefined) ?? field.example ?? undefined)
            }
            value={String(value)}
            onChange={change}
          />
          <datalist id={`${shared.id}-list`}>
            {offered.map(words => (
              <option key={words} value={words} />
            ))}
          </datalist>
        </>
      );
    }
    default:
      return (
        <input
          {...shared}
          type="text"
          inputMode={field.kind === 'number' ? 'decimal' : undefined}
          spellCheck={false}
          autoComplete="off"
          placeholder={placeholderOf(field, state, trans)}
          value={String(value)}
          onChange={change}
        />
      );
  }
}

/**
 * Return suggestions for the last word of the text, which begins the name of a run. Each suggestion
 * starts with the text before that word, because a browser replaces the whole input.
 */
export function awaitable(
  typed: string,
  runs: ReadonlyArray<IRun>
): ReadonlyArray<string> {
  const before = typed.replace(/\S*$/, '');
  const named = before.split(/\s+/).map(word => word.split(':')[0]);
  return runs
    .filter(isActive)
    .map(nameOf)
    .filter(name => !named.includes(name))
    .flatMap(name => [`${before}${name}`, `${before}${name}:end`]);
}

/** Return what applies if nothing is typed; for a path, an example. */
function placeholderOf(
  field: IField,
  { draft: { mode, values }, launchOptions, plan }: ILaunchState,
  trans: TranslationBundle
): string {
  const base = baseOf(field, mode, plan?.project);
  if (base) {
    return base;
  }
  const size = field.path[field.path.length - 1];
  const ofEach =
    field.path[0] === '*' ? '' : values[size] || plan?.project?.values[size];
  switch (field.kind) {
    case 'file':
      return field.example ?? '/usr/bin/python3';
    case 'whole':
      return field.path[2] === 'count'
        ? trans.__('auto')
        : (field.example ?? String(ofEach || '0'));
    default:
      if (field.example) {
        return field.example;
      }
      if (field.section === 'resources') {
        // on Kubernetes the administrator's policy sets the defaults of pods
        const isHere = launchOptions?.options.backend === 'local';
        return String(
          ofEach || (isHere ? trans.__('no limit') : trans.__('default'))
        );
      }
      return trans.__('no limit');
  }
}
