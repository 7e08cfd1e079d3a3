"""How a notebook's pod ends: as it is asked to, or given up, where nobody is there to end it.

Promises that a pod on a lost node is seen as that, that nothing waits for such a node for ever, and
that its user is told. The hub holds a notebook for running as long as this says so.
Ref: https://jupyterhub-kubespawner.readthedocs.io/en/latest/spawner.html#kubespawner.KubeSpawner.stop
"""

from __future__ import annotations

import asyncio
import time

from kubespawner import KubeSpawner
from traitlets import Float

from . import lost


class EndingSpawner(KubeSpawner):
    """KubeSpawner on nodes that may go away."""

    lost_seconds = Float(
        30.0,
        config=True,
        help="After so many seconds a notebook is given up whose node does not answer, or which "
        "does not end although it should.",
    )
    _given_up: dict[str, str] = {}
    """What is to be told of notebooks whose nodes were lost, by pod, until they start again."""

    @property
    def _key(self) -> str:
        return f"{self.namespace}/{self.pod_name}"

    async def poll(self) -> int | None:
        """None while it runs. One whose node is lost is given up: nobody there can end it, and
        what Kubernetes still has of it would keep the next one from starting.
        """
        await self._start_watching_pods()
        pod = self.pod_reflector.pods.get(self._key)
        if pod and lost.is_lost(pod, time.time(), self.lost_seconds):
            self.log.warning("%s: its node %s is lost", self._log_name, lost.node_of(pod))
            self._given_up[self._key] = lost.said(pod)
            await super().stop(now=True)
            return 1
        status: int | None = await super().poll()
        return status

    async def stop(self, now: bool = False) -> None:
        """End the pod; without waiting for its node for ever, which may be lost."""
        try:
            ends = self.delete_grace_period + self.lost_seconds
            await asyncio.wait_for(super().stop(now), ends)
        except (asyncio.TimeoutError, TimeoutError):
            self.log.warning("%s does not end; it is given up", self.pod_name)
            await super().stop(now=True)

    @property
    def what_happened(self) -> str:
        """Why it does not run, where nobody ended it; for the hub's pages."""
        return self._given_up.get(self._key, "")

    def told_of_loss(self) -> str:
        """The same, for the last time: it starts again."""
        return self._given_up.pop(self._key, "")
