"""Recorded decisions: what a run saw and decided, as JSON lines that replay without a cluster.

A recording is one `Header`, then one `Step` for each decision that changed something. Backends
write them (`tests/replay/` holds some of real runs); `replay` decides each step again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ...lifecycle import Decision, Observation, decide
from ...spec import Model, Spec, Status, Stop


class Header(Model, frozen=True):
    """What a recording starts from."""

    name: str
    spec: Spec
    status: Status


class Step(Model, frozen=True):
    """One decision: at `now` (epoch seconds), with `stop` as asked for by then, from `seen`."""

    now: float
    seen: Observation
    decision: Decision
    stop: Stop | None = None


def encode(entry: Header | Step) -> bytes:
    """One line of a recording."""
    return msgspec.json.encode(entry) + b"\n"


def replay(lines: Iterable[bytes]) -> Iterator[tuple[Step, Decision]]:
    """Each recorded step with the decision of today. Raises msgspec errors on foreign lines."""
    source = iter(lines)
    header = msgspec.json.decode(next(source), type=Header)
    status = header.status
    for line in source:
        step = msgspec.json.decode(line, type=Step)
        spec = msgspec.structs.replace(header.spec, stop=step.stop)
        today = decide(spec, header.name, status, step.seen, step.now)
        yield step, today
        status = step.decision.status
