"""The command line, through the real local backend; no program needs TensorFlow."""

from __future__ import annotations

import http.server
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml
from event_writer import event, event_file

from tfcluster_magic import ClusterManager, cli
from tfcluster_magic.cli.group import VERBS
from tfcluster_magic.cli.tab import words
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.models import Phase, TFCluster
from tfcluster_magic.waiting import Until

ROOT = Path(__file__).parents[1]
HELLO = "import os\nprint('hello from', os.environ['TFCLUSTER_TASK'], flush=True)\n"
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
FAIL = (
    "import os, time\n"
    "if os.environ['TFCLUSTER_TASK_TYPE'] == 'ps': time.sleep(600)\n"
    "raise ValueError('no such column')\n"
)
MAIN = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]


@dataclass
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def here(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder the person works in, with programs; what is launched from it is stopped."""
    folder = own_folders / "work"
    folder.mkdir()
    for name, text in (("hello", HELLO), ("sleep", SLEEP), ("fail", FAIL)):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    yield folder
    manager = ClusterManager()
    for run in manager.list(all_runs=True):
        manager.stop(run.metadata.name)
    for run in manager.list(all_runs=True):
        manager.wait(run.metadata.name, 180, until=Until.RELEASED)


@pytest.fixture
def run(here: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `tfcluster` with these words, as the console script does."""

    def run(*argv: str) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main(argv)
        out, err = capfd.readouterr()
        return Done(int(left.value.code or 0), out, err)

    return run


def left_behind(folder: Path) -> list[str]:
    """Everything that a refused launch could have made."""
    roots = (folder / "state" / "runs", folder / "tfcluster")
    return [str(path) for root in roots for path in root.rglob("*")]


# -- launching -------------------------------------------------------------------------------------


def test_launch_returns_at_once_and_says_what_to_do_next(run: Run) -> None:
    """The report of a launch has the name, the tasks, where output goes, and the next commands."""
    done = run("launch", "sleep.py", "--workers", "2", "--ps", "0")

    assert done.code == 0
    assert done.out.startswith("sleep-1 ")
    for part in ("2 workers", "log/sleep/1", "tfcluster logs -f sleep-1", "tfcluster stop sleep-1"):
        assert part in done.out
    assert ClusterManager().status("sleep-1").active


def test_arguments_after_two_dashes_are_the_programs_own(run: Run, here: Path) -> None:
    """What follows ` -- ` reaches the program untouched, even when it looks like an option."""
    (here / "args.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = run("launch", "args.py", "--workers", "1", "--follow", "--", "--workers", "9", "--", "x")

    assert done.code == 0
    assert "worker-0 | ['--workers', '9', '--', 'x']" in done.out


def test_follow_shows_every_line_with_its_task_and_the_outcome(run: Run) -> None:
    """`--follow` stays until the end and says how it ended."""
    done = run("launch", "hello.py", "--workers", "2", "--follow")

    assert "worker-0 | hello from worker-0" in done.out
    assert "worker-1 | hello from worker-1" in done.out
    assert "hello-1 Succeeded" in done.err


def test_waiting_for_a_failing_program_exits_10_with_the_cause(run: Run) -> None:
    """A script that waits can tell a failed cluster from every other error."""
    done = run("launch", "fail.py", "--workers", "1", "--ps", "1", "--wait")

    assert done.code == 10
    assert "fail-1 failed: worker-0 failed with exit code 1: ValueError: no such column" in done.err
    assert "Traceback" not in done.err


def test_a_wait_that_takes_too_long_exits_11_and_the_run_goes_on(run: Run) -> None:
    """`--timeout` bounds the wait only."""
    done = run("launch", "sleep.py", "--workers", "1", "--follow", "--timeout", "0.5s")

    assert done.code == 11
    assert ClusterManager().status("sleep").active


def test_waiting_with_json_prints_the_ended_run_and_nothing_else(run: Run) -> None:
    """A program that launches and waits reads one document."""
    done = run("launch", "hello.py", "--workers", "1", "--wait", "-o", "json")
    ended = msgspec.json.decode(done.out, type=TFCluster)

    assert ended.status.phase is Phase.SUCCEEDED
    assert done.err == ""


def test_in_graph_wait_is_over_when_the_servers_accept(run: Run) -> None:
    """Servers never end by themselves, so `--wait` waits until they can be used."""
    done = run("launch", "--mode", "in-graph", "--workers", "1", "--ps", "1", "--wait")
    said = run("connect", "in-graph")

    assert done.code == 0
    assert "in-graph-1 Running" in done.err
    assert re.search(r"worker +127\.0\.0\.1:\d+", said.out)
    assert 'Cluster("in-graph-1")' in said.out


def test_a_dry_run_prints_the_cluster_and_creates_nothing(run: Run, own_folders: Path) -> None:
    """`--dry-run` shows the TFCluster as YAML, and says that nothing was made."""
    done = run("launch", "hello.py", "--dry-run", "--workers", "3")

    spec = yaml.safe_load(done.out)["spec"]
    assert spec["replicas"]["worker"] == {"count": 3}
    assert re.fullmatch(r"\(\d+ bytes\)", spec["program"]["files"]["hello.py"])
    assert "nothing was" in done.err
    assert left_behind(own_folders) == []


def test_a_dry_run_without_room_says_so_with_the_code_of_no_room(run: Run) -> None:
    """The preflight of a dry run counts as that of a launch."""
    done = run("launch", "hello.py", "--dry-run", "--memory", "100Ti")

    assert done.code == 3
    assert "100Ti" in done.err


def test_a_rerun_is_the_next_run_of_the_name(run: Run) -> None:
    """`rerun` launches the snapshot again, with what is said otherwise."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    done = run("rerun", "hello", "--follow", "--workers", "2")

    assert done.code == 0
    assert "worker-1 | hello from worker-1" in done.out
    assert "hello-2 Succeeded" in done.err


# -- bad input -------------------------------------------------------------------------------------


class _Server(http.server.BaseHTTPRequestHandler):
    """A web server that has one program."""

    def do_GET(self) -> None:
        """Serve /hello.py, a page that is too large, and nothing else."""
        size = 300_000_000 if self.path == "/large.py" else len(HELLO)
        self.send_response(200 if self.path in ("/hello.py", "/large.py") else 404)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.path == "/hello.py":
            self.wfile.write(HELLO.encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of that server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("lunch", 2, "did you mean launch?"),
        ("frobnicate", 2, "the verbs are launch, list"),
        ("launch --worker 3 hello.py", 2, "did you mean --workers?"),
        ("launch --epochs 3 hello.py", 2, "the program's own arguments follow ` -- `"),
        ("launch hello.py epochs", 2, "the program's own arguments follow ` -- `"),
        ("launch --workers -1 hello.py", 2, "--workers: got -1; "),
        ("launch --workers two hello.py", 2, "--workers: got 'two'; write a whole number"),
        ("launch --workers 0 hello.py", 2, "--workers: got 0; at least 1 worker"),
        ("launch --workers 5000 hello.py", 2, "5000"),
        ("launch --name Bad_Name hello.py", 2, "--name: got 'Bad_Name'; use 1 to 40 lower-case"),
        ("launch --name run-2 hello.py", 2, "that would read as a run"),
        ("launch --mode sideways hello.py", 2, "use one of between-graph, in-graph"),
        ("launch --cpu lots hello.py", 2, "--cpu: got 'lots'; write a number"),
        ("launch --memory 2Gb hello.py", 2, "--memory: got '2Gb'"),
        ("launch --grace soon hello.py", 2, "--grace: got 'soon'; write seconds"),
        ("launch --env 1A=b hello.py", 2, "--env: got '1A=b'; write NAME=VALUE"),
        ("launch --gpu 64 hello.py", 3, "GPU"),
        ("launch --memory 100Ti hello.py", 3, "is free"),
        ("launch", 2, "refused: program: got nothing; between-graph runs a program: name a file"),
        ("launch helo.py", 2, "did you mean hello.py?"),
        ("launch empty.py", 2, "is empty"),
        ("launch large.py", 2, "MiB"),
        ("launch broken.py", 2, "line 2"),
        ("launch ftp://example.org/a.py", 2, "ftp:// is not supported"),
        ("launch {site}/nothing.py", 2, "404"),
        ("launch {site}/large.py", 2, "the limit is"),
        ("launch {site}/hello.py --sha256 " + "0" * 64, 2, "checksum"),
        ("launch --file nowhere.yaml", 2, "cannot be read"),
        ("launch --mode in-graph hello.py", 2, "in-graph runs no program"),
        ("launch --follow -o json hello.py", 2, "cannot go with it"),
        ("launch --timeout 3 hello.py", 2, "--max-duration"),
        ("launch --dry-run --wait hello.py", 2, "creates nothing"),
        ("launch -o xml hello.py", 2, "'xml'"),
        ("launch --backend cloud hello.py", 2, "'cloud'"),
        ("status nothing", 5, "there is no run nothing"),
        ("logs nothing", 5, "there is no run nothing"),
        ("stop", 2, "name the runs, or say --all"),
        ("stop nothing", 5, "there is no run nothing"),
        ("delete nothing --yes", 5, "there is no run nothing"),
        ("rerun nothing", 5, "there is no run nothing"),
        ("connect nothing", 5, "there is no run nothing"),
    ],
)
def test_bad_input_gets_one_clear_message_and_leaves_nothing_behind(
    run: Run, here: Path, own_folders: Path, site: str, line: str, code: int, said: str
) -> None:
    """Whatever is wrong: what was asked, what is allowed, an exit code, and no trace of it."""
    (here / "empty.py").write_text("\n# nothing\n")
    (here / "broken.py").write_text("x = 1\nif x\n")
    if "large.py" in line:
        with open(here / "large.py", "wb") as large:
            large.truncate(200 * 2**20)
    done = run(*line.format(site=site).split())

    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert left_behind(own_folders) == []


def test_a_log_folder_that_cannot_be_written_is_refused(
    run: Run, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is named, with the variable that names another one."""
    (own_folders / "file").write_text("")
    monkeypatch.setenv("TFCLUSTER_LOG_DIR", str(own_folders / "file" / "log"))
    done = run("launch", "hello.py")

    assert done.code == 3
    assert "file/log" in done.err
    assert "TFCLUSTER_LOG_DIR" in done.err
    assert left_behind(own_folders) == []


def test_a_taken_name_is_refused_with_the_command_that_frees_it(run: Run) -> None:
    """Two clusters of one name cannot run at once."""
    run("launch", "sleep.py", "--name", "mine", "--workers", "1")
    done = run("launch", "sleep.py", "--name", "mine", "--workers", "1")

    assert done.code == 4
    assert "tfcluster stop mine" in done.err


def test_every_problem_of_a_launch_is_told_at_once(run: Run) -> None:
    """Nobody has to launch four times to learn of four mistakes."""
    done = run("launch", "no.py", "--workers", "x", "--grace", "y", "--name", "Z")

    assert "refused for 4 reasons" in done.err
    for flag in ("program", "--workers", "--grace", "--name"):
        assert f"- {flag}: got" in done.err


# -- looking ---------------------------------------------------------------------------------------


def test_list_is_a_table_and_an_empty_one_says_what_to_do(run: Run) -> None:
    """The first thing a newcomer sees is how to go on."""
    assert "`tfcluster launch train.py` starts one" in run("list").out

    run("launch", "sleep.py", "--workers", "1")
    head, row = run("list").out.splitlines()

    assert head.split() == ["NAME", "MODE", "PHASE", "READY", "AGE", "REASON"]
    assert row.split()[:2] == ["sleep-1", "between-graph"]


def test_list_filters_and_says_how_many_it_hides(run: Run) -> None:
    """Earlier runs of a name are left out unless they are asked for."""
    for _ in range(2):
        run("launch", "hello.py", "--workers", "1", "--wait")
    hidden = run("list")

    assert "hello-1" not in hidden.out
    assert "1 more with `tfcluster list --all`" in hidden.err
    assert run("list", "--all", "-o", "name").out.split() == ["hello-2", "hello-1"]
    assert run("list", "--all", "--active", "-o", "name").out == ""
    assert run("list", "--all", "--phase", "Failed", "-o", "json").out == "[]\n"
    assert len(json.loads(run("list", "--all", "-o", "json").out)) == 2


def test_status_names_each_task_and_status_f_ends_with_the_run(run: Run) -> None:
    """Status of a run that goes on, then its changes until nothing is left."""
    run("launch", "sleep.py", "--workers", "2")
    ClusterManager().wait("sleep", 30, until=Until.READY)
    text = run("status", "sleep").out
    threading.Timer(0.3, lambda: ClusterManager().stop("sleep")).start()
    followed = run("status", "-f", "sleep")

    assert text.startswith("sleep-1 Running: 2 tasks are running.\n")
    assert "worker-1  Running  0" in text
    assert followed.code == 0
    assert followed.err.endswith("sleep-1 Stopped: Ended by its owner.\n")


def test_logs_can_be_limited_to_tasks_and_lines(run: Run, here: Path) -> None:
    """`--tail` counts for each task; tasks that do not exist are refused with those that do."""
    (here / "count.py").write_text("for i in range(9): print('line', i)\n")
    run("launch", "count.py", "--workers", "2", "--wait")

    assert run("logs", "count", "--tail", "1").out.splitlines() == [
        "worker-0 | line 8",
        "worker-1 | line 8",
    ]
    assert run("logs", "count", "worker-1", "--no-prefix", "--tail", "2").out == "line 7\nline 8\n"
    refused = run("logs", "count", "worker-7")
    assert refused.code == 5
    assert "worker-0, worker-1" in refused.err


def test_remarks_of_tensorflows_own_are_left_out_and_counted(run: Run, here: Path) -> None:
    """What its C++ code remarks is hidden until one asks for all; its errors never are."""
    said = [
        "2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] fast",
        "2026-11-21 16:36:34.123457: E tensorflow/core/platform/a.cc:1] broken",
        "step 1",
    ]
    (here / "noisy.py").write_text(f"for line in {said!r}: print(line)\n")
    run("launch", "noisy.py", "--workers", "1", "--wait")

    shown = run("logs", "-f", "noisy")
    assert shown.out.splitlines() == [f"worker-0 | {line}" for line in said[1:]]
    assert "1 remark of TensorFlow's own is left out: `tfcluster logs --all noisy-1`" in shown.err
    for option in ("--all", "--no-prefix"):
        everything = run("logs", "noisy", option)
        assert [line.removeprefix("worker-0 | ") for line in everything.out.splitlines()] == said
        assert "left out" not in everything.err


@pytest.mark.parametrize("how", [(), ("-f",)])
def test_last_lines_are_shown_lines(run: Run, here: Path, how: tuple[str, ...]) -> None:
    """`--tail 2` shows two lines of a task, however many hidden remarks stand behind them."""
    remark = "I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] x"
    said = ["step 1", "step 2", remark, "step 3", *[remark] * 9]
    (here / "noisy.py").write_text(f"for line in {said!r}: print(line)\n")
    run("launch", "noisy.py", "--workers", "1", "--wait")

    shown = run("logs", *how, "noisy", "--tail", "2", "--no-color")
    assert shown.out.splitlines() == ["worker-0 | step 2", "worker-0 | step 3"]
    everything = run("logs", *how, "noisy", "--all", "--tail", "2")
    assert everything.out.splitlines() == [f"worker-0 | {remark}"] * 2


def test_following_the_logs_of_a_run_again_starts_from_its_first_line(run: Run) -> None:
    """After a reconnect nothing is missing."""
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert run("logs", "-f", "hello").out == "worker-0 | hello from worker-0\n"
    assert run("logs", "-f", "hello").out == "worker-0 | hello from worker-0\n"


def test_render_shows_what_the_runtime_really_starts(run: Run, here: Path) -> None:
    """Command, TF_CONFIG and environment in `render` are those that the program found."""
    (here / "tell.py").write_text(
        "import json, os, sys\n"
        "print(json.dumps({'argv': sys.argv, 'env': dict(os.environ)}))\n"
        "# --ps_hosts --job_name\nimport argparse\n"
        "p = argparse.ArgumentParser()\n"
        "p.add_argument('--ps_hosts'); p.add_argument('--job_name')\n"
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


def test_render_of_a_launch_creates_nothing(run: Run, own_folders: Path) -> None:
    """A launch can be looked at task by task before it is one."""
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


def test_options_say_what_fits(run: Run) -> None:
    """The same numbers for people and for programs."""
    assert "CPU cores" in run("options").out
    assert json.loads(run("options", "-o", "json").out)["cpu"]["total"] >= 1


# -- ending ----------------------------------------------------------------------------------------


def test_stop_waits_until_nothing_is_left_and_keeps_the_record(run: Run) -> None:
    """After `stop` returns there is no task, and status says who wanted it."""
    run("launch", "sleep.py", "--workers", "1")
    done = run("stop", "sleep", "--reason", "lunch time")

    assert done.code == 0
    assert "sleep-1 Stopped: Ended by its owner: lunch time" in done.out
    assert ClusterManager().status("sleep").status.released_at is not None


def test_stop_says_which_parameter_servers_it_gave_back(run: Run) -> None:
    """Of a run that has ended, the sentence says what this stop has done."""
    Path("half.py").write_text(
        "import os, time\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'ps': time.sleep(600)\n"
    )
    run("launch", "half.py", "--workers", "1", "--ps", "1", "--wait")

    said = run("stop", "half").out
    assert re.search(r"half-1 Succeeded: .*\(reclaimed at [\d:]+: ps-0\)$", said.strip())
    assert "(it had already ended)" in run("stop", "half").out


def test_stop_all_is_refused_where_nobody_can_confirm_it(run: Run) -> None:
    """Without a terminal, `--all` needs `--yes`."""
    run("launch", "sleep.py", "--workers", "1")
    refused = run("stop", "--all")

    assert refused.code == 2
    assert "this would stop sleep-1; to do it: `tfcluster stop --all --yes`" in refused.err
    assert run("stop", "--all", "--yes").code == 0
    assert run("stop", "--all").out == "Nothing is running.\n"


def test_delete_with_logs_needs_a_yes_and_says_what_would_go(run: Run, own_folders: Path) -> None:
    """Checkpoints are never removed by a slip of the hand."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    output = own_folders / "tfcluster" / "log" / "hello"
    refused = run("delete", "hello", "--with-logs")

    assert refused.code == 2
    assert f"checkpoints in {output}/1" in refused.err
    assert output.is_dir()
    assert run("delete", "hello", "--with-logs", "--yes").out == "deleted hello-1\n"
    assert not output.exists()


def test_delete_of_a_running_cluster_says_that_it_will_be_stopped(run: Run) -> None:
    """An active run needs a yes as well; then it is stopped first."""
    run("launch", "sleep.py", "--workers", "1")
    refused = run("delete", "sleep")

    assert refused.code == 2
    assert "this would stop sleep-1, delete sleep-1" in refused.err
    assert run("delete", "sleep", "-y").code == 0
    assert run("list", "--all", "-o", "name").out == ""


def test_delete_of_an_ended_runs_record_asks_nothing(run: Run, own_folders: Path) -> None:
    """Without `--with-logs` the output stays."""
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert run("delete", "hello").code == 0
    assert (own_folders / "tfcluster" / "log" / "hello" / "1").is_dir()


# -- a shell ---------------------------------------------------------------------------------------


def test_ctrl_c_detaches_and_the_run_goes_on(here: Path) -> None:
    """Ctrl-C while following leaves with 130, says how to come back, and ends nothing."""
    shell = subprocess.Popen(
        [*MAIN, "launch", "sleep.py", "--workers", "1", "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert shell.stdout
    while "worker-0 | up" not in shell.stdout.readline():
        assert shell.poll() is None
    shell.send_signal(signal.SIGINT)
    _, err = shell.communicate(timeout=90)

    assert shell.returncode == 130
    assert "detached; sleep-1 goes on: `tfcluster logs -f sleep-1`" in err
    assert "Traceback" not in err
    assert ClusterManager().status("sleep").active


def test_a_reader_that_has_seen_enough_is_no_error(run: Run, here: Path) -> None:
    """`tfcluster logs … | head -1` ends quietly."""
    (here / "chatty.py").write_text("for i in range(100000): print('line', i)\n")
    run("launch", "chatty.py", "--workers", "1", "--wait")
    script = (
        f"{sys.executable} -c 'from tfcluster_magic.cli import main; main()' logs chatty | head -1"
    )
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=180, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.stdout == "worker-0 | line 0\n"
    assert done.stderr == ""


@pytest.mark.parametrize("verb", [["list"], ["options"], ["logs", "hello"]])
def test_a_full_disk_below_the_output_is_one_message(run: Run, here: Path, verb: list[str]) -> None:
    """An output that cannot be written is said in one line, as any other error."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*MAIN, *verb], cwd=here, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert (done.returncode, done.stderr) == (
        1, "the output cannot be written: No space left on device\n",
    )  # fmt: skip


def test_closed_streams_are_no_error(here: Path) -> None:
    """A command works for a caller that has closed its streams."""
    script = f"{shlex.join(MAIN)} list <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", script], cwd=here, check=False).returncode == 0


def test_an_error_does_nothing_to_the_terminal(run: Run) -> None:
    """What an error quotes cannot wipe the screen or set the title."""
    done = run("status", "\x1b]0;title\x07\x1b[2Jdigits")

    assert done.code == 5
    assert "there is no run digits" in done.err


def _in_terminal(argv: list[str], answer: bytes = b"", **env: str) -> tuple[int, str]:
    """Exit code and screen of `tfcluster` in a terminal; `answer` is typed after a question."""
    pid, screen = pty.fork()
    if pid == 0:
        os.environ.update(env, PYTHONPATH=str(ROOT), TERM="xterm")
        os.execv(MAIN[0], [*MAIN, *argv])
    shown, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([screen], [], [], 1)[0]:
            try:
                chunk = os.read(screen, 65536)
            except OSError:  # the terminal's other side is closed
                break
            shown += chunk
            if answer and b"[y/N]" in shown:
                os.write(screen, answer)
                answer = b""
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_colours_are_for_terminals_and_no_color_is_respected(run: Run) -> None:
    """A terminal gets colours; NO_COLOR and `--no-color` take them away."""
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert "\x1b[36mworker-0 |\x1b[0m" in _in_terminal(["logs", "hello"])[1]
    assert "\x1b" not in _in_terminal(["logs", "hello"], NO_COLOR="1")[1]
    assert "\x1b" not in _in_terminal(["logs", "hello", "--no-color"])[1]


def test_a_terminal_is_asked_and_no_means_no(run: Run) -> None:
    """Who can answer is asked; the answer counts."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    _, screen = _in_terminal(["delete", "hello", "--with-logs"], b"n\n")

    assert "This will delete hello-1, remove the output and checkpoints in" in screen
    assert "nothing was deleted" in screen
    assert run("status", "hello").code == 0
    assert "deleted hello-1" in _in_terminal(["delete", "hello", "--with-logs"], b"y\n")[1]


def test_following_status_in_a_terminal_draws_in_place(run: Run) -> None:
    """The live view ends by itself, with the last state on the screen."""
    run("launch", "hello.py", "--workers", "1")
    code, screen = _in_terminal(["status", "-f", "hello"])

    assert code == 0
    assert "Succeeded" in screen


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sta", {"status"}),
        ("launch --wor", {"--workers", "--worker-cpu", "--worker-memory", "--worker-gpu"}),
        ("launch --mode ", {"between-graph", "in-graph"}),
        ("status he", {"hello-1"}),
        ("logs hello-1 ", {"worker-0"}),
        ("launch hel", {"hello.py"}),
        ("list --phase S", {"Starting", "Stopping", "Succeeded", "Stopped"}),
    ],
)
def test_tab_completes_verbs_options_words_runs_and_tasks(
    run: Run, typed: str, offered: set[str]
) -> None:
    """Completion knows the grammar and the runs."""
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert set(words(typed, Terminal())) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(run: Run, shell: str) -> None:
    """The script calls this very program."""
    done = run("completion", shell)

    assert done.code == 0
    assert "_TFCLUSTER_COMPLETE" in done.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(run: Run, verb: str) -> None:
    """`--help` of each verb works without a run and without TensorFlow."""
    done = run(verb, "--help")

    assert done.code == 0
    assert done.out.startswith(f"Usage: tfcluster {verb} ")


def test_the_start_of_a_command_imports_nothing_heavy(here: Path) -> None:
    """`tfcluster list` is quick because it imports only what it needs."""
    script = (
        "import sys\nfrom tfcluster_magic.cli import main\n"
        "try: main(['list'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.argv[1:] if m in sys.modules], file=sys.stderr)"
    )
    heavy = ["IPython", "tensorflow", "jinja2", "yaml", "asyncio", "tfcluster_magic.program"]
    done = subprocess.run(
        [sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.stderr.strip() == "[]"
