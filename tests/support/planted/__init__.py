"""Real runs with one planted cause each, and their recordings in `tests/data/advice/`.

`PYTHONPATH=tests python -m support.planted [CAUSE…]` runs each of them twice on this machine, about
a minute each, and records the input of advice: the spec, the samples, the steps, earlier runs. Two
cores have to be free. With control groups of version 1, root gets them before other programs;
`throttled` can be recorded only in that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.project import DATA

PROGRAM = Path(__file__).with_name("train.py")
RECORDINGS = DATA / "advice"
TIMES = (1, 2)


@dataclass(frozen=True)
class Planted:
    """A planted cause: how it is launched, and which advice names it and the task.

    `before` are options of a run before it. `program_only` means that no launch option changes the
    cause.
    """

    arguments: tuple[str, ...]
    code: str
    task: str
    options: Mapping[str, object] = field(default_factory=dict)
    before: Mapping[str, object] | None = None
    changes: Mapping[str, object] = field(default_factory=dict)
    data_server: bool = False
    throttled: str = ""


CAUSES: Mapping[str, Planted] = {
    "balanced": Planted(
        ("--memory", "300"),
        "",
        "",
        {"workers": 2, "ps": 1, "worker_memory": "512Mi"},
    ),
    "hot-server": Planted(
        ("--hot", "--server-ms", "20", "--worker-ms", "2", "--pause-ms", "1"),
        "AdviceServerCpuAlone",
        "ps-0",
        {"workers": 3, "ps": 3},
    ),
    "busy-server": Planted(
        ("--server-ms", "20", "--worker-ms", "2", "--pause-ms", "1"),
        "AdviceServerCpu",
        "ps-0",
        {"workers": 3, "ps": 1},
        changes={"ps": 2},
    ),
    "network-server": Planted(
        ("--link", "80", "--size", "1000000", "--server-ms", "0", "--worker-ms", "2"),
        "AdviceServerNetwork",
        "ps-0",
        {"workers": 2, "ps": 1},
        changes={"ps": 2},
    ),
    "slow-worker": Planted(
        ("--slow", "1", "--own-steps", "--pause-ms", "8", "--worker-ms", "4"),
        "AdviceSlowWorker",
        "worker-1",
        {"workers": 3, "ps": 1},
    ),
    "input-bound": Planted(
        ("--worker-ms", "4", "--server-ms", "0.2"),
        "AdviceInputNetwork",
        "worker",
        {"workers": 2, "ps": 1},
        data_server=True,
    ),
    "throttled": Planted(
        ("--worker-ms", "10", "--pause-ms", "1"),
        "AdviceThrottled",
        "worker-0",
        {"workers": 2, "ps": 1},
        changes={"worker_cpu": 0.5},
        throttled="worker-0",
    ),
    "memory-ramp": Planted(
        ("--leak", "6", "--leaky", "1"),
        "AdviceMemoryGrows",
        "worker-1",
        {"workers": 2, "ps": 1, "worker_memory": "400Mi"},
        changes={"worker_memory": "600Mi"},
    ),
    "too-many-workers": Planted(
        ("--worker-ms", "20", "--pause-ms", "0"),
        "AdviceTooManyWorkers",
        "worker",
        {"workers": 6, "ps": 1},
        before={"workers": 2},
        changes={"workers": 2},
    ),
    "memory-too-high": Planted(
        ("--memory", "100"),
        "AdviceMemoryTooHigh",
        "worker",
        {"workers": 2, "ps": 1, "worker_memory": "2Gi"},
        changes={"worker_memory": "512Mi"},
    ),
}
"""The causes by name; `balanced` has none, and must get no advice."""
