"""What a turn asks others: whether a run may begin, and why tasks are not up yet.

Owns the two questions and their answers, nothing else. `admission` and `explaining` answer them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import Problem
from ..lifecycle import Why
from ..spec import TaskType, TFCluster

Object = dict[str, Any]


@dataclass(frozen=True)
class Admitted:
    """The run may begin; its room is reserved."""


@dataclass(frozen=True)
class Waiting:
    """The run may begin later: what it waits for, and its place in the queue (1 is next)."""

    sentence: str
    place: int = 1


@dataclass(frozen=True)
class Refused:
    """The run can never begin: every problem at once."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Submitted:
    """Its tasks may be made; it begins when a scheduler has room for all of them."""


Verdict = Admitted | Waiting | Refused | Submitted


@dataclass(frozen=True)
class Sight:
    """A run as a turn sees it: the record, its pods, its Jobs by task type, its PodGroup."""

    cluster: TFCluster
    pods: Sequence[Object]
    jobs: Mapping[TaskType, Object]
    group: Object | None = None


@dataclass(frozen=True)
class OfGroup:
    """What is told of the PodGroup of a run that waits: its events, and the state of its queue."""

    events: Sequence[Object] = ()
    queue: str = ""


class Admission(Protocol):
    """Decides on runs that are Queued; asked again on every turn until it says Admitted."""

    def decide(self, cluster: TFCluster) -> Verdict:
        """Whether this run may begin now."""


class Explainer(Protocol):
    """Says why tasks are not up; asked once a second at most while some are not."""

    def why(self, sight: Sight) -> tuple[Why, ...]:
        """What keeps tasks from running, most telling first; empty when nothing is known."""

    def of_group(self, sight: Sight) -> OfGroup:
        """What is told of its PodGroup, as it was read for the last `why`."""

    def forget(self, key: tuple[str, str]) -> None:
        """The run of this namespace and name needs no more explaining."""
