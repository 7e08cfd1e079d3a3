/**
 * The small parts of every view of a run: phase, age, progress, loss, sentences.
 *
 * Each part is redrawn only when its content changes. Text from programs and users is never markup.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { Phase } from '../api/models';
import type { IProgress, IRun } from '../api/types';
import { iconOfPhase } from '../icons';
import { useTicking } from './hooks';
import { age, clock, significant } from './quantities';
import { describeProgress, phaseWord, timeWords } from './words';

interface IIconButtonProps extends React.ButtonHTMLAttributes<HTMLButtonElement> {
  readonly icon: LabIcon;
  /** The action of the button, for screen readers; also the tooltip, if there is no `title`. */
  readonly label: string;
}

/** A button with an icon only. */
export function IconButton({
  icon: { react: Icon },
  label,
  ...attributes
}: IIconButtonProps): React.JSX.Element {
  return (
    <button
      type="button"
      className="tfc-Button tfc-mod-icon"
      aria-label={label}
      title={label}
      {...attributes}
    >
      <Icon tag="span" className="tfc-Button-icon" aria-hidden="true" />
    </button>
  );
}

interface IPhaseBadgeProps {
  readonly phase: Phase;
  readonly trans: TranslationBundle;
  /** Whether the run is about to fail; the word for this then replaces the phase's word. */
  readonly failing?: boolean;
  /** Whether only the icon is visible; the word is then the icon's label. */
  readonly iconOnly?: boolean;
  /** A word that replaces the phase's. */
  readonly word?: string;
}

/** The phase as a shape, a colour and a word. */
export const PhaseBadge = React.memo(
  ({
    phase,
    trans,
    failing = false,
    iconOnly = false,
    word: said
  }: IPhaseBadgeProps): React.JSX.Element => {
    const shape = failing ? 'Failed' : phase;
    const { react: Icon } = iconOfPhase(shape);
    const word =
      said ?? (failing ? trans.__('Failing') : phaseWord(phase, trans));
    return (
      <span
        className="tfc-Phase"
        data-phase={shape}
        title={iconOnly ? word : undefined}
      >
        <Icon tag="span" className="tfc-Phase-icon" aria-hidden="true" />
        <span className={iconOnly ? 'tfc-visually-hidden' : 'tfc-Phase-word'}>
          {word}
        </span>
      </span>
    );
  }
);

interface IRunProps {
  readonly run: IRun;
  readonly trans: TranslationBundle;
}

/** The time since the launch: `5m ago`. */
export function Age({ run, trans }: IRunProps): React.JSX.Element {
  const { createdAt } = run.cluster.metadata;
  const text = useTicking(now =>
    trans.__('%1 ago', age(now / 1000 - createdAt))
  );
  return (
    <time
      className="tfc-Age"
      dateTime={new Date(createdAt * 1000).toISOString()}
      title={trans.__('launched %1', clock(createdAt, Date.now(), true))}
    >
      {text}
    </time>
  );
}

/** `launched 22:41 · for 5s`. */
export function Times({
  run,
  trans,
  isOld = false
}: IRunProps & { readonly isOld?: boolean }): React.JSX.Element {
  return <>{useTicking(now => timeWords(run, now, trans, isOld))}</>;
}

/** A sentence; text in backticks is a command, written as in a notebook cell. */
export const Sentence = React.memo(
  ({ text }: { readonly text: string }): React.JSX.Element => {
    const parts = text.split(/`([^`\n]+)`/);
    return (
      <bdi className="tfc-Sentence">
        {parts.map((part, index) =>
          index % 2 ? (
            <code key={index}>
              {part.replace(/^tfcluster /, '%tfcluster ')}
            </code>
          ) : (
            part
          )
        )}
      </bdi>
    );
  }
);

/** The tags of a run; nothing if the run has no tags. */
export const Tags = React.memo(
  ({
    tags,
    trans
  }: {
    readonly tags: ReadonlyArray<string>;
    readonly trans: TranslationBundle;
  }): React.JSX.Element | null =>
    tags.length === 0 ? null : (
      <ul className="tfc-Tags" aria-label={trans.__('Tags')}>
        {tags.map(tag => (
          <li key={tag} className="tfc-Tag">
            <bdi>{tag}</bdi>
          </li>
        ))}
      </ul>
    )
);

/** A line of parts between `·`. Line breaks are between parts, not inside a part. */
export const Parts = ({
  text
}: {
  readonly text: string;
}): React.JSX.Element => (
  <>
    {text.split(' · ').map((part, place) => (
      <React.Fragment key={place}>
        {place > 0 && ' · '}
        <span className="tfc-Part">{part}</span>
      </React.Fragment>
    ))}
  </>
);

interface IProgressProps {
  readonly progress: IProgress;
  readonly name: string;
  readonly active: boolean;
  /** Whether the run succeeded; the bar is then full, whatever the run reported last. */
  readonly full?: boolean;
  readonly trans: TranslationBundle;
}

/** A bar if the total is known, the progress line, and the loss. */
export const RunProgress = React.memo(
  ({
    progress,
    name,
    active,
    full = false,
    trans
  }: IProgressProps): React.JSX.Element => {
    const words = describeProgress(progress, active, trans, full);
    const { step, total, history } = progress;
    const done = full && total !== null ? total : step;
    return (
      <div className="tfc-Progress">
        {total !== null && (
          <div
            className="tfc-Progress-bar"
            role="progressbar"
            aria-label={trans.__('Progress of %1', name)}
            aria-valuemin={0}
            aria-valuemax={total}
            aria-valuenow={done}
            aria-valuetext={words}
          >
            <div
              className="tfc-Progress-done"
              style={{ width: `${total > 0 ? (100 * done) / total : 0}%` }}
            />
          </div>
        )}
        <div className="tfc-Progress-line">
          <span className="tfc-Progress-words">
            <Parts text={words} />
          </span>
          <Sparkline history={history} trans={trans} />
        </div>
      </div>
    );
  }
);

const WIDTH = 64;
const HEIGHT = 18;
const MARGIN = 2;

interface ISparklineProps {
  readonly history: IProgress['history'];
  readonly trans: TranslationBundle;
}

/** The curve of the loss; nothing with fewer than two numbers. */
export const Sparkline = React.memo(
  ({ history, trans }: ISparklineProps): React.JSX.Element | null => {
    const points = history.filter(
      (point): point is readonly [number, number] => point[1] !== null
    );
    if (points.length < 2) {
      return null;
    }
    const [first, last] = [points[0], points[points.length - 1]];
    return (
      <svg
        className="tfc-Sparkline"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        width={WIDTH}
        height={HEIGHT}
        role="img"
        aria-label={trans.__(
          'Loss from %1 at step %2 to %3 at step %4',
          significant(first[1]),
          first[0],
          significant(last[1]),
          last[0]
        )}
      >
        <path d={curve(history)} />
      </svg>
    );
  }
);

/** Return the path of a loss curve in the sparkline's box; a loss that is not a number is a gap. */
export function curve(history: IProgress['history']): string {
  const losses = history.flatMap(([, loss]) => (loss === null ? [] : [loss]));
  const steps = history.map(([step]) => step);
  const [left, right] = [Math.min(...steps), Math.max(...steps)];
  const [low, high] = [Math.min(...losses), Math.max(...losses)];
  const room = HEIGHT - 2 * MARGIN;
  let pen = 'M';
  return history
    .map(([step, loss]) => {
      if (loss === null) {
        pen = 'M';
        return '';
      }
      const x =
        MARGIN + ((WIDTH - 2 * MARGIN) * (step - left)) / (right - left || 1);
      const y = MARGIN + room - (room * (loss - low)) / (high - low || 1);
      const drawn = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = 'L';
      return drawn;
    })
    .join('');
}
