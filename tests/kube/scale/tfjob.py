"""Kubeflow's TFJob operator on the same nodes, as it is shipped and with more calls a second.

It runs as a process beside the cluster, as our own does here. Its webhook is reached by nobody, but
it works only when the certificates that it keeps in a Secret are where a pod would have them.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kubenode import build
from kubenode.commands import say, wait_until

from benchmarks.rows import Row, compared
from tfcluster_magic.kube.api.client import Object, path
from tfcluster_magic.kube.api.decoding import condition

from .site import Site
from .variants import PS, TFCLUSTER, WORKERS, Way, measure, on_fakes

MODULE = "training-operator"
HOME = "kubeflow"
SECRET = "training-operator-webhook-cert"
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
RESOURCE = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"
WEBHOOK = "validator.training-operator.kubeflow.org"
TUNED = ("--kube-api-qps=200", "--kube-api-burst=400", "--controller-threads=10")
SHIPPED, FAST = "tfjob_shipped", "tfjob_tuned"
JOB = Way("tfjob", lambda _site: [_job()])


def tfjob(site: Site, rounds: int) -> list[Row]:
    """TFCluster in turn with TFJob in both ways."""
    build.build([MODULE])
    _install(site)
    values: dict[str, list[float]] = defaultdict(list)
    objects = 0.0
    for number in range(1, rounds + 1):
        values["ours"].append(measure(site, TFCLUSTER)["running"])
        for name, flags in ((SHIPPED, ()), (FAST, TUNED)):
            with _operator(site, flags):
                measured = measure(site, JOB)
            values[name].append(measured["running"])
            objects = max(objects, measured["objects"])  # slices come late under load
        say(f"round {number}: { ({name: round(each[-1], 2) for name, each in values.items()}) }")
    ours, shipped, tuned = (values[name] for name in ("ours", SHIPPED, FAST))
    note = f"TFJob, {PS} ps and {WORKERS} workers: {objects:.0f} objects; as shipped"
    return [
        compared(
            "scale_to_tfjob", "s", ours, shipped, at_most=1 / 6, note=f"{note}, {_each(shipped)}"
        ),
        compared(
            "scale_to_tfjob_tuned",
            "s",
            ours,
            tuned,
            at_most=0.5,
            note=f"{' '.join(TUNED)}, {_each(tuned)}",
        ),
    ]


def _each(times: Sequence[float]) -> str:
    """Each round: it makes the pods and Services of one type, then of the other, in the random
    order of a Go map, so that 700 or 1100 of its writes (20 a second as shipped) come before the
    last pod. Ref: `ReconcileJobs` in pkg/controller.v1/common/job.go.
    """
    return f"in turn {', '.join(f'{each:.1f}' for each in times)} s: ps or workers first"


def _job() -> Object:
    def replicas(count: int) -> Object:
        template = on_fakes()
        template["containers"][0]["name"] = "tensorflow"  # the only one that it takes
        del template["restartPolicy"]
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": template}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "scale"},
        "spec": {"tfReplicaSpecs": {"PS": replicas(PS), "Worker": replicas(WORKERS)}},
    }


def _install(site: Site) -> None:
    (resource,) = build.resources(MODULE, "crds")
    site.kubectl("apply", "-f", str(resource), "--server-side", "--force-conflicts")
    # `kubectl wait` fails on one that is so new that it has no conditions
    wait_until(lambda: _is_established(site), "the API serves TFJobs", seconds=60, every=0.2)
    admission = {"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": []}
    secret = {"name": SECRET, "namespace": HOME}
    site.kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": secret},
        {**admission, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": WEBHOOK}},
    )


def _is_established(site: Site) -> bool:
    return condition(site.api.get(RESOURCE), "Established").get("status") == "True"


@contextmanager
def _operator(site: Site, flags: Sequence[str]) -> Iterator[None]:
    """The operator, for one launch."""
    words = [str(build.binary(MODULE)), "--enable-scheme=tfjob", "--metrics-bind-address=0"]
    words += ["--health-probe-bind-address=0", f"--webhook-server-port={_free_port()}", *flags]
    environment = {**os.environ, "KUBECONFIG": site.kubectl.kubeconfig, "MY_POD_NAMESPACE": HOME}
    with tempfile.NamedTemporaryFile() as log:
        program = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        said = Path(log.name).read_text

        def works() -> bool:
            assert program.poll() is None, said()[-3000:]
            return "Starting workers" in said()

        try:
            wait_until(lambda: _certificates(site), "it has its certificates", seconds=120)
            wait_until(works, "TFJob's operator works", seconds=180)
            yield
        finally:
            program.terminate()
            program.wait(60)
            shutil.rmtree(CERTIFICATES.parent, ignore_errors=True)


def _certificates(site: Site) -> bool:
    """Bring what is in its Secret to where a pod would have it mounted."""
    found = site.api.get(path("secrets", HOME, SECRET)).get("data") or {}
    CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, content in found.items():
        (CERTIFICATES / name).write_bytes(base64.b64decode(content))
    return "tls.key" in found


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port
