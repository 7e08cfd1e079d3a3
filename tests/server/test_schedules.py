"""Routes of schedules, good and bad."""

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
    """Yield the folder of the file browser; delete all schedules afterwards, and the clock ends."""
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
    """What is made is listed with its next due times, and its answers are as described."""
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
    """Pausing, resuming, updating, backfilling and running now answer with the schedule."""
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
    """A rule that is none is refused with its name, and nothing is made."""
    body = {"name": "other", "rules": rules, "launch": {"program": "quick.sh"}}
    refused = await api("POST", "schedules", body)
    assert refused.status == 422
    assert field in refused.text
    assert (await api("GET", "schedules")).json == {"schedules": []}
