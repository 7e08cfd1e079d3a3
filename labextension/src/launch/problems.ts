/** Problems and warnings by input, and why the button is disabled. Pure functions. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IField, IPlanProblem } from '../api/launchOptions';
import { fieldsOf, kernelOf } from './draft';
import type { ILaunchState } from './draft';
import { splitArguments } from '../run/commandLine';

/** A sentence at an input. */
export interface IMark {
  readonly text: string;
  readonly wrong: boolean;
  readonly fits: number | null;
}

const BESIDE = [
  'program',
  'config',
  'arguments',
  'name',
  'sha256',
  'kernelspec'
] as const;

export function marksOf(
  state: ILaunchState,
  trans: TranslationBundle
): ReadonlyMap<string, ReadonlyArray<IMark>> {
  const marks = new Map<string, IMark[]>();
  const add = (option: string, mark: IMark): void => {
    marks.set(option, [...(marks.get(option) ?? []), mark]);
  };
  const shown = shownInputs(state);
  for (const problem of state.plan?.problems ?? []) {
    const { allowed, fits } = problem;
    if (isMissing(problem) && !state.tried) {
      continue; // not an error until the user tries to launch; the button has a hint
    }
    const option = inputOf(problem, state);
    const isKnown = option !== null && shown.has(option);
    add(isKnown ? option : '', {
      text: isKnown || isOfHours(problem) ? allowed : problem.message,
      wrong: true,
      fits
    });
  }
  if (splitArguments(state.draft.arguments) === null) {
    const text = trans.__('a quote is not closed');
    add('arguments', { text, wrong: true, fits: null });
  }
  return marks;
}

/** Return warnings by input; they do not prevent a launch. */
export function cautionsOf(
  state: ILaunchState
): ReadonlyMap<string, ReadonlyArray<IMark>> {
  const found = new Map<string, IMark[]>();
  const shown = shownInputs(state);
  for (const caution of state.plan?.cautions ?? []) {
    const option = inputOf(caution, state);
    if (option !== null && shown.has(option)) {
      const { allowed: text, fits } = caution;
      const mark = { text, fits, wrong: false };
      found.set(option, [...(found.get(option) ?? []), mark]);
    }
  }
  return found;
}

/** Return the warnings that concern no input of the form. */
export function otherWarnings(state: ILaunchState): ReadonlyArray<string> {
  const placed = new Set(
    [...cautionsOf(state).values()].flat().map(({ text }) => text)
  );
  return (state.plan?.warnings ?? []).filter(text => !placed.has(text));
}

/** Return the input of a problem; a wrong Python of a kernel is shown at the kernel. */
function inputOf(
  { option }: IPlanProblem,
  { draft, launchOptions }: ILaunchState
): string | null {
  const ofKernel =
    launchOptions !== null && kernelOf(draft, launchOptions) !== '';
  if (option === 'python' || option === 'kernelspec') {
    return ofKernel ? 'kernelspec' : 'python';
  }
  return option;
}

/**
 * Return whether a problem is about the hours of a budget; it has no input and is a whole sentence.
 */
const isOfHours = ({ field }: IPlanProblem): boolean =>
  field.startsWith('budget.');

/** Return whether a value is missing, not wrong. */
const isMissing = (problem: IPlanProblem): boolean =>
  problem.option === 'program' && problem.value === null;

/** Return whether a later response may differ without any change of the input. */
export const isRefused = (state: ILaunchState): boolean =>
  !state.launched &&
  (state.away !== null ||
    state.refusal !== null ||
    (state.plan?.problems ?? []).some(problem => !isMissing(problem)));

/** Return why a launch cannot be tried now; null if it can be tried. */
export function hindrance(
  state: ILaunchState,
  trans: TranslationBundle
): string | null {
  const { away, draft } = state;
  if (away?.status === 404 && draft.repeat?.schedule) {
    return trans.__('The schedule %1 does not exist.', draft.repeat.schedule);
  }
  if (away) {
    return trans.__('The server does not answer.');
  }
  if (!state.launchOptions || !state.plan) {
    return trans.__('Asking the server…');
  }
  if (state.launched) {
    return null;
  }
  const marks = [...marksOf(state, trans).values()].flat();
  if (!state.tried && (state.plan.problems ?? []).some(isMissing)) {
    return trans.__('Choose a program first.');
  }
  if (!marks.length) {
    return state.current ? null : trans.__('Checking whether it fits…');
  }
  const [only, ...others] = [...marksOf(state, trans)];
  const label = others.length ? null : labelOf(only[0], state, trans);
  if (marks.length === 1 && label) {
    return trans.__('Change “%1” first.', label);
  }
  return trans._n(
    'One thing has to be changed first.',
    '%1 things have to be changed first.',
    marks.length
  );
}

/** Return the label of an input; null for a problem that has none. */
function labelOf(
  option: string,
  { launchOptions, draft }: ILaunchState,
  trans: TranslationBundle
): string | null {
  switch (option) {
    case 'program':
      return trans.__('Program');
    case 'config':
      return trans.__('Configuration');
    case 'arguments':
      return trans.__('Arguments');
    case 'name':
      return trans.__('Name');
    case 'sha256':
      return trans.__('Checksum');
    case 'kernelspec':
      return trans.__('Python of kernel');
    default:
      return (
        [
          ...(launchOptions ? fieldsOf(launchOptions, draft) : []),
          ...(launchOptions?.schedule ?? [])
        ].find(({ key }) => key === option)?.label ?? null
      );
  }
}

/** Return the number of a section's inputs with errors, for a closed section. */
export const countIn = (
  marks: ReadonlyMap<string, ReadonlyArray<IMark>>,
  fields: ReadonlyArray<IField>
): number =>
  fields.reduce((sum, { key }) => sum + (marks.get(key)?.length ?? 0), 0);

/** Return why the launch cannot become a schedule; null if it can. */
export const whyNoRepeat = (
  { draft }: ILaunchState,
  trans: TranslationBundle
): string | null =>
  draft.mode === 'in-graph'
    ? trans.__(
        'This launch cannot be repeated: a schedule runs a program, but here a notebook is the client.'
      )
    : null;

function shownInputs({
  launchOptions,
  draft
}: ILaunchState): ReadonlySet<string> {
  const fields = launchOptions
    ? fieldsOf(launchOptions, draft).map(({ key }) => key)
    : [];
  const beside =
    draft.mode === 'in-graph' ? ['name', 'kernelspec'] : [...BESIDE];
  const ofSchedule =
    draft.repeat === null
      ? []
      : (launchOptions?.schedule ?? []).map(({ key }) => key);
  return new Set([...fields, ...beside, ...ofSchedule]);
}
