"""The TFClusterSchedule resource: its definition, and its conversion in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields, replace

from tfcluster_magic.kube.objects import schedule_crd, schedule_resource
from tfcluster_magic.schedules import (
    Backfill,
    LaunchWords,
    Occurrence,
    OccurrenceKind,
    OccurrenceState,
    Overlap,
    Pause,
    Schedule,
    ScheduledLaunch,
    ScheduleRules,
    ScheduleStatus,
)
from tfcluster_magic.spec import AdvisedOption, Message, Program, Spec, resource_form
from tfcluster_magic.spec.record_size import json_bytes

SCHEMA = schedule_crd.object_schema()
NOW = 1_780_000_000.0
SCHEDULE = Schedule(
    name="nightly",
    uid="u",
    created_at=NOW - 100,
    rules=ScheduleRules(
        cron="0 2 * * *",
        time_zone="Asia/Shanghai",
        overlap=Overlap.REPLACE,
        deadline=90.0,
        advised=True,
    ),
    launch=ScheduledLaunch(
        cluster="nightly",
        spec=Spec(program=Program(inline="print()"), env={"A": "{scheduled_for}"}),
        words=LaunchWords(program="train.py", folder="/home/ida", options={"workers": 2}),
        taken_at=NOW - 200,
        warnings=("slow",),
        inferred=(Message("ScheduleMissed"),),
    ),
    status=ScheduleStatus(cursor=NOW - 100),
)


def stored(schedule: Schedule) -> dict[str, Any]:
    """Return the object of a schedule as the API server returns it."""
    made = json.loads(json.dumps(schedule_resource.write(schedule)))
    head = {"uid": schedule.uid, "resourceVersion": "7", "generation": 3, "namespace": "a"}
    made["metadata"] |= {**head, "creationTimestamp": "2026-05-28T20:25:00Z"}
    return made


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema below `node`, with its path."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


def test_the_definition_follows_the_conventions_of_kubernetes() -> None:
    """The resource has every field of the models. Its times are in RFC 3339, and its numbers have
    no fractions.
    """
    spec, status = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]
    for model, told in (
        (schedule_resource.ScheduleSpec, spec),
        (ScheduleStatus, status),
        (Occurrence, status["properties"]["occurrences"]["items"]),
    ):
        other = resource_form.other_names(model)
        names = {other.get(each.encode_name, each.encode_name) for each in fields(model)}
        assert names <= told["properties"].keys()
    for path, node in nodes(SCHEMA, ""):
        assert node.get("type") != "number", path
        is_time = path.rsplit(".", 1)[-1].endswith(("Time", "Times[]")) or path.endswith(".time")
        assert is_time == (node.get("format") == "date-time"), path


def test_a_schedule_is_read_as_it_was_written() -> None:
    """A schedule that is written as an object is read with the same rules, template, launch
    arguments and requests. If the object has no status, due times count from its creation.
    """
    read = schedule_resource.read(stored(SCHEDULE), NOW)
    assert read.rules == replace(SCHEDULE.rules, deadline=90.0)
    program = read.launch.spec.program
    assert program is not None and program.source == "inline"
    assert read.launch.words == SCHEDULE.launch.words
    assert (read.launch.warnings, read.launch.inferred) == (
        SCHEDULE.launch.warnings,
        SCHEDULE.launch.inferred,
    )
    assert read.status == ScheduleStatus(cursor=read.created_at)


def test_a_status_is_read_as_it_was_written() -> None:
    """A status that is written into the object is read unchanged: occurrences with their reasons,
    backfills, advice with fractions of a core, and an automatic pause. The columns of kubectl and
    the conditions follow from it.
    """
    throttled = {"task": "worker-0", "percent": 40, "limit": 1.0, "cpu": 0.93}
    advised = AdvisedOption(
        option="worker_cpu",
        own="1",
        value="1.7",
        run="nightly-1",
        why=Message("AdviceThrottled", throttled),
    )
    advice = Message("ScheduleAdvised", {"changes": [advised.change], "runs": ["nightly-0"]})
    why = Message("ScheduleRunFailed", {"name": "nightly-1", "why": [Message("Stopped")]})
    status = ScheduleStatus(
        cursor=NOW,
        occurrences=(
            Occurrence(
                due=NOW - 60,
                state=OccurrenceState.FAILED,
                run="nightly-1",
                reason=why,
                advice=advice,
            ),
            Occurrence(due=NOW + 0.25, kind=OccurrenceKind.MANUAL, changed_at=NOW),
        ),
        failures=1,
        advised=(advised,),
        judged="nightly-1",
        paused=Pause(at=NOW, reason=Message("SchedulePausedItself", {"count": 1})),
        backfills=(Backfill(number=1, start=NOW - 9e6, end=NOW - 8e6, cursor=NOW - 9e6, total=2),),
    )
    found = stored(SCHEDULE)
    found["status"] = schedule_resource.write_status(found, replace(SCHEDULE, status=status), NOW)
    assert schedule_resource.read(found, NOW).status == status
    told = found["status"]
    assert (told["state"], told["lastRun"]) == ("Paused", "nightly-1") and "nextTime" not in told
    assert schedule_resource.write_status(found, replace(SCHEDULE, status=status), NOW) == told


def test_a_status_stays_below_its_limit() -> None:
    """A status keeps the newest hundred due times. If the status is too large, the reasons of the
    oldest due times are dropped first.
    """
    why = Message("ScheduleNotLaunched", {"why": "x" * 3000})
    many = tuple(
        Occurrence(due=NOW - n, changed_at=NOW - n, state=OccurrenceState.FAILED, reason=why)
        for n in range(400)
    )
    status = ScheduleStatus(cursor=NOW, occurrences=many)
    told = schedule_resource.write_status(
        stored(SCHEDULE), replace(SCHEDULE, status=status), NOW + 1
    )
    assert len(told["occurrences"]) == schedule_resource.MOST_SETTLED
    assert json_bytes(told) <= schedule_resource.STATUS_BYTES
    assert "reason" in told["occurrences"][-1] and "reason" not in told["occurrences"][0]


@pytest.mark.parametrize("said", [{"cursorTime": "2026-01-01T00:00:00Z", "failures": "many"}])
def test_a_status_that_cannot_be_read_launches_nothing(said: dict[str, Any]) -> None:
    """If a status cannot be read, past results are unknown. The schedule reports this and launches
    no past due time.
    """
    read = schedule_resource.read({**stored(SCHEDULE), "status": said}, NOW)
    assert "cannot be read" in read.status.problem and read.status.cursor > NOW + 1e9


def test_a_cached_schedule_decides_as_the_whole_one() -> None:
    """A cached schedule has no template, but keeps the template's problem."""
    found = stored(SCHEDULE)
    whole = schedule_resource.whole(schedule_resource.trim(found, None))
    assert "template" not in whole["spec"]
    a, b = schedule_resource.read(whole, NOW), schedule_resource.read(found, NOW)
    assert (a.rules, a.status) == (b.rules, b.status)
    found["spec"]["template"]["spec"]["mode"] = "Odd"
    found["metadata"]["generation"] = 4
    wrong = schedule_resource.whole(schedule_resource.trim(found, None))
    assert "spec.template" in schedule_resource.read(wrong, NOW).status.problem
    assert msgspec.json.encode(schedule_resource.read(wrong, NOW))


def test_a_copy_of_a_manifest_repeats_nothing() -> None:
    """A manifest's requests for runs and backfills are ignored if they are older than the object.
    Later requests are carried out, even
    if the client's clock is slow; they get numbers above the existing numbers.
    """
    old = stored(SCHEDULE)
    before = schedule_resource.read(old, NOW)
    manual = Occurrence(due=NOW, kind=OccurrenceKind.MANUAL, changed_at=NOW)
    past = Backfill(number=1, start=NOW - 9e6, end=NOW - 8e6, total=12, created_at=NOW)
    asked = replace(before.status, occurrences=(manual,), backfills=(past,))
    (_version, change) = schedule_resource.write_change(old, before, replace(before, status=asked))
    old["spec"] = change["value"]
    taken = schedule_resource.read(old, NOW + 1).status
    assert [each.due for each in taken.occurrences] == [NOW]
    assert [each.number for each in taken.backfills] == [1]
    copied = {**old, "metadata": {**old["metadata"], "uid": "v"}}
    copied["metadata"]["creationTimestamp"] = "2026-05-28T20:30:00Z"
    copy = schedule_resource.read(copied, NOW + 900)
    assert copy.status == ScheduleStatus(cursor=copy.created_at)
    late = replace(past, created_at=copy.created_at - 7)
    asked = replace(
        copy.status,
        occurrences=(replace(manual, due=copy.created_at - 7),),
        backfills=(late,),
    )
    (_version, change) = schedule_resource.write_change(copied, copy, replace(copy, status=asked))
    copied["spec"] = change["value"]
    status = schedule_resource.read(copied, NOW + 901).status
    assert [each.due for each in status.occurrences] == [copy.created_at]
    assert [each.number for each in status.backfills] == [2]
