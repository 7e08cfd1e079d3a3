"""The routes of schedules, with valid and invalid requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.polling import wait_until, wait_until_async
from support.server.calls import Api, assert_problem

from tfcluster_magic.backends.local import schedule_store
from tfcluster_magic.server import app
from tfcluster_magic.server.service import Service

RULES = {"cron": "0 0 1 1 *", "timeZone": "Asia/Shanghai"}


@pytest.fixture
def folder(jp_root_dir: Path, service: Service) -> Iterator[Path]:
    """Yield the folder of the file browser; afterwards delete all schedules, which ends the clock
    process.
    """
    (jp_root_dir / "quick.sh").write_text("exit 0\n")
    yield jp_root_dir
    schedules = service.manager.schedules
    for each in schedules.list():
        schedules.delete(each.name)
    wait_until(lambda: _is_free(service.manager.backend.schedules().state_dir))


async def make(api: Api) -> dict[str, Any]:
    """Create the schedule nightly, and return it."""
    launch = {"program": "quick.sh", "options": {"workers": 1}}
    made = await api("POST", "schedules", {"name": "nightly", "rules": RULES, "launch": launch})
    assert made.status == 201, made.text
    found: dict[str, Any] = made.json
    return found


def _is_free(state_dir: Path) -> bool:
    if not (state_dir / "schedules").is_dir():
        return True
    fd = schedule_store.take_clock_lock(state_dir)
    if fd is not None:
        os.close(fd)
    return fd is not None


async def test_a_schedule_is_made_shown_and_removed(api: Api, folder: Path) -> None:
    """A created schedule is listed with its next due times, and the responses match their
    schema.
    """
    nightly = await make(api)
    assert RULES.items() <= nightly["schedule"]["rules"].items()
    assert len(nightly["next"]) == 10
    described = app.openapi_document()
    schema = {"$ref": "#/components/schemas/ScheduleView", "components": described["components"]}
    Draft202012Validator(schema).validate(nightly)
    assert "files" not in nightly["schedule"]["launch"]["spec"]["program"]
    assert (await api("GET", "schedules/nightly")).json == nightly
    assert (await api("DELETE", "schedules/nightly")).status == 204
    assert (await api("GET", "schedules")).json == {"schedules": []}
    assert_problem(await api("GET", "schedules/nightly"), 404)


async def test_its_verbs(api: Api, folder: Path) -> None:
    """The routes to pause, resume, update, backfill and run now answer with the schedule."""
    await make(api)
    paused = await api("POST", "schedules/nightly/pause", {"reason": "data repair"})
    assert paused.json["schedule"]["status"]["paused"]["reason"] == "data repair"
    assert paused.json["next"] == []
    assert_problem(await api("POST", "schedules/nightly/run-now", {}), 409)
    resumed = await api("POST", "schedules/nightly/resume", {})
    assert "paused" not in resumed.json["schedule"]["status"]
    rules = {"cron": "0 3 * * *", "timeZone": "UTC", "overlap": "replace"}
    updated = await api("POST", "schedules/nightly/update", {"rules": rules})
    assert rules.items() <= updated.json["schedule"]["rules"].items()
    span = {"start": "2026-01-01", "end": "2026-01-02"}
    filled = await api("POST", "schedules/nightly/backfill", span)
    assert filled.json["schedule"]["status"]["backfills"][0]["total"] == 1
    assert (await api("POST", "schedules/nightly/run-now", {})).status == 200

    async def is_done() -> bool:
        told = (await api("GET", "schedules/nightly/history")).json["occurrences"]
        return len(told) == 2 and all(each["state"] == "Succeeded" for each in told)

    await wait_until_async(is_done)


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"cron": "every night"}, "--cron"),
        ({"cron": "0 0 30 2 *"}, "--cron"),
        ({"cron": "@daily", "timeZone": "Mars/Olympus"}, "--time-zone"),
        ({"cron": "@daily", "overlap": "perhaps"}, "overlap"),
    ],
)
async def test_nonsense_is_refused(
    api: Api, folder: Path, rules: dict[str, Any], field: str
) -> None:
    """An invalid rule is refused, the response names the rule, and no schedule is created."""
    body = {"name": "other", "rules": rules, "launch": {"program": "quick.sh"}}
    refused = await api("POST", "schedules", body)
    assert refused.status == 422
    assert field in refused.text
    assert (await api("GET", "schedules")).json == {"schedules": []}


CLUSTER_FILE = """\
apiVersion: tfcluster.dev/v1beta1
kind: TFCluster
spec: {program: {source: quick.sh}, replicas: {worker: {count: 1}}}
"""
LAUNCH = {"program": "quick.sh", "arguments": ["{scheduled_for}"], "options": {"workers": "1"}}


async def plan(api: Api, **changes: Any) -> dict[str, Any]:
    """Return the plan of a valid schedule with some changes."""
    options = {"cron": "0 2 * * *", "time_zone": "Asia/Shanghai"}
    body = {"name": "nightly", "options": options, "launch": LAUNCH} | changes
    answer = await api("POST", "schedules/plan", body)
    assert answer.status == 200, answer.text
    schema = {"$ref": "#/components/schemas/Plan", **components()}
    Draft202012Validator(schema).validate(answer.json)
    found: dict[str, Any] = answer.json
    return found


def components() -> dict[str, Any]:
    """Return the schemas of the OpenAPI document, so that data can be checked against a schema with
    its references.
    """
    return {"components": app.openapi_document()["components"]}


async def test_a_plan_says_what_create_would_make(api: Api, folder: Path) -> None:
    """A plan has the next five due times in the schedule's time zone, the rules, and the command
    that creates the schedule in a notebook. It creates nothing. `POST /schedules` with the same
    body creates the planned schedule.
    """
    options = {
        "cron": "0 2 * * *",
        "time_zone": "Asia/Shanghai",
        "retries": "2",
        "retry_delays": ["1m", "10m"],
        "after_success": True,
    }
    told = await plan(api, options=options)
    assert told["problems"] == []
    assert told["line"] == (
        '%tfcluster schedule create nightly --cron "0 2 * * *" --time-zone Asia/Shanghai '
        "--retries 2 --retry-delay 1m --retry-delay 10m --after-success --workers 1 quick.sh "
        "-- {{scheduled_for}}"
    ).replace('"', "'").replace("{{scheduled_for}}", "'{{scheduled_for}}'")
    coming = told["schedule"]["next"]
    assert told["schedule"]["firstRun"] == 1
    assert len(coming) == 5
    assert {(each / 3600 + 8) % 24 for each in coming} == {2.0}
    assert (await api("GET", "schedules")).json == {"schedules": []}
    rules = told["schedule"]["rules"]
    body = {"name": "nightly", "rules": rules, "launch": LAUNCH}
    made = await api("POST", "schedules", body)
    assert made.json["next"][:5] == coming
    assert made.json["schedule"]["rules"] == rules


async def test_a_plan_has_the_number_of_the_first_run(api: Api, folder: Path) -> None:
    """If runs of the schedule's name exist, its first run gets the next number. For an invalid name
    there is no number.
    """
    made = await api("POST", "clusters", {"name": "nightly", **LAUNCH})
    assert made.status == 201, made.text
    assert (await plan(api))["schedule"]["firstRun"] == 2
    assert (await plan(api, name="../nightly"))["schedule"]["firstRun"] is None


@pytest.mark.parametrize(
    ("changes", "option", "words"),
    [
        ({"name": ""}, "name", "lower-case"),
        ({"name": "Not valid"}, "name", "lower-case"),
        ({"options": {}}, "cron", "say when"),
        ({"options": {"cron": "every night"}}, "cron", "write minute, hour"),
        ({"options": {"cron": "0 0 30 2 *"}}, "cron", "it never matches a date"),
        ({"options": {"cron": "@daily", "time_zone": "Mars/Olympus"}}, "time_zone", "IANA name"),
        ({"options": {"cron": "@daily", "overlap": "perhaps"}}, "overlap", "allow, forbid"),
        ({"options": {"cron": "@daily", "retries": "many"}}, "retries", "0 … 20"),
        ({"options": {"cron": "@daily", "max_parallel": "101"}}, "max_parallel", "1 … 100"),
        ({"options": {"cron": "@daily", "deadline": "soon"}}, "deadline", "10m"),
        ({"options": {"cron": "@daily", "retry_delays": ["1m", "x"]}}, "retry_delays", "10m"),
        ({"launch": {"program": "gone.py"}}, "program", "no such file"),
        ({"launch": {"options": {"mode": "in-graph"}}}, "mode", "a schedule runs a program"),
        ({"launch": {**LAUNCH, "arguments": ["{scheduled_for:%Q}"]}}, "arguments", "%Y"),
        ({"launch": {**LAUNCH, "options": {"workers": "-1"}}}, "workers", "whole number"),
    ],
)
async def test_a_plan_names_each_problem_at_its_input(
    api: Api, folder: Path, changes: dict[str, Any], option: str, words: str
) -> None:
    """A plan lists everything that `create` would refuse as problems, each with the input that it
    concerns.
    """
    (problem,) = (await plan(api, **changes))["problems"]
    assert problem["option"] == option
    assert words in problem["allowed"]


async def test_a_plan_knows_names_and_options(api: Api, folder: Path) -> None:
    """A plan reports an unknown option. It reports a name in use, unless the schedule with this
    name is being changed. It does not report a lack of resources, because they may be free at the
    due time.
    """
    await make(api)
    (taken,) = (await plan(api))["problems"]
    assert (taken["option"], "there is a schedule nightly" in taken["allowed"]) == ("name", True)
    assert (await plan(api, updates=True))["problems"] == []
    (unknown,) = (await plan(api, name="other", options={"cron": "@daily", "x": 1}))["problems"]
    assert unknown["field"] == "x"
    large = {**LAUNCH, "options": {"workers": "1", "worker_memory": "900Ti"}}
    told = await plan(api, name="other", launch=large)
    assert told["problems"] == []
    assert any("900Ti" in warning for warning in told["warnings"])
    assert_problem(await api("POST", "schedules/plan", {"launch": LAUNCH, "no": 1}), 422)


async def test_a_form_changes_a_whole_schedule(api: Api, folder: Path) -> None:
    """The form of a schedule has its options as a user types them. An update with `whole` resets
    omitted options to their defaults.
    """
    rules = {**RULES, "maxParallel": 3, "deadline": 5400, "retries": 1, "afterSuccess": True}
    launch = {**LAUNCH, "options": {"workers": 1, "env": ["A=1", "B=2"]}}
    body = {"name": "nightly", "rules": rules, "launch": launch, "track": True}
    assert (await api("POST", "schedules", body)).status == 201
    form = (await api("GET", "schedules/nightly/form")).json
    Draft202012Validator({"$ref": "#/components/schemas/ScheduleForm", **components()}).validate(
        form
    )
    assert form["launch"]["program"] == "quick.sh"
    assert form["launch"]["arguments"] == ["{scheduled_for}"]
    assert form["launch"]["options"] == {"workers": "1", "env": ["A=1", "B=2"]}
    assert (
        form["options"].items()
        >= {
            "cron": RULES["cron"],
            "time_zone": "Asia/Shanghai",
            "max_parallel": "3",
            "deadline": "1h30m",
            "after_success": True,
            "track": True,
        }.items()
    )
    # These rules have their defaults, so they are not in the form.
    assert not {"overlap", "catch_up", "retry_delays"} & form["options"].keys()
    change = {"rules": {"cron": "@daily"}, "launch": LAUNCH, "track": False, "whole": True}
    changed = (await api("POST", "schedules/nightly/update", change)).json["schedule"]
    assert changed["rules"] == {"cron": "@daily", "retryDelays": [60.0]}
    assert "env" not in changed["launch"]["spec"]
    assert_problem(await api("GET", "schedules/other/form"), 404)


async def test_a_form_cannot_hold_a_cluster_file(api: Api, folder: Path, service: Service) -> None:
    """A schedule created from a cluster file cannot be opened in the form, because the form would
    lose what the file says.
    """
    (folder / "cluster.yaml").write_text(CLUSTER_FILE)
    service.manager.schedules.create(
        "filed", file=str(folder / "cluster.yaml"), folder=folder, cron="@yearly"
    )
    refused = await api("GET", "schedules/filed/form")
    assert_problem(refused, 409)
    assert "cluster.yaml" in refused.text


async def test_a_history_has_the_runs_of_its_span(api: Api, folder: Path, page: Any) -> None:
    """One request returns the due times of a period, with the durations of their runs."""
    events = await page()
    await make(api)
    span = {"start": "2026-01-01", "end": "2026-01-02"}
    await api("POST", "schedules/nightly/backfill", span)
    ended = await events.phase("Succeeded")
    name = ended["run"]["cluster"]["metadata"]["name"]

    async def is_done() -> bool:
        told = (await api("GET", "schedules/nightly/history")).json
        return [each["state"] for each in told["occurrences"]] == ["Succeeded"]

    await wait_until_async(is_done)
    told = (await api("GET", "schedules/nightly/history")).json
    Draft202012Validator({"$ref": "#/components/schemas/ScheduleHistory", **components()}).validate(
        told
    )
    due = told["occurrences"][0]["due"]
    assert told["runs"][name]["phase"] == "Succeeded"
    assert told["runs"][name]["finishedAt"] >= told["runs"][name]["startedAt"]
    for query, count in ((f"from={due}", 1), (f"to={due}", 0), (f"from={due + 1}", 0)):
        found = (await api("GET", f"schedules/nightly/history?{query}")).json
        assert len(found["occurrences"]) == count, query
    assert_problem(await api("GET", "schedules/nightly/history?from=yesterday"), 422)


async def test_a_schedule_waits_for_another_as_the_form_says_it(api: Api, folder: Path) -> None:
    """`after` in a form becomes a rule of the schedule, and the schedule's form has it again. An
    unknown schedule is a problem of the input `after`.
    """
    await make(api)
    launch = {**LAUNCH, "options": {"after": ["schedule:nightly"]}}
    told = await plan(api, name="later", launch=launch)
    assert told["problems"] == []
    body = {"name": "later", "rules": told["schedule"]["rules"], "launch": launch}
    made = await api("POST", "schedules", body)
    assert made.json["schedule"]["rules"]["after"][0]["schedule"] == "nightly"
    form = (await api("GET", "schedules/later/form")).json
    assert form["launch"]["options"]["after"] == ["schedule:nightly"]
    gone = {**LAUNCH, "options": {"after": ["schedule:gone"]}}
    (problem,) = (await plan(api, name="other", launch=gone))["problems"]
    assert (problem["option"], "there is no schedule gone" in problem["allowed"]) == ("after", True)
