"""Real TensorFlow runs with one planted cause each, and their recordings in `tests/data/advice/`.

`PYTHONPATH=tests python -m support.planted [CAUSE…]` launches the run of each cause twice on this
machine, about a minute each. It records the input of advice: the spec, the samples, the steps,
earlier runs, and the stacks of tasks that stand still. Two cores have to be free. If root runs the
command on a machine with control groups of version 1, the runs get these cores before other
programs. Only there can the causes whose `world` is a slow disk, a slow link or a CPU limit be
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from support.project import DATA

PROGRAMS = Path(__file__).parent
RECORDINGS = DATA / "advice"
TIMES = (1, 2)


class World(Enum):
    """The condition that the recorder sets up around the tasks."""

    UNTOUCHED = "nothing"
    DATA_SERVER = "it serves data, 1 MiB/s for each worker"
    SLOW_DISK = "the workers' files are on a disk that they read at 1 MiB/s each"
    SLOW_LINK = "all tasks share a link of 80 MiB/s"
    THROTTLED = "worker-0 gets a quarter of a core"


@dataclass(frozen=True)
class Planted:
    """A planted cause: how it is launched, and which advice names it and the task.

    `before` are the options of an earlier run. `changes` are the launch options that the advice
    names; they are empty if no launch option removes the cause. A run that `hangs` is recorded
    while its task stands still.
    """

    arguments: tuple[str, ...]
    code: str
    task: str
    options: Mapping[str, object] = field(default_factory=dict)
    program: str = "asynchronous.py"
    before: Mapping[str, object] | None = None
    changes: Mapping[str, object] = field(default_factory=dict)
    world: World = World.UNTOUCHED
    hangs: bool = False


LITTLE = ("--batch", "64", "--hidden", "64")
"""Arguments of a program that computes little in each step."""
SMALL = {"workers": 2, "ps": 1}
MIRRORED = {"workers": 2}

CAUSES: Mapping[str, Planted] = {
    "balanced": Planted((), "", "", {**SMALL, "worker_memory": "1Gi"}),
    "balanced-mirrored": Planted((), "", "", MIRRORED, "synchronous.py"),
    "balanced-coordinated": Planted(
        (), "", "", {**SMALL, "chief": True, "success_policy": "chief"}, "coordinated.py"
    ),
    "hot-server": Planted(
        (*LITTLE, "--adam", "--words", "200000"),
        "AdviceServerCpuAlone",
        "ps-0",
        {"workers": 2, "ps": 2},
    ),
    "busy-server": Planted(
        (*LITTLE, "--adam", "--words", "200000"),
        "AdviceServerCpu",
        "ps-0",
        SMALL,
        changes={"ps": 2},
    ),
    "network-server": Planted(
        (*LITTLE, "--whole", "--words", "60000"),
        "AdviceServerNetwork",
        "ps-0",
        SMALL,
        changes={"ps": 2},
        world=World.SLOW_LINK,
    ),
    "slow-worker": Planted(("--slow", "1", "--own-steps"), "AdviceSlowWorker", "worker-1", SMALL),
    "awaited-worker": Planted(
        ("--slow", "1"), "AdviceAwaitedWorker", "worker-1", MIRRORED, "synchronous.py"
    ),
    "input-bound": Planted(LITTLE, "AdviceInputNetwork", "worker", SMALL, world=World.DATA_SERVER),
    "disk-bound": Planted(LITTLE, "AdviceInputDisk", "worker", SMALL, world=World.SLOW_DISK),
    "throttled": Planted(
        ("--seconds", "60"),
        "AdviceThrottled",
        "worker-0",
        SMALL,
        changes={"worker_cpu": 0.5},
        world=World.THROTTLED,
    ),
    "memory-ramp": Planted(
        ("--leaky", "1"),
        "AdviceMemoryGrows",
        "worker-1",
        {**SMALL, "worker_memory": "2Gi"},
        changes={"worker_memory": "3Gi"},
    ),
    "too-many-workers": Planted(
        (),
        "AdviceTooManyWorkers",
        "worker",
        {"workers": 4, "ps": 1},
        before=SMALL,
        changes={"workers": 2},
    ),
    "memory-too-high": Planted(
        (),
        "AdviceMemoryTooHigh",
        "worker",
        {**SMALL, "worker_memory": "4Gi"},
        changes={"worker_memory": "1536Mi"},
    ),
    "deadlock": Planted(
        ("--seconds", "600", "--locked", "1"),
        "AdviceHangsAt",
        "worker-1",
        MIRRORED,
        "synchronous.py",
        hangs=True,
    ),
    "deadlock-of-one": Planted(
        ("--seconds", "600", "--locked", "1"), "AdviceHangsAt", "worker-1", SMALL, hangs=True
    ),
}
"""The causes by name. Runs named "balanced" have no cause, and must get no advice."""
