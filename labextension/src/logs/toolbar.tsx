/** The toolbar of the lines: tasks, search, TensorFlow's log lines, wrap, follow, copy, save. */
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  caretDownIcon,
  caretUpIcon,
  caseSensitiveIcon,
  copyIcon,
  downloadIcon,
  LabIcon,
  regexIcon
} from '@jupyterlab/ui-components';
import * as React from 'react';
import type { LogsModel } from './model';
import type { ILogsState } from './state';
import type { IQuery } from './search';
import { MOST_OCCURRENCES } from './searcher';
import { OlderCount } from './oldermatches';
import { TaskMenu } from './taskmenu';

export interface IToolbarProps {
  readonly model: LogsModel;
  readonly state: ILogsState;
  readonly trans: TranslationBundle;
  readonly input: React.RefObject<HTMLInputElement>;
  readonly onQuery: (query: IQuery) => void;
  readonly onCopy: () => void;
  readonly onDownload: () => void;
  /** Start a search from the visible lines. */
  readonly onEnter: () => void;
  /** Return from the search to the lines. */
  readonly onLeave: () => void;
  /** Whether the list of older matches is open. */
  readonly isOlderOpen: boolean;
  readonly onOlder: () => void;
}

export function Toolbar(props: IToolbarProps): React.JSX.Element {
  const { model, state, trans } = props;
  return (
    <div
      className="tfc-Log-toolbar"
      role="toolbar"
      aria-label={trans.__('Output of %1', model.name)}
    >
      <TaskMenu model={model} state={state} trans={trans} />
      <Search {...props} />
      <span className="tfc-Log-toggles">
        <Toggle
          label={
            state.hidden > 0
              ? trans.__('TensorFlow messages (%1 hidden)', state.hidden)
              : trans.__('TensorFlow messages')
          }
          caption={trans.__(
            'Show what TensorFlow itself logs at level I and W'
          )}
          isOn={state.showsNoise}
          onChange={isOn => model.setNoise(isOn)}
        />
        <Toggle
          label={trans.__('Times')}
          caption={trans.__('Show when each line was printed')}
          isOn={state.showsTimes}
          onChange={isOn => model.setTimes(isOn)}
        />
        <Toggle
          label={trans.__('Wrap')}
          caption={trans.__('Wrap long lines')}
          isOn={state.wraps}
          onChange={isOn => model.setWraps(isOn)}
        />
        {state.connection !== 'ended' && (
          <Toggle
            label={trans.__('Follow')}
            caption={trans.__('Keep the newest line in view (f)')}
            isOn={state.follows}
            onChange={isOn => model.follow(isOn)}
          />
        )}
        <button
          type="button"
          className="tfc-Button"
          title={trans.__('Clear the view; nothing is deleted')}
          onClick={() => model.clear()}
        >
          {trans.__('Clear')}
        </button>
        <IconButton
          icon={copyIcon}
          label={trans.__('Copy the selected lines, or all that are shown')}
          onClick={props.onCopy}
        />
        <IconButton
          icon={downloadIcon}
          label={trans.__('Download all output of the selected tasks')}
          onClick={props.onDownload}
        />
      </span>
    </div>
  );
}

function Search({
  model,
  trans,
  input,
  onQuery,
  onEnter,
  onLeave,
  isOlderOpen,
  onOlder
}: IToolbarProps): React.JSX.Element {
  const { searcher } = model;
  const { query, wrong } = searcher;
  // the input updates at once; the model's state follows a moment later
  const [text, setText] = React.useState(query.text);
  const change = (change: Partial<IQuery>): void =>
    onQuery({ ...searcher.query, ...change });
  const type = (typed: string): void => {
    setText(typed);
    change({ text: typed });
  };
  const onKeyDown = (event: React.KeyboardEvent): void => {
    if (event.key === 'Enter') {
      searcher.step(event.shiftKey ? -1 : 1);
    } else if (event.key === 'Escape') {
      type('');
      onLeave();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <span className="tfc-Log-search" role="search">
      <input
        ref={input}
        type="text"
        className="tfc-Log-input"
        placeholder={trans.__('Search (/)')}
        aria-label={trans.__('Search in the output')}
        aria-invalid={wrong !== ''}
        spellCheck={false}
        value={text}
        onFocus={onEnter}
        onChange={event => type(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <IconButton
        icon={caseSensitiveIcon}
        label={trans.__('Match case')}
        isOn={query.isCaseSensitive}
        onClick={() => change({ isCaseSensitive: !query.isCaseSensitive })}
      />
      <IconButton
        icon={regexIcon}
        label={trans.__('Use a regular expression')}
        isOn={query.isRegExp}
        onClick={() => change({ isRegExp: !query.isRegExp })}
      />
      <span className="tfc-Log-count" role="status">
        {countWords(model, trans)}
      </span>
      <IconButton
        icon={caretUpIcon}
        label={trans.__('Previous match (Shift+Enter)')}
        isDisabled={searcher.count === 0}
        onClick={() => searcher.step(-1)}
      />
      <IconButton
        icon={caretDownIcon}
        label={trans.__('Next match (Enter)')}
        isDisabled={searcher.count === 0}
        onClick={() => searcher.step(1)}
      />
      <OlderCount
        model={model}
        trans={trans}
        isOpen={isOlderOpen}
        onToggle={onOlder}
      />
    </span>
  );
}

function countWords(model: LogsModel, trans: TranslationBundle): string {
  const { query, wrong, count, current, isBusy } = model.searcher;
  if (wrong) {
    return wrong;
  }
  if (!query.text) {
    return '';
  }
  if (current < 0) {
    return isBusy ? trans.__('searching…') : trans.__('no match');
  }
  const total = `${count}${count >= MOST_OCCURRENCES ? '+' : ''}`;
  return trans.__('%1 of %2', current + 1, total);
}

interface IToggleProps {
  readonly label: string;
  readonly caption: string;
  readonly isOn: boolean;
  readonly onChange: (isOn: boolean) => void;
}

function Toggle({
  label,
  caption,
  isOn,
  onChange
}: IToggleProps): React.JSX.Element {
  return (
    <button
      type="button"
      className="tfc-Button tfc-Log-toggle"
      title={caption}
      aria-pressed={isOn}
      onClick={() => onChange(!isOn)}
    >
      {label}
    </button>
  );
}

interface IIconButtonProps {
  readonly icon: LabIcon;
  readonly label: string;
  readonly isOn?: boolean;
  readonly isDisabled?: boolean;
  readonly onClick: () => void;
}

function IconButton({
  icon,
  label,
  isOn,
  isDisabled = false,
  onClick
}: IIconButtonProps): React.JSX.Element {
  return (
    <button
      type="button"
      className="tfc-Button tfc-mod-icon tfc-Log-toggle"
      title={label}
      aria-label={label}
      aria-pressed={isOn}
      disabled={isDisabled}
      onClick={onClick}
    >
      <icon.react tag="span" className="tfc-Button-icon" aria-hidden="true" />
    </button>
  );
}
