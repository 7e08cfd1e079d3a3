/**
 * Announces the output to screen readers: changes of the stream at once, the number of new lines
 * from time to time.
 *
 * The component never reads the lines themselves, which arrive too fast.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { Connection } from './follower';
import type { LogsModel } from './model';

const EVERY = 10_000;

export function Announcer({
  model,
  connection,
  trans
}: {
  readonly model: LogsModel;
  readonly connection: Connection;
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  const [came, setCame] = React.useState(0);
  React.useEffect(() => {
    let told = model.buffer.end;
    const timer = setInterval(() => {
      const { end } = model.buffer;
      setCame(end - told);
      told = end;
    }, EVERY);
    return () => clearInterval(timer);
  }, [model]);
  return (
    <div role="status" className="tfc-visually-hidden">
      <p>{connectionWords(connection, trans)}</p>
      <p>{came > 0 ? trans._n('%1 new line', '%1 new lines', came) : ''}</p>
    </div>
  );
}

function connectionWords(
  connection: Connection,
  trans: TranslationBundle
): string {
  switch (connection) {
    case 'lost':
      return trans.__('The connection was lost. Reconnecting…');
    case 'ended':
      return trans.__('The output has ended.');
    case 'gone':
      return trans.__('The run was deleted.');
    default:
      return '';
  }
}
