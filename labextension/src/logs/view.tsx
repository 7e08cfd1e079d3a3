/**
 * The whole output view: toolbar, notices, lines, outcome, and keys.
 *
 * Keys in the lines: `/` or Ctrl+F opens the search, n and N go to the next and the previous match,
 * f follows the end or stops following, Home and End scroll, Ctrl+A selects all shown lines, Ctrl+C
 * copies them, and Escape ends the selection.
 */
import { Clipboard } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { Announcer } from './announcer';
import { Lines } from './lines';
import type { LogsModel } from './model';
import type { ILogsState } from './state';
import { Empty, Notices, Outcome } from './notices';
import { OlderMatches } from './oldermatches';
import type { IQuery } from './search';
import { Stacks } from './stacks';
import { Toolbar } from './toolbar';
import type { Viewport } from './viewport';

export interface ILogsViewProps {
  readonly model: LogsModel;
  readonly trans: TranslationBundle;
  readonly onDownload: () => void;
}

/** Return the current state of a model, after each change. */
function useLogs(model: LogsModel): ILogsState {
  const subscribe = React.useCallback(
    (listener: () => void) => {
      model.changed.connect(listener);
      return () => {
        model.changed.disconnect(listener);
      };
    },
    [model]
  );
  return React.useSyncExternalStore(subscribe, () => model.state);
}

export function LogsView({
  model,
  trans,
  onDownload
}: ILogsViewProps): React.JSX.Element {
  const state = useLogs(model);
  const input = React.useRef<HTMLInputElement>(null);
  const body = React.useRef<HTMLDivElement>(null);
  const viewport = React.useRef<Viewport | null>(null);
  const [isAllSelected, selectAll] = React.useState(false);
  const [isOlderOpen, openOlder] = React.useState(false);
  const focusLines = (): void =>
    body.current?.querySelector<HTMLElement>('[role="log"]')?.focus();

  const search = (query: IQuery): void =>
    model.search(query, viewport.current?.begin ?? 0);
  const copy = (): void => {
    const selected = document.getSelection();
    const isHere = body.current?.contains(selected?.anchorNode ?? null);
    const text = isHere && selected ? selected.toString() : '';
    Clipboard.copyToSystem(text || linesAsText(model));
  };
  const onKeyDown = (event: React.KeyboardEvent): void => {
    const key = keyOf(event);
    const isInLines =
      (event.target as HTMLElement).getAttribute('role') === 'log';
    const actions: Record<string, () => void> = {
      'Ctrl+f': () => input.current?.select(),
      ...(isInLines && {
        '/': () => input.current?.select(),
        n: () => model.searcher.step(1),
        N: () => model.searcher.step(-1),
        f: () => model.follow(!state.follows),
        End: () => model.follow(true),
        'Ctrl+a': () => selectAll(true),
        Escape: () => selectAll(false)
      })
    };
    if (actions[key]) {
      event.preventDefault();
      event.stopPropagation();
      actions[key]();
    }
  };
  const onCopy = (event: React.ClipboardEvent): void => {
    if (isAllSelected) {
      event.clipboardData.setData('text/plain', linesAsText(model));
      event.preventDefault();
    }
  };
  const setViewport = React.useCallback((made: Viewport): void => {
    viewport.current = made;
  }, []);
  const props = { model, state, trans };
  return (
    // keys and copy events bubble here from the lines and the toolbar, which have roles and the
    // focus
    <div
      className="tfc-Log"
      role="presentation"
      onKeyDown={onKeyDown}
      onCopy={onCopy}
      onPointerDown={() => selectAll(false)}
    >
      <Toolbar
        {...props}
        input={input}
        onQuery={search}
        onCopy={copy}
        onDownload={onDownload}
        onEnter={() => viewport.current?.stay()}
        onLeave={() => {
          viewport.current?.stay();
          focusLines();
        }}
        isOlderOpen={isOlderOpen}
        onOlder={() => openOlder(!isOlderOpen)}
      />
      {isOlderOpen && <OlderMatches model={model} trans={trans} />}
      <Notices {...props} />
      <Stacks {...props} />
      <div className="tfc-Log-body" ref={body}>
        <Lines
          {...props}
          onViewport={setViewport}
          isAllSelected={isAllSelected}
        />
        {model.rows.length === 0 && <Empty {...props} />}
        {!state.follows && !state.around && model.rows.length > 0 && (
          <button
            type="button"
            className="tfc-Button tfc-Log-back"
            onClick={() => {
              model.follow(true);
              focusLines();
            }}
          >
            {state.connection === 'ended'
              ? trans.__('↓ End')
              : trans.__('↓ Follow')}
          </button>
        )}
      </div>
      <Outcome {...props} />
      <Announcer model={model} connection={state.connection} trans={trans} />
    </div>
  );
}

function keyOf(event: React.KeyboardEvent): string {
  const isWithControl = event.ctrlKey || event.metaKey;
  return `${isWithControl ? 'Ctrl+' : ''}${event.altKey ? 'Alt+' : ''}${event.key}`;
}

/** Return all shown lines as text, as the command line prints them: `worker-0 | step 300`. */
function linesAsText(model: LogsModel): string {
  const { rows, buffer, state } = model;
  const longest = Math.max(0, ...state.tasks.map(task => task.name.length));
  const lines: string[] = [];
  for (let index = 0; index < rows.length; index++) {
    const { task, text } = buffer.line(rows.number(index));
    lines.push(
      state.tasks.length > 1 ? `${task.padEnd(longest)} | ${text}` : text
    );
  }
  return lines.join('\n');
}
