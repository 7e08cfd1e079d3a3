"""kubectl as a function: it returns objects of a cluster, in a namespace, from JSON.

Every failure contains the server's own message. A timeout also contains the object and the last
events. A failed call is never repeated. Objects that tests read often are read without kubectl,
because its start takes a tenth of a second of CPU time.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kubenode.commands import run, succeeds, wait_until
from kubenode.errors import NodeError

from tfcluster_magic.kube.api.client import Api, ApiError, path

Object = dict[str, Any]
EVENTS = 15
READ = {
    "configmap": "configmaps",
    "deployment": "deployments",
    "endpointslice": "endpointslices",
    "job": "jobs",
    "namespace": "namespaces",
    "networkpolicy": "networkpolicies",
    "node": "nodes",
    "pod": "pods",
    "pv": "persistentvolumes",
    "pvc": "persistentvolumeclaims",
    "resourcequota": "resourcequotas",
    "secret": "secrets",
    "service": "services",
    "tfcluster": "tfclusters",
    "tfclusterschedule": "tfclusterschedules",
}
"""Kinds that are read without kubectl, by singular and plural name."""
READ |= {plural: plural for plural in READ.values()}
CLUSTER_WIDE = {"namespaces", "nodes", "persistentvolumes"}
SILENT = 60.0
"""Seconds without new data after which a log is closed."""


@cache
def _api(kubeconfig: str) -> Api:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    load_kube_config(kubeconfig, client_configuration=configuration)
    return Api(configuration)


@dataclass(frozen=True)
class Kubectl:
    """kubectl with a kubeconfig, in `namespace`; if empty, in the kubeconfig's namespace."""

    program: Path
    kubeconfig: str
    namespace: str = ""

    def within(self, namespace: str) -> Kubectl:
        """Return the same kubectl for another namespace."""
        return replace(self, namespace=namespace)

    def __call__(self, *arguments: str, stdin: str = "", seconds: float = 120) -> str:
        """Run `kubectl <arguments>` and return its output.

        Raises:
            NodeError: it failed.
        """
        return run(self.words(*arguments), stdin=stdin, timeout=seconds)

    def words(self, *arguments: str) -> list[str]:
        """Return the command line for a caller that starts kubectl itself."""
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", *where, *arguments]

    def answers(self) -> bool:
        """Return whether the API server answers now."""
        words = self.words("get", "--raw", "/readyz", "--request-timeout=5s")
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def apply(self, *manifests: Object | str) -> None:
        """Apply objects, given as dicts or as YAML text."""
        texts = (each if isinstance(each, str) else json.dumps(each) for each in manifests)
        # Older versions of kubectl read a stream that begins with "{" as JSON only.
        self("apply", "-f", "-", stdin="".join(f"---\n{text}\n" for text in texts))

    def refused(self, *manifests: Object | str) -> str:
        """Apply objects that the cluster must refuse, and return its message."""
        try:
            self.apply(*manifests)
        except NodeError as error:
            return str(error)
        raise AssertionError(f"The cluster accepted what it has to refuse: {manifests}")

    def get(self, kind: str, name: str) -> Object:
        """Return one object.

        Raises:
            NodeError: there is no such object.
        """
        try:
            if kind in READ:
                return _api(self.kubeconfig).get(self._path(kind, name))
        except ApiError as error:
            raise NodeError(f"{kind} {name}: {error}") from error
        found: Object = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def every(self, kind: str, selector: str = "") -> Sequence[Object]:
        """Return the objects of a kind with the labels of `selector`."""
        try:
            if kind in READ:
                return _api(self.kubeconfig).every(self._path(kind), labelSelector=selector).items
        except ApiError as error:
            raise NodeError(f"{kind} {selector}: {error}") from error
        found: Object = json.loads(self("get", kind, "-l", selector, "-o", "json"))
        every: Sequence[Object] = found["items"]
        return every

    def _path(self, kind: str, name: str = "", part: str = "") -> str:
        resource = READ[kind]
        namespace = "" if resource in CLUSTER_WIDE else self.namespace or "default"
        where = path(resource, namespace, name, part)
        # `path` does not know Deployments, because the product does not use them.
        return where.replace("/api/v1", "/apis/apps/v1", 1) if resource == "deployments" else where

    @property
    def api(self) -> Api:
        """Return a connection to the API with the kubeconfig's account. Unlike kubectl, it can
        change an object without reading it first.
        """
        return _api(self.kubeconfig)

    def wait_until_furnished(self) -> None:
        """Wait until the namespace has its service account, because pods are refused until then.
        The controller manager creates the account; if it has lost the API server, it works again
        only when its Lease has expired.
        """
        words = ("wait", "--for=create", "serviceaccount/default", "--timeout=120s")
        self(*words, seconds=150)

    def delete(self, kind: str, name: str, *options: str) -> None:
        """Delete an object and wait until it is gone."""
        self("delete", kind, name, *options)

    def logs(self, pod: str, *options: str) -> str:
        """Return the output of a pod."""
        if options or "/" in pod:
            return self("logs", pod, *options)
        try:
            lines = _api(self.kubeconfig).lines(self._path("pod", pod, "log"), silence=SILENT)
            return "".join(line.decode(errors="replace") + "\n" for line in lines)
        except ApiError as error:
            raise NodeError(f"log of {pod}: {error}") from error

    def exec(self, pod: str, *command: str, seconds: float = 120) -> str:
        """Run a command in a pod and return its output."""
        return self("exec", pod, "--", *command, seconds=seconds)

    def succeeds(self, pod: str, *command: str, seconds: float = 120) -> bool:
        """Return whether a command in a pod exits with 0."""
        words = self.words("exec", pod, "--", *command)
        return succeeds(words, seconds=seconds)

    def wait(
        self,
        kind: str,
        name: str,
        condition: Callable[[Object], object],
        what: str,
        seconds: float = 90,
    ) -> Object:
        """Wait until `condition` of an object is true, and return the object.

        Raises:
            NodeError: the time is over; the message has the object's status and the last events.
        """
        found: Object = {}

        def is_so() -> bool:
            found.clear()
            found.update(self.get(kind, name))
            return bool(condition(found))

        try:
            wait_until(is_so, f"{kind} {name}: {what}", seconds=seconds, every=0.2)
        except NodeError as error:
            status = json.dumps(found.get("status", {}), indent=1)
            raise NodeError(
                f"{error}\nIts status: {status}\nThe last events:\n{self.events()}"
            ) from error
        return found

    def running(self, pod: str, seconds: float = 90) -> Object:
        """Wait until a pod is ready, and return it."""
        return self.wait("pod", pod, is_ready, "it is ready", seconds)

    def gone(self, kind: str, name: str, seconds: float = 90) -> None:
        """Wait until an object does not exist."""
        self(
            "wait",
            f"{kind}/{name}",
            "--for=delete",
            f"--timeout={seconds:g}s",
            seconds=seconds + 10,
        )

    def events(self, name: str = "") -> str:
        """Return the last events, one line each; with `name`, only those of this object."""
        about = [f"--field-selector=involvedObject.name={name}"] if name else []
        columns = "LAST:.lastTimestamp,ABOUT:.involvedObject.name,REASON:.reason,SAID:.message"
        try:
            lines = self(
                "get",
                "events",
                *about,
                "--sort-by=.lastTimestamp",
                "-o",
                f"custom-columns={columns}",
            )
        except NodeError as error:
            return str(error)
        return "\n".join(lines.splitlines()[-EVENTS:])


def is_ready(pod: Object) -> bool:
    """Return whether a pod reports that it is ready."""
    return condition(pod, "Ready") == "True"


def condition(found: Object, kind: str) -> str:
    """Return the status of an object's condition, such as "True"; empty if the object lacks it."""
    every = found.get("status", {}).get("conditions") or []
    return next((each["status"] for each in every if each["type"] == kind), "")
