"""One run, turn by turn: look, decide, write, act.

Promises that what is written comes before what is done, so that an operator which is killed between
the two finds in the record what it was about to do; that an error leaves the record as it was; and
that a turn too many changes nothing. The queue never gives one run to two workers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...errors import InvalidRequest
from ...i18n import _
from ...kube.api.client import Object
from ...kube.api.gone import is_deleted
from ...kube.capacity.policy_check import bounded
from ...kube.objects import custom_resource, pod_files
from ...kube.status.observe import Crew
from ...lifecycle import Decision, Observation, decide
from ...spec import Phase, Reason, Status, TaskType
from .. import belongings
from ..belongings import Sight
from ..caches import Key
from ..scheduling.admission import Admitted, Refused, Submitted, Verdict, Waiting
from . import status_rules, vanished
from .actions import Deeds
from .context import World
from .creation import Maker, still_there
from .status_writer import Writer

LOOK_AGAIN = 60.0
"""Seconds after which an active run is looked at although nothing happened."""
TRY_AGAIN = 5.0
"""The same while the API does not take what is wanted of a Job."""
ASK_AGAIN = 1.0
"""The same while tasks are not up, or something is in the way: why may have become known."""

log = logging.getLogger(__name__)


class Run:
    """What is remembered of one TFCluster between its turns; nothing that a restart needs."""

    def __init__(self, context: World, found: Object) -> None:
        """Read it. Raises InvalidRequest when it is none that a run may have."""
        cluster = bounded(custom_resource.read(found), context.policy)
        self._context = context
        self.uid = cluster.metadata.uid
        self._cluster = cluster
        self._version = _version(found)
        self._status: Status = cluster.status
        if "paths" not in (found.get("status") or {}):
            output = pod_files.output_dir(cluster.metadata, context.policy)
            self._status = replace(cluster.status, paths={"output": output, "logs": output})
        self._task_group = Crew(cluster.spec)
        was_up, had_pods = self._status.running_at is not None, status_rules.had_pods(self._status)
        self._creator = Maker(context.api, context.policy_of, was_up, had_pods)
        self._actions = Deeds(context, self._task_group, self._creator)
        self._writer = Writer(context.api, found, context.metrics, context.write_limit)
        self._seen: set[TaskType] = set()
        """The types whose Jobs this process has seen."""
        self._unseen_success = False

    @property
    def key(self) -> Key:
        """Where it is: namespace and name."""
        return self._cluster.metadata.owner, self._cluster.metadata.name

    def reconcile(self, found: Object) -> float | None:
        """One turn; seconds until the next is due, None when nothing is left to do.

        Raises:
            ApiError: the API did not take or answer something: the turn has to be taken again.
            Overtaken: somebody else wrote the status; forget this object.
        """
        self._refresh(found)
        if self._status.released_at is not None:
            return None  # the cache will show it
        now = self._context.clock()
        observed = self._observed_run()
        verdict = self._verdict(observed)
        if isinstance(verdict, Refused):
            self._end(now, str(InvalidRequest(verdict.problems)))
            return 0.0
        gone = self._lost_types(observed)
        done = self._completed(gone, now)
        if lost := vanished.lost(self._cluster, gone, done, self._seen):
            self._end(now, lost, Reason.DISRUPTED, released=False)
            return 0.0
        seen = self._observe(observed, done, verdict, now)
        decision = self._decide(seen, now)
        status = self._with_obstacles(decision)
        later = self._writer.write(status, self._status)
        if self._status.phase is not status.phase:
            log.info("%s/%s: %s. %s", *self.key, status.phase.value, status.message)
        self._status = decision.status
        obstacle = self._actions.obstacle
        if ending := self._actions.apply(self._cluster, decision, seen, observed):
            self._end(self._context.clock(), ending.words, released=ending.released)
        if self._actions.obstacle != obstacle:
            return 0.0  # to say so
        due = (later, self._seconds_to_next(decision, now), self._actions.service_due)
        return min((each for each in due if each is not None), default=None)

    # -- looking -----------------------------------------------------------------------------------

    def _refresh(self, found: Object) -> None:
        self._writer.refresh(found)
        if _version(found) != self._version:
            changed = bounded(custom_resource.read(found), self._context.policy)
            self._cluster = replace(self._cluster, spec=changed.spec)
            self._version = _version(found)

    def _observed_run(self) -> Sight:
        own = belongings.of_run(self._context.caches, self.key, self.uid)
        told = self._status.warnings
        new = [w for w in map(belongings.warning, own.strangers) if w not in told]
        for words in new:
            log.warning("%s/%s: %s", *self.key, words)
        self._status = replace(self._status, warnings=(*told, *new))
        jobs = {t: job for t, job in own.jobs.items() if not self._creator.has_retired(job)}
        cluster = replace(self._cluster, status=self._status)
        return Sight(cluster, own.pods, jobs, self._context.pod_groups.of(cluster))

    def _verdict(self, observed: Sight) -> Verdict | None:
        """Whether it may begin, asked once a turn; None when that is no question any more."""
        if self._status.phase is not Phase.QUEUED or self._cluster.spec.stop is not None:
            return None
        if observed.jobs:
            # Its tasks are made, to be bound together: the first that is tells of all.
            bound = any(pod["spec"].get("nodeName") for pod in observed.pods)
            return Admitted() if bound else Submitted()
        return self._context.admission.decide(observed.cluster)

    def _observe(
        self, observed: Sight, done: Mapping[TaskType, Object], verdict: Verdict | None, now: float
    ) -> Observation:
        away = self._context.caches.lost_nodes()
        jobs = {**observed.jobs, **done}
        seen = self._task_group.observe(self._status, observed.pods, jobs, now, away)
        ends = self._cluster.spec.stop is not None or not self._status.phase.is_active
        jobs, names = self._actions.newest(jobs), status_rules.met(self._status, seen)
        seen = replace(seen, may_come=self._creator.may_come(self._cluster, names, jobs, asks=ends))
        if verdict is None:
            return self._with_diagnosis(seen, observed)
        if isinstance(verdict, Submitted):
            return self._submitted(seen, observed)
        waits = status_rules.waiting(verdict) if isinstance(verdict, Waiting) else ""
        reason = self._earlier_run() or waits
        return replace(seen, admitted=not reason, waiting_for=reason)

    def _submitted(self, seen: Observation, observed: Sight) -> Observation:
        """One whose tasks wait to be bound together, with what is said of that."""
        earlier = self._earlier_run()
        explainer, pod_groups = self._context.explainer, self._context.pod_groups
        why = explainer.why(observed)
        told = pod_groups.waits_for(observed, why, explainer.pod_group_events(observed))
        waits = earlier or self._uncreated() or told
        return replace(seen, admitted=False, submitted=not earlier, waiting_for=waits, why=why)

    def _uncreated(self) -> str:
        """What it waits for whose objects are not taken."""
        if self._actions.queue_problem or not self._actions.obstacle:
            return self._actions.queue_problem
        return _("its objects to be made: {why}").format(why=self._actions.obstacle)

    def _with_diagnosis(self, seen: Observation, observed: Sight) -> Observation:
        """With why tasks are not up, as far as that is known."""
        explainer = self._context.explainer
        if not status_rules.misses_tasks(self._status):
            explainer.forget(self.key)
            return seen
        if status_rules.all_up(self._cluster.spec, self._status, seen):
            return seen
        return replace(seen, why=explainer.why(observed))

    def _lost_types(self, observed: Sight) -> list[TaskType]:
        """The types whose Jobs are gone; nobody makes one a second time."""
        self._seen.update(observed.jobs)
        if not self._status.phase.is_active or self._version[1]:
            return []  # Jobs may go before their record when it is deleted
        return self._creator.missing_types(self._cluster, observed.jobs)

    def _completed(self, gone: Sequence[TaskType], now: float) -> dict[TaskType, Object]:
        """Those of them whose tasks have all succeeded."""
        unseen = 0.0 if self._seen.intersection(gone) else self._context.unwatched()
        found = vanished.done(self._cluster, self._status, gone, unseen=unseen, now=now)
        known = vanished.done(self._cluster, self._status, gone, unseen=0.0, now=now)
        self._unseen_success = found.keys() != known.keys()
        return found

    def _earlier_run(self) -> str:
        """What an earlier run of the same name still has; it is waited for, never adopted."""
        for kind, each in belongings.of_others(self._context.caches, self.key, self.uid):
            return still_there(kind, each["metadata"]["name"])
        return ""

    # -- deciding ----------------------------------------------------------------------------------

    def _decide(self, seen: Observation, now: float) -> Decision:
        name, spec = self._cluster.metadata.name, self._cluster.spec
        status = self._status
        ended = status_rules.success_at(self._cluster, status, seen, now)
        if ended is not None:
            # The run was over when its last task ended, whenever we got to see that.
            status = decide(spec, name, status, seen, ended).status
        return decide(spec, name, status, seen, now)

    def _with_obstacles(self, decision: Decision) -> Status:
        """The status for people: with what is in the way of making or ending its tasks."""
        whole = status_rules.is_as_wanted(decision.status) and not self._actions.lacks_service
        if self._actions.obstacle and not whole:
            return status_rules.explained(decision.status, [self._actions.obstacle])
        if self._unseen_success and decision.status.phase is Phase.SUCCEEDED:
            return status_rules.explained(decision.status, [vanished.unseen_success()])
        return decision.status

    def _end(
        self,
        now: float,
        message: str,
        reason: Reason = Reason.START_FAILED,
        *,
        released: bool = True,
    ) -> None:
        status = status_rules.failed(self._status, reason, message, now, released=released)
        self._writer.write(status, self._status)
        self._status = status

    # -- going on ----------------------------------------------------------------------------------

    def _seconds_to_next(self, decision: Decision, now: float) -> float | None:
        if decision.done:
            return 0.0
        times = [LOOK_AGAIN]
        if decision.wake_at is not None:
            times.append(decision.wake_at - now)
        status = decision.status
        queued = status.phase is Phase.QUEUED
        waits = queued or status_rules.misses_tasks(status) or decision.start
        obstructed = bool(self._actions.obstacle)
        if waits and not (queued and obstructed):
            times.append(ASK_AGAIN)
        elif obstructed:
            times.append(TRY_AGAIN)
        return min(times)


def _version(found: Object) -> tuple[object, bool]:
    """Return a value that changes when the spec has to be read again."""
    return found["metadata"].get("generation"), is_deleted(found)


def is_over(found: Object) -> bool:
    """Whether a run has ended and given everything back."""
    status = found.get("status") or {}
    final: Sequence[str] = [phase.value for phase in Phase if phase.is_final]
    return status.get("phase") in final and status.get("releasedAt") is not None
