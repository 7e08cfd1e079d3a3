/** Announces phase changes to screen readers; changes within a second form one sentence. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { type IClusters, ITransition, nameOf } from '../api/clusters';
import { phaseWord } from '../run/words';

const TOGETHER = 1000;
const MOST = 3;

interface IAnnouncerProps {
  readonly model: IClusters;
  readonly trans: TranslationBundle;
}

/** An invisible live region. */
export function Announcer({
  model,
  trans
}: IAnnouncerProps): React.JSX.Element {
  const [text, setText] = React.useState('');
  React.useEffect(() => {
    const waiting = new Map<string, string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const say = (): void => {
      const told = [...waiting.values()];
      const more = told.length - MOST;
      waiting.clear();
      timer = undefined;
      setText(
        [
          ...told.slice(0, MOST),
          ...(more > 0 ? [trans._n('%1 more', '%1 more', more)] : [])
        ].join('. ')
      );
    };
    const hear = (_: IClusters, { run }: ITransition): void => {
      const { phase } = run.cluster.status;
      waiting.set(
        nameOf(run),
        trans.__('%1: %2', nameOf(run), phaseWord(phase, trans))
      );
      timer ??= setTimeout(say, TOGETHER);
    };
    model.transitioned.connect(hear);
    return () => {
      model.transitioned.disconnect(hear);
      clearTimeout(timer);
    };
  }, [model, trans]);
  return (
    <div className="tfc-visually-hidden" aria-live="polite" role="status">
      {text}
    </div>
  );
}
