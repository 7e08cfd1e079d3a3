/** A section of the sidebar below the runs. */
import * as React from 'react';

interface ISectionProps {
  readonly title: string;
  readonly count: number;
  readonly children: React.ReactNode;
}

/** A section that can be folded. An empty section is folded at first. */
export function Section({
  title,
  count,
  children
}: ISectionProps): React.JSX.Element {
  const [chosen, setChosen] = React.useState<boolean | null>(null);
  const open = chosen ?? count > 0;
  return (
    <details className="tfc-Fold" open={open}>
      {/* React opens the section, not the browser, because its first content opens it too */}
      <summary
        onClick={event => {
          event.preventDefault();
          setChosen(!open);
        }}
      >
        {title}
        {count > 0 && <small>{count}</small>}
      </summary>
      {children}
    </details>
  );
}
