/** What a launch form knows: what is typed, what the server says to it, and what became of the launch. */
import type { ILaunchOptions, IPlan } from '../api/launchOptions';
import type { ServerProblem } from '../api/problem';
import type { IRun } from '../api/types';
import { EMPTY, IDraft } from './draft';

export interface ILaunchState {
  readonly draft: IDraft;
  /** What there is to choose from; null until the server has said so. */
  readonly launchOptions: ILaunchOptions | null;
  readonly plan: IPlan | null;
  /** Whether the plan is one for what is typed now. */
  readonly current: boolean;
  /** Why the server says nothing; what is typed stays. */
  readonly away: ServerProblem | null;
  readonly launching: boolean;
  readonly refusal: ServerProblem | null;
  readonly launched: IRun | null;
  /** Whether a launch was tried, so that what is missing is now wrong. */
  readonly tried: boolean;
}

export const INITIAL: ILaunchState = {
  draft: EMPTY,
  launchOptions: null,
  plan: null,
  current: false,
  away: null,
  launching: false,
  refusal: null,
  launched: null,
  tried: false
};
