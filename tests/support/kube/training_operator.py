"""Kubeflow's training operator 1.9.4, running next to a cluster of the tests.

It is built from its Go module and runs as a process. Its webhook is not reachable, so it validates
nothing. It needs the certificates of its Secret at the path where a pod would mount them. Because
all processes of this machine share that path, only one operator can run at a time.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kubenode import build
from kubenode.commands import locked, wait_until

from tfcluster_magic.kube.api.client import Api, path
from tfcluster_magic.kube.api.decoding import condition

if TYPE_CHECKING:
    from support.kube.kubectl import Kubectl

TFJOBS = "/apis/kubeflow.org/v1/namespaces/{}/tfjobs"
_MODULE = "training-operator"
_HOME = "kubeflow"
_SECRET = "training-operator-webhook-cert"
_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
_RESOURCE = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"
_WEBHOOK = "validator.training-operator.kubeflow.org"


def install(kubectl: Kubectl) -> None:
    """Build the operator unless it is in the cache, and create the objects that it needs.

    Raises:
        NodeError: the operator cannot be built, or the API does not serve TFJobs.
    """
    build.build([_MODULE])
    kubectl = kubectl.within(_HOME)
    (resource,) = build.resources(_MODULE, "crds")
    kubectl("apply", "-f", str(resource), "--server-side", "--force-conflicts")
    # `kubectl wait` fails for a new object without conditions
    wait_until(lambda: _is_established(kubectl.api), "the API serves TFJobs", seconds=60, every=0.2)
    admission = {"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": []}
    secret = {"name": _SECRET, "namespace": _HOME}
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _HOME}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": secret},
        {**admission, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": _WEBHOOK}},
    )


def _is_established(api: Api) -> bool:
    return condition(api.get(_RESOURCE), "Established").get("status") == "True"


@contextmanager
def running(kubectl: Kubectl, *flags: str) -> Iterator[None]:
    """Run the operator with these flags, for all namespaces, until the block ends.

    Raises:
        NodeError: the operator is not ready in time.
    """
    words = [str(build.binary(_MODULE)), "--enable-scheme=tfjob", "--metrics-bind-address=0"]
    words += ["--health-probe-bind-address=0", f"--webhook-server-port={_free_port()}", *flags]
    environment = {**os.environ, "KUBECONFIG": kubectl.kubeconfig, "MY_POD_NAMESPACE": _HOME}
    folder = _CERTIFICATES.parent
    with (
        locked(folder.with_suffix(".lock"), waiting_for="it runs the training operator"),
        tempfile.NamedTemporaryFile() as log,
    ):
        program = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        said = Path(log.name).read_text

        def works() -> bool:
            assert program.poll() is None, said()[-3000:]
            return "Starting workers" in said()

        try:
            wait_until(lambda: _certificates(kubectl.api), "it has its certificates", seconds=120)
            wait_until(works, "the training operator works", seconds=180)
            yield
        finally:
            program.terminate()
            program.wait(60)
            shutil.rmtree(folder, ignore_errors=True)


def _certificates(api: Api) -> bool:
    """Copy the certificates from the operator's Secret to the path where a pod would mount them."""
    found = api.get(path("secrets", _HOME, _SECRET)).get("data") or {}
    _CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, content in found.items():
        (_CERTIFICATES / name).write_bytes(base64.b64decode(content))
    return "tls.key" in found


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port
