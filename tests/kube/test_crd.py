"""The custom resource on a real API server: refusals, stored fields and columns of kubectl."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kubenode.commands import wait_until
from support.invalid_specs import NAMES, WRONG, Wrong, mounting, running
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.project import ROOT

from tfcluster_magic.kube.api.client import Api, ApiError, path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.launch.validation import validate
from tfcluster_magic.spec import Phase, Reason, Spec, Status, TypeCounts, resource_form

CRDS = ROOT / "k8s" / "crds"
WHOLE = {
    **running(
        image="registry:5000/team/tensorflow:2.21",
        replicas={
            "chief": {"count": 1},
            "worker": {"count": 2, "resources": {"cpu": 0.5, "memory": "1.5Gi", "gpu": 1}},
            "ps": {"count": 1, "resources": {"memory": "64Mi"}},
        },
        env={"A": "b", "EMPTY": ""},
        lifecycle={"maxDuration": 3600, "queueTimeout": 0},
        pods={
            "imagePullSecrets": ["registry"],
            "volumes": [
                {"claim": "images", "path": "/mnt/images", "readOnly": True, "subPath": "a/b"},
                {"claim": "images", "path": "/mnt/images/c"},
            ],
            "secrets": [{"name": "s3"}, {"name": "s3", "path": "/mnt/s3"}],
            "annotations": {"prometheus.io/scrape": "true"},
            "dataClaim": {"size": "10Gi", "storageClass": "shared"},
        },
    ),
}


def run(name: str, spec: Mapping[str, Any]) -> Object:
    """Return a TFCluster as a user writes it, from a spec with Python's names of fields."""
    return {
        "apiVersion": "tfcluster.dev/v1beta1",
        "kind": "TFCluster",
        "metadata": {"name": name},
        "spec": resource_form.write(Spec, spec),
    }


@pytest.fixture(scope="module")
def kubectl(cluster: UnderTest) -> Kubectl:
    """A kubectl for a cluster that has the custom resource definition."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CRDS))
    cluster.kubectl(
        "wait", "--for=condition=Established", "-f", str(CRDS / "tfclusters.tfcluster.dev.yaml")
    )
    return cluster.kubectl


@pytest.fixture(scope="module")
def api(kubectl: Kubectl) -> Iterator[Api]:
    """The package's own client of the same API server, which is faster than starting kubectl."""
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    load_kube_config(kubectl.kubeconfig, client_configuration=configuration)
    api = Api(configuration)
    yield api
    api.close()


def refusal(api: Api, thing: Object) -> str:
    """Return the API server's refusal of an object in a dry run, or "" if it accepts the object."""
    try:
        # `kubectl apply` requests the same validation.
        strictly = {"dryRun": "All", "fieldValidation": "Strict"}
        api.create(path("tfclusters", "default"), thing, **strictly)
    except ApiError as error:
        return error.message
    return ""


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_kubectl_is_refused_what_the_magic_is_refused(api: Api, wrong: Wrong) -> None:
    """The API server refuses each mistake that a launch refuses, in the same words."""
    said = refusal(api, run("wrong-1", wrong.spec))
    if wrong.told_by_kubectl is None:
        assert said == ""
    else:
        assert wrong.told_by_kubectl in said


@pytest.mark.parametrize("name", NAMES)
def test_kubectl_is_refused_names_that_no_run_has(api: Api, name: str) -> None:
    """A name that is not <cluster>-<run> is refused, and the message states the rule."""
    said = refusal(api, run(name, running()))
    assert "metadata.name" in said
    assert "name it <cluster>-<run>, such as digits-1" in said


def test_all_mistakes_are_reported_at_once(kube: Kubectl) -> None:
    """One `kubectl apply` names all wrong fields, as a launch does."""
    spec = {**mounting("/log"), "replicas": {"chief": {"count": 2}}, "env": {"TF_CONFIG": ""}}
    said = kube.refused(run("wrong-1", spec))
    for field in ("spec.pods.volumes[0].path", "spec.replicas.chief.count", "spec.env"):
        assert f"{field}: Invalid value" in said


def test_an_applied_run_reads_like_a_launched_one(kubectl: Kubectl, kube: Kubectl) -> None:
    """An object applied by kubectl reads as the record that a launch would have made."""
    kube.apply(run("digits-1", WHOLE), run("plain-1", {**running(), "image": None}))
    applied = custom_resource.read(kube.get("tfc", "digits-1"))
    plain = custom_resource.read(kube.get("tfc", "plain-1"))

    assert applied.spec == validate(WHOLE)
    assert plain.spec == validate(running())
    assert (plain.metadata.owner, plain.metadata.run) == (kube.namespace, 1)
    assert "unchanged" in kube("apply", "-f", "-", stdin=json.dumps(run("digits-1", WHOLE)))


def test_a_launch_is_stored_as_it_was_asked_for(kubectl: Kubectl, kube: Kubectl) -> None:
    """A record that the backend wrote is read back with its warnings."""
    spec = validate(WHOLE)
    kube.apply(custom_resource.write("digits", 3, spec, warnings=["memory is scarce"]))
    stored = custom_resource.read(kube.get("tfc", "digits-3"))

    assert (stored.spec, stored.status.warnings) == (spec, ("memory is scarce",))


def test_records_of_the_previous_version_are_converted(kubectl: Kubectl, kube: Kubectl) -> None:
    """`tools/convert_records.py` converts records of v1alpha1 with their status, as
    docs/how-to/install-kubernetes.md says.
    """
    head = {"name": "old-3", "namespace": kube.namespace, "uid": "7f0e"}
    ended = float(int(time.time()))  # recent times, because an operator deletes old runs
    status = {"phase": "Succeeded", "reason": "Completed", "finishedAt": ended, "releasedAt": ended}
    old = {"metadata": head, "spec": {**WHOLE, "lifecycle": {"grace": 5.0}}, "status": status}
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "convert_records.py"],
        input=json.dumps({"items": [old]}),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kube("create", "-f", "-", stdin=made)
    kube("replace", "--subresource=status", "-f", "-", stdin=made)
    found = custom_resource.read(kube.get("tfc", "old-3"))

    assert (found.spec.lifecycle.grace, found.status.phase) == (5.0, Phase.SUCCEEDED)
    assert found.status.finished_at == found.status.released_at == ended
    kube("wait", "tfc/old-3", "--for=condition=Complete", "--timeout=10s")


CHANGES: Mapping[str, Any] = {
    "mode": "InGraph",
    "replicas": {"worker": {"count": 5}},
    "program": {"arguments": ["--epochs", "9"]},
    "passFlags": "None",
    "server": "Python",
    "image": "other:1",
    "interpreter": "/usr/bin/python3",
    "env": {"A": "c"},
    "lifecycle": {"maxDurationSeconds": 7200},
    "resumeFrom": "digits-1",
    "pods": {"annotations": {"a": "b"}},
}


def test_only_a_stop_can_change_a_run(api: Api, kube: Kubectl) -> None:
    """Every field but spec.stop is immutable, and the refusal names the next run to create. A stop
    can be requested once and cannot be withdrawn.
    """

    def refused(name: str, spec: Mapping[str, Any]) -> str:
        with pytest.raises(ApiError) as error:
            change(name, spec)
        return error.value.message

    def change(name: str, spec: Mapping[str, Any]) -> Object:
        return api.merge(path("tfclusters", kube.namespace, name), {"spec": spec})

    kube.apply(run("digits-1", WHOLE), run("plain-99", running()))
    for name in ("digits-1", "plain-99"):
        for field, value in CHANGES.items():
            said = refused(name, {field: value})
            assert f"spec.{field}: Invalid value" in said
            assert "only spec.stop can change once a run exists" in said
            next_run = {"digits-1": "digits-2", "plain-99": "plain-100"}[name]
            assert f"create {next_run} instead" in said
    for field in ("image", "pods", "env", "program"):
        assert f"spec.{field}: " in refused("digits-1", {field: None})

    at = "1970-01-01T00:00:01.5Z"
    change("digits-1", {"stop": {"reason": "enough", "by": "alice", "time": at}})
    assert "stays so" in refused("digits-1", {"stop": {"reason": "more"}})
    assert "stays so" in refused("digits-1", {"stop": None})
    stopped = custom_resource.read(kube.get("tfc", "digits-1")).spec.stop
    assert stopped is not None
    assert (stopped.reason, stopped.by, stopped.at) == ("enough", "alice", 1.5)


def test_kubectl_shows_the_state_of_a_run(kubectl: Kubectl, kube: Kubectl) -> None:
    """`kubectl get tfc` shows phase, ready tasks, reason and age, and with `-o wide` the message.
    Writing the status changes nothing in the spec.
    """
    kube.apply(run("digits-1", running()))
    status = custom_resource.write_status(
        Status(
            phase=Phase.RUNNING,
            reason=Reason.RUNNING,
            message="all 3 tasks run",
            counts={"worker": TypeCounts(desired=3, running=2, succeeded=1)},
            started_at=5.5,
        )
    )
    body = json.dumps({"status": {**status, "tide": "high"}, "spec": {"mode": "in-graph"}})

    def is_shown() -> bool:
        """Patch and read together, because an operator on the same cluster may overwrite the status
        in between.
        """
        kube("patch", "tfc", "digits-1", "--subresource=status", "--type=merge", "-p", body)
        head, row = kube("get", "tfc").splitlines()
        assert head.split() == ["NAME", "PHASE", "READY", "REASON", "AGE"]
        wide = kube("get", "tfcluster", "-o", "wide")
        stored = kube.get("tfclusters", "digits-1")
        assert "tide" not in stored["status"]
        read = custom_resource.read(stored)
        assert read.spec.mode == "between-graph"
        shown = row.split()[:4] == ["digits-1", "Running", "3/3", "Running"]
        return shown and "all 3 tasks run" in wide and read.status.started_at == 5.5

    wait_until(is_shown, "kubectl shows the status", seconds=60)
    assert "digits-1" in kube("get", "all")


def test_kubectl_explains_what_a_field_is_for(kubectl: Kubectl) -> None:
    """`kubectl explain` shows full sentences with units and defaults."""
    replicas = " ".join(kubectl("explain", "tfcluster.spec.replicas").split())
    assert "The tasks of a cluster by task type; a type that is absent has no tasks." in replicas
    assert "Parameter servers, released when the workers are done." in replicas
    mode = " ".join(kubectl("explain", "tfc.spec.mode").split())
    assert "one notebook (InGraph). Default: BetweenGraph." in mode
    lifecycle = " ".join(kubectl("explain", "tfc.spec.lifecycle").split())
    assert "Longest time from start to end. In seconds. Default: 86400." in lifecycle
    assert "lastTransitionTime" in kubectl("explain", "tfc.status.conditions")
