"""The reconciliation of one run: observe, decide, write, act.

The status is written before the action. So if the operator is killed between the two, the record
says what it was about to do. An error leaves the record unchanged, and an extra turn changes
nothing. The work queue never gives one run to two workers at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...errors import InvalidRequest
from ...kube.api.client import Object, is_deleted
from ...kube.objects import custom_resource, pod_template
from ...kube.status.run_observer import RunObserver
from ...launch_checks.policy_check import with_capped_durations
from ...lifecycle import Decision, Observation, decide, waits_for_runs
from ...lifecycle.dependencies import open_dependencies
from ...spec import Message, Phase, Reason, Status, TaskType
from .. import cluster_state
from ..cluster_state import Key, ObservedRun
from ..scheduling.admission import Admitted, Held, LeftToGangScheduler, Refused, Verdict, Waiting
from ..scheduling.launch_queue import awaited_names
from . import job_control, status_rules
from .actions import ReconcileContext, RunActions
from .object_creation import ObjectCreator, earlier_object_message
from .status_writer import StatusWriter

LOOK_AGAIN = 60.0
"""Seconds between turns of an active run without changes."""
TRY_AGAIN = 5.0
"""Seconds between turns while the API refuses a change of a Job."""
ASK_AGAIN = 1.0
"""Seconds between turns while tasks are not up or an obstacle exists. The turns are frequent
because the reason may become known at any time.
"""

log = logging.getLogger(__name__)


class RunReconciler:
    """The reconciler of one TFCluster, with the state between turns. This state need not survive a
    restart.
    """

    def __init__(self, context: ReconcileContext, found: Object) -> None:
        """Read the run from the record `found`. Raises InvalidRequest if it is not valid."""
        cluster = with_capped_durations(custom_resource.read(found), context.policy)
        self._context = context
        self.uid = cluster.metadata.uid
        self._cluster = cluster
        self._version = _spec_version(found)
        self._status: Status = cluster.status
        if "paths" not in (found.get("status") or {}):
            output = pod_template.output_dir(cluster.metadata, context.policy)
            self._status = replace(cluster.status, paths={"output": output, "logs": output})
        self._task_group = RunObserver(cluster.spec)
        was_up, had_pods = (
            self._status.running_at is not None,
            status_rules.types_with_pods(self._status),
        )
        self._creator = ObjectCreator(context.api, context.policy_of, was_up, had_pods)
        self._actions = RunActions(context, self._task_group, self._creator)
        self._writer = StatusWriter(context.api, found, context.metrics, context.write_limit)
        self._seen: set[TaskType] = set()
        """The types whose Jobs this process has seen."""
        self._unseen_success = False
        self._quiet_pause = LOOK_AGAIN

    @property
    def key(self) -> Key:
        """The namespace and name."""
        return self._cluster.metadata.owner, self._cluster.metadata.name

    def reconcile(self, found: Object) -> float | None:
        """Take one turn; return the seconds until the next one, None when nothing is left to do.

        Raises:
            ApiError: the API refused a request or did not answer; repeat the turn.
            StatusConflict: another client wrote the status; discard this object.
        """
        self._refresh(found)
        if self._status.released_at is not None:
            # `found` does not show the end of the run yet; when the cache shows it, the run gets a
            # turn
            return None
        now = self._context.clock()
        observed = self._observed_run()
        verdict = self._verdict(observed, held=bool(awaited_names(found)))
        if isinstance(verdict, Refused):
            self._end(now, Message("Refused", {"why": InvalidRequest(verdict.problems).message}))
            return 0.0
        gone = self._lost_types(observed)
        done = self._completed(gone, now)
        if lost := job_control.lost_job_message(self._cluster, gone, done, self._seen):
            self._end(now, lost, Reason.DISRUPTED, released=False)
            return 0.0
        seen = self._observe(observed, done, verdict, now)
        decision = self._decide(seen, now)
        self._quiet_pause = status_rules.quiet_pause(self._cluster, decision.status, seen)
        status = self._with_obstacles(decision)
        later = self._writer.write(status, self._status)
        if self._status.phase is not status.phase:
            log.info("%s/%s: %s. %s", *self.key, status.phase.value, status.message)
        self._status = decision.status
        obstacle = self._actions.obstacle
        if ending := self._actions.apply(self._cluster, decision, seen, observed):
            refused = Message("Refused", {"why": ending.words})
            self._end(self._context.clock(), refused, released=ending.released)
        if self._actions.obstacle != obstacle:
            return 0.0  # the next turn, at once, writes the obstacle into the status
        due = (later, self._seconds_to_next(decision, now), self._actions.service_due)
        return min((each for each in due if each is not None), default=None)

    # -- observing ---------------------------------------------------------------------------------

    def _refresh(self, found: Object) -> None:
        self._writer.refresh(found)
        if _spec_version(found) != self._version:
            changed = with_capped_durations(custom_resource.read(found), self._context.policy)
            self._cluster = replace(self._cluster, spec=changed.spec)
            self._version = _spec_version(found)

    def _observed_run(self) -> ObservedRun:
        own = cluster_state.owned_objects(self._context.caches, self.key, self.uid)
        told = self._status.warnings
        new = [w for w in map(cluster_state.foreign_job_warning, own.strangers) if w not in told]
        for words in new:
            log.warning("%s/%s: %s", *self.key, words)
        self._status = replace(self._status, warnings=(*told, *new))
        jobs = {t: job for t, job in own.jobs.items() if not self._creator.has_retired(job)}
        cluster = replace(self._cluster, status=self._status)
        return ObservedRun(cluster, own.pods, jobs, self._context.pod_groups.of(cluster))

    def _verdict(self, observed: ObservedRun, *, held: bool) -> Verdict | None:
        """Return whether the run may begin; None if it has begun already or must stop.

        `held` is true if the run waits for other runs according to the cached record. The cached
        record counts even if the newer status says otherwise, because the launch queue uses it,
        too.
        """
        if self._status.phase is not Phase.QUEUED or self._cluster.spec.stop is not None:
            return None
        if observed.jobs:
            # Volcano binds all tasks together, so a single bound pod shows that all are bound.
            bound = any(pod["spec"].get("nodeName") for pod in observed.pods)
            return Admitted() if bound else LeftToGangScheduler()
        if held or waits_for_runs(self._cluster.spec, self._status):
            return self._context.admission.decide_held(observed.cluster)
        return self._context.admission.decide(observed.cluster)

    def _observe(
        self,
        observed: ObservedRun,
        done: Mapping[TaskType, Object],
        verdict: Verdict | None,
        now: float,
    ) -> Observation:
        away = self._context.caches.lost_nodes()
        jobs = {**observed.jobs, **done}
        seen = self._task_group.observe(self._status, observed.pods, jobs, now, away)
        ends = self._cluster.spec.stop is not None or not self._status.phase.is_active
        jobs, names = self._actions.newest(jobs), status_rules.current_tasks(self._status, seen)
        seen = replace(seen, may_come=self._creator.may_come(self._cluster, names, jobs, asks=ends))
        if isinstance(verdict, Held):
            return self._held(seen)
        if self._cluster.spec.after:
            self._context.awaited.forget(self.key)
        if verdict is None:
            return self._with_diagnosis(seen, observed)
        if isinstance(verdict, LeftToGangScheduler):
            return self._submitted(seen, observed)
        waits = status_rules.waiting_message(verdict) if isinstance(verdict, Waiting) else None
        reason = self._earlier_run() or waits
        return replace(seen, admitted=reason is None, waiting_for=reason)

    def _held(self, seen: Observation) -> Observation:
        """Return the observation with the states of the runs for which this run waits."""
        left = open_dependencies(self._cluster.spec, self._status.awaited)
        runs = self._context.awaited.observe(self.key, [each.run for each in left])
        circle = self._context.awaited.circle(self.key)
        return replace(seen, admitted=False, runs=runs, circle=circle)

    def _submitted(self, seen: Observation, observed: ObservedRun) -> Observation:
        """Return the observation of a run whose tasks wait until Volcano binds them all together,
        with the reasons why they wait.
        """
        earlier = self._earlier_run()
        explainer, pod_groups = self._context.explainer, self._context.pod_groups
        why = explainer.why(observed)
        told = pod_groups.waits_for(observed, why, explainer.pod_group_events(observed))
        waits = earlier or self._uncreated() or told
        return replace(seen, admitted=False, submitted=not earlier, waiting_for=waits, why=why)

    def _uncreated(self) -> Message | None:
        """Return the reason why the run's objects cannot be created; None if there is none."""
        if self._actions.queue_problem is not None or not self._actions.obstacle:
            return self._actions.queue_problem
        return Message("ObjectsNotMade", {"why": self._actions.obstacle})

    def _with_diagnosis(self, seen: Observation, observed: ObservedRun) -> Observation:
        """Return the observation with the known reasons why tasks are not up, or with the tasks
        that are known to do nothing.
        """
        explainer = self._context.explainer
        if not status_rules.has_pending_tasks(self._status):
            explainer.forget_waiting(self.key)
            asked = status_rules.tasks_that_may_be_quiet(self._cluster, self._status, seen)
            pause = status_rules.quiet_pause(self._cluster, self._status, seen)
            quiet = explainer.quiet(observed, asked, pause) if asked else {}
            return status_rules.with_quiet(seen, quiet)
        seen = status_rules.with_oddities(seen, explainer.oddities(self.key))
        if status_rules.are_all_tasks_up(self._cluster.spec, self._status, seen):
            return seen
        return replace(seen, why=explainer.why(observed))

    def _lost_types(self, observed: ObservedRun) -> list[TaskType]:
        """Return the task types whose Jobs were created and no longer exist."""
        self._seen.update(observed.jobs)
        if not self._status.phase.is_active or self._version[1]:
            return []  # when a record is deleted, its Jobs may be gone before the record
        return self._creator.missing_types(self._cluster, observed.jobs)

    def _completed(self, gone: Sequence[TaskType], now: float) -> dict[TaskType, Object]:
        """Return the Jobs that no longer exist although all their tasks succeeded, by task type."""
        unseen = 0.0 if self._seen.intersection(gone) else self._context.unwatched()
        found = job_control.completed_jobs(
            self._cluster, self._status, gone, unseen=unseen, now=now
        )
        known = job_control.completed_jobs(self._cluster, self._status, gone, unseen=0.0, now=now)
        self._unseen_success = found.keys() != known.keys()
        return found

    def _earlier_run(self) -> Message | None:
        """Return the message about an object of an earlier run of this name, if there is one."""
        for kind, each in cluster_state.objects_of_other_runs(
            self._context.caches, self.key, self.uid
        ):
            return earlier_object_message(kind, each["metadata"]["name"])
        return None

    # -- deciding ----------------------------------------------------------------------------------

    def _decide(self, seen: Observation, now: float) -> Decision:
        name, spec = self._cluster.metadata.name, self._cluster.spec
        status = self._status
        ended = status_rules.success_time(self._cluster, status, seen, now)
        if ended is not None:
            # The run was over when its last task ended, even if the operator observed that later.
            status = decide(spec, name, status, seen, ended).status
        return decide(spec, name, status, seen, now)

    def _with_obstacles(self, decision: Decision) -> Status:
        """Return the decided status, with an obstacle if tasks cannot be created or ended, or with
        a remark if the success is only inferred.
        """
        whole = status_rules.is_settled(decision.status) and not self._actions.lacks_service
        if self._actions.obstacle and not whole:
            return status_rules.with_obstacle(decision.status, self._actions.obstacle)
        if self._unseen_success and decision.status.phase is Phase.SUCCEEDED:
            return status_rules.with_obstacle(decision.status, job_control.SUCCESS_UNSEEN)
        return decision.status

    def _end(
        self,
        now: float,
        message: Message,
        reason: Reason = Reason.START_FAILED,
        *,
        released: bool = True,
    ) -> None:
        status = status_rules.failed_status(self._status, reason, message, now, released=released)
        self._writer.write(status, self._status)
        self._status = status

    # -- scheduling the next turn ------------------------------------------------------------------

    def _seconds_to_next(self, decision: Decision, now: float) -> float | None:
        if decision.done:
            return 0.0
        times = [LOOK_AGAIN, self._quiet_pause]
        if decision.wake_at is not None:
            times.append(decision.wake_at - now)
        status = decision.status
        queued = status.phase is Phase.QUEUED
        if waits_for_runs(self._cluster.spec, status):
            return min(times)  # a change of an awaited run causes a turn anyway
        waits = queued or status_rules.has_pending_tasks(status) or decision.start
        obstructed = bool(self._actions.obstacle)
        if waits and not (queued and obstructed):
            times.append(ASK_AGAIN)
        elif obstructed:
            times.append(TRY_AGAIN)
        return min(times)


def _spec_version(found: Object) -> tuple[object, bool]:
    """Return a value that changes when the spec must be read again."""
    return found["metadata"].get("generation"), is_deleted(found)


def is_run_over(found: Object) -> bool:
    """Return whether a run has ended and released everything."""
    status = found.get("status") or {}
    final: Sequence[str] = [phase.value for phase in Phase if phase.is_final]
    return status.get("phase") in final and custom_resource.is_released(found)
