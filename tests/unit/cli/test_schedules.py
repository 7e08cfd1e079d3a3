"""`tfcluster schedule` as a user types it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import click
import pytest
from msgspec.structs import replace
from support.command_line import Run, runner
from support.fast_clock import scheduler
from support.polling import wait_until

from tfcluster_magic import ClusterManager
from tfcluster_magic.cli.grammar import complete_schedules
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.notebook.magic_line import completions

__all__ = ["scheduler"]  # a fixture used by the tests below


@pytest.fixture
def tfcluster(scheduler: ClusterManager, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `tfcluster` in a folder with programs. Schedules that a test
    creates are deleted after it.
    """
    return runner(capfd)


def test_a_schedule_from_create_to_delete(tfcluster: Run) -> None:
    """Each verb reports the schedule's new state, in words and as JSON."""
    words = ["--cron", "0 2 * * *", "--workers", "1", "--retries", "2", "--retry-delay", "5m"]
    made = tfcluster("schedule", "create", "nightly", *words, "tell.py", "--", "{scheduled_for}")
    assert made.code == 0, made.err
    assert "nightly is due next at" in made.out
    assert "--retries 2 --retry-delay 5m" in made.out
    assert "--workers 1" in made.out
    assert "arguments: '{scheduled_for}'" in made.out
    (zone,) = re.findall(r"due next at .* \((.*)\)", made.out)
    assert re.search(rf"the snapshot of [-0-9]+ [:0-9]+ \({zone}\);", made.out)
    assert "--time-zone sets another one" in made.err
    told = json.loads(tfcluster("schedule", "show", "nightly", "-o", "json").out)
    assert told["rules"]["retryDelays"] == [300.0]
    assert told["launch"]["words"]["arguments"] == ["{scheduled_for}"]
    assert "data repair" in tfcluster("schedule", "pause", "nightly", "--reason", "data repair").out
    listed = tfcluster("schedule", "list").out
    assert "paused" in listed
    refused = tfcluster("schedule", "run-now", "nightly")
    assert (refused.code, "resume nightly" in refused.err) == (4, True)
    assert "due next" in tfcluster("schedule", "resume", "nightly").out
    assert tfcluster("schedule", "run-now", "nightly").code == 0
    history = wait_until(
        lambda: "Succeeded" in (text := tfcluster("schedule", "history", "nightly").out) and text
    )
    assert "nightly-1" in str(history)
    assert f"DUE ({zone})" in str(history)
    unsaid = tfcluster("schedule", "delete", "nightly")
    assert (unsaid.code, "--yes" in unsaid.err) == (2, True)
    assert tfcluster("schedule", "delete", "nightly", "--yes").code == 0
    assert tfcluster("schedule", "show", "nightly").code == 5
    assert "No schedules yet" in tfcluster("schedule", "list").out


def test_a_project_with_its_configuration(tfcluster: Run) -> None:
    """A schedule of a project reports the settings of the project's file and uses the named
    configuration; `update` keeps or replaces that configuration.
    """
    folder = Path("digits")
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (folder / "tfcluster.yaml").write_text(
        "workers: 2\nconfigurations:\n  quick: {workers: 1}\n  wide: {workers: 3}\n"
    )
    words = ["--cron", "@daily", "--config", "quick"]
    made = tfcluster("schedule", "create", "nightly", *words, "digits")
    assert made.code == 0, made.err
    assert "with its configuration quick sets" in made.out
    assert "--config quick" in made.out

    def workers() -> int:
        told = json.loads(tfcluster("schedule", "show", "nightly", "-o", "json").out)
        return int(told["launch"]["spec"]["replicas"]["worker"]["count"])

    assert workers() == 1
    assert tfcluster("schedule", "update", "nightly", "--retries", "1").code == 0
    assert workers() == 1
    assert tfcluster("schedule", "update", "nightly", "--config", "wide").code == 0
    assert workers() == 3
    refused = tfcluster("schedule", "update", "nightly", "--config", "none")
    assert refused.code == 2
    assert "the schedule was refused: --config: got 'none'" in refused.err


def test_a_schedule_that_takes_advice_says_what_it_changes(tfcluster: Run) -> None:
    """`show` says what advice changes in the next run, or that there is no advice yet; `update`
    turns advice off.
    """
    words = ["--cron", "0 2 * * *", "--advised", "--worker-memory", "8Gi", "--workers", "1"]
    made = tfcluster("schedule", "create", "nightly", *words, "tell.py")
    assert made.code == 0, made.err
    shown = tfcluster("schedule", "show", "nightly").out
    assert "--advised" in shown and "advised: no run has ended yet" in shown
    assert json.loads(tfcluster("schedule", "show", "nightly", "-o", "json").out)["rules"][
        "advised"
    ]
    assert tfcluster("schedule", "update", "nightly", "--no-advised").code == 0
    assert "advised" not in tfcluster("schedule", "show", "nightly").out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("launch --after sch", {"schedule:nightly"}),
        ("launch --after schedule:", {"schedule:nightly"}),
        ("launch --after schedule:w", set()),
        ("launch --after schedule:nightly:", {"schedule:nightly:success", "schedule:nightly:end"}),
        ("launch --after ", {"once-1", "schedule:nightly"}),
        ("schedule create weekly --after ", {"schedule:nightly"}),
        ("schedule create weekly --after on", set()),
        ("schedule update nightly --after schedule:n", {"schedule:nightly"}),
    ],
)
def test_tab_completes_what_a_run_or_a_schedule_waits_for(
    tfcluster: Run, typed: str, offered: set[str]
) -> None:
    """`--after` of a launch completes runs and schedules; `--after` of a schedule completes only
    schedules.
    """
    tfcluster("schedule", "create", "nightly", "--cron", "@yearly", "--workers", "1", "quick.sh")
    tfcluster("launch", "quick.sh", "--name", "once", "--workers", "1", "--wait")

    assert set(completions(typed, Terminal())) == offered


def test_the_help_has_whole_sentences(tfcluster: Run) -> None:
    """No line in the list of commands is truncated."""
    told = tfcluster("schedule", "--help").out
    assert "newest first" in told
    assert "..." not in told.partition("Commands")[2]


def test_every_problem_is_named_at_once(tfcluster: Run) -> None:
    """All wrong options are refused at once, with the allowed values, and nothing is created."""
    words = ["--cron", "0 0 30 2 *", "--time-zone", "Asia", "--retries", "99", "--deadline", "soon"]
    refused = tfcluster("schedule", "create", "nightly", *words, "tell.py")
    assert refused.code == 2
    for option in ("--cron", "--time-zone", "--retries", "--deadline"):
        assert option in refused.err
    for words, why in (
        (["nightly", "tell.py"], "--cron"),
        (["nightly", "--cron", "@daily", "gone.py"], "there is no such file"),
        (["nightly-1", "--cron", "@daily", "tell.py"], "name"),
        (["nightly", "--cron", "@daily", "--mode", "in-graph"], "in-graph"),
        (["nightly", "--cron", "@daily", "tell.py", "--", "{scheduled_for:%c}"], "%Y"),
    ):
        refused = tfcluster("schedule", "create", *words)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert "No schedules yet" in tfcluster("schedule", "list").out


def test_a_large_backfill_is_asked_first_and_bounded(tfcluster: Run) -> None:
    """Before a backfill of hundreds of runs, the command asks for confirmation. A backfill of more
    than 10,000 runs, or of times in the future, is refused.
    """
    tfcluster("schedule", "create", "nightly", "--cron", "0 * * * *", "--workers", "1", "quick.sh")
    span = ["--from", "2026-01-01", "--to", "2026-02-01"]
    asked = tfcluster("schedule", "backfill", "nightly", *span)
    assert (asked.code, "launch 745 runs of nightly" in asked.err) == (2, True)
    huge = tfcluster(
        "schedule", "backfill", "nightly", "--from", "2020-01-01", "--to", "2026-01-01"
    )
    assert (huge.code, "at most 10000" in huge.err) == (2, True)
    for wrong in (["2026-01-02", "2026-01-01"], ["2026-01-01", "2999-01-01"], ["soon", "later"]):
        span = ["--from", wrong[0], "--to", wrong[1]]
        assert tfcluster("schedule", "backfill", "nightly", *span).code == 2
    told = json.loads(tfcluster("schedule", "show", "nightly", "-o", "json").out)
    assert "backfills" not in told["status"]


def test_a_backfill_runs_each_past_time(tfcluster: Run, scheduler: ClusterManager) -> None:
    """A backfill launches past due times, and `show` has its progress."""
    words = ["--cron", "0 3 * * *", "--time-zone", "UTC", "--workers", "1"]
    tfcluster("schedule", "create", "nightly", *words, "tell.py")
    span = ["--from", "2026-01-01", "--to", "2026-01-03", "--parallel", "2"]
    assert tfcluster("schedule", "backfill", "nightly", *span).code == 0
    wait_until(
        lambda: "2 of 2 due times done, 0 without" in tfcluster("schedule", "show", "nightly").out
    )
    due = [run.metadata.scheduled for run in scheduler.list(["nightly"], all_runs=True)]
    assert sorted(each.local for each in due if each) == [
        "2026-01-01T03:00:00+00:00",
        "2026-01-02T03:00:00+00:00",
    ]


def test_names_are_completed(tfcluster: Run) -> None:
    """A shell completes the names of schedules."""
    words = ["--cron", "@daily", "--workers", "1"]
    tfcluster("schedule", "create", "nightly", *words, "quick.sh")
    context = click.Context(click.Command("pause"))
    assert [item.value for item in complete_schedules(context, click.Option(["-x"]), "ni")] == [
        "nightly"
    ]
    assert complete_schedules(context, click.Option(["-x"]), "z") == []


def test_a_schedule_waits_for_the_run_of_another_of_the_same_time(
    tfcluster: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `--after` that names no schedule, or that would make schedules wait for each other, is
    refused. A schedule's run starts when the awaited run for the same due time has succeeded. A
    launch by hand waits for the newest run of a schedule.
    """
    monkeypatch.setenv("TFCLUSTER_NO_CLOCK", "1")
    daily = ["--cron", "@daily", "--time-zone", "UTC", "--workers", "1"]
    for after, words in (
        ("schedule:first", "there is no schedule first"),
        ("schedule:then", "then → then"),
        ("first-1", "write schedule:NAME"),
        ("schedule:first:soon", "write schedule:NAME"),
    ):
        refused = tfcluster("schedule", "create", "then", *daily, "--after", after, "tell.py")
        assert (refused.code, words in refused.err) == (2, True), refused.err
    unknown = tfcluster("launch", "--workers", "1", "--after", "schedule:first", "tell.py")
    assert (unknown.code, "no run of a schedule first" in unknown.err) == (2, True)
    assert tfcluster("schedule", "create", "first", *daily, "tell.py", "--", "x").code == 0
    then = tfcluster("schedule", "create", "then", *daily, "--after", "schedule:first", "tell.py")
    assert (then.code, "--after schedule:first" in then.out) == (0, True), then.err
    loop = tfcluster("schedule", "update", "first", "--after", "schedule:then:end")
    assert (loop.code, "first → then → first" in loop.err) == (2, True)

    manager = ClusterManager()
    for name in ("first", "then"):  # as if the machine had been off for two days
        manager.backend.schedules().change(
            name,
            lambda each: replace(each, status=replace(each.status, cursor=time.time() - 172800)),
        )
    monkeypatch.delenv("TFCLUSTER_NO_CLOCK")
    assert tfcluster("schedule", "list").code == 0

    def history() -> list[dict[str, str]]:
        return json.loads(tfcluster("schedule", "history", "then", "-o", "json").out)

    (done,) = wait_until(lambda: [each for each in history() if each["state"] == "Succeeded"][:1])
    mine = manager.status(done["run"]).metadata
    assert mine.scheduled is not None
    (before,) = [
        each
        for each in manager.list()
        if each.metadata.cluster == "first"
        and each.metadata.scheduled
        and each.metadata.scheduled.due == mine.scheduled.due
    ]
    assert before.status.finished_at is not None
    assert before.status.finished_at <= mine.created_at
    by_hand = tfcluster("launch", "--workers", "1", "--after", "schedule:then:end", "tell.py")
    assert by_hand.code == 0, by_hand.err
    newest = f"it waits for {done['run']}, the newest run of the schedule then"
    assert f"{newest}; --after then-N names another one" in by_hand.err + by_hand.out
    assert f"Waiting for {done['run']}" not in by_hand.err + by_hand.out
    assert tfcluster("schedule", "update", "then", "--after", "").code == 0
    assert "--after" not in tfcluster("schedule", "show", "then").out
