"""The ledger of the hours used in a namespace, on a server that stores objects, and the operator
that keeps it.
"""

from __future__ import annotations

from support.operator_world import World
from support.polling import wait_until
from tfcluster_magic.errors import Problem
from tfcluster_magic.kube import hour_ledgers
from tfcluster_magic.kube.api.labels import TENANT, USER, USER_GROUP
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.operator.hours_ledgers import Accountant
from tfcluster_magic.quota.ledger import Ledger

HOME = "a"
LEDGER = f"/api/v1/namespaces/{HOME}/configmaps/tfcluster-hours-a"


class Book:
    """The ledger of the hours used in one namespace, and the operator that keeps it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.keeper: Accountant | None = None
        self.marks: dict[str, str] = {USER: "ada", USER_GROUP: "ml101"}
        self.say()
        self.begin()

    def say(self, **marks: str) -> None:
        """Write the limits to the namespace."""
        self.marks |= marks
        head = {"labels": {TENANT: "true"}, "annotations": self.marks}
        self.world.server.put("/api/v1/namespaces/a", {"metadata": head})

    def begin(self) -> None:
        """Start the operator that keeps ledgers."""
        self.end()
        controller = self.world.controller
        assert controller is not None
        wait_until(lambda: bool(controller.scheduler.cluster_state.tenant_annotations("a")))
        self.keeper = controller.scheduler.accountant
        self.keeper.start()

    def end(self) -> None:
        """Stop the operator."""
        if self.keeper is not None:
            self.keeper.stop()
            self.keeper._thread.join(90)
            self.keeper = None

    def restart(self) -> None:
        """Replace the operator."""
        self.end()
        self.world.operate()
        self.begin()

    @property
    def kept(self) -> Ledger:
        """Return the ledger in the API."""
        found = self.world.server.objects.get(LEDGER)
        return Ledger() if found is None else hour_ledgers.read_ledger(found)[2]

    def seconds(self, cluster: str = "digits") -> float:
        """Return the core-seconds in the ledger for a cluster."""
        days = self.kept.days.values()
        return 3600 * sum(day["ml101"][cluster].cpu for day in days if cluster in day["ml101"])

    def told(self) -> list[Problem] | None:
        """Return why a launch is refused now."""
        assert self.keeper is not None
        cluster = custom_resource.read(self.world.run("digits-1"))
        found = self.keeper.budget_problems(cluster, lambda _run: 1.0)
        return None if found is None else list(found)
