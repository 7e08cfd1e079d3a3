"""Filtering, sorting and paging of the console's tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace
from support.console_rows import row
from support.project import ROOT

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.hub.console.sites.base import ScheduleMark, SiteSchedule, run_row
from tfcluster_magic.hub.console.tables import RUNS, SCHEDULES, STORAGE, USERS, Table
from tfcluster_magic.i18n import language
from tfcluster_magic.schedules import OccurrenceState
from tfcluster_magic.spec import (
    Message,
    Metadata,
    Phase,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    TFCluster,
)

COLUMNS, page, query = RUNS.sort_keys, RUNS.page, RUNS.query

ROWS = [
    row("ada", 2, phase="Failed", reason="OOMKilled", message="worker-0 was killed"),
    row("ada", 10),
    row("bob", 3, cpu=4.0, nodes=("node-b",)),
]


def names(**given: str) -> list[str]:
    """Return the rows of a page as owner/name; `given` are the parameters of its URL."""
    found = page(ROWS, query({key: [text] for key, text in given.items()}))
    return [f"{one.owner}/{one.name}" for one in found.items]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({}, ["ada/digits-10", "bob/digits-3", "ada/digits-2"]),
        ({"q": "KILLED"}, ["ada/digits-2"]),
        ({"q": "node-b"}, ["bob/digits-3"]),
        ({"owner": "bob"}, ["bob/digits-3"]),
        ({"reason": "OOMKilled"}, ["ada/digits-2"]),
        ({"phase": "Failed,Queued"}, ["ada/digits-2"]),
        ({"sort": "name"}, ["ada/digits-2", "bob/digits-3", "ada/digits-10"]),
        ({"sort": "-cpu", "limit": "1"}, ["bob/digits-3"]),
        ({"limit": "1", "offset": "2"}, ["ada/digits-2"]),
    ],
)
def test_rows_are_filtered_sorted_and_paged(given: dict[str, str], fits: list[str]) -> None:
    """By default, the newest run comes first. Sorted by name, the runs of a cluster are in the
    order of their numbers. `q` matches any text of a row.
    """
    assert names(**given) == fits


def test_a_reason_is_found_in_the_language_of_who_looks() -> None:
    """A search in Chinese finds a reason that the record stores as a code."""
    told = replace(ROWS[1], messages=(Message("NeverStarted"),))
    for tag, words in (("en", "it was never started"), ("zh_CN", "从未启动")):
        with language(tag):
            assert [one.name for one in page([told], query({"q": [words]})).items] == [told.name]


PAGES = [
    ("console.js", "api/clusters", RUNS),
    ("schedules.js", "api/schedules", SCHEDULES),
    ("users.js", "api/users", USERS),
    ("storage.js", "api/storage", STORAGE),
]
"""The tables, each with the script that draws it and its route."""


@pytest.mark.parametrize(("script", "_route", "table"), PAGES)
def test_a_page_has_a_head_for_every_column(script: str, _route: str, table: Table[Any]) -> None:
    """A page has the columns by which its table can be sorted, and no other; whether a user is an
    administrator is shown beside the name.
    """
    text = (ROOT / "tfcluster_magic/hub/console/pages" / script).read_text("utf-8")
    (heads,) = re.findall(r"^const COLUMNS = \[\n(.*?)^\];", text, re.DOTALL | re.MULTILINE)

    named = re.findall(r"^  \['(\w+)', t\(", heads, re.MULTILINE)
    assert named == [name for name in table.sort_keys if name != "admin"], (
        f"COLUMNS of pages/{script} and the columns with `sort` in tables.py differ"
    )


@pytest.mark.parametrize(("_script", "route", "table"), PAGES)
def test_the_page_of_the_api_says_how_rows_are_sorted_and_filtered(
    _script: str, route: str, table: Table[Any]
) -> None:
    """docs/reference/console-api.md lists the filters and the sort columns of each table."""
    page = (ROOT / "docs/reference/console-api.md").read_text("utf-8")
    (told,) = re.findall(rf"^\| `GET {route}` \| (.*?)\. Answer", page, re.MULTILINE)
    (columns,) = re.findall(r"`sort` \((.*?)[;)]", told)

    assert re.findall(r"`(\w+)`", columns) == [*table.sort_keys], "list them as `sort`"
    unlisted = [each.name for each in table.filters if f"`{each.name}`" not in told]
    assert unlisted == [], f"add the query parameters to the row of `GET {route}`"


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_sorts_both_ways(column: str) -> None:
    """Sorting by any column, in both directions, keeps all rows."""
    assert sorted(names(sort=column)) == sorted(names(sort=f"-{column}"))


def test_phases_are_counted_whatever_phase_is_chosen() -> None:
    """Counts of phases ignore the selected phase, so that users can widen the selection."""
    found = page(ROWS, query({"phase": ["Failed"], "owner": ["ada"]}))

    assert (found.total, found.all) == (1, 3)
    assert found.counts["Failed"] == found.counts["Running"] == 1


def test_everything_that_cannot_be_asked_is_named_at_once() -> None:
    """All wrong parameters are reported together, with the allowed values."""
    given = {"sort": ["colour"], "limit": ["0"], "offset": ["-1"], "phase": ["Red"], "x": ["1"]}
    with pytest.raises(InvalidRequest) as refused:
        query(given)

    assert {p.field for p in refused.value.problems} == {"sort", "limit", "offset", "phase", "x"}
    allowed = {str(p.field): str(p.allowed) for p in refused.value.problems}
    assert allowed["limit"].endswith("from 1 to 1000")
    assert allowed["offset"].endswith("from 0 to 1000000000")


def test_a_task_that_names_nothing_counts_as_at_its_owners_quota() -> None:
    """A task without a request counts with the default size, as in its owner's quota."""
    every = ReplicaSet(worker=Replicas(count=3), ps=Replicas(count=1, resources=Resources(cpu=2)))
    head = Metadata(name="digits-1", cluster="digits", run=1, uid="u", created_at=1.0)
    starting = Status(phase=Phase.STARTING, reason=Reason.STARTING)
    found = run_row(TFCluster(metadata=head, spec=Spec(replicas=every), status=starting))

    assert (found.cpu, found.memory, found.gpu) == (3.5, 4 << 30, 0)


def plan(owner: str, name: str, **more: object) -> SiteSchedule:
    """Return the row of a schedule."""
    words = {
        "cron": "0 2 * * *",
        "time_zone": "UTC",
        "state": "Active",
        "next_at": 9.0,
        "marks": (),
        **more,
    }
    return SiteSchedule(owner=owner, name=name, uid=f"{owner}-{name}", **words)  # type: ignore[arg-type]


PLANS = [
    plan("bob", "nightly", state="Paused", next_at=None, by="admin eve", reason="the exam"),
    plan("ada", "hourly", next_at=3.0, marks=(ScheduleMark(8.0, OccurrenceState.FAILED, "h-1"),)),
    plan("ada", "nightly", state="Invalid", next_at=None, reason=Message("ScheduleMissed")),
]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({}, ["ada/hourly", "ada/nightly", "bob/nightly"]),
        ({"q": "ADMIN EVE"}, ["bob/nightly"]),
        ({"q": "exam"}, ["bob/nightly"]),
        ({"state": "Paused,Invalid"}, ["ada/nightly", "bob/nightly"]),
        ({"owner": "ada", "sort": "next"}, ["ada/hourly", "ada/nightly"]),
        ({"sort": "last", "limit": "1"}, ["ada/hourly"]),
    ],
)
def test_schedules_are_filtered_and_sorted(given: dict[str, str], fits: list[str]) -> None:
    """Sorted by `next`, the schedule that is due soonest comes first; sorted by `last`, the
    schedule that was due most recently. The page has the number of schedules in each state.
    """
    found = SCHEDULES.page(PLANS, SCHEDULES.query({key: [text] for key, text in given.items()}))
    assert [f"{one.owner}/{one.name}" for one in found.items] == fits
    assert set(found.counts) == {"Active", "Paused", "Invalid"}
