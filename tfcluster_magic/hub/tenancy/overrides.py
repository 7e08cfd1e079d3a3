"""Overrides: what one user may have for a time, whatever their groups say. Pure.

Promises that an override lies over what the user's group gives word by word, counts until its time
and not a moment longer, and says by whom and why it was made. `entitled` is the one function that
says what a user may have; who applies it (tenancy, the hub of this machine) asks nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...quota.limits import Limits, Quota, Term
from ...spec import Model
from ...terminal_text import clean
from .grants import Entitlement, Grant, Policy, for_groups
from .policy import PolicyMistake, parse

LONGEST = 366 * 86400.0
"""Seconds from now that an override may count at most: what is for longer belongs in the policy."""
MOST_REASON = 500
PARTS = ("quota", "storage", "budget")
_STORAGE = ("workspace", "data", "log")


class Override(Model, frozen=True, omit_defaults=False):
    """One user's; `until` and `at` are Unix seconds, the parts have words as in the policy."""

    until: float
    reason: str
    by: str = ""
    at: float = 0.0
    quota: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    budget: dict[str, Any] = {}


Overrides = Mapping[str, Override]
_KIND = dict[str, Override]


def read(text: str | bytes) -> dict[str, Override]:
    """The overrides of a file or a ConfigMap; of nothing none. Raises ValueError."""
    return msgspec.json.decode(text, type=_KIND) if text.strip() else {}


def written(overrides: Overrides) -> bytes:
    """The same as text."""
    return msgspec.json.format(msgspec.json.encode(dict(sorted(overrides.items()))), indent=1)


def checked(override: Override, now: float) -> Override:
    """The same, its reason on one line.

    Raises:
        InvalidRequest: it says nothing, or what no policy could say, or for no time.
    """
    wrong = []
    reason = clean(" ".join(override.reason.split())).strip()
    if not reason or len(reason) > MOST_REASON:
        rule = _("say why, in at most {most} characters: the user reads it")
        wrong.append(Problem("reason", override.reason, rule.format(most=MOST_REASON)))
    if not now < override.until <= now + LONGEST:
        rule = _("a time within the next 366 days; what is for longer belongs in the policy")
        wrong.append(Problem("until", override.until, rule))
    parts = _parts(override)
    if not parts:
        rule = _("say what is allowed: words of quota, storage or budget")
        wrong.append(Problem("quota", None, rule))
    unknown = sorted(override.storage.keys() - set(_STORAGE))
    if unknown:
        rule = _("use {words}").format(words=", ".join(_STORAGE))
        wrong.append(Problem("storage", unknown[0], rule))
    try:
        parse(json.dumps({"default": parts}))
    except PolicyMistake as mistake:
        field, _colon, why = mistake.what.removeprefix("default.").partition(": ")
        wrong.append(Problem(field, None, why or field))
    if wrong:
        raise InvalidRequest(wrong, _("nothing was overridden"))
    return msgspec.structs.replace(override, reason=reason)


def entitled(
    policy: Policy, groups: Iterable[str], override: Override | None, now: float
) -> Entitlement:
    """What a member of these groups with this override may have now."""
    found = for_groups(policy, groups)
    if override is None or override.until <= now:
        return found
    below = msgspec.to_builtins(found.grant)
    above = _parts(override)
    merged = {**below, **{part: {**below.get(part, {}), **above[part]} for part in above}}
    try:
        grant = msgspec.convert(merged, Grant)
    except msgspec.ValidationError:
        return found  # of another release, which had other words
    term = Term(until=override.until, reason=override.reason)
    return Entitlement(grant, found.group, term)


def ends(overrides: Overrides, now: float) -> float | None:
    """When the next of them ends; None: none will."""
    return min((each.until for each in overrides.values() if each.until > now), default=None)


def limits(entitlement: Entitlement) -> Limits:
    """What a notebook of this machine is told."""
    grant = entitlement.grant
    quota = grant.quota
    return Limits(
        group=entitlement.group,
        quota=Quota(cpu=quota.cpu, memory=quota.memory, gpu=quota.gpu, pods=quota.pods),
        budget=_said(grant, "budget"),
        storage={name: size for name, size in grant.storage.said.items() if size is not None},
        override=entitlement.override,
    )


def _said(grant: Grant, part: str) -> dict[str, Any]:
    found = msgspec.to_builtins(getattr(grant, part, None))
    return found if isinstance(found, dict) else {}


def _parts(override: Override) -> dict[str, dict[str, Any]]:
    return {part: words for part in PARTS if (words := getattr(override, part))}
