"""Chaos schedules for a user's runs: the steps for a seed, and the program of all runs.

A schedule depends only on its seed, so it is the same each time. The state of a run at each step
depends on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

CLUSTERS = ("ant", "bee", "cat", "dog")
MEMBER = """
import fcntl, os, signal, subprocess, sys, time

uid, task = os.environ["TFCLUSTER_RUN_UID"], os.environ["TFCLUSTER_TASK"]
own = os.path.join(os.environ["TFCLUSTER_DATA_DIR"], uid + "-" + task)
alone = open(own, "w")
for _ in range(100):  # one that was just killed may hold it a moment longer than it is seen
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except OSError:
        time.sleep(0.1)
else:
    open(own.replace(uid, "twice-" + uid), "w").close()
print("up", flush=True)
while True:
    try:
        os.rename(own + ".do", own + ".done")
        word = open(own + ".done").read()
    except OSError:
        word = ""
        time.sleep(0.1)
"""
OBEYS = """
    if word == "finish":
        raise SystemExit(0)
    if word == "fail":
        raise ValueError("a broken record")
    if word == "follow":
        raise RuntimeError("UNAVAILABLE: failed to connect to all addresses")
    if word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if word == "child":
        subprocess.Popen(["sleep", "600"])
    if word == "daemon" and not os.fork():
        os.setsid()
        if not os.fork():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
"""
"""The reaction of a program to each command. These lines are the end of the loop in `MEMBER`, which
reads commands.
"""
MEMBER += OBEYS
SHAPES = (
    {"worker": 1},
    {"worker": 2},
    {"worker": 1, "ps": 1},
    {"chief": 1, "worker": 1, "ps": 1},
)
WORDS = ("finish", "finish", "fail", "follow", "crash", "deaf", "child", "daemon")
WEIGHTS = {
    "launch": 12,
    "tell": 20,
    "finish": 8,
    "stop": 8,
    "rerun": 6,
    "delete": 6,
    "kill_task": 8,
    "kill_program": 5,
    "end_task": 2,
    "kill_supervisor": 5,
    "end_supervisor": 2,
    "crash": 4,
    "pause": 6,
    "die_launching": 10,
    "ambush": 4,
    "die_stopping": 4,
    "die_deleting": 4,
    "at_once": 3,
    "remove_by_hand": 2,
    "set_clock": 4,
}
ON_TASKS = {
    "tell",
    "finish",
    "stop",
    "kill_task",
    "kill_program",
    "end_task",
    "kill_supervisor",
    "end_supervisor",
    "crash",
    "pause",
    "die_stopping",
    "remove_by_hand",
}
"""Actions on tasks and on their supervisors."""


@dataclass(frozen=True)
class Step:
    """One action; `draws` are four numbers in [0, 1) that the action interprets."""

    number: int
    action: str
    cluster: str
    draws: tuple[float, float, float, float]

    def pick(self, draw: int, among: Sequence[T]) -> T:
        """Return one of several items; the step's number `draws[draw]` chooses it."""
        return among[int(self.draws[draw] * len(among))]


def schedule(seed: int, steps: int, among: Mapping[str, int] = WEIGHTS) -> list[Step]:
    """Return the steps for a seed. A longer schedule begins with the shorter one."""
    drawn = random.Random(seed)
    actions, weights = [*among], [*among.values()]
    return [
        Step(
            number,
            drawn.choices(actions, weights)[0],
            drawn.choice(CLUSTERS),
            (drawn.random(), drawn.random(), drawn.random(), drawn.random()),
        )
        for number in range(steps)
    ]
