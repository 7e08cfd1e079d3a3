"""All runs of a Kubernetes cluster: which run a turn is of, and what becomes of one that stumbled.

The loop itself is `control.turns`, and `run` says what a turn decides; neither is looked at here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import InvalidRequest
from ...kube.api import access
from ...kube.api.client import Api, ApiError, path
from ...kube.api.informer import pause
from ...kube.controller.turns import Turns
from ...kube.objects.policy import Policy
from ..caches import Caches, Key
from ..pending_tasks import Explainer
from . import orphans, refusing, retention
from .context import World
from .gate import Gate
from .run import Run, is_over
from .status_writer import Overtaken

log = logging.getLogger(__name__)


class Controller:
    """All runs of a Kubernetes cluster, or of one namespace."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        home: str,
        leads: Callable[[], bool],
        policy: Policy,
        unwatched: Callable[[], float],
    ) -> None:
        self.turns: Turns[Key] = Turns(
            self._reconcile, leads, self._log_failure, self._observe_seconds
        )
        self.caches = Caches(api, namespace, self.turns.work.add)
        wake = self.turns.work.add
        self.scheduler = Gate(api, namespace, home, self.caches, policy, leads, wake, unwatched)
        explainer = Explainer(
            api, self.caches, free=lambda: self.scheduler.snapshotter.current().free
        )
        self.context = World(
            api=api,
            caches=self.caches,
            policy=policy,
            admission=self.scheduler.admission,
            explainer=explainer,
            policy_of=self.scheduler.snapshotter.policy_of,
            pod_groups=self.scheduler.pod_groups,
            unwatched=unwatched,
        )
        self._runs: dict[Key, Run] = {}
        self._begun = False

    def follow(self) -> None:
        """Begin to follow what there is."""
        self.caches.start()
        self.scheduler.follow()

    def begin(self) -> None:
        """Begin to act; everything that there is is looked at once."""
        for found in self.caches.runs.every():
            head = found["metadata"]
            self.turns.work.add((head["namespace"], head["name"]))
        self.turns.start()
        self._begun = True
        self.scheduler.begin()

    def end(self, seconds: float = 5.0) -> None:
        """Act no more; turns under way have so many seconds to end."""
        self.scheduler.end()
        self.caches.stop()
        self.turns.stop(seconds)

    @property
    def synced(self) -> bool:
        """Whether everything that is needed was seen once."""
        return self.caches.synced

    @property
    def alive(self) -> bool:
        """Whether no thread has died."""
        turns = self.turns.alive or not self._begun
        return turns and self.scheduler.alive and self.caches.alive

    @property
    def problems(self) -> list[str]:
        """Why it cannot see everything: its rights, its custom resource."""
        found = [(each.where, each.problem) for each in self.caches.needed]
        return [f"{where}: {_words(problem)}" for where, problem in found if problem is not None]

    def _reconcile(self, key: Key) -> float | None:
        try:
            return self._turn(key)
        except Overtaken:
            log.warning("%s/%s: somebody else wrote its status; reading it again", *key)
            self._runs.pop(key, None)
            return pause(1)

    def _log_failure(self, key: Key, error: Exception) -> None:
        if isinstance(error, ApiError):
            words = access.explain(error, "/".join(key), server=self.context.api.server)
            log.warning("%s/%s: %s", *key, words)
        else:
            log.error("%s/%s: the turn failed", *key, exc_info=error)

    def _observe_seconds(self, seconds: float) -> None:
        self.context.metrics.turn.observe(seconds)

    def _turn(self, key: Key) -> float | None:
        found = self.caches.runs.get(*key)
        run = self._runs.get(key)
        orphans.end(self.context, key, found["metadata"]["uid"] if found else "")
        if found is None:
            self._runs.pop(key, None)  # what it had goes by ownership
            self.context.explainer.forget(key)
            return None
        if is_over(found) and (run is None or run.uid == found["metadata"]["uid"]):
            self._runs.pop(key, None)
            return retention.keep(self.context, key, found)
        try:
            if run is None or run.uid != found["metadata"]["uid"]:
                run = self._runs[key] = Run(self.context, found)
            return run.reconcile(found)
        except InvalidRequest as error:
            self._runs.pop(key, None)
            return refusing.refuse(self.context, key, found, error)
        except ApiError as error:
            if error.gone and self._is_gone(key):
                self._runs.pop(key, None)
                return None
            raise

    def _is_gone(self, key: Key) -> bool:
        """Whether the record was deleted meanwhile, so that nothing is owed to it."""
        try:
            self.context.api.get(path("tfclusters", *key))
        except ApiError as error:
            return error.gone
        return False


def _words(problem: ApiError) -> str:
    if problem.gone:
        return "the custom resource is not installed: `kubectl apply -k k8s/crds`"
    said = (problem.message or problem.reason or str(problem.status)).strip()
    if problem.status == 403:
        return f"{said}: `kubectl apply -k k8s/overlays/default` gives the operator its rights"
    return said
