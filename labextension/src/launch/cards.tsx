/** The choice of the mode of a launch, as two cards. */
import * as React from 'react';
import type { Mode } from '../api/models';
import { betweenGraphIcon, inGraphIcon } from '../icons';
import type { IFormProps } from './fields';

/** Native radio buttons under the cards, for arrow keys and screen readers. */
export function Cards({
  state,
  model,
  trans,
  id
}: IFormProps): React.JSX.Element {
  const cards = [
    {
      mode: 'between-graph' as Mode,
      icon: betweenGraphIcon,
      title: trans.__('Run my program on every worker'),
      text: trans.__(
        'Every task starts your program with its own TF_CONFIG and trains together with the others (Between-Graph).'
      )
    },
    {
      mode: 'in-graph' as Mode,
      icon: inGraphIcon,
      title: trans.__('Use the cluster from this notebook'),
      text: trans.__(
        'TensorFlow servers wait for your notebook, which places work on them (In-Graph).'
      )
    }
  ];
  return (
    <fieldset className="tfc-Cards">
      <legend className="tfc-visually-hidden">{trans.__('Mode')}</legend>
      {cards.map(({ mode, icon: { react: Icon }, title, text }) => (
        <label
          key={mode}
          htmlFor={`${id}-mode-${mode}`}
          className={
            state.draft.mode === mode ? 'tfc-Card tfc-mod-chosen' : 'tfc-Card'
          }
        >
          <input
            type="radio"
            id={`${id}-mode-${mode}`}
            name={`${id}-mode`}
            className="tfc-visually-hidden"
            checked={state.draft.mode === mode}
            onChange={() => model.edit({ mode })}
          />
          <Icon tag="span" className="tfc-Card-icon" aria-hidden="true" />
          <span className="tfc-Card-title">{title}</span>
          <span className="tfc-Card-text">{text}</span>
        </label>
      ))}
    </fieldset>
  );
}
