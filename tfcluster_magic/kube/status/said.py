"""What Kubernetes says of a pod that does not run, as a clause for people. Pure.

Owns the form that the tables of `unscheduled`, `refused` and `unstarted` share: a pattern over
Kubernetes' words, how telling it is, and the clause. Words that no table knows are shortened and
passed on, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...i18n import _
from ..api.amounts import Amounts

Object = Mapping[str, Any]

MOST_WORDS = 300
FOR_GOOD, BY_SOMEBODY, BY_ITSELF, GOES_ON = range(4)
"""How telling: it never starts like this; somebody has to act; it waits for room; it is on its way.
"""
_TIDIED = re.compile(
    r"rpc error: code = \w+ desc = |failed to create (?:containerd|shim) task: |"
    r"OCI runtime create failed: |runc create failed: |: unknown$"
)


@dataclass(frozen=True)
class Asked:
    """What the sentence is about: a task type, what one such task asks for, and where."""

    task_type: str = "worker"
    amounts: Amounts = field(default_factory=dict)
    nodes: Sequence[Amounts] = ()
    """What each node has in all for pods."""
    free: Sequence[Amounts] | None = None
    """What each has left, where that is known."""
    selector: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, Object] = field(default_factory=dict)
    """The claims of the pod that are known, by name."""
    image: str = ""
    pull_secrets: Sequence[str] = ()
    node: str = ""

    def option(self, name: str, value: str) -> str:
        """`--worker-cpu 2`."""
        return f"--{self.task_type}-{name} {value}".rstrip()


@dataclass(frozen=True)
class Clause:
    """Why, without whom it concerns and without a full stop; `reason` is Kubernetes' own word."""

    rank: int
    text: str
    reason: str = ""


Rule = tuple[str, int, Callable[[re.Match[str], Asked], str]]


def first(rules: Sequence[Rule], words: str, asked: Asked, reason: str) -> Clause | None:
    """The clause of the first rule whose pattern is in the words."""
    for pattern, rank, clause in rules:
        if match := re.search(pattern, words):
            return Clause(rank, clause(match, asked), reason)
    return None


def kubernetes_says(words: str) -> str:
    """Words that no rule knows."""
    return _("Kubernetes says: {words}").format(words=shortened(words))


def shortened(words: str) -> str:
    """Kubernetes' words in one line, without the names of its layers."""
    line = _TIDIED.sub("", " ".join(words.split()))
    return (line[: MOST_WORDS - 1] + "…" if len(line) > MOST_WORDS else line).rstrip(".")
