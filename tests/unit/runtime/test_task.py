"""A task and its program: start, readiness and reports."""

from __future__ import annotations

import ast
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.polling import wait_until
from support.task_process import RUNTIME, Run, free_port, new_run

from tfcluster_magic.spec import TaskExit


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        yield made


def test_program_is_told_its_place(run: Run) -> None:
    """A program gets TF_CONFIG, its flags and arguments, the user's variables and TFCLUSTER_*."""
    seen = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"
    run.program(
        seen, arguments=["--task_index=7", "x y"], flags=["ps-hosts", "worker_hosts", "log_dir"]
    )
    run.config.update(env={"COLOUR": "red", "TF_NUM_INTEROP_THREADS": "3"}, threads={"worker": 2})
    task = run.task("worker-1").start(
        {
            "JUPYTERHUB_API_TOKEN": "secret",
            "JPY_PARENT_PID": "1",
            "JUPYTER_TOKEN": "secret",
            "JUPYTER_TOKEN_FILE": "/secret",
            "http_proxy": "http://proxy:1",
        }
    )
    assert task.wait()["cause"] == "Completed"
    arguments, env, folder = json.loads(task.output)
    assert arguments == [
        "--ps-hosts=127.0.0.1:4001",
        "--worker_hosts=127.0.0.1:4002,127.0.0.1:4003",
        f"--log_dir={run.output}",
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
    assert not [name for name in env if name.startswith(("JUPYTERHUB_", "JPY_", "JUPYTER_TOKEN"))]
    assert "TFCLUSTER_REPORT_FD" not in env


def test_program_has_no_descriptor_of_ours(run: Run) -> None:
    """A program has stdin, stdout and stderr, but none of the runtime's own descriptors. A Python
    program also has one descriptor of the memory into which it writes its stacks on request; the
    processes that it starts do not get this descriptor.
    """
    script = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1], end='')"
    text = f"""
import os, subprocess, sys
print(os.readlink("/proc/self/fd/3"), flush=True)
subprocess.run([sys.executable, "-I", "-c", {script!r}], close_fds=False, check=True)
"""
    task = run.program(text).task().start()
    task.wait()
    assert task.output == "/memfd:tfcluster-stacks (deleted)\n['0', '1', '2']"


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
    """The report distinguishes an error from a kill from outside, and keeps the exit status."""
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
    """A shell script gets the flags and arguments as its own arguments, and starts in the working
    folder.
    """
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"entrypoint": "other.py"}, "other.py does not exist"),
        ({"entrypoint": "train.txt"}, "neither Python (.py) nor a shell script (.sh)"),
        ({"loopback": "/nowhere/guard.so"}, "the loopback guard /nowhere/guard.so is missing"),
        ({"outputDir": "/dev/null/none"}, "cannot make the output folder /dev/null/none"),
        ({"name": "run.sh"}, "neither bash nor sh is on PATH"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_cannot_start(run: Run, change: dict[str, Any], said: str) -> None:
    """A program that cannot be started ends as NotStarted with the reason, also in its log."""
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
    """If task.json does not contain the task, or has another version, the task reports this."""
    run.program("pass")
    assert "it has worker-0..1, ps-0..0" in run.task("worker-2").start().wait()["detail"]
    run.config["version"] = 2
    assert "reads version 1" in run.task("ps-0").start().wait()["detail"]


def test_ready_when_its_own_port_is_open(run: Run, tmp_path: Path) -> None:
    """A program that serves is ready when it listens on its port itself, not when another process
    does.
    """
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
        wait_until(lambda: "up" in task.output, "the program")
        assert "ready" not in [r["event"] for r in task.hear(0.3)]
        go.touch()
        task.event("ready")


def test_sleeps_while_nothing_happens(run: Run) -> None:
    """A task with a silent program wakes up only every few seconds, to check the program."""
    run.program("print('up', flush=True); import time; time.sleep(600)")
    task = run.task().start()
    task.event("ready")
    wait_until(lambda: "up" in task.output, "the program")

    def switches() -> list[str]:
        status = Path(f"/proc/{task.process.pid}/status").read_text()
        return [line for line in status.splitlines() if "voluntary_ctxt" in line]

    wait_until(lambda: switches() == (task.hear(0.7), switches())[1], "0.7 s without one")


def test_runs_on_any_python() -> None:
    """The code that runs in a task works with Python 3.8, and imports only the standard library and
    modules of the runtime.
    """
    files = [*RUNTIME.glob("*.py"), *RUNTIME.glob("site/*.py")]
    siblings = {file.stem for file in files}
    assert {"task", "tf_server", "sitecustomize"} <= siblings
    for file in files:
        tree = ast.parse(file.read_text(), feature_version=(3, 8))
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        roots = {name.partition(".")[0] for name in imported}
        allowed = set(sys.stdlib_module_names) | siblings
        # Only tf_server.py may import TensorFlow: its fallback needs it.
        assert roots - allowed <= ({"tensorflow"} if file.stem == "tf_server" else set()), file
