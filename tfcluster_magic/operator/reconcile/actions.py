"""The actions that apply a lifecycle decision to the cluster: objects, Service, Jobs, pods.

If requests for one kind of object are refused, the other kinds are still handled: tasks are stopped
even if their Service cannot be changed. The reasons of refusals are collected as text
(`RunActions.obstacle`). This module decides nothing and writes no status.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...errors import InvalidRequest, TFClusterError
from ...kube.api import access
from ...kube.api.client import Api, ApiError, Object
from ...kube.objects.policy import Policy
from ...kube.status.run_observer import RunObserver
from ...lifecycle import Decision, Observation
from ...spec import Clause, Message, TaskType, TFCluster
from ..cluster_state import ClusterCaches, ObservedRun
from ..metrics import OperatorMetrics
from ..pending_tasks import PendingTaskDiagnosis
from ..scheduling.admission import Admission
from ..scheduling.volcano import PodGroups, queue_refusal
from .awaited_runs import AwaitedRuns
from .job_control import JobControl, report_deleted_pods
from .object_creation import EarlierObjectExists, ObjectCreator, ServiceCreation
from .status_writer import WriteRateLimit


@dataclass
class ReconcileContext:
    """The objects that the reconcilers of all runs share."""

    api: Api
    caches: ClusterCaches
    policy: Policy
    admission: Admission
    explainer: PendingTaskDiagnosis
    awaited: AwaitedRuns
    policy_of: Callable[[str], Policy]
    """Returns the administrator's policy with the settings of a namespace added."""
    pod_groups: PodGroups
    unwatched: Callable[[], float]
    """Returns for how many seconds no operator acted before this one."""
    record_limit: Callable[[str], float | None] = lambda _namespace: None
    """Returns the number of records that a namespace may have; None means any number."""
    clock: Callable[[], float] = time.time
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    write_limit: WriteRateLimit = field(default_factory=WriteRateLimit)
    cleanup_at: dict[str, float] = field(default_factory=dict)
    """By the uid of an ended run that has no Jobs: the time at which the operator searches for
    other objects that the run left behind.
    """


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FatalProblem:
    """The reason why a run can never start; `released` is true if none of its objects exist."""

    words: Clause
    released: bool


class RunActions:
    """Applies decisions to one run."""

    def __init__(
        self, context: ReconcileContext, task_group: RunObserver, creator: ObjectCreator
    ) -> None:
        self.obstacle: Clause = ""
        self.queue_problem: Message | None = None
        """The reason why Volcano's queue refuses the run."""
        self.service_due: float | None = None
        """Seconds until the Service may be created; None if no creation is due."""
        self._context, self._task_group, self._creator = context, task_group, creator
        self._job_control = JobControl(context.api, task_group)
        self._addressing = ServiceCreation(creator)
        self._ending: FatalProblem | None = None

    @property
    def lacks_service(self) -> bool:
        """Whether running tasks wait for a Service that could not be created."""
        return self._addressing.lacking

    def newest(self, jobs: Mapping[TaskType, Object]) -> dict[TaskType, Object]:
        """Return the newest known state of each Job: the cached state, or the state after our last
        change.
        """
        return {
            task_type: self._job_control.newest(task_type, job) for task_type, job in jobs.items()
        }

    def apply(
        self, cluster: TFCluster, decision: Decision, seen: Observation, observed: ObservedRun
    ) -> FatalProblem | None:
        """Apply a decision; return the problem for which the run must end, or None.

        Raises:
            ApiError: the API did not answer; repeat the turn.
        """
        self.obstacle, self.queue_problem, self._ending = "", None, None
        jobs = dict(observed.jobs)
        for task_type in self._job_control.unusable_types(decision, seen, jobs):
            self._creator.retire(task_type, jobs.pop(task_type))
        if decision.start:
            self._try(cluster, lambda: self._creator.create(cluster, jobs))
        unanswered = self._update_service(cluster, decision, observed)
        unchanged = self._job_control.apply(decision, seen, jobs)
        self.obstacle = self.obstacle or unchanged
        self._repair_pod_group(cluster, decision, seen, observed)
        going = self._task_group.going(observed.jobs)
        report_deleted_pods(
            self._context.api, observed.pods, going, self._context.caches.lost_nodes()
        )
        if unanswered is not None:
            raise unanswered
        return self._ending

    def _update_service(
        self, cluster: TFCluster, decision: Decision, observed: ObservedRun
    ) -> ApiError | None:
        """Create or delete the Service, before tasks are stopped. Return the error if the API
        server did not answer.
        """

        def turn() -> None:
            self.service_due = self._addressing.update(cluster, decision.status, observed.pods)

        try:
            self._try(cluster, turn)
        except ApiError as error:
            return error
        return None

    def _try(self, cluster: TFCluster, make: Callable[[], None]) -> None:
        """Call `make`; if an object cannot be created, record the reason. Raises ApiError if the
        API does not answer.
        """
        try:
            make()
        except EarlierObjectExists as obstacle:
            self.obstacle = self.obstacle or obstacle.message
        except InvalidRequest as error:
            self._ending = FatalProblem(error.message, released=True)
        except TFClusterError as error:
            self.obstacle = self.obstacle or str(error)
        except ApiError as error:
            if error.unanswered and error.status != 500:  # a 500 means that a webhook is down
                raise
            why = str(access.explain_api_error(error, server=self._context.api.server))
            head = cluster.metadata
            log.warning("%s/%s: %s", head.owner, head.name, why)
            self.obstacle = self.obstacle or why
            self.queue_problem = self.queue_problem or queue_refusal(error.message)
            if error.status == 422:  # the object is invalid, so it will never be accepted
                self._ending = FatalProblem(why, released=False)

    def _repair_pod_group(
        self, cluster: TFCluster, decision: Decision, seen: Observation, observed: ObservedRun
    ) -> None:
        """Repair the PodGroup, without which Volcano does not bind the pods."""
        if not decision.status.phase.is_active:
            return
        context = self._context
        try:
            context.pod_groups.repair(cluster, context.policy_of, observed.pods, seen)
        except ApiError as error:
            if error.unanswered:
                raise
            self.obstacle = str(access.explain_api_error(error, server=context.api.server))
