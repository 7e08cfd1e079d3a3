"""Schedules of a Kubernetes cluster as rows of the console, and how an administrator suspends one.

Only accounts with the right `lock` on TFClusterSchedules, such as the console's, can set or lift a
suspension with `locked` (see `tfcluster-schedule-locks` in k8s/base).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ....kube.api.client import Object
from ....kube.objects import schedule_resource
from ....schedules import Pause
from . import kubernetes_runs
from .base import SiteSchedule, current_schedule, schedule_row

RESOURCE = "tfclusterschedules"
NOT_SUSPENDED: Object = {"spec": {"suspend": None, "suspension": None}}
"""The merge patch that resumes a schedule."""


def trim_schedule(found: Object, known: Object | None, now: float) -> Object:
    """Return a TFClusterSchedule for the cache, with a table row in place of its content; `known`
    is the schedule's previous state in the cache, if any.
    """
    trimmed = schedule_resource.trim(found, known)
    read = schedule_resource.read(schedule_resource.whole(trimmed), now)
    problem = schedule_resource.PROBLEM
    kept = {"metadata": trimmed["metadata"], problem: trimmed[problem]}
    return {**kept, "row": schedule_row(read, now)}


def schedule_rows(
    schedules: Iterable[Object], users: Mapping[str, str], now: float
) -> tuple[SiteSchedule, ...]:
    """Return a row for each schedule, with its owner."""
    return tuple(
        replace(
            current_schedule(each["row"], now),
            owner=kubernetes_runs.owner_of(users, each["metadata"]["namespace"]),
        )
        for each in schedules
    )


def pause_of(found: Object) -> Pause | None:
    """Return the suspension in the spec of a schedule; None if there is none."""
    spec, _problems = schedule_resource.read_spec(found)
    if not spec.suspend:
        return None
    said = spec.suspension or schedule_resource.Suspension()
    return Pause(at=said.at or 0.0, by=said.by, reason=said.reason, locked=said.locked)


def suspended(pause: Pause) -> Object:
    """Return the merge patch that suspends a schedule."""
    told = schedule_resource.suspension_of(pause)
    return {"spec": {"suspend": True, "suspension": told}}
