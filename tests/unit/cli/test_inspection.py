"""Inspection of runs on the command line: lists, status, logs, started commands, and limits."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest
import yaml
from support.command_line import Run, here, left_behind, run
from support.event_writer import event, event_file
from support.polling import wait_until

from tfcluster_magic import ClusterManager
from tfcluster_magic.runs.manager import Until

__all__ = ["here", "run"]  # fixtures used by the tests below


def test_list_is_a_table_and_an_empty_one_says_what_to_do(run: Run) -> None:
    """An empty list tells a new user how to launch."""
    assert "`tfcluster launch train.py` starts one" in run("list").out

    run("launch", "sleep.py", "--workers", "1")
    head, row = run("list").out.splitlines()

    assert head.split() == ["NAME", "MODE", "PHASE", "READY", "AGE", "REASON"]
    assert row.split()[:2] == ["sleep-1", "between-graph"]


def test_wait_ends_on_success_and_failure_alike(run: Run) -> None:
    """`wait` reports by its exit code how a run ended, however long ago: 10 if the run failed or
    was stopped, 5 if there is no such run.
    """
    run("launch", "hello.py", "--workers", "1")
    run("launch", "fail.py", "--workers", "1")
    done = run("wait", "hello")
    failed = run("wait", "fail", "--timeout", "90s")

    assert (done.code, failed.code, run("wait", "none").code) == (0, 10, 5)
    assert done.err.splitlines()[-1].startswith("hello-1 Succeeded: ")
    assert failed.err.splitlines()[-1].startswith("fail-1 failed: ")
    assert run("wait", "fail-1", "--for", "running").code == 10
    assert json.loads(run("wait", "hello", "-o", "json").out)["status"]["phase"] == "Succeeded"


def test_wait_for_running_leaves_the_run_alone(run: Run) -> None:
    """A wait for running tasks ends when they run, and a wait for the end exits with 11 at its
    timeout. After the run was stopped, both kinds of wait exit with 10.
    """
    run("launch", "sleep.py", "--workers", "2")
    up = run("wait", "sleep", "--for", "running", "--timeout", "90s")
    late = run("wait", "sleep", "--timeout", "0.2s")

    assert (up.code, late.code) == (0, 11)
    assert up.err.splitlines()[-1].startswith("sleep-1 Running: ")
    assert "The run continues" in late.err
    run("stop", "sleep", "--yes")
    assert run("wait", "sleep").code == run("wait", "sleep", "--for", "running").code == 10


def test_list_filters_and_says_how_many_it_hides(run: Run) -> None:
    """Earlier runs of a name are hidden unless requested."""
    for _ in range(2):
        run("launch", "hello.py", "--workers", "1", "--wait")
    hidden = run("list")

    assert "hello-1" not in hidden.out
    assert "1 more with `tfcluster list --all`" in hidden.err
    assert run("list", "--all", "-o", "name").out.split() == ["hello-2", "hello-1"]
    assert run("list", "--all", "--active", "-o", "name").out == ""
    unknown = run("list", "helo")
    assert unknown.code == 5 and "hello" in unknown.err
    assert run("list", "--all", "--phase", "Failed", "-o", "json").out == "[]\n"
    assert len(json.loads(run("list", "--all", "-o", "json").out)) == 2


def test_status_names_each_task_and_status_f_ends_with_the_run(run: Run) -> None:
    """`status -f` shows the status of a running run, then its changes until its end."""
    run("launch", "sleep.py", "--workers", "2")
    ClusterManager().wait("sleep", 30, until=Until.READY)
    text = run("status", "sleep").out
    threading.Timer(0.3, lambda: ClusterManager().stop("sleep")).start()
    followed = run("status", "-f", "sleep")

    assert text.startswith("sleep-1 Running: 2 tasks are running.\n")
    assert "worker-1  Running  0" in text
    assert followed.code == 0
    assert followed.err.endswith("sleep-1 Stopped: Stopped by its owner.\n")


def test_status_without_a_name_is_the_newest_run(run: Run) -> None:
    """Without a name, the latest run is shown; if there is no run, the message says how to start
    one.
    """
    none = run("status")
    assert none.code == 5
    assert "no run yet; `tfcluster launch train.py` starts one" in none.err
    run("launch", "hello.py", "--workers", "1", "--wait")
    run("launch", "hello.py", "--workers", "1", "--name", "other", "--wait")
    assert run("status").out.startswith("other-1 ")


def test_a_number_is_used_once_for_a_name(run: Run) -> None:
    """A deleted run's number is not used again; `render` of a launch shows the next number, too."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    assert "deleted hello-1" in run("delete", "hello", "--with-logs", "--yes").out
    run("launch", "hello.py", "--workers", "1", "--wait")
    assert run("list", "-o", "name").out.split() == ["hello-2"]


def test_logs_can_be_limited_to_tasks_and_lines(run: Run, here: Path) -> None:
    """`--tail` counts the lines of each task; for an unknown task, the refusal lists the existing
    tasks.
    """
    (here / "count.py").write_text("for i in range(9): print('line', i)\n")
    run("launch", "count.py", "--workers", "2", "--wait")

    last = run("logs", "count", "--tail", "1").out.splitlines()
    assert sorted(last) == ["worker-0 | line 8", "worker-1 | line 8"]
    timed = run("logs", "count", "worker-1", "--timestamps", "--tail", "1").out
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} worker-1 \| line 8\n", timed)
    assert run("logs", "count", "worker-1", "--no-prefix", "--tail", "2").out == "line 7\nline 8\n"
    refused = run("logs", "count", "worker-7")
    assert refused.code == 5
    assert "worker-0, worker-1" in refused.err


def test_remarks_of_tensorflows_own_are_left_out_and_counted(run: Run, here: Path) -> None:
    """Log lines of TensorFlow's C++ code are hidden and counted unless `--all` asks for them;
    errors are always shown.
    """
    said = [
        "2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] fast",
        "2026-11-21 16:36:34.123457: E tensorflow/core/platform/a.cc:1] broken",
        "step 1",
    ]
    (here / "noisy.py").write_text(f"for line in {said!r}: print(line)\n")
    run("launch", "noisy.py", "--workers", "1", "--wait")

    shown = run("logs", "-f", "noisy")
    assert shown.out.splitlines() == [f"worker-0 | {line}" for line in said[1:]]
    assert "1 TensorFlow log line hidden: `tfcluster logs --all noisy-1`" in shown.err
    for option in ("--all", "--no-prefix"):
        everything = run("logs", "noisy", option)
        assert [line.removeprefix("worker-0 | ") for line in everything.out.splitlines()] == said
        assert "left out" not in everything.err


@pytest.mark.parametrize("how", [(), ("-f",), ("--tail", "4"), ("-f", "--tail", "4")])
def test_a_protobuf_that_tensorflow_logs_is_hidden(
    run: Run, here: Path, how: tuple[str, ...]
) -> None:
    """The lines of a protobuf are hidden with the line of TensorFlow that announces it, in each
    task. The same lines are shown if the program prints them.
    """
    first = "I0000 00:00:1732207594.123456    4711 impl.cc:88] Options: goo.gle/debugstr  "
    protobuf = ["device_count {", '  key: "CPU"', "}"]
    said = [first, *protobuf, "", *protobuf, "step 1", first, *protobuf, ""]
    (here / "noisy.py").write_text(f"for line in {said!r}: print(line, flush=True)\n")
    run("launch", "noisy.py", "--workers", "2", "--wait")

    shown = run("logs", *how, "noisy", "--no-color")
    for task in ("worker-0", "worker-1"):
        lines = [line for line in shown.out.splitlines() if line.startswith(task)]
        assert lines == [f"{task} | {line}" for line in (*protobuf, "step 1")]
    assert f"{10 if '--tail' in how else 20} TensorFlow log lines hidden" in shown.err


@pytest.mark.parametrize("how", [(), ("-f",)])
def test_last_lines_are_shown_lines(run: Run, here: Path, how: tuple[str, ...]) -> None:
    """`--tail 2` shows two lines of a task, however many hidden lines follow them."""
    remark = "I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] x"
    said = ["step 1", "step 2", remark, "step 3", *[remark] * 9]
    (here / "noisy.py").write_text(f"for line in {said!r}: print(line)\n")
    run("launch", "noisy.py", "--workers", "1", "--wait")

    shown = run("logs", *how, "noisy", "--tail", "2", "--no-color")
    assert shown.out.splitlines() == ["worker-0 | step 2", "worker-0 | step 3"]
    everything = run("logs", *how, "noisy", "--all", "--tail", "2")
    assert everything.out.splitlines() == [f"worker-0 | {remark}"] * 2


def test_following_the_logs_of_a_run_again_starts_from_its_first_line(run: Run) -> None:
    """If the logs of a run are followed a second time, all lines are repeated, so that a client
    that reconnects misses none.
    """
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert run("logs", "-f", "hello").out == "worker-0 | hello from worker-0\n"
    assert run("logs", "-f", "hello").out == "worker-0 | hello from worker-0\n"


def test_render_shows_what_the_runtime_really_starts(run: Run, here: Path) -> None:
    """`render` shows the command, TF_CONFIG and environment with which the program really runs."""
    (here / "tell.py").write_text(
        "import json, os, sys\n"
        "print(json.dumps({'argv': sys.argv, 'env': dict(os.environ)}))\n"
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--ps_hosts'); p.add_argument('--job_name')\np.parse_known_args()\n"
    )
    line = "launch tell.py --workers 1 --ps 1 --cpu 1.5 --env A=b --wait -- --more x"
    run(*line.split())
    found = json.loads(run("logs", "tell", "worker-0", "--no-prefix", "--tail", "1").out)
    record, *tasks = yaml.safe_load_all(run("render", "tell").out)
    worker = next(task for task in tasks if task["task"] == "worker-0")
    expected = {
        name: value.replace(f"${name}", os.environ.get(name, "")).rstrip(":")
        for name, value in worker["env"].items()
    }

    assert record["metadata"]["name"] == "tell-1"
    assert [task["task"] for task in tasks] == ["worker-0", "ps-0"]
    assert worker["command"][2:] == found["argv"]
    assert {name: found["env"].get(name) for name in expected} == expected
    assert worker["tfConfig"] == json.loads(found["env"]["TF_CONFIG"])


def test_a_program_gets_the_flags_that_it_shall(run: Run, here: Path) -> None:
    """A program gets all flags that it accepts, only the flags for addresses, or no flags."""
    (here / "tell.py").write_text(
        "import argparse, sys\nprint([f.split('=')[0] for f in sys.argv[1:]])\n"
        "p = argparse.ArgumentParser()\np.add_argument('--job-name')\n"
        "p.add_argument('--task-index')\np.add_argument('--log_path')\np.parse_known_args()\n"
    )
    for word, flags in (
        (None, "['--job-name', '--task-index', '--log_path', '--more']"),
        ("all", "['--job-name', '--task-index', '--log_path', '--more']"),
        ("addresses", "['--job-name', '--task-index', '--more']"),
        ("none", "['--more']"),
    ):
        said = [] if word is None else ["--pass-flags", word]
        done = run("launch", "tell.py", "--workers", "1", *said, "--wait", "--", "--more")
        assert done.code == 0, done.err
        assert run("logs", "tell", "--no-prefix").out == f"{flags}\n"


def test_what_was_read_from_the_program_is_told(run: Run, here: Path) -> None:
    """`launch` and `status` say what was inferred from the program's text, and name the option that
    overrides it.
    """
    (here / "tf1.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--ps-hosts')\n"
        "p.add_argument('--log_dir')\np.parse_known_args()\n"
    )
    why = "inferred 1 parameter server, because line 3 of tf1.py takes --ps-hosts; --ps N"
    launched = run("launch", "tf1.py", "--wait")
    assert launched.code == 0, launched.err
    for told in (launched.out, run("status", "tf1").out.replace("inferred: ", "inferred ")):
        assert why in told
        assert "inferred --ps-hosts is passed, because line 3 of tf1.py takes it" in told
        assert "inferred --log_dir is set to the run's output folder" in told
    again = run("rerun", "tf1", "--ps", "0", "--pass-flags", "none", "--dry-run")
    assert "inferred" not in again.err and "is passed" not in again.err
    assert "--ps-hosts is passed" in run("rerun", "tf1", "--dry-run").err
    again = run("rerun", "tf1", "--dry-run", "--", "--log_dir", "x").err
    assert "--ps-hosts is passed" in again and "--log_dir is passed" not in again


def test_a_program_that_dies_of_a_flag_that_was_passed(run: Run, here: Path) -> None:
    """If a program fails because it refuses a flag that TFCluster passed, the status names this
    flag and the command that launches without it.
    """
    (here / "strict.py").write_text(
        "import argparse, sys\np = argparse.ArgumentParser()\n"
        "if len(sys.argv) > 9:\n    p.add_argument('--log_dir')\np.parse_args()\n"
    )
    assert run("launch", "strict.py", "--workers", "1", "--wait").code == 10
    told = run("status", "strict").out
    assert "TFCluster passed --log_dir, which the program refuses" in told
    assert "`tfcluster rerun strict-1 --pass-flags addresses`" in told
    again = run("rerun", "strict", "--pass-flags", "addresses", "--wait")
    assert again.code == 0, again.err


def test_a_run_in_which_nothing_happens_ends_when_asked_to(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--stall-timeout` ends a run whose last worker waits for a worker that has ended; the status
    names this reason.
    """
    monkeypatch.setenv("TFCLUSTER_IDLE_SAMPLE", "0.2")
    (here / "left.py").write_text(
        "import os, time\nif os.environ['TFCLUSTER_TASK'] == 'worker-1':\n"
        "    print('I] CreateSession still waiting for response from worker: "
        "/job:worker/replica:0/task:0', flush=True)\n    time.sleep(600)\n"
    )
    done = run("launch", "left.py", "--stall-timeout", "3s", "--wait")
    assert done.code != 0
    told = json.loads(run("status", "left", "-o", "json").out)["status"]
    assert (told["phase"], told["reason"], told["culprit"]) == ("Failed", "Stalled", "worker-1")
    assert "worker-1 waits for worker-0, which finished at " in told["message"]


def test_an_evaluator_that_fails_fails_no_run(run: Run, here: Path) -> None:
    """A run with a failing evaluator succeeds, and reports the evaluator's failure."""
    (here / "broken.py").write_text(
        "import os, time\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'evaluator':\n"
        "    open('broke', 'w').close()\n    raise KeyError('evaluator')\n"
        "while not os.path.exists('broke'): time.sleep(0.05)\n"
    )
    done = run("launch", "broken.py", "--evaluator", "--workers", "1", "--wait")
    assert done.code == 0, done.err
    said = "worker-0 finished successfully; the evaluator failed: KeyError: 'evaluator'"
    wait_until(lambda: said in run("status", "broken").out)


def test_render_of_a_launch_creates_nothing(run: Run, own_folders: Path) -> None:
    """`render` shows the tasks of a launch without launching."""
    done = run("render", "hello.py", "--workers", "1")
    _, task = yaml.safe_load_all(done.out)

    assert task["tfConfig"]["cluster"] == {"worker": ["127.0.0.1:<port of worker-0>"]}
    assert left_behind(own_folders) == []


def test_status_says_how_far_the_program_is(run: Run, own_folders: Path) -> None:
    """Step, speed and loss come from the event files in the run's own folder."""
    run("launch", "sleep.py", "--workers", "1", "--", "--max_steps", "400")
    events = event_file(own_folders / "tfcluster" / "log" / "sleep" / "1")
    with open(events, "ab") as file:
        file.writelines(event(s, {"loss": 0.5}, wall=1000.0 + s / 50) for s in (100, 200))

    assert "progress: step 200/400 · 50 steps/s · loss 0.5" in run("status", "sleep").out


PRINTS = """
import os, sys, time
for n in range(1, 4):
    print(f"step {n}/30, loss = {1 / n}", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
print("step 30/30, loss = 0.01", flush=True)
"""


def test_status_says_how_far_a_program_is_by_its_lines(run: Run, here: Path) -> None:
    """Printed steps and losses are shown as progress; after the end, the last values stay. The JSON
    output names the source of these values.
    """
    (here / "prints.py").write_text(PRINTS)
    run("launch", "prints.py", "--workers", "1")
    said = "progress: step 3/30 · loss 0.333"
    wait_until(lambda: said in run("status", "prints").out, "the third step")
    (here / "go").touch()
    ClusterManager().wait("prints", 90)
    assert "progress: step 30/30 · loss 0.01\n" in run("status", "prints").out
    told = json.loads(run("status", "prints", "-o", "json").out)["progress"]
    assert (told["step"], told["total"], told["source"]) == (30, 30, "printedLines")


REPORTS = "import tfcluster\ntfcluster.progress(5, 9, loss=0.5, accuracy=0.75)\n"


def test_a_program_reports_its_own_progress(run: Run, here: Path) -> None:
    """`tfcluster.progress()` works in every task, whatever packages the task's Python has."""
    (here / "reports.py").write_text(REPORTS)
    run("launch", "reports.py", "--workers", "1", "--wait")
    told = run("status", "reports").out
    assert "progress: last reported step 5/9 · loss 0.5 · accuracy 0.75" in told
    progress = json.loads(run("status", "reports", "-o", "json").out)["progress"]
    assert progress["source"] == "program"


ELSEWHERE = """
import os, socket, sys, time
os.makedirs("logs", exist_ok=True)
host, pid = socket.gethostname(), os.getpid()
with open(f"logs/events.out.tfevents.{int(time.time())}.{host}.{pid}.0.v2", "wb") as file:
    file.write(bytes.fromhex(sys.argv[1]))
"""


def test_event_files_are_followed_to_where_the_program_writes(
    run: Run, here: Path, own_folders: Path
) -> None:
    """Progress is read from event files in ./logs, and the run's history names the folder."""
    (here / "curves.py").write_text(ELSEWHERE)
    content = event(7, {"loss": 0.5}).hex()
    run("launch", "curves.py", "--workers", "1", "--wait", "--", content)
    shown = run("status", "curves").out
    assert "progress: step 7 · loss 0.5" in shown
    assert (
        f"It writes to {here}/logs: TensorBoard and the progress display read that folder" in shown
    )


def test_a_run_that_had_nothing_left_to_do_says_so(run: Run, here: Path) -> None:
    """A run that found an earlier run's last checkpoint and trained no step says so."""
    (here / "model").mkdir()
    (here / "model" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-800"\n')
    (here / "model" / "model.ckpt-800.index").write_text("index")
    (here / "again.py").write_text("open('model/model.ckpt-800.index').read()\n")
    run("launch", "again.py", "--workers", "1", "--wait")
    shown = run("status", "again").out
    assert f"It found the checkpoint at step 800 in {here}/model" in shown
    assert "trained no step" in shown


def test_an_object_store_is_named_at_launch(run: Run) -> None:
    """If a program writes its event files to an object store, the launch says that TFCluster does
    not read their curves, and how to see them.
    """
    done = run("launch", "hello.py", "--workers", "1", "--wait", "--", "--model_dir=gs://b/m")
    assert "`tensorboard --logdir gs://b/m`" in done.out


def test_a_note_is_said_changed_and_removed(run: Run) -> None:
    """A note is one line of at most 500 characters, which `status` and JSON show."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    assert run("note", "hello").out == "hello-1 has no note.\n"
    assert run("note", "hello", " rate\n0.1\x1b[2J ").out == "rate 0.1\n"
    assert run("note", "hello-1").out == "rate 0.1\n"
    assert run("status", "hello").out.splitlines()[1] == "note: rate 0.1"
    assert json.loads(run("status", "hello", "-o", "json").out)["metadata"]["note"] == "rate 0.1"
    refused = run("note", "hello", "x" * 501)
    assert refused.code == 2
    assert "got '501 characters'; a note has at most 500 characters" in refused.err
    assert run("note", "hello", "").out == "hello-1 has no note.\n"
    assert "note:" not in run("status", "hello").out


def test_runs_are_compared(run: Run) -> None:
    """`compare` has a column for each run, with marked differences first, also as JSON and CSV."""
    run("launch", "hello.py", "--workers", "1", "--wait", "--", "--rate", "0.1")
    run("launch", "hello.py", "--workers", "2", "--wait", "--", "--rate", "-0.2")
    run("note", "hello-1", "=1+1")
    lines = run("compare", "hello-1", "hello-2").out.splitlines()
    assert lines[0].split() == ["hello-1", "hello-2"]
    rows = [line.split() for line in lines[1:]]
    at = rows.index(["ARGUMENTS"])
    assert rows[at + 1] == ["≠", "--rate", "0.1", "-0.2"]
    assert rows[at + 2] == ["Program", "hello.py", "hello.py"]
    assert ["≠", "--workers", "1", "2"] in rows
    assert ["State", "Succeeded", "Succeeded"] in rows
    shorter = run("compare", "hello-1", "hello-2", "--differences").out
    assert "--rate" in shorter
    assert "Program" not in shorter
    told = json.loads(run("compare", "hello-2", "hello-1", "-o", "json").out)
    assert [each["name"] for each in told["runs"]] == ["hello-2", "hello-1"]
    written = run("compare", "hello-1", "hello-2", "-o", "csv").out.splitlines()
    assert written[0] == "group,what,hello-1,hello-2"
    assert "arguments,rate,0.1,-0.2" in written
    assert "run,Note,'=1+1," in written
    alone = run("compare", "hello", "hello-2")
    assert alone.code == 2
    assert "name 2 to 50 runs" in alone.err


def test_a_run_is_renamed_for_display(run: Run) -> None:
    """A display name is one line, which is shown after the run's name. Commands still take the
    run's name.
    """
    run("launch", "hello.py", "--workers", "1", "--wait")
    assert run("rename", "hello").out == "hello-1 has no display name.\n"
    assert run("rename", "hello", " First\ntry\u202e <b>").out == "First try <b>\n"
    assert run("rename", "hello-1").out == "First try <b>\n"
    assert run("status", "hello").out.splitlines()[1] == "display name: First try <b>"
    head, row = run("list").out.splitlines()
    assert head.startswith("NAME     DISPLAY NAME   MODE")
    assert row.startswith("hello-1  First try <b>  between-graph")
    told = json.loads(run("status", "hello", "-o", "json").out)["metadata"]
    assert (told["name"], told["displayName"]) == ("hello-1", "First try <b>")
    refused = run("rename", "hello", "x" * 101)
    assert refused.code == 2
    assert "a display name has at most 100 characters" in refused.err
    assert run("rename", "hello", "").out == "hello-1 has no display name.\n"
    assert "DISPLAY NAME" not in run("list").out


def test_runs_are_tagged_and_found(run: Run) -> None:
    """Tags are added and removed, and found by `list --tag`; invalid tags are refused."""
    for name in ("hello.py", "sleep.py"):
        run("launch", name, "--workers", "1")
    assert run("tag", "hello").out == "hello-1 has no tags.\n"
    assert (
        run("tag", "hello", "baseline", "lr/0.1", "基线", "baseline").out
        == "baseline lr/0.1 基线\n"
    )
    assert run("tag", "sleep", "baseline").out == "baseline\n"
    assert run("status", "hello").out.splitlines()[1] == "tags: baseline lr/0.1 基线"
    assert run("list", "--tag", "baseline", "-o", "name").out == "sleep-1\nhello-1\n"
    assert run("list", "--tag", "baseline", "--tag", "基线", "-o", "name").out == "hello-1\n"
    assert json.loads(run("list", "--tag", "lr/0.1", "-o", "json").out)[0]["metadata"]["tags"] == [
        "baseline",
        "lr/0.1",
        "基线",
    ]
    assert run("list", "--tag", "base").out.startswith("No run matches.")
    assert run("list", "--all", "--tag", "base").out == "No run matches.\n"
    run("launch", "hello.py", "--workers", "1")
    older = run("list", "--tag", "lr/0.1", "-o", "name")
    assert older.out == "hello-1\n"
    assert "more with" not in run("list", "--tag", "lr/0.1").err
    run("delete", "hello-2", "--yes")
    assert run("tag", "hello", "--remove", "baseline", "unknown").out == "lr/0.1 基线\n"
    for wrong in ("two words", "", "x" * 41, "a,b", ".a", "a\x1b[2Jb", "a\u202eb", "<b>"):
        refused = run("tag", "hello", "right", wrong)
        assert refused.code == 2, wrong
        assert "a tag has at most 40 characters: letters, digits" in refused.err
    many = run("tag", "hello", *(f"tag-{number}" for number in range(15)))
    assert many.code == 2
    assert "got '17 tags'; a run has at most 16 tags" in many.err
    assert run("tag", "hello", "--remove").code == 2
    assert run("tag", "hello").out == "lr/0.1 基线\n"


def test_options_say_what_fits(run: Run) -> None:
    """`options` shows the machine's resources as text and as JSON."""
    assert "CPU cores" in run("options").out
    assert json.loads(run("options", "-o", "json").out)["cpu"]["total"] >= 1


HANGS = """
import threading
print("waits", flush=True)
threading.Event().wait()  # for ever
"""


def test_stack_shows_the_line_at_which_a_task_waits(run: Run, here: Path) -> None:
    """The stack of a hanging program names the line where it hangs; an ended run and an unknown
    task are refused.
    """
    (here / "hangs.py").write_text(HANGS)
    run("launch", "hangs.py", "--workers", "1")
    wait_until(lambda: "waits" in run("logs", "hangs").out, "that it waits")
    shown = run("stack", "hangs", "worker-0").out
    assert "worker-0, process " in shown
    assert 'hangs.py", line 4 in <module>' in shown
    (task,) = json.loads(run("stack", "hangs", "-o", "json").out)["tasks"]
    assert "line 4 in <module>" in task["processes"][0]["stack"]
    assert run("stack", "hangs", "ps-0").code == 5
    run("stop", "hangs", "--yes")
    assert "has no task that runs" in run("stack", "hangs").err


def test_stacks_of_a_stall_are_shown_after_the_end(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stacks that were taken automatically remain after the run's end. They name the line at which
    the task stood still, and since when.
    """
    monkeypatch.setenv("TFCLUSTER_IDLE_SAMPLE", "0.2")
    (here / "hangs.py").write_text(HANGS)
    run("launch", "hangs.py", "--workers", "1")
    output = Path(json.loads(run("status", "hangs", "-o", "json").out)["status"]["paths"]["output"])
    wait_until(
        (output / ".tfcluster-stacks" / "worker-0.stalled.json").exists, "the stacks of the stall"
    )
    run("stop", "hangs", "--yes")
    shown = run("stack", "hangs").out
    assert "worker-0 has done nothing since " in shown
    assert 'hangs.py", line 4 in <module>' in shown


USES = """
import os, time
kept = bytearray(os.urandom(1 << 20) * 120)
while not os.path.exists("end"):
    sum(range(20000))
    print("step 5", flush=True)
    time.sleep(0.02)
"""


def test_top_shows_what_each_task_uses(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe, `top` prints one table, with the busiest task first. After the end, the table has
    averages, and `status` shows requests and usage.
    """
    monkeypatch.setenv("TFCLUSTER_IDLE_SAMPLE", "0.2")
    (here / "uses.py").write_text(USES)
    run("launch", "uses.py", "--workers", "2", "--worker-cpu", "2", "--worker-memory", "1Gi")

    def seen() -> list[str]:
        rows = run("top", "uses", "--sort", "memory").out.splitlines()
        read = [row for row in rows if re.match(r"worker-\d .* 1\d\d MiB of 1 GiB", row)]
        return rows if len(read) == 2 else []

    rows = wait_until(seen, "both tasks with their memory")
    assert rows[0].startswith("uses-1 Running")
    assert rows[2].split()[:3] == ["TASK", "CPU", "MEMORY"]
    told = json.loads(run("top", "uses", "-o", "json").out)
    assert [task["name"] for task in told["tasks"]] == ["worker-0", "worker-1"]
    assert {task["cpuRequested"] for task in told["tasks"]} == {2.0}
    (here / "end").touch()
    ClusterManager().wait("uses", 90, until=Until.RELEASED)
    after = run("top", "uses").out
    assert "The run has ended: these are averages." in after
    line = "worker: asked for 2 CPU, used "
    assert line in after
    assert line in run("status", "uses").out
    assert run("top", "nothing").code == 5
