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
        self.cluster_state = Ground(api, namespace)
        self.pod_groups = Gangs(api, namespace, wake)
        self.snapshotter = Surveyor(caches, self.cluster_state, policy, self.pod_groups)
        # Where tasks run: other nodes may take none of its pods, or have another network.
        pool = {"nodeSelector": policy.node_selector, "tolerations": list(policy.tolerations)}
        self.enforcement = Enforcement(api, home, policy.default_image, leads, pool)
        self.accountant = Accountant(
            api, namespace, home, caches, self.cluster_state, leads, unwatched
        )
        self.admission = Admission(
            self.snapshotter, self.cluster_state, self._enforced, self.accountant.budget_problems
        )
        self.publisher = Publisher(
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
        """Begin to follow what there is."""
        self.cluster_state.start()
        self.pod_groups.start()

    def begin(self) -> None:
        """Begin to act: publish, and try what nobody can read."""
        for each in self._acting:
            each.start()
        self._begun = True

    @property
    def alive(self) -> bool:
        """Whether none of its threads has died."""
        acts = self._acting if self._begun else ()
        return (
            self.cluster_state.alive and self.pod_groups.alive and all(each.alive for each in acts)
        )

    @property
    def _acting(self) -> tuple[Background, ...]:
        return self.accountant, self.accountant.sampler, self.publisher, self.enforcement

    def end(self) -> None:
        """Act no more."""
        for each in self._acting:
            each.stop()
        self.cluster_state.stop()
        self.pod_groups.stop()

    def _enforced(self) -> bool | None:
        return self.enforcement.enforced
