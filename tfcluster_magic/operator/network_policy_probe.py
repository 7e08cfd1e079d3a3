"""An experiment that checks whether the cluster enforces NetworkPolicies.

One pod listens on two ports, a policy opens one of them, and another pod tries both. The answer
counts only if the open port is reached, because a broken network proves nothing. The last answer is
kept in a ConfigMap, so that a restart delays no launch. The check needs no privilege: its pods meet
the Pod Security Standard `restricted`, run the operator's image in the operator's namespace, and
end on their own.

Ref: https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable

from ..i18n import _
from ..kube.api import access
from ..kube.api.client import Api, ApiError, Object, path
from ..kube.controller.work_queue import BackgroundThread

RECORD = "tfcluster-enforcement"
"""The ConfigMap that keeps the last answer."""
SELECTOR = f"app.kubernetes.io/component={RECORD}"
AGAIN = {True: 6 * 3600.0, False: 300.0, None: 20.0}
"""Seconds until the next check, by the answer of the last check: policies are enforced (True), are
not enforced (False), or it is unknown whether they are (None).
"""
AFTER_A_FAILURE = 60.0
"""Seconds until the next check after a failed check; until then, the last answer stays valid."""
SECONDS = 240.0
"""Timeout of one check in seconds; the image may have to be pulled."""

log = logging.getLogger(__name__)


class EnforcementCheck(BackgroundThread):
    """A thread that runs the check when it starts, and then repeatedly (see `AGAIN`).

    Args:
        api: the connection to the API server.
        namespace: the operator's own namespace, where the pods run.
        image: the image of the pods if this process does not run in a pod; the image needs python3.
        leads: returns whether this process is the leader, which alone may act.
        pool: `nodeSelector` and `tolerations` of the pods, the same as for tasks.
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
        """Whether policies are enforced, by the last check; None while unknown."""
        self.problem = ""
        """The reason why there is no answer."""

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
        """Check once and save the answer.

        Raises:
            ApiError: a request failed.
            TimeoutError: the pods gave no answer in time.
        """
        self._clean()
        name = f"{RECORD}-{uuid.uuid4().hex[:6]}"
        image, owner = self._own_pod()
        server, client, policy = probe_objects(name, image, owner, self._pool)
        try:
            self._api.create(path("networkpolicies", self._namespace), policy)
            self._api.create(path("pods", self._namespace), server)
            address = self._wait(f"{name}-{SERVER}", _server_address)
            client["spec"]["containers"][0]["command"].append(address)
            self._api.create(path("pods", self._namespace), client)
            told = self._wait(f"{name}-{CLIENT}", _probe_result)
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
        text = _("pod {name} of the check reported nothing: {status}")
        raise TimeoutError(text.format(name=name, status=found.get("status")))

    def _own_pod(self) -> tuple[str, Object | None]:
        """Return the image of this process, and an owner reference to its pod. Outside of a pod,
        return the configured image and None.
        """
        name = os.environ.get("POD_NAME") or os.environ.get("HOSTNAME", "")
        if not access.in_pod() or not name:
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
        """Load the answer of an earlier operator, for use until this operator's own check ends."""
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


def _server_address(pod: Object) -> str:
    status = pod.get("status") or {}
    ready = any(each.get("ready") for each in status.get("containerStatuses") or ())
    return str(status.get("podIP", "")) if ready else ""


def _probe_result(pod: Object) -> str:
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        if ended := each["state"].get("terminated"):
            return str(ended.get("message") or ended.get("reason") or "nothing")
    return ""


# The two pods and the policy of the check. Pure.

SERVER, CLIENT = "server", "client"
OPEN, SHUT = "open", "shut"
"""The client's report: it reached the port that the policy denies, or it did not."""
ALLOWED, DENIED = 2222, 2223
DEADLINE = 270

_LISTEN = f"""
import socket, time
every = [socket.create_server(("", port)) for port in ({ALLOWED}, {DENIED})]
time.sleep({DEADLINE})
"""

# The client's program. Nodes apply a policy a moment after the pods start, so the program tries
# again until the result stays the same.
_TRY = f"""
import socket, sys, time

def reached(port):
    try:
        socket.create_connection((sys.argv[1], port), timeout=1.5).close()
        return True
    except OSError:
        return False

told, shut, began = "unreachable", 0, time.monotonic()
while time.monotonic() - began < 60:
    if reached({ALLOWED}):
        shut = 0 if reached({DENIED}) else shut + 1
        told = "{SHUT}" if shut else "{OPEN}"
        if shut == 3 or (not shut and time.monotonic() - began > 15):
            break
    time.sleep(0.5)
open("/dev/termination-log", "w").write(told)
"""


def probe_objects(
    name: str, image: str, owner: Object | None, pool: Object
) -> tuple[Object, Object, Object]:
    """Return the server pod, the client pod and the policy.

    The client's command still lacks its last argument, the server's address. `pool` holds the pods'
    `nodeSelector` and `tolerations`.
    """
    server, client = (
        _pod(name, kind, image, program, owner)
        for kind, program in ((SERVER, _LISTEN), (CLIENT, _TRY))
    )
    for each in (server, client):
        each["spec"] |= pool
    return server, client, _policy(name, owner)


def _head(name: str, kind: str, owner: Object | None) -> Object:
    component = {"app.kubernetes.io/component": "tfcluster-enforcement"}
    head: Object = {"name": name, "labels": {**component, **_labels(name.rpartition("-")[0], kind)}}
    if owner is not None:
        head["ownerReferences"] = [owner]
    return head


def _labels(name: str, kind: str) -> dict[str, str]:
    return {"tfcluster.dev/check": name, "tfcluster.dev/check-role": kind}


def _pod(name: str, kind: str, image: str, program: str, owner: Object | None) -> Object:
    container = {
        "name": kind,
        "image": image,
        "command": ["python3", "-I", "-S", "-c", program],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "500m", "memory": "64Mi"},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if kind == SERVER:
        container["startupProbe"] = {"tcpSocket": {"port": DENIED}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _head(f"{name}-{kind}", kind, owner),
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    }


def _policy(name: str, owner: Object | None) -> Object:
    def selected(kind: str) -> Object:
        return {"podSelector": {"matchLabels": _labels(name, kind)}}

    allowed = {"port": ALLOWED, "protocol": "TCP"}
    both = [allowed, {"port": DENIED, "protocol": "TCP"}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {**_head(f"{name}-policy", "policy", owner), "name": name},
        "spec": {
            "podSelector": {"matchLabels": {"tfcluster.dev/check": name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [selected(CLIENT)], "ports": [allowed]}],
            "egress": [{"to": [selected(SERVER)], "ports": both}],
        },
    }
