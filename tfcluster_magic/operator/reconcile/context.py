"""What every turn of every run uses: the connection, the caches, the policy, who is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ...kube.api.client import Api
from ...kube.objects.policy import Policy
from ..caches import Caches
from ..metrics import Measures
from ..pending_tasks import Explainer
from ..scheduling.admission import Admission
from ..scheduling.volcano import Gangs
from .pace import Pace


@dataclass
class World:
    """The Kubernetes cluster as the operator sees and changes it."""

    api: Api
    caches: Caches
    policy: Policy
    admission: Admission
    explainer: Explainer
    policy_of: Callable[[str], Policy]
    """The policy with what a namespace adds to it."""
    pod_groups: Gangs
    unwatched: Callable[[], float]
    """Seconds for which no operator acted before this one did."""
    clock: Callable[[], float] = time.time
    metrics: Measures = field(default_factory=Measures)
    write_limit: Pace = field(default_factory=Pace)
    cleanup_at: dict[str, float] = field(default_factory=dict)
    """When what is left of runs that are over is looked for, by uid."""
