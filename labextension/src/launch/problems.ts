/**
 * What stands against a launch, by the input that it is about, and why the button does nothing. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IField, IPlanProblem } from '../api/launchOptions';
import { fieldsOf, kernelOf } from './draft';
import type { ILaunchState } from './draft';
import { splitArguments } from './commandLine';

/** A sentence at an input. What is only missing is no mistake until a launch was tried. */
export interface IMark {
  readonly text: string;
  readonly wrong: boolean;
  readonly fits: number | null;
}

const BESIDE = [
  'program',
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
    const option = inputOf(problem, state);
    const isKnown = option !== null && shown.has(option);
    add(isKnown ? option : '', {
      text: isKnown || isOfHours(problem) ? allowed : problem.message,
      wrong: state.tried || !isMissing(problem),
      fits
    });
  }
  if (splitArguments(state.draft.arguments) === null) {
    const text = trans.__('a quote is not closed');
    add('arguments', { text, wrong: true, fits: null });
  }
  return marks;
}

/** Warnings by the input that they are about; they stand against nothing. */
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

/** The warnings that are about no input of the form. */
export function otherWarnings(state: ILaunchState): ReadonlyArray<string> {
  const placed = new Set(
    [...cautionsOf(state).values()].flat().map(({ text }) => text)
  );
  return (state.plan?.warnings ?? []).filter(text => !placed.has(text));
}

/** A Python that came with a kernel is wrong where the kernel is chosen. */
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

/** Hours are of no input, and what is said of them is a whole sentence. */
const isOfHours = ({ field }: IPlanProblem): boolean =>
  field.startsWith('budget.');

/** Whether something is not said yet, rather than said wrong. */
const isMissing = (problem: IPlanProblem): boolean =>
  problem.option === 'program' && problem.value === null;

/** Whether there is an answer that may be another one without a word being typed. */
export const isRefused = (state: ILaunchState): boolean =>
  !state.launched &&
  (state.away !== null ||
    state.refusal !== null ||
    (state.plan?.problems ?? []).some(problem => !isMissing(problem)));

/** Why a launch cannot be tried now; null when it can. */
export function hindrance(
  state: ILaunchState,
  trans: TranslationBundle
): string | null {
  if (state.away) {
    return trans.__('The server does not answer.');
  }
  if (!state.launchOptions || !state.plan) {
    return trans.__('Asking the server…');
  }
  if (state.launched) {
    return null;
  }
  const marks = [...marksOf(state, trans).values()].flat();
  if (!marks.length) {
    return state.current ? null : trans.__('Looking whether it fits…');
  }
  if (marks.every(mark => !mark.wrong)) {
    return trans.__('Choose a program first.');
  }
  return trans._n(
    'One thing has to be changed first.',
    '%1 things have to be changed first.',
    marks.length
  );
}

/** How many of a section's inputs have something wrong; a closed section says so. */
export const countIn = (
  marks: ReadonlyMap<string, ReadonlyArray<IMark>>,
  fields: ReadonlyArray<IField>
): number =>
  fields.reduce((sum, { key }) => sum + (marks.get(key)?.length ?? 0), 0);

function shownInputs({
  launchOptions,
  draft
}: ILaunchState): ReadonlySet<string> {
  const fields = launchOptions
    ? fieldsOf(launchOptions, draft).map(({ key }) => key)
    : [];
  const beside =
    draft.mode === 'in-graph' ? ['name', 'kernelspec'] : [...BESIDE];
  return new Set([...fields, ...beside]);
}
