/**
 * What a view of the output of a run has to know beside the lines themselves.
 */
import type { ServerProblem } from '../api/problem';
import type { IRun } from '../api/types';
import type { Connection } from './follower';

export interface ITask {
  readonly name: string;
  /** How many lines of it would be shown. */
  readonly lines: number;
  readonly isShown: boolean;
  /** Its place in the order of tasks, which gives it its colour. */
  readonly place: number;
}

export interface ILogsState {
  readonly connection: Connection;
  /** Why the stream is lost, or why of an ended one not all can be read. */
  readonly problem: ServerProblem | null;
  readonly run: IRun | undefined;
  readonly tasks: ReadonlyArray<ITask>;
  readonly showsNoise: boolean;
  readonly wraps: boolean;
  readonly follows: boolean;
  /** Lines that are hidden as TensorFlow's own remarks. */
  readonly hidden: number;
  /** Lines that were cleared from view and are still there. */
  readonly cleared: number;
  /** Whether older lines exist that are not here. */
  readonly lacksOlder: boolean;
  /** Whether each line begins with the time when it was printed. */
  readonly showsTimes: boolean;
  /** When the line was printed around which older lines are shown, and their order; null while the newest are. */
  readonly around: {
    readonly at: number | null;
    readonly isInTimeOrder: boolean;
  } | null;
  /** Why the lines around a match are not shown, null inside if the line is gone; null while nothing failed. */
  readonly missed: { readonly problem: ServerProblem | null } | null;
  /** When the stream was lost, in milliseconds since 1970. */
  readonly lostAt: number;
  /** Another one whenever lines came or went, or others are shown. */
  readonly revision: number;
}

/** Before anything has come. */
export const INITIAL: ILogsState = {
  connection: 'connecting',
  problem: null,
  run: undefined,
  tasks: [],
  showsNoise: false,
  wraps: false,
  follows: true,
  hidden: 0,
  cleared: 0,
  lacksOlder: false,
  showsTimes: true,
  around: null,
  missed: null,
  lostAt: 0,
  revision: 0
};

/** The state with a stream that is so now. What is missing of a run that is there, is its output and not the run. */
export function connected(
  before: ILogsState,
  connection: Connection,
  problem: ServerProblem | null,
  isKnown: boolean
): ILogsState {
  return {
    ...before,
    connection: connection === 'gone' && isKnown ? 'ended' : connection,
    problem,
    lostAt: before.connection === 'lost' ? before.lostAt : Date.now()
  };
}
