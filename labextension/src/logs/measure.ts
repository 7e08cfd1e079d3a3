/**
 * How large a row and a column are, and how many fit: the fonts are the theme's and may change at any time.
 */
import * as React from 'react';

export interface IMeasure {
  /** Pixels of a row. */
  readonly row: number;
  /** Pixels of the window. */
  readonly height: number;
  /** Columns that fit beside each other. */
  readonly columns: number;
}

/** The characters in the element that is measured. */
const PROBED = 100;
const GUESS: IMeasure = { row: 17, height: 0, columns: 80 };

/** Measure again whenever the window or the font changes. */
export function useMeasure(
  scroller: React.RefObject<HTMLElement>,
  probe: React.RefObject<HTMLElement>
): IMeasure {
  const [measure, setMeasure] = React.useState(GUESS);
  React.useLayoutEffect(() => {
    const [outer, inner] = [scroller.current!, probe.current!];
    const take = (): void => {
      const { height: row, width } = inner.getBoundingClientRect();
      const { paddingLeft, paddingRight } = getComputedStyle(outer);
      const room =
        outer.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
      if (row > 0 && width > 0 && outer.clientHeight > 0) {
        const columns = Math.floor((room * PROBED) / width);
        setMeasure({ row, height: outer.clientHeight, columns });
      }
    };
    const observer = new ResizeObserver(take);
    observer.observe(outer);
    observer.observe(inner);
    take();
    return () => observer.disconnect();
  }, [scroller, probe]);
  return measure;
}
