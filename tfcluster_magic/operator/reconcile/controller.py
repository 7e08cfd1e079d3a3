"""The control loop over all runs of a Kubernetes cluster.

`kube.controller.work_queue` is the loop itself, `run` holds one turn of one run, and `Scheduler`
connects admission, accounting and published options.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import InvalidRequest
from ...kube.api import access
from ...kube.api.client import Api, ApiError, path
from ...kube.api.informer import backoff_seconds
from ...kube.controller.work_queue import BackgroundThread, KeyedWorkers
from ...kube.objects.policy import Policy
from ..cluster_state import REFUSED, ClusterCaches, ClusterState, Key
from ..hours_ledgers import Accountant
from ..network_policy_probe import EnforcementCheck
from ..pending_tasks import PendingTaskDiagnosis
from ..scheduling.admission import Admission
from ..scheduling.published_options import OptionsPublisher
from ..scheduling.snapshot import Snapshotter
from ..scheduling.volcano import PodGroups
from . import retention
from .actions import ReconcileContext
from .awaited_runs import AwaitedRuns
from .run import RunReconciler, is_run_over
from .schedules import ScheduleClock, ScheduleController
from .status_writer import StatusConflict

log = logging.getLogger(__name__)


class Controller:
    """The controller of all runs of a Kubernetes cluster, or of one namespace."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        home: str,
        leads: Callable[[], bool],
        policy: Policy,
        unwatched: Callable[[], float],
        clock: ScheduleClock | None = None,
    ) -> None:
        self.turns: KeyedWorkers[Key] = KeyedWorkers(
            self._reconcile,
            leads,
            self._log_failure,
            self._observe_seconds,
            share=lambda key: key[0],
        )
        self.caches = ClusterCaches(api, namespace, self.turns.work.add)
        wake = self.turns.work.add
        self.scheduler = Scheduler(
            api, namespace, home, self.caches, policy, leads, wake, unwatched
        )
        explainer = PendingTaskDiagnosis(
            api, self.caches, free=lambda: self.scheduler.snapshotter.current().free
        )
        self.context = ReconcileContext(
            api=api,
            caches=self.caches,
            policy=policy,
            admission=self.scheduler.admission,
            explainer=explainer,
            awaited=AwaitedRuns(self.caches.runs, wake),
            policy_of=self.scheduler.snapshotter.policy_of,
            pod_groups=self.scheduler.pod_groups,
            unwatched=unwatched,
            record_limit=self.scheduler.cluster_state.record_limit,
        )
        last_number = self.scheduler.accountant.last_number
        self.schedules = ScheduleController(
            api,
            namespace,
            self.caches.runs,
            self.caches.pods,
            leads,
            last_number,
            self.scheduler.admission.why_not_changed,
            clock or ScheduleClock(),
        )
        self.caches.run_changed = self.schedules.run_changed
        self.caches.pod_changed = self.schedules.reports.pod_changed
        self._runs: dict[Key, RunReconciler] = {}
        self._begun = False

    def follow(self) -> None:
        """Start the watches that fill the caches."""
        self.caches.start()
        self.scheduler.follow()
        self.schedules.follow()

    def begin(self) -> None:
        """Start the turns of runs and schedules, and queue one turn of every run."""
        for found in self.caches.runs.every():
            head = found["metadata"]
            self.turns.work.add((head["namespace"], head["name"]))
        self.turns.start()
        self.schedules.begin()
        self._begun = True
        self.scheduler.begin()

    def end(self, seconds: float = 5.0) -> None:
        """Start no more turns, and wait up to this many seconds for the turns in progress."""
        self.scheduler.end()
        self.schedules.end(seconds)
        self.caches.stop()
        self.turns.stop(seconds)

    @property
    def synced(self) -> bool:
        """Whether each needed cache has listed its objects at least once."""
        return self.caches.synced

    @property
    def alive(self) -> bool:
        """Whether all threads are alive."""
        turns = (self.turns.alive and self.schedules.turns.alive) or not self._begun
        return turns and self.schedules.cache.alive and self.scheduler.alive and self.caches.alive

    @property
    def problems(self) -> list[str]:
        """The reasons why caches are incomplete: missing rights or a missing custom resource."""
        found = [(each.where, each.problem) for each in self.caches.needed]
        return [
            f"{where}: {_problem_text(problem)}" for where, problem in found if problem is not None
        ]

    def _reconcile(self, key: Key) -> float | None:
        try:
            return self._turn(key)
        except StatusConflict:
            log.warning("%s/%s: somebody else wrote its status; reading it again", *key)
            self._runs.pop(key, None)
            return backoff_seconds(1)

    def _log_failure(self, key: Key, error: Exception) -> None:
        if isinstance(error, ApiError):
            words = access.explain_api_error(error, "/".join(key), server=self.context.api.server)
            log.warning("%s/%s: %s", *key, words)
        else:
            log.error("%s/%s: the turn failed", *key, exc_info=error)

    def _observe_seconds(self, seconds: float) -> None:
        self.context.metrics.turn.observe(seconds)

    def _turn(self, key: Key) -> float | None:
        found = self.caches.runs.get(*key)
        run = self._runs.get(key)
        self.context.awaited.changed(key)
        retention.end_orphans(self.context, key, found["metadata"]["uid"] if found else "")
        if found is None:
            self._runs.pop(key, None)  # owned objects are deleted by Kubernetes
            self.context.explainer.forget(key)
            self.context.awaited.forget(key)
            return None
        retention.make_room(self.context, key[0])
        if is_run_over(found) and (run is None or run.uid == found["metadata"]["uid"]):
            self._runs.pop(key, None)
            self.context.awaited.forget(key)
            return retention.apply_retention(self.context, key, found)
        if refused := found.get(REFUSED):
            self.context.awaited.forget(key)
            return retention.fail_invalid_run(self.context, key, found, refused)
        try:
            if run is None or run.uid != found["metadata"]["uid"]:
                run = self._runs[key] = RunReconciler(self.context, found)
            return run.reconcile(found)
        except InvalidRequest as error:
            self._runs.pop(key, None)
            return retention.fail_invalid_run(self.context, key, found, error.message)
        except ApiError as error:
            if error.gone and self._is_gone(key):
                self._runs.pop(key, None)
                return None
            raise

    def _is_gone(self, key: Key) -> bool:
        """Return whether the record has been deleted since this turn began."""
        try:
            self.context.api.get(path("tfclusters", *key))
        except ApiError as error:
            return error.gone
        return False


def _problem_text(problem: ApiError) -> str:
    if problem.gone:
        return "the custom resource is not installed: `kubectl apply -k k8s/crds`"
    said = (problem.message or problem.reason or str(problem.status)).strip()
    if problem.status == 403:
        return f"{said}: `kubectl apply -k k8s/overlays/default` gives the operator its rights"
    return said


class Scheduler:
    """The parts of the operator that decide which runs may start: admission, accounting of hours,
    and published options.

    Args:
        api: the connection to the API server.
        namespace: the namespace of the runs; empty for all.
        home: the operator's own namespace, where NetworkPolicy enforcement is checked.
        caches: the cached objects of runs, and the nodes.
        policy: the administrator's policy.
        leads: returns whether this process is the leader, which alone may act.
        wake: called, after each change of an object, with the run to which the object belongs.
        unwatched: returns for how many seconds no operator acted before this one.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        home: str,
        caches: ClusterCaches,
        policy: Policy,
        leads: Callable[[], bool],
        wake: Callable[[Key], None],
        unwatched: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._begun = False
        self.cluster_state = ClusterState(api, namespace)
        self.pod_groups = PodGroups(api, namespace, wake)
        self.snapshotter = Snapshotter(caches, self.cluster_state, policy, self.pod_groups)
        # The check runs on the nodes of tasks, because other nodes may accept no pods or may use
        # another network.
        pool = {"nodeSelector": policy.node_selector, "tolerations": list(policy.tolerations)}
        self.enforcement = EnforcementCheck(api, home, policy.default_image, leads, pool)
        self.accountant = Accountant(
            api, namespace, home, caches, self.cluster_state, leads, unwatched
        )
        self.admission = Admission(
            self.snapshotter, self.cluster_state, self._enforced, self.accountant.budget_problems
        )
        self.publisher = OptionsPublisher(
            api,
            namespace,
            self.snapshotter,
            self.cluster_state,
            self._enforced,
            leads,
            self.accountant.published_text,
            home,
        )

    def follow(self) -> None:
        """Start the watches that fill the caches."""
        self.cluster_state.start()
        self.pod_groups.start()

    def begin(self) -> None:
        """Start accounting, publishing and the NetworkPolicy check."""
        for each in self._acting:
            each.start()
        self._begun = True

    @property
    def alive(self) -> bool:
        """Whether all threads are alive."""
        acts = self._acting if self._begun else ()
        return (
            self.cluster_state.alive and self.pod_groups.alive and all(each.alive for each in acts)
        )

    @property
    def _acting(self) -> tuple[BackgroundThread, ...]:
        return self.accountant, self.accountant.sampler, self.publisher, self.enforcement

    def end(self) -> None:
        """Stop all threads."""
        for each in self._acting:
            each.stop()
        self.cluster_state.stop()
        self.pod_groups.stop()

    def _enforced(self) -> bool | None:
        return self.enforcement.enforced
