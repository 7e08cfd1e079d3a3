"""The end of a task, which leaves no processes, whether the task is stopped, killed or orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.polling import wait_until
from support.task_process import PATIENCE, STRAY, Run, alive, new_run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        yield made


def test_stop_gives_time(run: Run) -> None:
    """SIGTERM reaches the program, which has the grace period to end; then the task ends with
    143.
    """
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
    wait_until(lambda: "up" in task.output, "the program")
    task.process.terminate()
    message = task.wait()
    assert (message["cause"], message["exitCode"], task.process.returncode) == ("Stopped", 3, 143)
    assert "saved" in task.output


def test_stop_reaches_through_a_shell(run: Run) -> None:
    """SIGTERM also reaches the program that a shell script runs, and the task waits for its end."""
    inner = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (time.sleep(0.3), print('saved'), sys.exit()))"
    )
    (run.code / "inner.py").write_text(f"{inner}\nprint('up', flush=True)\ntime.sleep(600)\n")
    run.program(f"{sys.executable} -u $(dirname $0)/inner.py\n", name="run.sh")
    task = run.task().start()
    wait_until(lambda: "up" in task.output, "the program")
    task.process.terminate()
    assert task.wait()["cause"] == "Stopped"
    assert "saved" in task.output


def test_stop_ends_who_will_not(run: Run) -> None:
    """A program that ignores SIGTERM is killed with all its processes within the grace period."""
    run.program(STRAY + "signal.signal(15, signal.SIG_IGN); stray(); print('up'); time.sleep(600)")
    run.config["grace"] = 1.0
    task = run.task().start()
    wait_until(lambda: "up" in task.output, "the program")
    stray = run.stray()
    task.process.terminate()
    message = task.wait()
    assert (message["cause"], message["signal"], task.process.returncode) == ("Stopped", 9, 137)
    assert "grace" in message["detail"]
    assert not alive(stray)


def test_strays_do_not_outlive_the_program(run: Run) -> None:
    """Processes that a program leaves behind end with its task, and do not delay it."""
    run.program(STRAY + "stray(); print('done')")
    task = run.task().start()
    assert task.wait()["cause"] == "Completed"
    assert task.output == "done\n"
    assert not alive(run.stray())


@pytest.mark.parametrize("report", [True, False], ids=["report pipe", "death signal alone"])
def test_nothing_survives_who_started_it(run: Run, tmp_path: Path, report: bool) -> None:
    """If the process that started a task is killed, the task's program and the processes that it
    left behind end, too.
    """
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
        child = wait_until(
            lambda: (run.output / "child.pid").exists() and (run.output / "child.pid").read_text(),
            "it",
        )
        everyone = [pid, int(child), run.stray()]
        assert all(map(alive, everyone))
        parent.kill()
    wait_until(lambda: not any(map(alive, everyone)), "the end of all")


def test_a_thread_may_end(run: Run, tmp_path: Path) -> None:
    """A task continues when only the thread that started it ends."""
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
    """As process 1 of a container, a task handles SIGTERM, and its program gets its grace
    period.
    """
    names = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    run.program(
        STRAY
        + "stray(); print('ppid', os.getppid(), flush=True)\n"
        + "signal.signal(15, lambda *_: sys.exit(5))\n"
        + "time.sleep(600)"
    )
    run.config["grace"] = 2.0
    task = run.task().start(prefix=names)
    wait_until(lambda: "ppid 1" in task.output, "the program")
    # Signal the only child of unshare, process 1, because unshare does not pass SIGTERM on.
    children = Path(f"/proc/{task.process.pid}/task/{task.process.pid}/children").read_text()
    os.kill(int(children), signal.SIGTERM)
    message = task.wait()
    assert (message["cause"], message["exitCode"], task.process.returncode) == ("Stopped", 5, 143)


def test_without_rights(run: Run) -> None:
    """A process without any capability, like an ordinary user's, can run a task."""
    run.program(STRAY + "stray(); print(open('/proc/self/status').read())")
    task = run.task().start(prefix=["unshare", "--user"])
    assert task.wait()["cause"] == "Completed", task.output
    assert "CapEff:\t0000000000000000" in task.output
    assert not alive(run.stray())
