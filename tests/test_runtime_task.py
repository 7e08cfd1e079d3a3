"""What a task promises about processes: how it starts its program, ends it, and what it reports."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from task_process import PATIENCE, RUNTIME, Run, alive, free_port, new_run, until

from tfcluster_magic.models import TaskExit

# A process that outlives its parent and its session, keeps the pipe open and ignores SIGTERM.
STRAY = """
import os, signal, sys, time
def stray():
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            open("stray.pid", "w").write(str(os.getpid()) + "\\n")
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("stray.pid") or not open("stray.pid").read().endswith("\\n"):
        time.sleep(0.01)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with new_run(tmp_path) as made:
        yield made


def stray_of(run: Run) -> int:
    return int(until((run.output / "stray.pid").read_text, "the stray"))


def test_program_is_told_its_place(run: Run) -> None:
    """A program gets TF_CONFIG, the flags it mentions, its arguments, the user's variables and TFCLUSTER_*."""
    seen = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"
    run.program(
        seen, arguments=["--task_index=7", "x y"], flags=["ps_hosts", "worker_hosts", "task_index"]
    )
    run.config.update(env={"COLOUR": "red", "TF_NUM_INTEROP_THREADS": "3"}, threads={"worker": 2})
    task = run.task("worker-1").start(
        {"JUPYTERHUB_API_TOKEN": "secret", "JPY_PARENT_PID": "1", "http_proxy": "http://proxy:1"}
    )
    assert task.wait()["cause"] == "Completed"
    arguments, env, folder = json.loads(task.output)
    assert arguments == [
        "--ps_hosts=127.0.0.1:4001",
        "--worker_hosts=127.0.0.1:4002,127.0.0.1:4003",
        "--task_index=7",
        "x y",
    ]
    assert folder == str(run.output)
    assert json.loads(env["TF_CONFIG"]) == {
        "cluster": {"worker": ["127.0.0.1:4002", "127.0.0.1:4003"], "ps": ["127.0.0.1:4001"]},
        "task": {"type": "worker", "index": 1},
    }
    assert env["COLOUR"] == "red"
    assert env["TF_NUM_INTEROP_THREADS"] == "3"
    assert env["TF_NUM_INTRAOP_THREADS"] == "2"
    assert env["no_grpc_proxy"].endswith("127.0.0.1")
    ours = {name: env[f"TFCLUSTER_{name}"] for name in ("NAME", "TASK", "TASK_TYPE", "TASK_INDEX")}
    assert ours == {
        "NAME": "digits-2",
        "TASK": "worker-1",
        "TASK_TYPE": "worker",
        "TASK_INDEX": "1",
    }
    assert env["TFCLUSTER_OUTPUT_DIR"] == str(run.output)
    assert not [name for name in env if name.startswith(("JUPYTERHUB_", "JPY_"))]
    assert "TFCLUSTER_REPORT_FD" not in env


def test_program_has_no_descriptor_of_ours(run: Run) -> None:
    """A program holds stdin, stdout and stderr, and none of the runtime's own descriptors."""
    run.program("import os; print(sorted(os.listdir('/proc/self/fd'))[:-1], end='')")
    task = run.task().start()
    task.wait()
    assert task.output == "['0', '1', '2']"


@pytest.mark.parametrize(
    ("text", "cause", "code", "number", "detail"),
    [
        ("print('fine')", "Completed", 0, None, ""),
        ("import sys; sys.exit(7)", "Error", 7, None, ""),
        ("import os; os.kill(os.getpid(), 11)", "Error", None, 11, "ended by SIGSEGV"),
        ("import os; os.abort()", "Error", None, 6, "ended by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "Killed", None, 9, "killed by SIGKILL from outside"),
        (
            "import os; os.kill(os.getpid(), 15)",
            "Killed",
            None,
            15,
            "killed by SIGTERM from outside",
        ),
    ],
)
def test_cause(
    run: Run, text: str, cause: str, code: int | None, number: int | None, detail: str
) -> None:
    """The report tells an error of the program from a kill from outside, and keeps the exit status."""
    run.program(text)
    task = run.task().start()
    message = task.wait()
    assert (message["cause"], message["exitCode"], message["signal"]) == (cause, code, number)
    assert message["detail"] == detail
    assert task.process.returncode == (code if number is None else 128 + number)
    assert [r["event"] for r in task.reports] == ["started", "ready", "exit"]
    assert {
        k: v for k, v in task.reports[-1].items() if k not in ("task", "attempt", "event")
    } == message
    assert msgspec.convert(message, TaskExit).cause.value == cause


def test_shell_tells_what_was_killed(run: Run) -> None:
    """A shell script whose program was killed from outside counts as killed, not as a failure."""
    run.program("python3 -c 'import os; os.kill(os.getpid(), 9)'", name="run.sh")
    message = run.task().start().wait()
    assert (message["cause"], message["exitCode"]) == ("Killed", 137)


def test_shell_script_gets_flags_and_folder(run: Run, tmp_path: Path) -> None:
    """A shell script gets flags and arguments as its own, and starts in the working folder."""
    run.program(
        'echo "$@"; pwd',
        name="run.sh",
        flags=["job_name"],
        arguments=["-v"],
        workingDir=str(tmp_path),
    )
    task = run.task("ps-0").start()
    task.wait()
    assert task.output == f"--job_name=ps -v\n{tmp_path}\n"


def test_stop_gives_time(run: Run) -> None:
    """SIGTERM reaches the program, which may end in its own time; the task then ends with 0."""
    run.program(
        """
        import signal, sys, time
        def end(*_):
            print("saved"); sys.exit(3)
        signal.signal(signal.SIGTERM, end)
        print("up", flush=True)
        time.sleep(600)
        """.replace("\n        ", "\n")
    )
    task = run.task().start()
    until(lambda: "up" in task.output, "the program")
    task.process.terminate()
    message = task.wait()
    assert (message["cause"], message["exitCode"], task.process.returncode) == ("Stopped", 3, 0)
    assert "saved" in task.output


def test_stop_reaches_through_a_shell(run: Run) -> None:
    """SIGTERM also reaches the program that a shell script runs, and its time counts."""
    inner = "import signal,sys,time; signal.signal(15, lambda *_: (time.sleep(0.3), print('saved'), sys.exit()))"
    (run.code / "inner.py").write_text(f"{inner}\nprint('up', flush=True)\ntime.sleep(600)\n")
    run.program(f"{sys.executable} -u $(dirname $0)/inner.py\n", name="run.sh")
    task = run.task().start()
    until(lambda: "up" in task.output, "the program")
    task.process.terminate()
    assert task.wait()["cause"] == "Stopped"
    assert "saved" in task.output


def test_stop_ends_who_will_not(run: Run) -> None:
    """A program that ignores SIGTERM is killed with all it started before the grace period is over."""
    run.program(STRAY + "signal.signal(15, signal.SIG_IGN); stray(); print('up'); time.sleep(600)")
    run.config["grace"] = 1.0
    task = run.task().start()
    until(lambda: "up" in task.output, "the program")
    stray = stray_of(run)
    task.process.terminate()
    message = task.wait()
    assert (message["cause"], message["signal"], task.process.returncode) == ("Stopped", 9, 137)
    assert "grace" in message["detail"]
    assert not alive(stray)


def test_strays_do_not_outlive_the_program(run: Run) -> None:
    """What a program leaves behind is gone when its task ends, and does not keep the task waiting."""
    run.program(STRAY + "stray(); print('done')")
    task = run.task().start()
    assert task.wait()["cause"] == "Completed"
    assert task.output == "done\n"
    assert not alive(stray_of(run))


@pytest.mark.parametrize("report", [True, False], ids=["report pipe", "death signal alone"])
def test_nothing_survives_who_started_it(run: Run, tmp_path: Path, report: bool) -> None:
    """When the process that started a task is killed, program and strays go with it."""
    run.program(STRAY + "stray(); open('child.pid', 'w').write(str(os.getpid())); time.sleep(600)")
    task = run.task()
    starter = tmp_path / "starter.py"
    starter.write_text(
        textwrap.dedent(
            f"""
            import os, subprocess, time
            read, write = os.pipe()
            env = dict(os.environ, TFCLUSTER_REPORT_FD=str(write)) if {report} else None
            child = subprocess.Popen({task.command!r}, pass_fds=[write], env=env)
            os.close(write)
            print(child.pid, flush=True)
            time.sleep(600)
            """
        )
    )
    mark = {**os.environ, "TFCLUSTER_RUN_UID": run.config["uid"]}
    with subprocess.Popen([sys.executable, starter], stdout=subprocess.PIPE, env=mark) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = until(
            lambda: (run.output / "child.pid").exists() and (run.output / "child.pid").read_text(),
            "it",
        )
        everyone = [pid, int(child), stray_of(run)]
        assert all(map(alive, everyone))
        parent.kill()
    until(lambda: not any(map(alive, everyone)), "the end of all")


def test_a_thread_may_end(run: Run, tmp_path: Path) -> None:
    """A task goes on when only the thread that started it ends."""
    run.program("import sys, time; print('up', flush=True); time.sleep(1); print('done')")
    starter = tmp_path / "starter.py"
    starter.write_text(
        textwrap.dedent(
            f"""
            import subprocess, threading
            started = []
            def start():
                started.append(subprocess.Popen({run.task().command!r}, stdout=subprocess.PIPE))
                started[0].stdout.readline()
            thread = threading.Thread(target=start); thread.start(); thread.join()
            print(started[0].communicate()[0].decode(), started[0].returncode)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, starter], capture_output=True, check=True, timeout=PATIENCE
    )
    assert done.stdout == b"done\n 0\n"


def test_as_process_1(run: Run) -> None:
    """As process 1 of a container it answers SIGTERM, collects orphans and passes the exit code on."""
    names = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    run.program(
        STRAY
        + "stray(); print('ppid', os.getppid(), flush=True)\n"
        + "signal.signal(15, lambda *_: sys.exit(5))\n"
        + "time.sleep(600)"
    )
    run.config["grace"] = 2.0
    task = run.task().start(prefix=names)
    until(lambda: "ppid 1" in task.output, "the program")
    # unshare itself does not pass SIGTERM on: process 1 is its only child.
    children = Path(f"/proc/{task.process.pid}/task/{task.process.pid}/children").read_text()
    os.kill(int(children), signal.SIGTERM)
    message = task.wait()
    assert (message["cause"], message["exitCode"], task.process.returncode) == ("Stopped", 5, 0)


def test_without_rights(run: Run) -> None:
    """A process without any capability, as an ordinary user's is, runs a task just so."""
    run.program(STRAY + "stray(); print(open('/proc/self/status').read())")
    task = run.task().start(prefix=["unshare", "--user"])
    assert task.wait()["cause"] == "Completed", task.output
    assert "CapEff:\t0000000000000000" in task.output
    assert not alive(stray_of(run))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"entrypoint": "other.py"}, "other.py does not exist"),
        ({"entrypoint": "train.txt"}, "neither Python (.py) nor a shell script (.sh)"),
        ({"loopback": "/nowhere/guard.so"}, "the loopback guard /nowhere/guard.so is missing"),
        ({"outputDir": "/proc/none"}, "cannot make the output folder /proc/none"),
        ({"name": "run.sh"}, "neither bash nor sh is on PATH"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_cannot_start(run: Run, change: dict[str, Any], said: str) -> None:
    """A program that cannot be started at all ends as NotStarted with the reason, also in its log."""
    run.program("pass", name=change.get("name", "train.py"))
    (run.code / "train.txt").touch()
    for key, value in change.items():
        (run.config["program"] if key == "entrypoint" else run.config)[key] = value
    task = run.task().start({"PATH": "/nowhere"}, cwd="/")
    message = task.wait()
    assert message["cause"] == "NotStarted"
    assert said in message["detail"]
    assert said in task.output
    assert task.process.returncode == 1
    assert [r["event"] for r in task.reports] == ["exit"]


def test_bad_description(run: Run, tmp_path: Path) -> None:
    """A task that the description does not have, or a description of another version, is said so."""
    run.program("pass")
    assert "it has worker-0..1, ps-0..0" in run.task("worker-2").start().wait()["detail"]
    run.config["version"] = 2
    assert "reads version 1" in run.task("ps-0").start().wait()["detail"]


def test_ready_when_its_own_port_is_open(run: Run, tmp_path: Path) -> None:
    """A program that serves is ready when it listens on its own port, not when somebody else does."""
    port = free_port()
    run.config["addresses"]["worker"][0] = f"127.0.0.1:{port}"
    go = tmp_path / "go"
    run.program(
        f"""
import os, socket, time
print("up", flush=True)
while not os.path.exists({str(go)!r}): time.sleep(0.01)
held = socket.socket(); held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
held.bind(("127.0.0.1", {port})); held.listen(); time.sleep(600)
""",
        serves=True,
    )
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        task = run.task().start()
        until(lambda: "up" in task.output, "the program")
        assert "ready" not in [r["event"] for r in task.hear(0.3)]
        go.touch()
        task.event("ready")


def test_sleeps_while_nothing_happens(run: Run) -> None:
    """A task whose program is silent does not wake up at all."""
    run.program("print('up', flush=True); import time; time.sleep(600)")
    task = run.task().start()
    task.event("ready")
    until(lambda: "up" in task.output, "the program")

    def switches() -> list[str]:
        status = Path(f"/proc/{task.process.pid}/status").read_text()
        return [line for line in status.splitlines() if "voluntary_ctxt" in line]

    before = until(lambda: (s := switches()) == (task.hear(0.2), switches())[1] and s, "rest")
    task.hear(0.5)
    assert switches() == before


def test_runs_on_any_python() -> None:
    """What runs inside a task is Python 3.8 and imports the standard library and its siblings only."""
    files = [*RUNTIME.glob("*.py"), *RUNTIME.glob("site/*.py")]
    siblings = {file.stem for file in files}
    assert {"task", "tf_server", "sitecustomize"} <= siblings
    for file in files:
        tree = ast.parse(file.read_text(), feature_version=(3, 8))
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        roots = {name.partition(".")[0] for name in imported}
        allowed = set(sys.stdlib_module_names) | siblings
        # The fallback of the server is the one place that needs TensorFlow itself.
        assert roots - allowed <= ({"tensorflow"} if file.stem == "tf_server" else set()), file
