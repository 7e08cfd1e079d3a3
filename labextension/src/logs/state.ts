/** The state of an output view, besides the lines themselves. */
import type { ServerProblem } from '../api/problem';
import type { IRun } from '../api/types';
import type { Connection } from './follower';

export interface ITask {
  readonly name: string;
  /** The number of the task's lines that are shown while the task is selected. */
  readonly lines: number;
  readonly isShown: boolean;
  /** The task's position in the order of tasks, which selects its colour. */
  readonly place: number;
}

export interface ILogsState {
  readonly connection: Connection;
  /** Why the stream is lost, or why the output of an ended run is incomplete. */
  readonly problem: ServerProblem | null;
  readonly run: IRun | undefined;
  readonly tasks: ReadonlyArray<ITask>;
  readonly showsNoise: boolean;
  readonly wraps: boolean;
  readonly follows: boolean;
  /** Number of hidden TensorFlow log lines. */
  readonly hidden: number;
  /** Number of lines that were cleared from view but still exist. */
  readonly cleared: number;
  /** Whether older lines exist that the view lacks. */
  readonly lacksOlder: boolean;
  /** Whether each line starts with its time. */
  readonly showsTimes: boolean;
  /**
   * The time of the line around which older lines are shown, and their order; null for the newest
   * lines.
   */
  readonly around: {
    readonly at: number | null;
    readonly isInTimeOrder: boolean;
  } | null;
  /**
   * Why the lines around a match are not shown; `problem` is null if the line is gone. `missed`
   * itself is null if nothing failed.
   */
  readonly missed: { readonly problem: ServerProblem | null } | null;
  /** When the stream was lost, in milliseconds since 1970. */
  readonly lostAt: number;
  /** Changes whenever lines arrive, go, or are replaced. */
  readonly revision: number;
}

/** The state before anything has arrived. */
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

/**
 * Return the state with this connection. "Not found" for an existing run means that its output is
 * missing.
 */
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
