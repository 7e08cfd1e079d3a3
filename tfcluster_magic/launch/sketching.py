"""A launch while a person still fills in a form: what is wrong so far, and what could be started.

Promises an answer for any words, with all problems at once, and that nothing is fetched and nothing
stays of it. The rules are those of `planning.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ..errors import InvalidRequest, Problem
from ..i18n import _
from ..quota.preflight import Preflight
from ..spec import Mode, Spec, TFCluster
from . import validation
from .planning import Draft, Source, of_source, stand_in
from .values import Wish, wish


class Target(Protocol):
    """Where a launch would run, as far as a dry run asks; every backend is one."""

    def preflight(self, spec: Spec) -> Preflight:
        """Return everything that stands against `spec` now. Creates nothing."""

    def list(self) -> list[TFCluster]:
        """Return all runs that have a record."""


@dataclass(frozen=True)
class Sketch:
    """A launch that is still being thought of, with all that is wrong so far.

    `name` is the given one, or what it would be called. `spec` is None when not even its size is
    known; a program that cannot be read has a stand-in. `told`: see `Preflight`.
    """

    name: str | None
    given: bool
    spec: Spec | None
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    told: tuple[str, ...] = ()

    def placed(self, target: Target) -> Sketch:
        """The same with what stands against it where it would run."""
        verdict = Preflight() if self.spec is None else target.preflight(self.spec)
        known = target.list() if self.given else []
        taken = [_taken(c) for c in known if c.active and c.metadata.cluster == self.name]
        problems = (*self.problems, *taken, *verdict.problems)
        warnings = (*self.warnings, *verdict.warnings)
        return replace(self, problems=problems, warnings=warnings, told=verdict.told)


def sketch(
    workspace: Path,
    program: str | None = None,
    arguments: Sequence[str] = (),
    *,
    cell: str | None = None,
    name: str | None = None,
    sha256: str | None = None,
    folder: Path | None = None,
    **options: object,
) -> Sketch:
    """Return a launch as far as it is filled in, with the options of `request_launch`.

    Asks no URL.
    """
    source = Source(workspace, program, cell, sha256, arguments, folder, fetch=False)
    draft, given = Draft(wish(options)), name is not None
    try:
        made = of_source(draft, source, name)
    except InvalidRequest as error:
        return Sketch(name, given, _outlined(draft.values), error.problems, tuple(draft.warnings))
    return Sketch(made.cluster, given, made.spec, (), made.warnings)


def _outlined(values: Wish) -> Spec | None:
    """Return the spec, with a stand-in for a missing program; None when it is wrong."""
    spec = dict(values.spec)
    if spec.get("program") is None and spec.get("mode") != Mode.IN_GRAPH.value:
        spec["program"] = stand_in("")
    try:
        return validation.validate(spec)
    except InvalidRequest:
        return None


def _taken(run: TFCluster) -> Problem:
    name, phase = run.metadata.name, run.status.phase.value.lower()
    allowed = _(
        "{name} is still {phase}: "
        "choose another name, or end it first with `tfcluster stop {wanted}`"
    ).format(name=name, phase=phase, wanted=run.metadata.cluster)
    return Problem("--name", run.metadata.cluster, allowed)
