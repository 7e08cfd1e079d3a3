"""What a turn does about a decision: objects are made and named, Jobs pulled, pods told of.

Promises that what the API does not take of one kind keeps nothing from the others: tasks that shall
stop are called back whatever becomes of their names. Owns in words what is in the way. It decides
nothing, and writes no status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import InvalidRequest, TFClusterError
from ...kube.api import access
from ...kube.api.client import ApiError, Object
from ...kube.status.observe import Crew
from ...lifecycle import Decision, Observation
from ...spec import TaskType, TFCluster
from ..belongings import Sight
from ..scheduling.volcano import refused
from .addressing import Addressing
from .context import World
from .creation import Maker, StillThere
from .job_control import Levers, tell_of_pods

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """Why a run can never be as it is wanted; `released` when nothing of it is there."""

    words: str
    released: bool


class Deeds:
    """What is done for one run."""

    def __init__(self, world: World, crew: Crew, maker: Maker) -> None:
        self.hindrance = ""
        self.queue = ""
        """Why its queue takes nothing."""
        self.named: float | None = None
        """In how many seconds its tasks may get their names."""
        self._world, self._crew, self._maker = world, crew, maker
        self._levers = Levers(world.api, crew)
        self._addressing = Addressing(maker)
        self._ending: Ending | None = None

    @property
    def lacks_names(self) -> bool:
        """Whether tasks that run have no names, and wait for them."""
        return self._addressing.lacking

    def newest(self, jobs: Mapping[TaskType, Object]) -> dict[TaskType, Object]:
        """Each Job as it was last seen or changed here."""
        return {task_type: self._levers.newest(task_type, job) for task_type, job in jobs.items()}

    def do(
        self, cluster: TFCluster, decision: Decision, seen: Observation, sight: Sight
    ) -> Ending | None:
        """Do what is decided; why the run has to end, if so.

        Raises:
            ApiError: nobody answered: the turn has to be taken again.
        """
        self.hindrance, self.queue, self._ending = "", "", None
        jobs = dict(sight.jobs)
        for task_type in self._levers.outworn(decision, seen, jobs):
            self._maker.retire(task_type, jobs.pop(task_type))
        if decision.start:
            self._try(cluster, lambda: self._maker.make(cluster, jobs))
        unanswered = self._name(cluster, decision, sight)
        unpulled = self._levers.pull(decision, seen, jobs)
        self.hindrance = self.hindrance or unpulled
        self._mend(cluster, decision, seen, sight)
        going = self._crew.going(sight.jobs)
        tell_of_pods(self._world.api, sight.pods, going, self._world.caches.away())
        if unanswered is not None:
            raise unanswered
        return self._ending

    def _name(self, cluster: TFCluster, decision: Decision, sight: Sight) -> ApiError | None:
        """Give or take names, before tasks go; the error of one that nobody answered."""

        def turn() -> None:
            self.named = self._addressing.turn(cluster, decision.status, sight.pods)

        try:
            self._try(cluster, turn)
        except ApiError as error:
            return error
        return None

    def _try(self, cluster: TFCluster, make: Callable[[], None]) -> None:
        """Make something, or know why not. Raises ApiError when nobody answers."""
        try:
            make()
        except StillThere as hindrance:
            self.hindrance = self.hindrance or str(hindrance)
        except InvalidRequest as error:
            self._ending = Ending(str(error), released=True)
        except TFClusterError as error:
            self.hindrance = self.hindrance or str(error)
        except ApiError as error:
            if error.unanswered and error.status != 500:  # 500: a webhook that is down
                raise
            why = str(access.explain(error, server=self._world.api.server))
            head = cluster.metadata
            log.warning("%s/%s: %s", head.owner, head.name, why)
            self.hindrance = self.hindrance or why
            self.queue = self.queue or refused(error.message)
            if error.status == 422:  # it will never be taken
                self._ending = Ending(why, released=False)

    def _mend(
        self, cluster: TFCluster, decision: Decision, seen: Observation, sight: Sight
    ) -> None:
        """Keep what its pods wait for to be bound together."""
        if not decision.status.phase.is_active:
            return
        world = self._world
        try:
            world.gangs.mend(cluster, world.policy_of, sight.pods, seen)
        except ApiError as error:
            if error.unanswered:
                raise
            self.hindrance = str(access.explain(error, server=world.api.server))
