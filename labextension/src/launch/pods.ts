/**
 * What only pods have, as a person types it: one line for each claim, secret or annotation. Pure;
 * the other way round than `tfcluster_magic/launch/options.py`.
 */
import type { FieldKind, IField } from '../api/launchOptions';
import type { DataClaim, SecretUse, Volume } from '../api/models';

/** Whether an option is typed as lines. */
export const hasLines = ({ kind }: Pick<IField, 'kind'>): boolean =>
  kind in LINES;

/** The value of a spec as it is typed; undefined where a kind has no form of its own. */
export function typed(kind: FieldKind, value: unknown): string | undefined {
  if (kind === 'claim') {
    const { size, storageClass } = value as DataClaim;
    return storageClass ? `${size}:${storageClass}` : size;
  }
  return LINES[kind]?.(value).join('\n');
}

const pairs = (value: unknown): ReadonlyArray<string> =>
  Object.entries(value as object).map(([key, content]) => `${key}=${content}`);

const LINES: Partial<
  Record<FieldKind, (value: unknown) => ReadonlyArray<string>>
> = {
  pairs,
  annotations: pairs,
  names: value => value as string[],
  volumes: value =>
    (value as Volume[]).map(
      ({ claim, path, subPath, readOnly }) =>
        `${claim}${subPath ? `/${subPath}` : ''}:${path}${readOnly ? ':ro' : ''}`
    ),
  secrets: value =>
    (value as SecretUse[]).map(({ name, path, variables }) =>
      path || variables ? `${name}:${path || pairs(variables).join(',')}` : name
    )
};
