"""The parts of an object that decoders keep: all that the product reads, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.kube_server import KubeServer
from support.project import DATA

from tfcluster_magic.kube.api import decoding
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.api.resource_amounts import pod_resources
from tfcluster_magic.launch_checks.capacity_check import room_taken_by_pod

RECORDED = sorted((DATA / "pods").glob("*.json"))


def decoded(shape: decoding.Shape, found: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of `found` that remain if a watch sends it."""
    event = shape.event.decode(json.dumps({"type": "ADDED", "object": found}))
    kept: dict[str, Any] = event.object
    return kept


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: str(file.stem))
def test_a_pod_is_kept_as_one_that_was_read_whole(file: Path) -> None:
    """Caches keep the same parts of a pod, including its requests, whether the pod was watched or
    listed.
    """
    whole = json.loads(file.read_text())
    kept = decoded(decoding.POD_SHAPE, whole)
    assert decoding.trim_pod(kept) == decoding.trim_pod(whole)
    assert pod_resources(kept["spec"]) == pod_resources(whole["spec"])
    assert room_taken_by_pod(kept) == room_taken_by_pod(whole)
    assert "command" not in kept["spec"]["containers"][0]
    assert "managedFields" not in kept["metadata"]


def test_init_containers_count_as_before() -> None:
    """The parts that caches keep give the same requests as the whole pod, including its sidecars,
    its other init containers and its overhead.
    """
    small, large = ({"resources": {"requests": {"cpu": cpu}}} for cpu in ("100m", "2"))
    spec = {
        "containers": [{**small, "args": ["x"]}],
        "initContainers": [{**large, "restartPolicy": "Always"}, small],
        "overhead": {"cpu": "10m"},
    }
    kept = decoded(decoding.POD_SHAPE, {"metadata": {}, "spec": spec, "status": {}})
    assert pod_resources(kept["spec"]) == pod_resources(spec) == {"cpu": 2.11}


def test_a_bookmark_says_nothing_but_a_version() -> None:
    """A bookmark event of a watch is decoded, although its object has null where pods have lists.
    Only its version has a meaning.
    """
    told = {
        "metadata": {"resourceVersion": "7", "creationTimestamp": None},
        "spec": {"containers": None},
        "status": {},
    }
    assert decoded(decoding.POD_SHAPE, told) == told


def test_a_job_is_kept_without_the_template_of_its_pods() -> None:
    """A Job is kept without its pod template, also in a list; its other fields are the same."""
    server = KubeServer()
    try:
        spec = {"completions": 3, "parallelism": 3, "suspend": False, "template": {"spec": {}}}
        where = f"{path('jobs', 'ada')}/digits-1-worker"
        server.put(where, {"metadata": {"labels": {"a": "b"}}, "spec": spec})
        [found] = server.api().every(path("jobs", "ada"), shape=decoding.JOB_SHAPE).items
        whole = server.api().get(where)
    finally:
        server.close()
    assert "template" in whole["spec"] and "template" not in found["spec"]
    assert decoding.trim_job(found) == decoding.trim_job(whole)


def large(phase: str, **status: Any) -> dict[str, Any]:
    """Return a record with the largest allowed contents and these fields of its status."""
    text = "x" * 100_000
    program = {"kind": "cell", "source": "cell", "entrypoint": "cell.py", "sha256": "0" * 64}
    texts = {"files": {"cell.py": text}, "arguments": [text], "executables": [text]}
    return {
        "metadata": {
            "name": "digits-1",
            "namespace": "a",
            "uid": "1",
            "resourceVersion": "7",
            "labels": {"example.com/a": text},
            "annotations": {"example.com/a": text, "tfcluster.dev/warnings": text},
            "managedFields": [{"fieldsV1": {"f:spec": text}}],
        },
        "spec": {
            "env": {"A": text},
            "program": {**program, **texts, "flags": [text]},
            "pods": {"annotations": {"a": text}},
            "lifecycle": {"keepForSeconds": 60},
        },
        "status": {"phase": phase, **status},
    }


def test_of_a_record_nothing_large_is_kept() -> None:
    """Caches keep all of a record except texts of unlimited length."""
    kept = decoding.trim_tfcluster(decoded(decoding.NAMED_SHAPE, large("Running", message="x")))
    assert len(json.dumps(kept)) < 1_000
    assert kept["spec"]["program"]["entrypoint"] == "cell.py"
    assert kept["spec"]["pods"]["annotations"].keys() == {"a"}
    assert kept["status"] == {"phase": "Running", "message": "x"}


def test_of_a_record_that_is_over_only_what_counts_is_kept() -> None:
    """Caches keep only the retention, the usage and the end time of an ended record."""
    ended = {"releasedTime": "2026-01-31T12:00:02Z", "completionTime": "2026-01-31T12:00:01Z"}
    over = {**ended, "message": "x" * 10_000, "usage": {"time": "2026-01-31T12:00:02Z"}}
    kept = decoding.trim_tfcluster(large("Succeeded", **over))
    assert len(json.dumps(kept)) < 500
    assert kept["spec"] == {"lifecycle": {"keepForSeconds": 60}}
    assert kept["status"].keys() == {"phase", *ended, "usage"}
