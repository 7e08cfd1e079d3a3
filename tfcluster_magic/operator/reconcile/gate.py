"""All that decides on launches, put together: what there is, who may begin, what is published."""

from __future__ import annotations

from collections.abc import Callable

from ...kube.api.client import Api
from ...kube.controller.background import Background
from ...kube.objects.policy import Policy
from ..accounting import Accountant
from ..caches import Caches, Key
from ..cluster_state import Ground
from ..policy_enforcement import Enforcement
from ..scheduling.admission import Admission
from ..scheduling.published_options import Publisher
from ..scheduling.snapshot import Surveyor
from ..scheduling.volcano import Gangs


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
        unwatched: seconds for which no operator acted before this one did.
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
        unwatched: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._begun = False
        self.ground = Ground(api, namespace)
        self.gangs = Gangs(api, namespace, wake)
        self.surveyor = Surveyor(caches, self.ground, policy, self.gangs)
        # Where tasks run: other nodes may take none of its pods, or have another network.
        pool = {"nodeSelector": policy.node_selector, "tolerations": list(policy.tolerations)}
        self.enforcement = Enforcement(api, home, policy.default_image, leads, pool)
        self.accountant = Accountant(api, namespace, home, caches, self.ground, leads, unwatched)
        self.admission = Admission(
            self.surveyor, self.ground, self._enforced, self.accountant.refuses
        )
        self.publisher = Publisher(
            api,
            namespace,
            self.surveyor,
            self.ground,
            self._enforced,
            leads,
            self.accountant.told,
            home,
        )

    def follow(self) -> None:
        """Begin to follow what there is."""
        self.ground.start()
        self.gangs.start()

    def begin(self) -> None:
        """Begin to act: publish, and try what nobody can read."""
        for each in self._acting:
            each.start()
        self._begun = True

    @property
    def alive(self) -> bool:
        """Whether none of its threads has died."""
        acts = self._acting if self._begun else ()
        return self.ground.alive and self.gangs.alive and all(each.alive for each in acts)

    @property
    def _acting(self) -> tuple[Background, ...]:
        return self.accountant, self.accountant.meter, self.publisher, self.enforcement

    def end(self) -> None:
        """Act no more."""
        for each in self._acting:
            each.stop()
        self.ground.stop()
        self.gangs.stop()

    def _enforced(self) -> bool | None:
        return self.enforcement.enforced
