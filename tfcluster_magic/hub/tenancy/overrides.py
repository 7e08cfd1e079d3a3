"""Overrides: other limits for one user until a time. Pure.

An override is merged over the policy and over the groups of its user until it expires.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...errors import InvalidRequest, Problem, one_line
from ...i18n import _
from ...quota.limits import OverrideTerm
from ...quota.policy_file import InvalidPolicy
from ...spec import Model, conversion
from .entitlements import (
    Entitlement,
    Grant,
    HubPolicy,
    entitlement_for_groups,
)
from .policy import parse_policy

LONGEST = 366 * 86400.0
"""Maximum duration of an override, in seconds; a longer change belongs in the policy."""
MOST_REASON = 500
PARTS = ("quota", "storage", "budget")
_STORAGE = ("workspace", "data", "log")


class Override(Model, frozen=True, omit_defaults=False):
    """An override of one user. `until` and `at` are Unix seconds; `quota`, `storage` and `budget`
    have the same fields as in the policy.
    """

    until: float
    reason: str
    by: str = ""
    at: float = 0.0
    quota: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    budget: dict[str, Any] = {}


Overrides = Mapping[str, Override]
_KIND = dict[str, Override]


def read_overrides(text: str | bytes) -> dict[str, Override]:
    """Decode the overrides of a file or a ConfigMap; {} for an empty text. Raises ValueError."""
    return conversion.decode(text, _KIND) if text.strip() else {}


def encode_overrides(overrides: Overrides) -> bytes:
    """Encode overrides as JSON."""
    return msgspec.json.format(msgspec.json.encode(dict(sorted(overrides.items()))), indent=1)


def checked_override(override: Override, now: float) -> Override:
    """Check an override; return it with its reason on one line.

    Raises:
        InvalidRequest: the reason is missing or too long, the end is invalid, or the override sets
            nothing or a value that no policy may have.
    """
    wrong = []
    reason = one_line(" ".join(override.reason.split())).strip()
    if not reason or len(reason) > MOST_REASON:
        rule = _("give a reason of at most {most} characters; the user sees it")
        wrong.append(Problem("reason", override.reason, rule.format(most=MOST_REASON)))
    if not now < override.until <= now + LONGEST:
        rule = _("use a time within the next 366 days; put longer changes into the policy")
        wrong.append(Problem("until", override.until, rule))
    parts = _parts(override)
    if not parts:
        rule = _("set at least one field of quota, storage or budget")
        wrong.append(Problem("quota", None, rule))
    unknown = sorted(override.storage.keys() - set(_STORAGE))
    if unknown:
        rule = _("use {words}").format(words=", ".join(_STORAGE))
        wrong.append(Problem("storage", unknown[0], rule))
    try:
        parse_policy(json.dumps({"default": parts}))
    except InvalidPolicy as error:
        wrong += [
            Problem(each.field.removeprefix("default."), None, each.what) for each in error.mistakes
        ]
    if wrong:
        raise InvalidRequest(wrong, _("no override was set"))
    return msgspec.structs.replace(override, reason=reason)


def entitled(
    policy: HubPolicy, groups: Iterable[str], override: Override | None, now: float
) -> Entitlement:
    """Return the current entitlement of a member of these groups with this override."""
    found = entitlement_for_groups(policy, groups)
    if override is None or override.until <= now:
        return found
    below = msgspec.to_builtins(found.grant)
    above = _parts(override)
    merged = {**below, **{part: {**below.get(part, {}), **above[part]} for part in above}}
    try:
        grant = conversion.convert(merged, Grant)
    except msgspec.ValidationError:
        return found  # another release wrote the override, with other fields
    term = OverrideTerm(until=override.until, reason=override.reason)
    return Entitlement(grant, found.group, term)


def next_end(overrides: Overrides, now: float) -> float | None:
    """Return the time at which the next override expires, in Unix seconds; None if none will."""
    return min((each.until for each in overrides.values() if each.until > now), default=None)


def _parts(override: Override) -> dict[str, dict[str, Any]]:
    return {part: words for part in PARTS if (words := getattr(override, part))}
