"""KubeSpawner for tenants: each notebook is a pod of a granted size in its user's namespace.

A pod is created only in a provisioned namespace of its user. The progress page says within two
seconds why a pod does not start, and a failure says what to do. A pod on a lost node is given up,
and the user gets a message. KubeSpawner's watch covers the pods of all users; events are read only
for a pod that is starting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import ClientError
from jupyterhub.spawner import SpawnException
from jupyterhub.utils import exponential_backoff
from kubernetes_asyncio.client import ApiException
from kubespawner import KubeSpawner
from traitlets import Float, Unicode

from ...i18n import _
from ...kube.api.decoding import condition, epoch_seconds
from ...kube.status.task_pods import claims_of
from ...quota.policy_file import InvalidPolicy
from ..tenancy.policy import (
    Entitlement,
    HubPolicy,
    entitlement_for_groups,
    parse_policy,
)
from . import namespace_creation, pod_settings, startup_problems
from .namespace_creation import HubApi, refusal_message
from .startup_problems import StartupProblem

PodObject = Mapping[str, Any]


def node_silent_since(pod: PodObject) -> float | None:
    """Return the time at which the node of a running notebook stopped answering, in Unix seconds;
    None if the node answers.
    """
    every = (pod.get("status") or {}).get("containerStatuses") or ()
    ready = condition(dict(pod), "Ready")
    if not every or not all(each.get("ready") for each in every) or ready.get("status") != "False":
        return None
    return epoch_seconds(ready.get("lastTransitionTime"))


def is_on_lost_node(pod: PodObject | None, now: float, patience: float) -> bool:
    """Return whether to give up a notebook because its node has been silent for `patience`
    seconds.
    """
    since = node_silent_since(pod) if pod else None
    return since is not None and now - since >= patience


def node_of(pod: PodObject) -> str:
    """Return the node of a pod."""
    return str(pod["spec"].get("nodeName") or "")


def loss_message(pod: PodObject) -> str:
    """Return the message for the user of a notebook that was given up."""
    text = _(
        "Your notebook was stopped, because its node {node} does not answer any "
        "more. Your files are safe and your clusters go on, but what its kernels "
        "had in memory is lost. Start it again: it runs on another node."
    )
    return text.format(node=node_of(pod))


# -- pods on lost nodes, which no kubelet can end
# The hub considers a notebook running as long as `poll` says so.
# Ref: https://jupyterhub-kubespawner.readthedocs.io/en/latest/spawner.html#kubespawner.KubeSpawner.stop


class LostNodeSpawner(KubeSpawner):
    """A KubeSpawner that gives up pods on lost nodes."""

    lost_seconds = Float(
        30.0,
        config=True,
        help="Seconds after which a notebook is given up if its node does not answer, or if it "
        "does not end when stopped.",
    )
    _given_up: dict[str, str] = {}
    """Messages about notebooks on lost nodes, by pod; kept until the notebook starts again."""

    @property
    def _key(self) -> str:
        return f"{self.namespace}/{self.pod_name}"

    async def poll(self) -> int | None:
        """Return None while the pod runs. A pod on a lost node is deleted by force: nothing can end
        it there, and its object would prevent the next start.
        """
        await self._start_watching_pods()
        pod = self.pod_reflector.pods.get(self._key)
        if pod and is_on_lost_node(pod, time.time(), self.lost_seconds):
            self.log.warning("%s: its node %s is lost", self._log_name, node_of(pod))
            self._given_up[self._key] = loss_message(pod)
            await super().stop(now=True)
            return 1
        status: int | None = await super().poll()
        return status

    async def stop(self, now: bool = False) -> None:
        """Stop the pod. Delete it by force if it does not end in time, because its node may be
        lost.
        """
        try:
            ends = self.delete_grace_period + self.lost_seconds
            await asyncio.wait_for(super().stop(now), ends)
        except (asyncio.TimeoutError, TimeoutError):
            self.log.warning("%s does not end; deleting it by force", self.pod_name)
            await super().stop(now=True)

    @property
    def what_happened(self) -> str:
        """The reason why a notebook that nobody stopped is not running, for the hub's pages."""
        return self._given_up.get(self._key, "")

    def told_of_loss(self) -> str:
        """Return and clear the message of `what_happened`, because the notebook starts again."""
        return self._given_up.pop(self._key, "")


# -- spawner

Object = dict[str, Any]
LOOK_SECONDS = 1.0
"""Poll interval while a pod starts, in seconds."""
MARGIN_SECONDS = 5.0
"""A start is given up this many seconds before the hub's own timeout, so that the user sees the
reason.
"""
UNANSWERED = (ApiException, ClientError, asyncio.TimeoutError)


class TenantSpawner(LostNodeSpawner):
    """A notebook server of one user: a pod in that user's namespace."""

    accepted_policy = Unicode(
        "tfcluster-hub-accepted", config=True, help="The ConfigMap that tenancy publishes."
    )
    hub_namespace = Unicode(config=True, help="The namespace of the hub.")
    notebook_image = Unicode(config=True, help="The image of notebooks if the policy offers none.")
    furnishing_seconds = Float(
        60.0, config=True, help="Timeout for the provisioning of a namespace, in seconds."
    )
    patience_seconds = Float(
        30.0,
        config=True,
        help="Seconds after which a pod is given up if waiting cannot help, such as for an image "
        "that does not exist.",
    )

    _policy = HubPolicy()
    """The newest policy that was read; shared by all users."""
    loses_data = False
    """Whether the data of a removed user must be deleted even if the policy keeps it."""
    _said = ""
    _before = ""
    _trouble: StartupProblem | None = None

    @property
    def _reader(self) -> HubApi:
        return HubApi(self.api)

    @property
    def _tenant(self) -> namespace_creation.Tenant:
        return namespace_creation.Tenant(self.namespace, self.user.name, self.hub_namespace)

    @property
    def _pod(self) -> Object | None:
        """The pod from the watch; None if it is being deleted."""
        every = self.pod_reflector.pods if self.pod_reflector else {}
        found: Object | None = every.get(self._key)
        return None if found and found["metadata"].get("deletionTimestamp") else found

    # -- grants ------------------------------------------------------------------------------------

    async def entitlement(self) -> Entitlement:
        """Return the current entitlement of this user, by the policy that tenancy accepted last."""
        found = await self._reader.config_map(self.hub_namespace, self.accepted_policy)
        if found is None:
            self.log.warning(
                "There is no ConfigMap %s; check that tenancy is running", self.accepted_policy
            )
        else:
            try:
                TenantSpawner._policy = parse_policy(
                    (found.get("data") or {}).get("policy.yaml", "")
                )
            except InvalidPolicy as error:  # a newer version of tenancy accepted the policy
                self.log.warning("The accepted policy is not valid for this hub: %s", error)
        return entitlement_for_groups(self._policy, [group.name for group in self.user.groups])

    async def get_options_form(self) -> str:
        """Return the form of sizes and images; empty if there is no choice."""
        grant = (await self.entitlement()).grant
        if not pod_settings.is_a_choice(self._policy, grant):
            return ""
        return str(self._render_options_form(pod_settings.profiles(self._policy, grant)))

    async def load_user_options(self) -> None:
        """Apply the granted and chosen options; they replace every earlier choice.

        Raises:
            SpawnException: the size, the image or another named server is not granted.
        """
        grant = (await self.entitlement()).grant
        pool = self._policy.placement.notebooks
        self.image = self.notebook_image
        self.set_trait("extra_resource_guarantees", {})
        self.set_trait("extra_resource_limits", {})
        self.volumes, self.volume_mounts = pod_settings.volumes(grant), pod_settings.mounts(grant)
        self.node_selector = dict(pool.node_selector)
        self.tolerations = [dict(each) for each in pool.tolerations]
        self.image_pull_secrets = list(grant.image_pull_secrets)
        self.image_pull_policy = pod_settings.pull_policy(self._policy)
        self.profile_list = pod_settings.profiles(self._policy, grant)
        others = [name for name, each in self.user.spawners.items() if each.active and name]
        why = pod_settings.not_offered(self.user_options, self._policy, grant)
        if why := why or pod_settings.too_many(self.name, len({*others} - {self.name}), grant):
            raise SpawnException(why, reason="not-offered")
        await super().load_user_options()

    # -- start -------------------------------------------------------------------------------------

    async def _start(self) -> str:
        """Create the pod and wait for it; fail early if waiting is useless.

        Raises:
            SpawnException: the pod does not start; the message is for the user.
        """
        self._trouble = None
        self._before = self.told_of_loss()
        self._say(_("Looking for your namespace {name}.").format(name=self.namespace))
        starting = asyncio.ensure_future(super()._start())
        looking = asyncio.ensure_future(self._look())
        try:
            await asyncio.wait(
                {starting, looking},
                timeout=self.start_timeout - MARGIN_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if starting.done():
                self._trouble = None
                self._say(_("Your notebook is running; waiting for it to answer."))
                return str(starting.result())
        except SpawnException:
            raise
        except namespace_creation.NotProvisioned as error:
            raise SpawnException(str(error), reason="namespace") from None
        except ApiException as error:
            raise self._refused(error) from error
        except (ClientError, asyncio.TimeoutError) as error:
            raise _unanswered(error) from error
        finally:
            starting.cancel()
            looking.cancel()
        raise SpawnException(self._verdict(), reason="pod")

    async def prepare(self) -> None:
        """Create the user's namespace before the first notebook. Raises NotProvisioned."""
        await namespace_creation.prepare_namespace(self._reader, self._tenant)

    async def _ensure_namespace(self) -> None:
        await namespace_creation.ensure_namespace(
            self._reader, self._tenant, self._say, self.furnishing_seconds
        )
        if await self._reader.pod(self.namespace, self.pod_name):
            # An earlier pod counts against quotas until it is gone.
            self._say(_("Stopping your earlier notebook."))
            await self.stop()
        # Store the state now: if the hub is killed while the pod starts, the next hub needs it to
        # find the pod and its token.
        self.orm_spawner.state = self.get_state()
        self.db.commit()
        self._say(_("Creating the pod of your notebook."))

    async def _look(self) -> None:
        """Update `_trouble` while the pod starts; return as soon as waiting is useless."""
        since: float | None = None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            pod = self._pod
            if pod is None:
                continue
            try:
                self._trouble = await self._why(pod)
            except UNANSWERED as error:
                self.log.warning("Cannot find out why %s waits: %s", self.pod_name, error)
                continue
            if not self._trouble or not self._trouble.for_good:
                since = None
            elif since is None:
                since = time.monotonic()
            elif time.monotonic() - since > self.patience_seconds:
                return

    async def _why(self, pod: Object) -> StartupProblem | None:
        node = pod["spec"].get("nodeName")
        if node:
            self._say(_("Starting your notebook on the node {node}.").format(node=node))
        claims: dict[str, Object] = {}
        if startup_problems.needs_claims(pod):
            for name in claims_of(pod):
                claim = await self._reader.claim(self.namespace, name)
                if claim is not None:
                    told = await self._reader.events(self.namespace, "PersistentVolumeClaim", name)
                    said = startup_problems.newest_message(startup_problems.events_of(claim, told))
                    claims[name] = {**claim, "said": said}
        events = await self._reader.events(self.namespace, "Pod", self.pod_name)
        return startup_problems.problem_of_pod(
            pod, startup_problems.events_of(pod, events), claims, time.time()
        )

    def _refused(self, error: ApiException) -> SpawnException:
        if error.status in (403, 422):
            return SpawnException(
                startup_problems.problem_of_refusal(refusal_message(error)).failed, reason="refused"
            )
        return _unanswered(error)

    def _verdict(self) -> str:
        if self._trouble:
            return self._trouble.failed
        text = _(
            "Your server did not start within {seconds} seconds. {said} "
            "Try again, or ask the administrator."
        )
        return text.format(seconds=self.start_timeout, said=self._said)

    # -- progress ----------------------------------------------------------------------------------

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            self.log.info("%s: %s", self._log_name, sentence)

    async def progress(self) -> AsyncIterator[Object]:
        """Yield a message each time that the step or the reason to wait changes.

        Ref: https://jupyterhub.readthedocs.io/en/stable/reference/spawners.html#spawner-progress
        """
        told, percent = "", 10
        if self._before:
            yield {"progress": percent, "message": self._before}
        while True:
            now = self._trouble.waits if self._trouble else self._said
            if now and now != told:
                told, percent = now, min(90, percent + 15)
                yield {"progress": percent, "message": now}
            await asyncio.sleep(0.25)

    # -- restart of the hub, and removal of a user -------------------------------------------------

    async def get_url(self) -> str:
        """Return the server's address. If the hub was killed during a start, wait until the pod has
        started.
        """
        if not self.server.ip:
            await self._start_watching_pods()
            try:
                await exponential_backoff(
                    lambda: self.is_pod_running(self._pod), "", timeout=self.start_timeout
                )
            except TimeoutError:
                self.log.warning("%s did not start; stopping it", self.pod_name)
            if pod := self._pod:
                return str(self._get_pod_url(pod))
        return str(await super().get_url())

    async def delete_forever(self) -> None:
        """Tell tenancy that the user is removed; the policy decides about the data."""
        if self.name:
            return  # only a named server is deleted; the namespace belongs to the user
        await self.entitlement()
        with_data = self.loses_data or self._policy.on_removal == "delete"
        if await namespace_creation.mark_removed(self._reader, self._tenant, with_data=with_data):
            self.log.info("Marked the namespace %s as removed", self.namespace)


def _unanswered(error: Exception) -> SpawnException:
    text = _("The Kubernetes API does not answer: {why}. Try again in a minute.")
    return SpawnException(text.format(why=str(error) or type(error).__name__), reason="api")
