"""Messages that tell a user why their notebook's pod does not start and what to do. Pure.

Kubernetes' messages are parsed by the code that parses them for tasks
(`kube.status.pod_problems`). The wording is for a user who chose a size and an image on a page
instead of typing options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...i18n import _, ngettext
from ...kube.api.decoding import condition, epoch_seconds
from ...kube.api.resource_amounts import pod_resources
from ...kube.status import pod_problems
from ...kube.status.pod_problems import (
    BY_ITSELF,
    BY_SOMEBODY,
    FOR_GOOD,
    GOES_ON,
    PodContext,
    PodProblem,
    ProblemRule,
    first_match,
)
from ...lifecycle import messages
from ...spec import Message

Object = Mapping[str, Any]
ENDED, PENDING = "Ended", "ClaimPending"
_NO_CLASS = re.compile(r'storageclass\S* "([^"]+)" not found')
_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" (?:not found|is being deleted)')
NEW_SECONDS = 20.0
"""Threshold: a claim younger than this many seconds counts as being created."""


class _NotebookRequest(PodContext):
    """The facts about a notebook's pod. Messages advise a size to choose on the page, not a
    command-line option.
    """

    def option(self, name: str, value: str) -> str:
        return _("a size with {value} of {name}").format(name=name, value=value)


@dataclass(frozen=True)
class StartupProblem:
    """A reason why a server waits. `text` has no full stop; `for_good` is True if waiting is
    useless.
    """

    text: str
    advice: str = ""
    for_good: bool = False
    reason: str = ""

    @property
    def waits(self) -> str:
        """The message while the server may still start."""
        return self._with(_("Your server is waiting: {why}."))

    @property
    def failed(self) -> str:
        """The message after the start failed; it ends with what to do."""
        return self._with(_("Your server did not start: {why}."))

    def _with(self, sentence: str) -> str:
        return f"{sentence.format(why=self.text)} {self.advice}".rstrip()


def problem_of_pod(
    pod: Object, events: Sequence[Object], claims: Mapping[str, Object], now: float
) -> StartupProblem | None:
    """Return why a pod waits; None if it starts normally. `claims` has the pod's claims by name;
    the key `said` of a claim has the newest message of its events. `now` is in Unix seconds.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    asked = _NotebookRequest(
        task_type="notebook",
        amounts=pod_resources(spec),
        selector=spec.get("nodeSelector") or {},
        claims=claims,
        image=spec["containers"][0].get("image", ""),
        pull_secrets=[each["name"] for each in spec.get("imagePullSecrets") or ()],
        node=spec.get("nodeName") or "",
    )
    if not asked.node:
        told = condition(dict(pod), "PodScheduled")
        if told.get("status") != "False":
            return None
        words = str(told.get("message", ""))
        if "unbound" in words or _was_remade(words, claims):
            return _unbound(claims, now)
        return _problem_of(pod_problems.unschedulable_problem(words, asked))
    for each in status.get("containerStatuses") or ():
        state = each.get("state") or {}
        if ended := state.get("terminated"):
            return _ended(ended)
        waits = state.get("waiting") or {}
        before = (each.get("lastState") or {}).get("terminated")
        if before and waits.get("reason") == "CrashLoopBackOff":
            return _ended(before)
        if clause := pod_problems.container_waiting_problem(
            waits.get("reason", ""), waits.get("message", ""), asked
        ):
            return _problem_of(clause)
        if "running" in state:
            return None
    later = [each for each in events if each.get("reason") != "FailedScheduling"]
    clause = pod_problems.event_problem(later, asked)
    return _problem_of(clause) if clause else None


def problem_of_refusal(words: str) -> StartupProblem:
    """Return why the API server refuses the pod: a quota, a limit, Pod Security or a missing
    service account.
    """
    asked = _NotebookRequest(task_type="notebook")
    body = re.sub(r"^pods \"[^\"]*\" is forbidden: ", "", words)
    return _problem_of(
        first_match(OWN, body, asked, pod_problems.FAILED_CREATE)
        or pod_problems.failed_create_problem(body, asked)
    )


def needs_claims(pod: Object) -> bool:
    """Return whether the pod's claims must be read to explain why it waits."""
    told = condition(dict(pod), "PodScheduled")
    words = str(told.get("message", ""))
    return told.get("status") == "False" and ("laim" in words or "ersistent" in words)


def events_of(found: Object, events: Sequence[Object]) -> list[Object]:
    """Return the events of this object, without those of an earlier object with the same name."""
    uid = found["metadata"]["uid"]
    return [each for each in events if each["involvedObject"].get("uid") == uid]


def newest_message(events: Sequence[Object]) -> str:
    """Return the message of the newest event; empty if there are no events."""
    return str(max(events, key=pod_problems.event_time)["message"]) if events else ""


def _was_remade(words: str, claims: Mapping[str, Object]) -> bool:
    """Return whether a missing claim exists again; the scheduler notices it only later."""
    missed = _NO_CLAIM.search(words)
    claim = claims.get(missed[1]) if missed else None
    return claim is not None and not claim["metadata"].get("deletionTimestamp")


def _unbound(claims: Mapping[str, Object], now: float) -> StartupProblem | None:
    """Return the problem of the claims without a volume; None if all claims have one."""
    waiting = {
        name: claim
        for name, claim in sorted(claims.items())
        if (claim.get("status") or {}).get("phase") != "Bound"
    }
    if not waiting:
        return None
    first_one, *others = waiting
    if told := _missing_class(waiting):
        return told
    born = [
        epoch_seconds(claim["metadata"].get("creationTimestamp")) or now
        for claim in waiting.values()
    ]
    if now - min(born) < NEW_SECONDS:
        text = _("its volumes are being created: {names}").format(names=", ".join(waiting))
        return StartupProblem(text, reason=PENDING)
    text = str(pod_problems.unbound_claim(waiting[first_one]))
    if others:
        text += _("; the same applies to {names}").format(names=", ".join(others))
    advice = "" if "administrator" in text else _("Ask the administrator.")
    return StartupProblem(text, advice, reason=PENDING)


def _missing_class(waiting: Mapping[str, Object]) -> StartupProblem | None:
    """Return the problem of claims whose storage class does not exist; None without such claims."""
    missing: dict[str, list[str]] = {}
    for name, claim in waiting.items():
        if found := _NO_CLASS.search(str(claim.get("said"))):
            missing.setdefault(found[1], []).append(name)
    if not missing:
        return None
    class_, names = min(missing.items())
    text = ngettext(
        "the claim {claims} requests the storage class {name}, which does not "
        "exist: an administrator has to create it, or to set another one in the "
        "hub's policy (storage.class)",
        "the claims {claims} request the storage class {name}, which does not "
        "exist: an administrator has to create it, or to set another one in the "
        "hub's policy (storage.class)",
        len(names),
    )
    return StartupProblem(text.format(claims=", ".join(names), name=class_), reason=PENDING)


def _ended(state: Object) -> StartupProblem:
    text = _("its program exited with code {code}").format(code=state.get("exitCode"))
    if state.get("reason") == "OOMKilled":
        text = _("its program was killed, because it used more memory than its size allows")
    advice = _("Choose another size or image. If it fails again, ask the administrator.")
    return StartupProblem(text, advice, True, state.get("reason") or ENDED)


def _problem_of(clause: PodProblem) -> StartupProblem:
    text = str(clause.text)
    if clause.reason == "NodeNotReady":
        advice = _("Try again: it starts on another node.")
        return StartupProblem(text, advice, True, clause.reason)
    advice = _advice(clause, messages.english_clause(clause.text))
    return StartupProblem(text, advice, clause.rank == FOR_GOOD, clause.reason)


def _advice(clause: PodProblem, words: str) -> str:
    if clause.rank == GOES_ON:
        return ""
    if "Image" in clause.reason or clause.reason == "RegistryUnavailable":
        return _("Choose another image, or ask the administrator.")
    if clause.reason == pod_problems.UNSCHEDULABLE and "claim" not in words:
        told = "administrator" in words
        return "" if told else _("Choose a smaller size, or try again later.")
    if clause.reason == pod_problems.FAILED_CREATE and clause.rank == BY_ITSELF:
        return _("Choose a smaller size, or stop what uses the quota.")
    if clause.reason == pod_problems.FAILED_CREATE and "size" in words:
        return _("Choose another size.")
    return _("Ask the administrator.")


OWN: tuple[ProblemRule, ...] = (
    (
        r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)",
        BY_ITSELF,
        lambda m, _a: Message(
            "NotebookQuotaUsedUp",
            {
                "name": m.group(1),
                "requested": m.group(2),
                "used": _values(m.group(3)),
                "limited": m.group(4),
            },
        ),
    ),
    (
        r"(?:denied request|ValidatingAdmissionPolicy '([^']+)'): (.*)",
        BY_SOMEBODY,
        lambda m, _a: Message("ClusterRulesRefused", {"why": m.group(2)}),
    ),
)


def _values(pairs: str) -> str:
    return ", ".join(part.partition("=")[2] for part in pairs.split(","))
