"""The activity of a program as seen from outside the program: work, standstill, and a start without
an open port.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.polling import wait_until
from support.task_process import RUNTIME, Run, free_port, new_run

from tfcluster_magic.kube.status import waiting_reasons
from tfcluster_magic.lifecycle.messages import english_clause, start_oddity

QUICK = {"TFCLUSTER_IDLE_SAMPLE": "0.2"}
SESSION = (
    "2026-11-21 16:36:34.123456: I tensorflow/core/distributed_runtime/master.cc:236] "
    "CreateSession still waiting for response from worker: /job:worker/replica:0/task:0"
)
WAITS = f"""
import os, sys, time
print("step 1", flush=True)
while not os.path.exists("go"):
    print({SESSION!r}, flush=True)
    time.sleep(0.05)
print("step 2", flush=True)
while not os.path.exists("end"): time.sleep(0.05)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        made.config["startTimeout"] = 4.0
        yield made


def quiets(task: object) -> list[dict[str, object]]:
    """Return the task's reports about its standstill."""
    return [r for r in task.hear(0.05) if r["event"] == "quiet"]  # type: ignore[attr-defined]


def test_a_program_that_only_waits_is_quiet(run: Run) -> None:
    """The lines that TensorFlow prints while it waits do not count as work; they name the tasks for
    which it waits.
    """
    began = time.time()
    task = run.program(WAITS).task("worker-1").start(QUICK)
    found = wait_until(lambda: quiets(task), "that it is quiet")[0]
    assert began - 1 < found["since"] <= time.time()
    assert found["peer"] == "worker-0"
    words = "CreateSession still waiting for response from worker: /job:worker/replica:0/task:0"
    assert found["words"] == words
    (run.output / "go").touch()
    wait_until(lambda: quiets(task)[-1].get("since") is None, "that it works again")
    (run.output / "end").touch()
    assert task.wait()["cause"] == "Completed"


def test_a_process_that_computes_is_not_quiet(run: Run) -> None:
    """A program is at work while any of its processes computes, even without output."""
    text = """
import os, subprocess, sys, time
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
while not os.path.exists("go"): time.sleep(0.05)
busy.kill(); busy.wait()
while not os.path.exists("end"): time.sleep(0.05)
"""
    task = run.program(text).task().start(QUICK)
    task.event("ready")
    wait_until(lambda: _cpu_of_children(task.process.pid) > 1.5, "that it has computed")
    assert not quiets(task)
    (run.output / "go").touch()
    wait_until(lambda: quiets(task), "that it is quiet")
    (run.output / "end").touch()
    assert task.wait()["cause"] == "Completed"


def _cpu_of_children(pid: int) -> float:
    """Return the CPU seconds of the children of the children of process `pid`."""
    total = 0.0
    for child in _children(pid):
        for below in _children(child):
            stat = Path(f"/proc/{below}/stat").read_text().rpartition(")")[2].split()
            total += (int(stat[11]) + int(stat[12])) / 100
    return total


def _children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


SIGNS = {
    "ports": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
    "print(s.getsockname()[1], flush=True)",
    "steps": "print('global_step: 12', flush=True)",
    "events": "file = open('events.out.tfevents.1.host', 'w')",
    "cpu": "import threading\ndef spin():\n    while True: pass\n"
    "threading.Thread(target=spin, daemon=True).start()",
}


@pytest.mark.parametrize("sign", SIGNS)
def test_a_program_that_works_has_started(run: Run, sign: str) -> None:
    """If a program shows activity, its task counts as started although its own port is closed; the
    report says by which sign the activity was seen, such as output.
    """
    port = free_port()
    run.config["addresses"]["worker"][0] = f"127.0.0.1:{port}"
    end = "\nimport os, time\nwhile not os.path.exists('end'): time.sleep(0.05)\n"
    task = run.program(SIGNS[sign] + end, serves=True).task().start()
    ready = task.event("ready")
    assert (ready["sign"], ready["own"]) == (sign, port)
    if sign == "ports":
        assert ready["ports"] == [int(task.output.split()[0])]
    (run.output / "end").touch()
    assert task.wait()["cause"] == "Completed"


def test_the_port_is_told_when_it_comes_later(run: Run) -> None:
    """A program counts as started because of its output. If it later listens on a port other than
    its own, this is reported.
    """
    run.config["addresses"]["worker"][0] = f"127.0.0.1:{free_port()}"
    text = f"""
import os, time
print("step 1", flush=True)
while not os.path.exists("go"): time.sleep(0.05)
{SIGNS["ports"]}
while not os.path.exists("end"): time.sleep(0.05)
"""
    task = run.program(text, serves=True).task().start(QUICK)
    assert task.event("ready")["sign"] == "steps"
    (run.output / "go").touch()
    assert task.event("sign")["ports"] == [int(task.output.split()[-1])]
    (run.output / "end").touch()
    assert task.wait()["cause"] == "Completed"


def test_a_program_that_does_nothing_has_not_started(run: Run) -> None:
    """A program that neither opens its port nor works does not count as started."""
    run.config["addresses"]["worker"][0] = f"127.0.0.1:{free_port()}"
    run.config["startTimeout"] = 1.0
    text = "print('up', flush=True); import time; time.sleep(600)"
    task = run.program(text, serves=True).task().start()
    wait_until(lambda: "up" in task.output, "the program")
    assert "ready" not in [r["event"] for r in task.hear(2.0)]


def test_a_pod_says_it_in_its_log(run: Run) -> None:
    """In a pod, a task reports its start and its standstill in the log, where the operator reads
    them.
    """
    port, beacon = free_port(), free_port()
    run.config["addresses"]["worker"][1] = f"127.0.0.1:{port}"
    run.config["beacon"] = beacon
    task = run.program(WAITS, serves=True).task("worker-1")
    task.start({**QUICK, "TFCLUSTER_REPORT_FD": ""})
    wait_until(lambda: _accepts(beacon), "the port that Kubernetes asks")
    wait_until(lambda: "tfcluster: quiet since" in task.output, "the line")
    lines = task.output.splitlines()
    told = start_oddity("worker-1", "steps", port, (), 0.0, 0.0)
    assert waiting_reasons.oddity_in_output("worker-1", lines) == told
    quiet = waiting_reasons.quiet_in_output(lines, 7.0)
    assert quiet is not None and quiet.until == 7.0 and quiet.peer in ("", "worker-0")
    (run.output / "go").touch()
    wait_until(lambda: "tfcluster: works again" in task.output, "the line")
    assert waiting_reasons.quiet_in_output(task.output.splitlines(), 7.0) is None
    (run.output / "end").touch()
    assert task.wait()["cause"] == "Completed"


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("sign", ["ports", "steps", "events", "cpu"])
def test_each_sign_is_read_from_a_log(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """The operator makes a message from each sign that a task writes."""
    monkeypatch.syspath_prepend(str(RUNTIME))
    import activity  # type: ignore[import-not-found]

    seen = {"sign": sign, "ports": [18888, 18889], "cores": 0.93, "seconds": 300}
    line = f"tfcluster: {activity.described(seen, 2222)}"
    found = waiting_reasons.oddity_in_output("worker-0", [line, "step 1"])
    assert found == start_oddity("worker-0", sign, 2222, [18888, 18889], 0.93, 300.0) or (
        sign == "cpu" and found is not None
    )
    assert found is not None and "its own port 2222" in english_clause(found)


def test_both_know_the_lines_by_which_tensorflow_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that TensorFlow prints while it waits are no sign of work, neither for the task nor
    for the operator.
    """
    monkeypatch.syspath_prepend(str(RUNTIME))
    import activity

    assert waiting_reasons.TENSORFLOW_WAITS.pattern in activity.WAITING.pattern.decode()


def test_steps_are_known_in_many_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of loops, of Keras and of tqdm are steps; other text with numbers is not."""
    monkeypatch.syspath_prepend(str(RUNTIME))
    import activity

    for line, is_step in (
        (b"step 300 loss 0.5\n", True),
        (b"global_step = 12\n", True),
        (b"Epoch 2/10\n", True),
        (b" 45%|####5     | 45/100\r", True),
        (b"145/1000 [===>......] - loss: 0.3\r", True),
        (b"Iteration: 7\n", True),
        (b"loading 3 files\n", False),
        (b"starting with: --epochs 8 --batch-size=4 -steps 3\n", False),
        (b"2026-11-21 footstep\n", False),
    ):
        words = activity.Words()
        words.looks_for_steps = True
        words.put(line)
        assert words.steps is is_step, line


def test_the_newest_step_is_read_from_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that a loop prints count as printed; steps of progress bars, which begin again in each
    epoch, are added up. Decimals and dates are no steps.
    """
    monkeypatch.syspath_prepend(str(RUNTIME))
    import activity

    for lines, step in (
        ([b"step 300 loss 0.5\n"], 300),
        ([b"global_step = 1,200\n"], 1200),
        ([b"Iteration: 7/90\n", b"loss 0.3\n"], 7),
        ([b"step 8\nstep 9\n", b"step 3\n"], 3),
        ([b"global step 20\ntraining step 12 done (global step: 24)\n"], 12),
        ([b"145/200 [===>......] - loss: 0.3\r", b"200/200 [=====]\n", b"5/200 [>\r"], 205),
        ([" 45/100 ━━━━ 1s 12ms/step".encode()], 45),
        ([b"batch time: 0.25\n", b"step 0.5 s\n"], 0),
        ([b"2026/11/21 [info] footstep 3\n"], 0),
        ([b"starting with: --steps 8 --global_step=4\n"], 0),
    ):
        words = activity.Words()
        for line in lines:
            words.put(line)
        assert words.step == step, lines
