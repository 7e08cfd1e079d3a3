"""Reports of a run for users and programs."""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import msgspec
import pytest
import yaml

from tfcluster_magic.backends.base import Limit, LogLine, Options, SeenTask
from tfcluster_magic.output import report, run_card
from tfcluster_magic.output.documents import document
from tfcluster_magic.output.run_card import MIME_TYPE, run_bundle, run_view
from tfcluster_magic.output.text import (
    PLAIN,
    Paint,
    Prefixer,
    age,
    cut,
    one_line,
    spreadsheet_cell,
    table,
    task_names,
    width,
)
from tfcluster_magic.progress.run_progress import Progress
from tfcluster_magic.spec import (
    Cause,
    Event,
    Metadata,
    Phase,
    Program,
    ProgramKind,
    Reason,
    Reclaimed,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    TaskExit,
    TaskFailure,
    TaskState,
    TaskStatus,
    TFCluster,
    TypeCounts,
)

NOW = 1_800_000_000.0
PROGRESS = Progress(step=300, total=1000, steps_per_second=2.5, loss=0.25, eta_seconds=280, at=NOW)


def cluster(name: str = "digits", **status: object) -> TFCluster:
    """Return a run of 2 workers and 1 parameter server."""
    state = {"phase": Phase.RUNNING, "reason": Reason.RUNNING, "message": "3 tasks are running."}
    state |= {
        "counts": {
            "worker": TypeCounts(desired=2, running=2),
            "ps": TypeCounts(desired=1, running=1),
        }
    }
    return TFCluster(
        metadata=Metadata(name=f"{name}-2", cluster=name, run=2, uid="0" * 36, created_at=NOW - 60),
        spec=Spec(replicas=ReplicaSet(worker=Replicas(count=2), ps=Replicas(count=1))),
        status=Status(**(state | status)),  # type: ignore[arg-type]
    )


def test_the_json_of_a_run_reads_back_as_the_same_run() -> None:
    """`-o json` prints the JSON of the model, from which the same run can be read."""
    run = cluster()

    assert msgspec.json.decode(document(run, "json"), type=TFCluster) == run


def test_yaml_says_what_json_says() -> None:
    """`-o yaml` and `-o json` have the same data."""
    run = cluster()

    assert yaml.safe_load(document(run, "yaml")) == json.loads(document(run, "json"))


def test_a_list_as_names_is_one_name_a_line() -> None:
    """`-o name` prints one name in each line, so that a loop in a shell can read several runs."""
    assert document([cluster("a"), cluster("b")], "name") == "a-2\nb-2"


def test_status_begins_with_one_sentence_and_has_a_row_for_each_task() -> None:
    """The status of a run starts with its message, followed by its tasks."""
    text = report.status(cluster(), now=NOW)

    assert text.startswith("digits-2 Running: 3 tasks are running.\n")
    rows = [line.split()[:3] for line in text.splitlines() if line.startswith(("worker-", "ps-"))]
    assert rows == [
        ["worker-0", "Running", "0"],
        ["worker-1", "Running", "0"],
        ["ps-0", "Running", "0"],
    ]


def test_a_failed_task_has_its_last_words_in_its_row() -> None:
    """The row of a failed task says how it ended."""
    ended = TaskExit(cause=Cause.ERROR, finished_at=NOW, exit_code=1, last_lines=("ValueError: x",))
    run = cluster(
        phase=Phase.FAILED,
        attention=(TaskStatus(name="worker-1", state=TaskState.FAILED, restarts=2, exit=ended),),
        counts={"worker": TypeCounts(desired=2, failed=1, stopped=1), "ps": TypeCounts(desired=1)},
    )
    lines = report.status(run, now=NOW).splitlines()

    assert next(line.split() for line in lines if line.startswith("worker-0")) == [
        "worker-0", "Stopped", "0",
    ]  # fmt: skip
    assert "worker-1  Failed   2         failed with exit code 1: ValueError: x" in lines


def test_tasks_whose_states_are_not_told_one_by_one_share_a_row() -> None:
    """If the record has only the numbers of tasks in each state, `status` shows these numbers in
    one row for each task type.
    """
    run = cluster(counts={"worker": TypeCounts(desired=2, running=1, succeeded=1)})

    assert "worker-0, worker-1  1 Running, 1 Succeeded" in report.status(run, now=NOW)


def test_each_task_is_a_row_for_the_page() -> None:
    """The page gets a row for each task. The rows come from the record, or from observed tasks as
    far as they agree with the record's counts.
    """
    ended = TaskExit(cause=Cause.ERROR, finished_at=NOW, exit_code=1, last_lines=("ValueError: x",))
    run = cluster(
        restarts={"worker-1": 2},
        attention=(TaskStatus(name="worker-1", state=TaskState.FAILED, restarts=2, exit=ended),),
        counts={
            "worker": TypeCounts(desired=4, running=1, failed=1, stopped=2),
            "ps": TypeCounts(desired=1, running=1),
        },
    )
    seen = [
        SeenTask("ps-0", "node-b", TaskState.STARTING, NOW - 50),
        SeenTask(
            "worker-0",
            "node-a",
            TaskState.RUNNING,
            NOW - 9,
            LogLine("worker-0", "a\rb\x1b[1m", NOW),
        ),
        SeenTask("worker-1", "node-a", TaskState.RUNNING, NOW - 9),
        SeenTask("worker-2", "node-a", TaskState.FAILED, NOW - 9),
        SeenTask("worker-3"),
    ]
    rows = {row["name"]: row for row in run_card.task_rows(run, seen)}

    assert [*rows] == ["worker-0", "worker-1", "worker-2", "worker-3", "ps-0"]
    assert [row["state"] for row in rows.values()] == [
        "Running", "Failed", "Stopped", None, "Running",
    ]  # fmt: skip
    assert rows["worker-0"] == {
        "name": "worker-0", "state": "Running", "message": "", "messages": [], "restarts": 0,
        "node": "node-a", "since": NOW - 9, "line": "b", "printedAt": NOW,
    }  # fmt: skip
    assert rows["worker-1"]["message"] == "failed with exit code 1: ValueError: x"
    assert (rows["worker-1"]["since"], rows["worker-1"]["restarts"]) == (NOW, 2)


def test_status_says_what_was_reclaimed_and_when() -> None:
    """`status` shows which tasks were reclaimed, and when."""
    freed = Reclaimed(at=NOW, tasks=("ps-0",), cpu=1.0, memory=2**29)

    assert report.reclaimed(freed, NOW).endswith(": ps-0 (1 CPU, 512Mi)")


def test_reclaimed_tasks_are_not_missing() -> None:
    """After a success, reclaimed parameter servers do not count as missing."""
    done = {
        "worker": TypeCounts(desired=2, succeeded=2),
        "ps": TypeCounts(desired=1, stopped=1),
    }

    assert report.ready_count(cluster(phase=Phase.SUCCEEDED, counts=done)) == "2/2"
    assert report.ready_count(cluster(phase=Phase.STOPPED, counts=done)) == "2/3"


def test_the_tasks_of_a_run_are_counted_in_the_words_of_the_page() -> None:
    """A card in a saved notebook counts tasks in the same words as the sidebar and the live card
    (`words.test.ts`).
    """
    said = {
        phase: report.task_words(cluster(phase=phase, counts={"worker": counts}))
        for phase, counts in (
            (Phase.QUEUED, TypeCounts(desired=3)),
            (Phase.RUNNING, TypeCounts(desired=3, running=2)),
            (Phase.SUCCEEDED, TypeCounts(desired=3, succeeded=2, stopped=1)),
            (Phase.FAILED, TypeCounts(desired=3, failed=1)),
        )
    }
    assert said == {
        Phase.QUEUED: "0 of 3 running",
        Phase.RUNNING: "2 of 3 running",
        Phase.SUCCEEDED: "2 tasks finished",
        Phase.FAILED: "3 tasks",
    }
    counts = {"worker": TypeCounts(desired=2, succeeded=2), "ps": TypeCounts(desired=1, running=1)}
    assert report.task_words(cluster(phase=Phase.SUCCEEDED, counts=counts)) == (
        "2 tasks finished, 1 running"
    )


def test_a_program_cannot_move_the_cursor_through_a_message() -> None:
    """`status` and `list` never send control characters in a program's last lines to a terminal."""
    run = cluster(
        message="bad \x1b[2J\x07thing\r\nline",
        events=(Event(at=NOW, reason="x", message="\x1b]0;title\x07"),),
    )
    shown = report.status(run, now=NOW) + report.listing([run], now=NOW)

    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\r" not in shown


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


def test_html_escapes_everything_that_is_not_ours() -> None:
    """A message, a warning, a note or a path with HTML in it is shown as text."""
    evil = "<script>alert(1)</script><img src=x>"
    run = cluster(message=evil, warnings=(evil,), paths={"output": evil})
    parser = _Tags()
    parser.feed(run_bundle(run, notes=[evil])["text/html"])

    assert parser.tags == {"div", "strong", "span", "code"}


def test_the_bundle_says_as_of_when_and_carries_the_run() -> None:
    """The output bundle has text, HTML with the time at which it was made, and the server's JSON
    for the JupyterLab extension.
    """
    made = run_bundle(cluster(), PROGRESS, ["no output since 22:41 from worker-0"])
    drawn = made[MIME_TYPE]

    assert set(made) == {"text/plain", "text/html", MIME_TYPE}
    assert "as of" in made["text/html"]
    assert "progress: step 300/1000" in made["text/html"]
    assert "no output since 22:41 from worker-0" in made["text/html"]
    assert (drawn.pop("kind"), drawn.pop("at") > NOW - 1e9) == ("Run", True)
    assert drawn == run_view(cluster(), PROGRESS, ["no output since 22:41 from worker-0"])
    assert "%tfcluster logs -f digits-2" in made["text/plain"]


def test_a_card_that_is_not_kept_names_no_time_that_would_be_wrong_in_a_moment() -> None:
    """The panel's card says since when a run is active; a stored card says for how long the run was
    active.
    """
    run = cluster(started_at=NOW - 50)

    assert " for 50s" not in run_card.run_card(run)
    assert " for 50s" in run_card.run_card(run, as_of=NOW)
    assert "launched" in run_card.run_card(run)
    assert "as of" not in run_card.run_card(run)


def failed_run(*printed: str) -> TFCluster:
    """Return a run whose worker-1 failed after printing these lines; then worker-0 failed because
    it lost worker-1.
    """
    ended = TaskExit(cause=Cause.ERROR, finished_at=NOW, exit_code=1, last_lines=printed)
    other = msgspec.structs.replace(ended, last_lines=("it lost a peer",), follows=True)
    return cluster(
        phase=Phase.FAILED,
        reason=Reason.PROGRAM_FAILED,
        message="worker-1 failed: see `tfcluster logs digits-2`.",
        failures=(
            TaskFailure(task="worker-0", attempt=1, exit=other),
            TaskFailure(task="worker-1", attempt=1, exit=ended),
        ),
        culprit="worker-1",
        started_at=NOW - 50,
        finished_at=NOW,
    )


@pytest.mark.parametrize("form", ["text/html", "text/plain"])
def test_what_a_notebook_keeps_of_a_failed_run_says_how_it_ended(form: str) -> None:
    """Without extension and server, a notebook shows a failed run's phase, the time with its zone,
    the reason, the last metrics, and the last lines of the task that failed first. TensorFlow's own
    log lines are left out.
    """
    noise = "2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu.cc:210] This TensorFlow"
    lines = [f"line {number}" for number in range(20)]
    kept = run_bundle(failed_run(*lines, noise, "ValueError: <x> \x1b[31m"), PROGRESS)[form]
    plain = re.sub("<[^>]*>", "", kept)

    assert re.search(r"digits-2\s+Failed", plain)
    assert re.search(r"as of \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d{4}", plain)
    assert "worker-1 failed: see" in plain
    assert "tfcluster logs digits-2" in plain
    assert "step 300/1000" in plain
    assert "last lines of worker-1:" in plain
    assert "line 19" in plain
    assert "line 10" not in plain
    assert "it lost a peer" not in plain
    assert "tensorflow/core" not in plain
    assert "\x1b" not in plain
    assert "It may have changed since" not in plain


@pytest.mark.parametrize("form", ["text/html", "text/plain"])
def test_a_run_that_went_on_is_said_to_be_as_it_was(form: str) -> None:
    """In a stored notebook, the output for an active run says that the run may have changed since,
    and which command shows its current status.
    """
    kept = run_bundle(cluster())[form]

    assert "It may have changed since" in kept
    assert "%tfcluster status digits-2" in kept
    assert "last lines" not in kept


def test_lines_that_were_cut_off_are_known_as_such() -> None:
    """The output of a cell that follows a run has a command that shows all lines. If the page is
    closed and the notebook is saved before the run ends, a reader finds this command. After the
    run's end, the cell does not name this command.
    """
    cut = run_card.followed_bundle(cluster(), ["worker-0"], ended=False)
    assert "the page was closed: `%tfcluster logs digits-2`" in cut["text/plain"]
    assert cut[MIME_TYPE] | {"at": 0} == {
        "kind": "Follow", "at": 0, "name": "digits-2", "uid": "0" * 36, "tasks": ["worker-0"],
        "ended": False,
    }  # fmt: skip
    whole = run_card.followed_bundle(cluster(), [], ended=True)
    assert whole["text/plain"] == "Output of digits-2:"


def test_a_notebook_holds_no_program_and_no_number_that_json_lacks() -> None:
    """The output bundle stays small even if the program is large, and a loss that is not a number
    does not make it invalid JSON.
    """
    program = Program(
        kind=ProgramKind.CELL,
        source="cell",
        entrypoint="cell.py",
        sha256="0" * 64,
        files={"cell.py": base64.b64encode(b"x" * 60_000).decode()},
    )
    diverged = replace(PROGRESS, loss=math.nan, history=((1, math.inf),))
    run = msgspec.structs.replace(cluster(), spec=Spec(program=program))
    drawn = run_bundle(run, diverged)[MIME_TYPE]

    assert len(json.dumps(drawn, allow_nan=False)) < 4000
    assert "files" not in drawn["cluster"]["spec"]["program"]
    assert drawn["progress"]["loss"] is None


def test_every_line_of_the_stream_names_its_task() -> None:
    """Names are padded to the same width, so that the output stays in columns."""
    show = Prefixer(["worker-0", "ps-0"], PLAIN)

    assert show(LogLine("ps-0", "step 1")) == "ps-0     | step 1"
    assert show(LogLine("worker-0", "")) == "worker-0 |"


def test_a_progress_bar_is_shown_as_its_last_state() -> None:
    """A line that rewrites itself with carriage returns does not overwrite its prefix."""
    show = Prefixer(["worker-0"], PLAIN)

    assert show(LogLine("worker-0", "1/3\r2/3\r3/3\r")) == "worker-0 | 3/3"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[1;31mred and open", "\x1b[1;31mred and open\x1b[0m"),
        ("\x1b[2J\x1b[Hgone\x1b[3A", "gone"),
        ("\x1b]0;title\x07a\x1b]52;c;aGk=\x1b\\b", "ab"),
        ("\x1bPq#0\x1b\\a\x1b(0b\x1bc\x9b2Jc\x07\x08", "ab2Jc"),
        ("\x1b[31", "31"),
        ("\x1b]8;;http://evil.example\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        ("a\u202egpj.exe\u2066b\u2069\u200f\u2028c", "agpj.exebc"),
    ],
)
def test_a_line_does_nothing_to_the_terminal_but_colour_itself(printed: str, shown: str) -> None:
    """Output of a program cannot clear the terminal's screen, set its title or fill the
    clipboard.
    """
    show = Prefixer(["w"], Paint(enabled=False))

    assert show(LogLine("w", printed)) == f"w | {shown}"


def test_no_cell_of_a_spreadsheet_is_a_formula() -> None:
    """A spreadsheet shows any name as text."""
    for name in ("=1+1", "+1", "-1", "@A1", " =1", "\t=1", "\r=1"):
        assert spreadsheet_cell(name).startswith("'")
    assert spreadsheet_cell("ada\x1b[2J") == "ada"


def test_without_prefix_a_line_is_as_it_was_printed() -> None:
    """`--no-prefix` prints lines unchanged."""
    assert Prefixer(["w"], PLAIN, prefix=False)(LogLine("w", " a\rb ")) == " a\rb "


def test_tasks_have_colours_of_their_own() -> None:
    """Two tasks of a small cluster never have the same colour."""
    show = Prefixer(task_names(cluster()), Paint(enabled=True))
    starts = {show(LogLine(task, "x")).split(task)[0] for task in task_names(cluster())}

    assert len(starts) == 3


def test_list_is_cut_to_the_terminal_and_only_there() -> None:
    """A long reason is cut on a terminal and complete in a pipe."""
    run = cluster(message="word " * 60)

    assert max(map(width, report.listing([run], now=NOW, most=80).splitlines())) <= 80
    assert "word " * 59 in report.listing([run], now=NOW)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7500, "2h5m"), (7200, "2h"), (200000, "2d")],
)
def test_age_is_rough(seconds: float, shown: str) -> None:
    """An age is shown with one unit or two units."""
    assert age(seconds) == shown


def test_wide_characters_take_two_columns() -> None:
    """A table with Chinese text stays aligned."""
    lines = table(("A", "B"), [("数字", "x"), ("ab", "y")]).splitlines()

    assert {
        width(line[: line.index(mark)]) for line, mark in zip(lines[1:], "xy", strict=True)
    } == {6}
    assert cut("数字数字", 5) == "数字…"


def test_clean_leaves_text_alone() -> None:
    """Ordinary text, of any language, passes unchanged."""
    assert one_line("Ein Würfel · 数字") == "Ein Würfel · 数字"


def test_options_say_what_is_free() -> None:
    """Every resource is shown with its free and total amount."""
    gib = 2.0**30
    text = report.options(
        Options(
            backend="local",
            cpu=Limit(total=2, free=1.5),
            memory=Limit(total=8 * gib, free=2 * gib),
            gpu=Limit(total=0, free=0),
        )
    )

    assert "CPU cores  1.5   2" in text
    assert "memory     2Gi   8Gi" in text
