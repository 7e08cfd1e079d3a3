"""Why a pod that has a node does not run: its container's state and its events as clauses. Pure.

Promises which image, claim or secret it is and what to do about it.
Ref: https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...i18n import _
from .said import (
    BY_ITSELF,
    BY_SOMEBODY,
    FOR_GOOD,
    GOES_ON,
    Asked,
    Clause,
    Object,
    Rule,
    first,
    kubernetes_says,
    shortened,
)

ON_ITS_WAY = {"ContainerCreating", "PodInitializing", ""}
_ITS_OWN = re.compile(
    r"executable file|\bexec:? \"?[^ :]+: |chdir to cwd|unable to find user|not a directory"
    r"|init was OOM-killed"
)
_FOR_NOW = re.compile(r"resource temporarily unavailable|text file busy|cannot allocate memory")
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: \w+: )?')


def is_its_own(words: str) -> bool:
    """Whether a container runtime refused a container for what its image or spec says: another
    node or another try would say the same.
    """
    return bool(_ITS_OWN.search(words)) and not _FOR_NOW.search(words)


def of_state(reason: str, words: str, asked: Asked) -> Clause | None:
    """The clause of a container that waits; None while it may only need a moment."""
    if reason in ON_ITS_WAY:
        return None
    if "Image" in reason or reason == "RegistryUnavailable":
        body = _BACK_OFF.sub("", words)
        return first(IMAGES, f"{reason}: {body}", asked, reason) or Clause(
            BY_SOMEBODY,
            _("the image {image} cannot be fetched: {why}").format(
                image=asked.image, why=shortened(body) or reason
            ),
            reason,
        )
    return first(STATES, words, asked, reason) or Clause(
        BY_SOMEBODY, kubernetes_says(f"{reason}: {words}"), reason
    )


def of_events(events: Sequence[Object], asked: Asked) -> Clause | None:
    """What the newest telling event of a pod says; None when none is."""
    for event in sorted(events, key=when, reverse=True):
        reason, words = event.get("reason", ""), event.get("message", "")
        if event.get("type") == "Warning" and reason != "Failed":
            told = first(EVENTS, words, asked, reason)
            return told or Clause(BY_SOMEBODY, kubernetes_says(words), reason)
        if reason == "Pulling":
            text = _("its image {image} is being fetched").format(image=asked.image)
            return Clause(GOES_ON, text, reason)
        if reason in ("Pulled", "Created", "Started"):
            return None
    return None


def tell_of_claims(events: Sequence[Object]) -> bool:
    """Whether what happened to a pod is about how a claim may be used."""
    return any("Multi-Attach" in event.get("message", "") for event in events)


def when(event: Object) -> str:
    """When an event happened last; times of the API sort as text."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or ""
    )


def _private(_found: re.Match[str], asked: Asked) -> str:
    if asked.pull_secrets:
        return _(
            "the registry does not give the image {image} to whom the secret {secrets} names: "
            "check that the secret exists and its user and password"
        ).format(image=asked.image, secrets=", ".join(asked.pull_secrets))
    return _(
        "the image {image} is private: name a secret that opens it with --image-pull-secret"
    ).format(image=asked.image)


IMAGES: tuple[Rule, ...] = (
    (
        r"InvalidImageName",
        FOR_GOOD,
        lambda _m, a: _("{image!r} is no name of an image").format(image=a.image),
    ),
    (
        r"ErrImageNeverPull",
        FOR_GOOD,
        lambda _m, a: _("the node has no image {image} and may not fetch it").format(image=a.image),
    ),
    (
        r"401|403 Forbidden|[Uu]nauthorized|pull access denied|authentication required|denied:",
        FOR_GOOD,
        _private,
    ),
    (
        r"no match for platform",
        FOR_GOOD,
        lambda _m, a: _("the image {image} is not made for this node's processor").format(
            image=a.image
        ),
    ),
    (
        r"no space left on device",
        BY_SOMEBODY,
        lambda _m, a: _("the node's disk is full: the image {image} has no room").format(
            image=a.image
        ),
    ),
    (
        r"not found|manifest unknown|NotFound",
        FOR_GOOD,
        lambda _m, a: _("there is no image {image}: check its name and tag").format(image=a.image),
    ),
    (
        r"no such host|lookup (\S+)|dial tcp|i/o timeout|connection refused|x509|TLS",
        BY_SOMEBODY,
        lambda m, a: _("the node does not reach the registry of the image {image}: {why}").format(
            image=a.image, why=shortened(m.string[m.start() :])
        ),
    ),
)
STATES: tuple[Rule, ...] = (
    (
        r'(secret|configmap) "([^"]+)" not found',
        FOR_GOOD,
        lambda m, _a: _("there is no {kind} {name} in this namespace").format(
            kind=m.group(1), name=m.group(2)
        ),
    ),
    (
        r"couldn't find key (\S+) in (\w+) (\S+)",
        FOR_GOOD,
        lambda m, _a: _("the {kind} {name} has no key {key}").format(
            key=m.group(1), kind=m.group(2).lower(), name=m.group(3).rpartition("/")[2]
        ),
    ),
    (
        r'exec: "([^"]+)": (?:executable file not found|stat|no such file)',
        FOR_GOOD,
        lambda m, a: _("its image {image} has no {command}").format(
            image=a.image, command=m.group(1)
        ),
    ),
    (
        r"image has non-numeric user|container has runAsNonRoot",
        FOR_GOOD,
        lambda _m, a: _("the image {image} would run as root").format(image=a.image),
    ),
)
EVENTS: tuple[Rule, ...] = (
    (
        r"Multi-Attach error",
        BY_SOMEBODY,
        lambda _m, a: _(
            "its claim {claims} is in use on another node and serves one node at a time "
            "(ReadWriteOnce): use a claim that is ReadWriteMany"
        ).format(claims=", ".join(_once(a)) or _("(unnamed)")),
    ),
    (
        r"[Uu]nable to retrieve some image pull secrets \(([^)]*)\)",
        FOR_GOOD,
        lambda m, _a: _("there is no secret {name} in this namespace").format(name=m.group(1)),
    ),
    *STATES,
    (
        r"driver name (\S+) not found in the list of registered CSI drivers",
        BY_SOMEBODY,
        lambda m, _a: _(
            "its node has no driver {driver}, which mounts its volume: ask the administrator"
        ).format(driver=m.group(1)),
    ),
    (
        r"volume \"?([\w.-]+)\"?.*?: (.*)",
        BY_SOMEBODY,
        lambda m, _a: _("its volume {volume} cannot be mounted: {why}").format(
            volume=m.group(1), why=shortened(m.group(2))
        ),
    ),
    (
        r"[Ff]ailed to create pod sandbox",
        BY_ITSELF,
        lambda m, _a: _("its node cannot make its network yet: {why}").format(
            why=shortened(m.string.rpartition(": ")[2])
        ),
    ),
    (
        r"[Nn]ode is not ready|NodeNotReady",
        BY_SOMEBODY,
        lambda _m, a: _("its node {node} does not answer").format(node=a.node),
    ),
)


def _once(asked: Asked) -> list[str]:
    """The claims that one node at a time may use; all when none is known to be such."""
    modes = {n: (c.get("spec") or {}).get("accessModes") or () for n, c in asked.claims.items()}
    return [n for n, m in modes.items() if "ReadWriteOnce" in m] or sorted(asked.claims)
