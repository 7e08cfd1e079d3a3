"""Whether NetworkPolicies are enforced on this cluster, tried and not read: two pods and a policy.

Promises an answer only from a real connection: one pod listens on two ports, a policy opens one of
them, another pod tries both. The open one must be reached, so that a broken network is no proof.
The last answer is kept, so that a restart holds up no launch. Needs no privilege: pods of the
operator's own image, restricted, in its own namespace, which end by themselves.

Ref: https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable

from ..i18n import _
from ..kube.api import account
from ..kube.api.client import Api, ApiError, Object, path
from ..kube.controller.background import Background
from .probe import CLIENT, OPEN, SERVER, SHUT, objects

RECORD = "tfcluster-enforcement"
"""The ConfigMap that keeps the last answer."""
SELECTOR = f"app.kubernetes.io/component={RECORD}"
AGAIN = {True: 6 * 3600.0, False: 300.0, None: 20.0}
"""Seconds until it is tried again: when policies are enforced, when not, when nobody knows."""
AFTER_A_FAILURE = 60.0
"""The same when it could not be tried; an answer that is known is believed meanwhile."""
SECONDS = 240.0
"""For one try; the image may have to be pulled."""

log = logging.getLogger(__name__)


class Enforcement(Background):
    """Tries it when asked to begin, and again from time to time.

    Args:
        api: the connection.
        namespace: where the pods run: the operator's own.
        image: of the pods where this process is none itself: it needs python3.
        leads: whether this process may act.
        pool: where the pods run, as tasks do, by `nodeSelector` and `tolerations`.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        image: str,
        leads: Callable[[], bool],
        pool: Object | None = None,
    ) -> None:
        self._api, self._namespace, self._image, self._leads = api, namespace, image, leads
        self._pool = pool or {}
        super().__init__("enforcement")
        self.enforced: bool | None = None
        """The last answer; None while there is none."""
        self.problem = ""
        """Why there is no answer."""

    def _run(self) -> None:
        self._load()
        while not self._enough.is_set():
            if self._leads():
                self._try()
            self._enough.wait(self._rest() if self._leads() else 1.0)

    def _rest(self) -> float:
        longest = AGAIN[self.enforced]
        return min(longest, AFTER_A_FAILURE) if self.problem else longest

    def _try(self) -> None:
        try:
            self.check()
        except (ApiError, TimeoutError) as error:
            words = (error.message or error.reason) if isinstance(error, ApiError) else str(error)
            self.problem = words
            log.warning("enforcement of NetworkPolicies: %s", self.problem)
        except Exception as error:  # launches wait for an answer: try again
            self.problem = str(error)
            log.exception("enforcement of NetworkPolicies")
        else:
            log.info("NetworkPolicies are enforced: %s", self.enforced)

    def check(self) -> None:
        """Try it once, and keep the answer. Raises ApiError; TimeoutError when nothing is told."""
        self._clean()
        name = f"{RECORD}-{uuid.uuid4().hex[:6]}"
        image, owner = self._own_pod()
        server, client, policy = objects(name, image, owner, self._pool)
        try:
            self._api.create(path("networkpolicies", self._namespace), policy)
            self._api.create(path("pods", self._namespace), server)
            address = self._wait(f"{name}-{SERVER}", _address)
            client["spec"]["containers"][0]["command"].append(address)
            self._api.create(path("pods", self._namespace), client)
            told = self._wait(f"{name}-{CLIENT}", _told)
        finally:
            self._clean()
        if told not in (OPEN, SHUT):
            text = _("the pods of the check could not talk to each other: {said}")
            raise TimeoutError(text.format(said=told))
        self.enforced, self.problem = told == SHUT, ""
        self._save()

    def _wait(self, name: str, told: Callable[[Object], str]) -> str:
        deadline = time.monotonic() + SECONDS
        found: Object = {}
        while time.monotonic() < deadline and not self._enough.is_set():
            found = self._api.get(path("pods", self._namespace, name))
            if answer := told(found):
                return answer
            self._enough.wait(0.5)
        text = _("pod {name} of the check told nothing: {status}")
        raise TimeoutError(text.format(name=name, status=found.get("status")))

    def _own_pod(self) -> tuple[str, Object | None]:
        """The image that this process runs, and its pod as an owner; in no pod what was said."""
        name = os.environ.get("POD_NAME") or os.environ.get("HOSTNAME", "")
        if not account.in_pod() or not name:
            return self._image, None
        try:
            own = self._api.get(path("pods", self._namespace, name))
        except ApiError:
            return self._image, None
        head = own["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": head["name"], "uid": head["uid"]}
        return own["spec"]["containers"][0]["image"], owner

    def _clean(self) -> None:
        for kind in ("pods", "networkpolicies"):
            self._api.delete(path(kind, self._namespace), labelSelector=SELECTOR)

    def _load(self) -> None:
        """What an earlier operator found; it is tried again all the same."""
        try:
            found = self._api.get(path("configmaps", self._namespace, RECORD))
        except ApiError:
            return
        told = str((found.get("data") or {}).get("enforced"))
        self.enforced = {"true": True, "false": False}.get(told)

    def _save(self) -> None:
        where = path("configmaps", self._namespace)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": RECORD},
            "data": {"enforced": str(self.enforced).lower()},
        }
        try:
            self._api.merge(f"{where}/{RECORD}", body)
        except ApiError as error:
            if not error.gone:
                raise
            self._api.create(where, body)


def _address(pod: Object) -> str:
    status = pod.get("status") or {}
    ready = any(each.get("ready") for each in status.get("containerStatuses") or ())
    return str(status.get("podIP", "")) if ready else ""


def _told(pod: Object) -> str:
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        if ended := each["state"].get("terminated"):
            return str(ended.get("message") or ended.get("reason") or "nothing")
    return ""
