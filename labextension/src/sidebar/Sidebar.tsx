/**
 * The sidebar: all runs, their actions, and the reason if they cannot be shown.
 *
 * The sidebar owns filter and selection; the runs belong to the model.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';
import { type IClusters, nameOf } from '../api/clusters';
import { useClusters } from '../run/hooks';
import { CommandIDs } from '../tokens';
import { Announcer } from './Announcer';
import { filtered, isFiltering, NO_FILTER, toggled } from './filter';
import { Projects } from './Projects';
import { RunList } from './RunList';
import { Schedules } from './Schedules';
import { Selection } from './Selection';
import { Away, Empty, Trouble } from './states';
import { Toolbar } from './Toolbar';

export interface ISidebarProps {
  readonly model: IClusters;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  readonly filterRef: React.RefObject<HTMLInputElement>;
  /** A run to show, with its row open; a new object shows the run again. */
  readonly revealed: { readonly name: string } | null;
  /** Called once the sidebar looks for this run. */
  onRevealed(): void;
  /** Called when the sidebar is drawn completely for the first time. */
  onDrawn(): void;
  /** Returns a function that shows the folder of examples; null if there is none. */
  readonly findExamples: () => Promise<(() => void) | null>;
}

const NONE: ReadonlySet<string> = new Set();
/** Milliseconds after which a run that has not appeared no longer takes the focus. */
const PATIENCE = 30000;

/** The whole sidebar. */
export function Sidebar({
  model,
  commands,
  trans,
  filterRef,
  revealed,
  onRevealed,
  onDrawn,
  findExamples
}: ISidebarProps): React.JSX.Element {
  const state = useClusters(model);
  const [filter, setFilter] = React.useState(NO_FILTER);
  const [selected, setSelected] = React.useState(NONE);
  const [refreshed, setRefreshed] = React.useState(0);
  // The response to a launch may arrive before the run is in the list; its row is opened when it
  // appears.
  const [wanted, setWanted] = React.useState<string | null>(null);
  const taken = React.useRef(onRevealed);
  taken.current = onRevealed;
  React.useEffect(() => {
    if (revealed) {
      setFilter(NO_FILTER); // the filter may hide the run
      setWanted(revealed.name);
      taken.current();
    }
  }, [revealed]);
  React.useEffect(() => {
    const timer = setTimeout(() => setWanted(null), PATIENCE);
    return () => clearTimeout(timer);
  }, [wanted]);
  const drawn = React.useRef(onDrawn);
  React.useEffect(() => drawn.current(), []);
  const body = React.useRef<HTMLDivElement>(null);
  const runs = React.useMemo(
    () => filtered(state.runs, filter, trans),
    [state.runs, filter, trans]
  );
  const chosen = state.runs.filter(run => selected.has(nameOf(run)));
  const onLaunch = commands.hasCommand(CommandIDs.launch)
    ? () => void commands.execute(CommandIDs.launch)
    : undefined;
  const toRows = (): void =>
    body.current
      ?.querySelector<HTMLElement>('.tfc-RunRow[tabindex="0"]')
      ?.focus();
  const isEmpty = state.runs.length === 0;
  const onReveal = (name: string): void => {
    setFilter(NO_FILTER);
    setWanted(name);
    void model.ensure(name).catch(() => setWanted(null)); // the run's record may have been deleted
  };

  return (
    <>
      <Toolbar
        runs={state.runs}
        all={state.all}
        filter={filter}
        trans={trans}
        filterRef={filterRef}
        onLaunch={onLaunch}
        onRefresh={() => {
          setRefreshed(count => count + 1);
          void model.refresh();
        }}
        onAll={all => void model.showAll(all)}
        onFilter={setFilter}
        onLeave={toRows}
      />
      <Trouble
        state={state}
        trans={trans}
        onRetry={() => void model.refresh()}
      />
      <Away runs={state.runs} trans={trans} />
      {chosen.length > 0 && (
        <Selection
          runs={chosen}
          model={model}
          commands={commands}
          trans={trans}
          onClear={() => setSelected(NONE)}
        />
      )}
      <div ref={body} className="tfc-Sidebar-body" data-state={state.state}>
        {runs.length > 0 && (
          <RunList
            runs={runs}
            model={model}
            trans={trans}
            commands={commands}
            selected={selected}
            revealed={wanted}
            onRevealed={() => setWanted(null)}
            onSelect={name => setSelected(names => toggled(names, name))}
            onEscape={() => setSelected(NONE)}
          />
        )}
        {!state.all && runs.some(({ cluster }) => cluster.metadata.run > 1) && (
          <p className="tfc-Sidebar-none">
            <button
              type="button"
              className="tfc-Link"
              onClick={() => void model.showAll(true)}
            >
              {trans.__('Show older runs, too')}
            </button>
          </p>
        )}
        {!isEmpty && runs.length === 0 && isFiltering(filter) && (
          <p className="tfc-Sidebar-none" role="status">
            {trans.__('No cluster matches the filter.')}{' '}
            <button
              type="button"
              className="tfc-Link"
              onClick={() => setFilter(NO_FILTER)}
            >
              {trans.__('Show all')}
            </button>
          </p>
        )}
        {isEmpty && state.state === 'loading' && (
          <p className="tfc-Sidebar-none">{trans.__('Asking the server…')}</p>
        )}
        {isEmpty && state.at > 0 && (
          <EmptyWithExamples
            trans={trans}
            onLaunch={onLaunch}
            findExamples={findExamples}
          />
        )}
      </div>
      <div className="tfc-Folds">
        <Schedules
          model={model}
          runs={state.runs}
          commands={commands}
          trans={trans}
          refreshed={refreshed}
        />
        <Projects
          model={model}
          runs={state.runs}
          commands={commands}
          trans={trans}
          refreshed={refreshed}
          onReveal={onReveal}
        />
      </div>
      <Announcer model={model} trans={trans} />
    </>
  );
}

function EmptyWithExamples({
  trans,
  onLaunch,
  findExamples
}: Pick<ISidebarProps, 'trans' | 'findExamples'> & {
  readonly onLaunch?: () => void;
}): React.JSX.Element {
  const [show, setShow] = React.useState<{ it: (() => void) | null }>({
    it: null
  });
  React.useEffect(() => {
    void findExamples().then(it => setShow({ it }));
  }, [findExamples]);
  return (
    <Empty
      trans={trans}
      onLaunch={onLaunch}
      onExamples={show.it ?? undefined}
    />
  );
}
