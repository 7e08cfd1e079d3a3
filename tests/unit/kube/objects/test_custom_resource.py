"""A run that is written as the custom resource and read again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from support.invalid_specs import CELL, NAMES

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.program import snapshots
from tfcluster_magic.spec import (
    Event,
    Message,
    Phase,
    Pods,
    Program,
    ProgramKind,
    Reason,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    Stop,
    TypeCounts,
    Volume,
    resource_form,
    schema,
)

PROGRAM = Program(kind=ProgramKind.CELL, source="cell", entrypoint="cell.py", sha256="0" * 64)
SPEC = Spec(
    program=PROGRAM,
    replicas=ReplicaSet(worker=Replicas(count=2), ps=Replicas(count=1)),
    env={"A": "b"},
    pods=Pods(volumes=(Volume(claim="images", path="/mnt/images", read_only=True),)),
    stop=Stop(reason="enough", by="alice", at=1.5),
)


def applied(name: str = "digits-2", **parts: Any) -> dict[str, Any]:
    """Return an object as the API server stores it."""
    head = {
        "name": name,
        "namespace": "alice",
        "uid": "7f0e",
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    return {"metadata": head, "spec": {"program": CELL}, **parts}


def stored(spec: Spec) -> dict[str, Any]:
    """Return the object of a launch, as the API server returns it."""
    written = json.loads(json.dumps(custom_resource.write("digits", 2, spec)))
    return applied(spec=written["spec"]) | {"kind": written["kind"]}


def test_a_launch_comes_back_as_it_was_asked_for() -> None:
    """A spec that is written as an object is read as the same spec."""
    assert custom_resource.read(stored(SPEC)).spec == SPEC


def test_name_namespace_and_time_say_who_a_run_is() -> None:
    """The cluster and the run's number come from the object's name, the owner from the namespace,
    and the time from the API.
    """
    head = custom_resource.read(applied()).metadata

    assert (head.name, head.cluster, head.run, head.owner) == ("digits-2", "digits", 2, "alice")
    assert (head.uid, head.created_at) == ("7f0e", 1769860800.0)


def test_defaults_may_be_filled_in_or_left_out() -> None:
    """An object reads the same before and after the API server filled in the defaults."""
    full = resource_form.write(Spec, _with_defaults(schema(), "Spec", msgspec.to_builtins(SPEC)))

    assert full["lifecycle"]["heals"] == 3
    assert full["lifecycle"]["graceSeconds"] == 10
    assert custom_resource.read(applied(spec=full)) == custom_resource.read(stored(SPEC))


def _with_defaults(whole: Any, name: str, content: dict[str, Any]) -> dict[str, Any]:
    found = dict(content)
    for key, about in whole["$defs"][name]["properties"].items():
        if key not in found and about.get("default") is not None:
            found[key] = about["default"]
        inner = about.get("$ref", "").rsplit("/", 1)[-1]
        if isinstance(found.get(key), dict) and "properties" in whole["$defs"].get(inner, {}):
            found[key] = _with_defaults(whole, inner, found[key])
    return found


@pytest.mark.parametrize("name", [*NAMES, "Digits-1", ""])
def test_a_name_that_no_run_has_is_refused_with_the_rule(name: str) -> None:
    """An object whose name is not <cluster>-<run> is refused, and all other problems are reported
    with it.
    """
    with pytest.raises(InvalidRequest, match="such as digits-1") as refused:
        custom_resource.read(applied(name, spec={"mode": "between-graph"}))
    assert [p.field for p in refused.value.problems] == ["metadata.name", "spec.program"]


def test_tasks_listen_at_names_that_follow_from_the_run() -> None:
    """Addresses are computed, never stored; a type without tasks has no addresses."""
    assert custom_resource.read(stored(SPEC)).status.addresses == {
        "worker": ("digits-2-worker-0.digits-2:2222", "digits-2-worker-1.digits-2:2222"),
        "ps": ("digits-2-ps-0.digits-2:2222",),
    }


def test_a_status_comes_back_without_what_is_only_shown() -> None:
    """A status that the operator wrote is read unchanged, without `ready`, which is only shown by
    kubectl.
    """
    status = Status(
        phase=Phase.RUNNING,
        reason=Reason.RUNNING,
        counts={"worker": TypeCounts(desired=2, running=1), "ps": TypeCounts(desired=1, running=1)},
        events=(Event(at=1.0, reason="Started", message="all tasks run"),),
        addresses={"worker": ("elsewhere:1",)},
        paths={"output": "/shared/log/digits/2"},
    )
    written = custom_resource.write_status(status)

    assert written["ready"] == "2/3"
    assert "addresses" not in written
    found = custom_resource.read(stored(SPEC) | {"status": written}).status
    assert msgspec.structs.replace(found, addresses=status.addresses) == status


def conditions(status: Status, generation: int = 1, before: Any = None) -> dict[str, Any]:
    """Return the conditions with which a status is written, by type."""
    written = custom_resource.write_status(status, generation, before or {})
    return {each["type"]: each for each in written["conditions"]}


@pytest.mark.parametrize(
    ("phase", "started", "true"),
    [
        (Phase.QUEUED, None, set()),
        (Phase.STARTING, 5.0, {"Admitted"}),
        (Phase.RUNNING, 5.0, {"Admitted", "Running"}),
        (Phase.STOPPING, 5.0, {"Admitted"}),
        (Phase.SUCCEEDED, 5.0, {"Admitted", "Complete"}),
        (Phase.FAILED, 5.0, {"Admitted", "Failed"}),
        (Phase.FAILED, None, {"Failed"}),
        (Phase.STOPPED, 5.0, {"Admitted", "Failed"}),
    ],
)
def test_conditions_say_where_a_run_is(phase: Phase, started: float | None, true: set[str]) -> None:
    """In every phase, a run has all four conditions, and each is True in exactly the phases in
    which other tools expect it. A stopped run counts as ended without success.
    """
    status = Status(phase=phase, reason=Reason.RUNNING, started_at=started, message="it is so")
    told = conditions(status, 3)

    assert list(told) == ["Admitted", "Running", "Complete", "Failed"]
    assert {kind for kind, each in told.items() if each["status"] == "True"} == true
    assert all(each["observedGeneration"] == 3 and each["reason"] for each in told.values())
    assert told["Running"]["message"] == "it is so"


def test_a_condition_knows_since_when_it_is_so() -> None:
    """A condition has the time of its last change, taken from the status, and keeps this time until
    the condition changes.
    """
    running = Status(
        phase=Phase.RUNNING, reason=Reason.RUNNING, started_at=1769860800.0, running_at=1769860805.9
    )
    first = conditions(running)
    assert first["Admitted"]["lastTransitionTime"] == "2026-01-31T12:00:00Z"
    assert first["Running"]["lastTransitionTime"] == "2026-01-31T12:00:05Z"

    before = {"conditions": [{**each, "lastTransitionTime": "then"} for each in first.values()]}
    ended = replace(running, phase=Phase.SUCCEEDED, finished_at=1769860900.0)
    later = conditions(ended, 2, before)
    kept = {kind for kind, each in later.items() if each["lastTransitionTime"] == "then"}
    assert kept == {"Admitted", "Failed"}
    assert later["Complete"]["lastTransitionTime"] == "2026-01-31T12:01:40Z"


def test_what_the_launch_warned_of_is_in_the_record() -> None:
    """Warnings of the launch are stored in the object once, whatever warnings the operator adds."""
    written = custom_resource.write("digits", 2, SPEC, warnings=("it is slow: 太慢",))
    status = custom_resource.write_status(
        Status(phase=Phase.QUEUED, reason=Reason.QUEUED, warnings=("it is slow: 太慢", "no GPU"))
    )

    assert custom_resource.read(written).status.warnings == ("it is slow: 太慢",)
    assert custom_resource.read({**written, "status": status}).status.warnings == (
        "it is slow: 太慢",
        "no GPU",
    )


def test_what_the_launch_inferred_is_in_the_record() -> None:
    """Facts inferred from the program's text are stored in the object, by their codes."""
    why = Message("UsesName", {"line": 3, "file": "a.py", "name": "replica_device_setter"})
    told = (Message("InferredServer", {"why": why}),)
    written = custom_resource.write("digits", 2, SPEC, inferred=told)
    status = custom_resource.write_status(custom_resource.read(written).status)

    assert custom_resource.read(written).status.inferred == told
    assert custom_resource.read({**written, "status": status}).status.inferred == told


@pytest.mark.parametrize("note", ["{", "1", '{"a": 1}', "[1, null]", '[{"code": 1}]'])
def test_an_annotation_may_say_anything(note: str) -> None:
    """An annotation with invalid contents breaks no record."""
    broken = applied()
    broken["metadata"]["annotations"] = dict.fromkeys(
        (custom_resource.WARNINGS, custom_resource.INFERRED), note
    )
    status = custom_resource.read(broken).status

    assert (status.warnings, status.inferred) == ((), ())


def test_what_a_newer_version_wrote_is_read_as_far_as_it_is_known() -> None:
    """Unknown fields, phases and reasons break nothing, and the record reports them."""
    newer = applied(
        spec={
            "program": {**CELL, "language": "R"},
            "schedule": "daily",
            "pods": {"volumes": [{"claim": "a", "path": "/mnt/a", "mode": "fast"}]},
        },
        status={
            "phase": "Paused",
            "reason": "Holiday",
            "startTime": "1970-01-01T00:00:05Z",
            "tide": "high",
            "attention": [{"name": "worker-0", "state": "Asleep"}],
        },
    )
    found = custom_resource.read(newer)

    assert found.spec.pods == Pods(volumes=(Volume(claim="a", path="/mnt/a"),))
    assert (found.status.phase, found.status.started_at) == (Phase.STARTING, 5.0)
    assert found.status.attention == ()
    (told,) = found.status.warnings
    for field in ("spec.schedule", "spec.program.language", "spec.pods.volumes[0].mode"):
        assert field in told
    assert "status.phase=Paused" in told and "status.tide" in told


def test_every_problem_of_a_spec_is_told() -> None:
    """A spec that no schema checked is refused with all its problems, each with its field."""
    wrong = applied(spec={"mode": "in-graph", "program": CELL, "replicas": {"chief": {"count": 2}}})
    with pytest.raises(InvalidRequest, match="the TFCluster digits-2 is invalid") as refused:
        custom_resource.read(wrong)
    fields = {p.field for p in refused.value.problems}
    assert fields == {"spec.program", "spec.replicas.chief.count"}


def test_an_object_without_anything_is_refused_in_words() -> None:
    """An empty object is refused with messages, without a crash."""
    with pytest.raises(InvalidRequest, match=r"metadata\.name"):
        custom_resource.read({})


TEXT = "print('digits')\n"


@pytest.mark.parametrize(
    ("written", "kind", "source", "entrypoint"),
    [
        ({"inline": TEXT}, "inline", "inline", "program.py"),
        ({"inline": TEXT, "entrypoint": "run.sh"}, "inline", "inline", "run.sh"),
        ({"command": ["python", "-m", "my train"]}, "command", "python -m 'my train'", ""),
        ({"path": "digits/train.py"}, "path", "digits/train.py", ""),
        ({"url": "https://example.com/a.py"}, "link", "https://example.com/a.py", ""),
    ],
)
def test_a_program_by_hand_is_read_as_any_other(
    written: dict[str, Any], kind: str, source: str, entrypoint: str
) -> None:
    """A program in a hand-written manifest gets a kind and a source, as a snapshot has, and for a
    text also the file and its checksum. Written again, the program is unchanged.
    """
    program = custom_resource.read(applied(spec={"program": written})).spec.program
    assert program is not None
    assert program.kind == kind
    assert (program.source, program.entrypoint) == (source, entrypoint)
    assert program.by_hand and not program.is_stored
    if "inline" in written:
        assert program.sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
        assert snapshots.load(program, Path())[entrypoint].content == TEXT.encode()
    assert snapshots.written_program(program) == written
    again = custom_resource.read(stored(Spec(program=program)))
    assert again.spec.program == program
