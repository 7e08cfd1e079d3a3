"""The conversion of a spec and a status into the form of the Kubernetes API, and back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.invalid_specs import CELL

from tfcluster_magic.launch.validation import validate
from tfcluster_magic.spec import (
    Cause,
    Event,
    Message,
    Phase,
    Reason,
    Reclaimed,
    Spec,
    Status,
    TaskExit,
    TaskFailure,
    TypeCounts,
    Usage,
    resource_form,
)

HERE: dict[str, Any] = {
    "mode": "between-graph",
    "replicas": {
        "worker": {"count": 2, "resources": {"cpu": 0.2, "memory": "1.5Gi", "gpu": 1}},
        "ps": {"count": 1, "resources": {"cpu": 2.0}},
    },
    "program": {**CELL, "kind": "url"},
    "passFlags": "addresses",
    "lifecycle": {"maxDuration": 5400.0, "grace": 0.5, "successPolicy": "chief"},
    "pods": {
        "imagePullSecrets": ["registry"],
        "volumes": [{"claim": "images", "path": "/mnt/images"}],
        "dataClaim": {"size": "10Gi", "storageClass": "shared"},
    },
    "stop": {"reason": "enough", "by": "alice", "at": 1769860800.5},
}
THERE: dict[str, Any] = {
    "mode": "BetweenGraph",
    "replicas": {
        "worker": {"count": 2, "resources": {"cpu": "200m", "memory": "1.5Gi", "gpu": 1}},
        "ps": {"count": 1, "resources": {"cpu": "2"}},
    },
    "program": {**CELL, "kind": "URL"},
    "passFlags": "Addresses",
    "lifecycle": {"maxDurationSeconds": 5400, "graceSeconds": 1, "successPolicy": "Chief"},
    "pods": {
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [{"claimName": "images", "path": "/mnt/images"}],
        "dataClaim": {"size": "10Gi", "storageClassName": "shared"},
    },
    "stop": {"reason": "enough", "by": "alice", "time": "2026-01-31T12:00:00.500000Z"},
}
TOLD = Message(
    "Slow",
    {"seconds": 12.0, "count": 3, "names": ["a", "b"], "why": Message("Why", {"rate": 0.1})},
)
EXIT = TaskExit(cause=Cause.ERROR, finished_at=7.25, hidden="pipe", detail_message=TOLD)
STATUS = Status(
    phase=Phase.RUNNING,
    reason=Reason.RUNNING,
    messages=(TOLD,),
    queued_at=1.5,
    started_at=1769860800.123457,
    failures=(TaskFailure(task="worker-1", attempt=1, exit=EXIT),),
    counts={"worker": TypeCounts(desired=2, running=1)},
    events=(Event(at=3.0, reason="Started", message="all run", messages=(TOLD,)),),
    reclaimed=Reclaimed(at=9.0, tasks=("ps-0",), cpu=0.5, memory=3 * 2**29, gpu=1),
    usage=Usage(
        at=9.0,
        holding={"worker": 2},
        days={"2026-11-22": {"worker": 3600.125, "ps": 1.0}},
        cores={"worker": 0.5, "ps": 2.0},
        used=12.345,
    ),
)


def test_a_spec_is_written_by_the_conventions() -> None:
    """In the resource, a spec follows the conventions of Kubernetes, for example: CPU is a
    quantity, a duration is a whole number of seconds, and a time has the form of RFC 3339. Parts of
    a second are rounded up, so that a run does not get less time than requested.
    """
    assert resource_form.write(Spec, HERE) == THERE
    back = {**HERE, "lifecycle": {**HERE["lifecycle"], "grace": 1}}
    assert resource_form.read(Spec, THERE) == back


def test_a_spec_by_the_names_of_python_is_read_as_it_is() -> None:
    """A cluster file may also use the field names of the Python models instead of those of the
    resource; such a spec is read unchanged.
    """
    assert resource_form.read(Spec, HERE) == HERE


def test_a_status_comes_back_as_it_was() -> None:
    """A status is read back as it was written; its resource form has no floating-point number."""
    there = json.loads(json.dumps(resource_form.write(Status, msgspec.to_builtins(STATUS))))

    assert floats(there) == []
    assert msgspec.convert(resource_form.read(Status, there), Status) == STATUS
    assert there["startTime"] == "2026-01-31T12:00:00.123457Z"
    assert there["failures"][0]["exit"]["hidden"] == "Pipe"
    assert there["reclaimed"] == {
        "time": "1970-01-01T00:00:09.000000Z",
        "tasks": ["ps-0"],
        "cpu": "500m",
        "memory": "1536Mi",
        "gpu": 1,
    }
    assert there["usage"]["days"] == [
        {"date": "2026-11-22", "taskMilliseconds": {"worker": 3600125, "ps": 1000}}
    ]
    assert (there["usage"]["cores"]["ps"], there["usage"]["usedCPUMilliseconds"]) == ("2", 12345)


def floats(value: Any, path: str = "") -> list[str]:
    """Return the paths of floating-point numbers."""
    if isinstance(value, dict):
        return [found for key, part in value.items() for found in floats(part, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for part in value for found in floats(part, f"{path}[]")]
    return [path] if isinstance(value, float) else []


@pytest.mark.parametrize(
    ("said", "cores"), [("200m", 0.2), ("0.5", 0.5), (2, 2.0), ("2", 2.0), ("1e2", 100.0)]
)
def test_cores_are_any_quantity(said: object, cores: float) -> None:
    """CPU may be written as in a pod."""
    spec = {**THERE, "replicas": {"worker": {"count": 1, "resources": {"cpu": said}}}}
    read = validate(resource_form.read(Spec, spec))
    assert read.replicas.worker.resources.cpu == cores


@pytest.mark.parametrize(
    ("said", "here"),
    [
        ("2Gi", "2Gi"),
        ("1.5Gi", "1.5Gi"),
        (1073741824, "1073741824"),
        ("1e9", "1000000000"),
        ("128974848000m", "128974848"),
        ("1Pi", "1024Ti"),
        ("2E", "1818990Ti"),
        ("much", "much"),
        ("-1Gi", "-1Gi"),
        (True, True),
        ("1" * 99, "1" * 99),
    ],
)
def test_memory_is_any_quantity(said: object, here: object) -> None:
    """Memory may be written as in a pod; an invalid amount is not changed, so that validation
    refuses it.
    """
    there = {"size": said}
    assert resource_form.read(resource_form.MODELS["DataClaim"], there)["size"] == here


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31T13:00:00+01:00",
        "2026-01-31t12:00:00.0z",
        "2026-01-31T12:00:00.000000999Z",
    ],
)
def test_times_are_any_of_rfc_3339(text: str) -> None:
    """A time may have another zone and any precision."""
    assert resource_form.parse_time(text) == 1769860800.0


def test_a_time_is_the_same_after_it_was_written_twice() -> None:
    """Reading and writing a status again does not change its times."""
    for at in (1769860800.1234567, 1769860800.9999999, 0.1, 1e9 / 3):
        once = resource_form.parse_time(resource_form.format_time(at))
        assert abs(once - at) < 1e-6
        assert resource_form.parse_time(resource_form.format_time(once)) == once


@pytest.mark.parametrize("wrong", [None, "many", {}, [], True, float("nan"), 10**400])
def test_what_is_not_understood_is_left_to_be_refused(wrong: object) -> None:
    """The conversion never raises, in either direction; invalid values are not changed, so that
    validation refuses them.
    """
    for kind in resource_form.MODELS.values():
        names = {form.name: wrong for form in resource_form.forms(kind).values()}
        resource_form.read(kind, {**names, "params": wrong, "exit": wrong, "counts": wrong})
        resource_form.write(kind, dict.fromkeys(resource_form.forms(kind), wrong))


def test_a_problem_names_the_field_as_it_is_in_the_resource() -> None:
    """A problem has the field's path in the resource, also inside lists and for names with dots."""
    for here, there in {
        "spec.lifecycle.maxDuration": "spec.lifecycle.maxDurationSeconds",
        "spec.pods.volumes[0].claim": "spec.pods.volumes[0].claimName",
        "spec.pods.annotations.prometheus.io/scrape": "spec.pods.annotations.prometheus.io/scrape",
        "spec.replicas.worker.count": "spec.replicas.worker.count",
    }.items():
        assert resource_form.field_path(here) == there
