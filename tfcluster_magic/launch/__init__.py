"""Launches: from user input to a validated request, the same for every backend."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..spec import Message, ScheduledRun, Spec


@dataclass(frozen=True)
class LaunchRequest:
    """A request to a backend for a launch; its spec is validated.

    `cluster` is the chosen name. `name_given` says that the user chose it, so a name in use is
    refused; a derived one gets the next free letter instead (`train`, `train-b`, ...). `inferred`
    says what of the spec was inferred from the program. A launch of a schedule is `scheduled` and
    has its number, `run`: a run of that number and due time is the same launch, not made again.
    """

    cluster: str
    spec: Spec
    name_given: bool = True
    owner: str = ""
    warnings: tuple[str, ...] = field(default=())
    inferred: tuple[Message, ...] = field(default=())
    run: int | None = None
    scheduled: ScheduledRun | None = None
