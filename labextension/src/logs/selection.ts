/**
 * Which lines are selected, so that they stay in the page while a person scrolls on to the other end.
 */
import * as React from 'react';

/** The first and the last selected line of a list, null when nothing of it is selected. */
export function useSelectedLines(
  list: React.RefObject<HTMLElement>
): readonly [number, number] | null {
  const [from, setFrom] = React.useState(-1);
  const [to, setTo] = React.useState(-1);
  React.useEffect(() => {
    const look = (): void => {
      const selection = document.getSelection();
      const ends = [selection?.anchorNode, selection?.focusNode].flatMap(
        node => lineOf(node ?? null, list.current) ?? []
      );
      const isWhole = ends.length === 2 && !selection?.isCollapsed;
      setFrom(isWhole ? Math.min(...ends) : -1);
      setTo(isWhole ? Math.max(...ends) : -1);
    };
    document.addEventListener('selectionchange', look);
    return () => document.removeEventListener('selectionchange', look);
  }, [list]);
  return React.useMemo(() => (from < 0 ? null : [from, to]), [from, to]);
}

function lineOf(node: Node | null, list: HTMLElement | null): number | null {
  const element = node instanceof Element ? node : node?.parentElement;
  const line = element?.closest<HTMLElement>('[data-line]');
  return line && list?.contains(line) ? Number(line.dataset.line) : null;
}
