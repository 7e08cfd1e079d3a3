"""All that decides on launches, put together: what there is, who may begin, what is published."""

from __future__ import annotations

from collections.abc import Callable

from ..kube.api import Api
from ..kube.policy import Policy
from .admission import Admission
from .caches import Caches, Key
from .enforcement import Enforcement
from .gangs import Gangs
from .ground import Ground
from .options import Publisher
from .survey import Surveyor


class Gate:
    """Admission and options of a Kubernetes cluster, or of one namespace.

    Args:
        api: the connection.
        namespace: that of the runs; empty for all.
        home: the operator's own, where it tries whether NetworkPolicies are enforced.
        caches: of our own objects and the nodes.
        policy: the administrator's.
        leads: whether this process may act.
        wake: told the run that a change is of.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        home: str,
        caches: Caches,
        policy: Policy,
        leads: Callable[[], bool],
        wake: Callable[[Key], None],
    ) -> None:
        self._begun = False
        self.ground = Ground(api, namespace)
        self.gangs = Gangs(api, namespace, wake)
        self.surveyor = Surveyor(caches, self.ground, policy, self.gangs)
        # Where tasks run: other nodes may take none of its pods, or have another network.
        pool = {"nodeSelector": policy.node_selector, "tolerations": list(policy.tolerations)}
        self.enforcement = Enforcement(api, home, policy.default_image, leads, pool)
        self.admission = Admission(self.surveyor, self.ground, self._enforced)
        self.publisher = Publisher(
            api, namespace, self.surveyor, self.ground, self._enforced, leads
        )

    def follow(self) -> None:
        """Begin to follow what there is."""
        self.ground.start()
        self.gangs.start()

    def begin(self) -> None:
        """Begin to act: publish, and try what nobody can read."""
        self.publisher.start()
        self.enforcement.start()
        self._begun = True

    @property
    def alive(self) -> bool:
        """Whether none of its threads has died."""
        acts = (self.publisher, self.enforcement) if self._begun else ()
        return all(each.alive for each in (self.ground, self.gangs, *acts))

    def end(self) -> None:
        """Act no more."""
        for each in (self.publisher, self.enforcement, self.ground, self.gangs):
            each.stop()

    def _enforced(self) -> bool | None:
        return self.enforcement.enforced
