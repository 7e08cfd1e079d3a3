"""TF_CONFIG, flags and defaults, which are equal in a task and in the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.task_process import RUNTIME

from tfcluster_magic.runtime import tf_config

ADDRESSES = {
    "chief": ["c:1"],
    "worker": ["w:1", "w:2"],
    "ps": ["p:1"],
    "evaluator": ["e:1"],
}
COUNTS = {kind: len(hosts) for kind, hosts in ADDRESSES.items()}
FLAGS = ("ps_hosts", "worker_hosts", "job_name", "task_index", "data_dir", "log_path")


def test_every_type_has_its_place() -> None:
    """Each task gets the whole cluster and its own place in it."""
    told = tf_config.build(ADDRESSES, "worker", 1)
    assert told == {
        "cluster": {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"]},
        "task": {"type": "worker", "index": 1},
    }


def test_nobody_but_the_evaluator_knows_its_address() -> None:
    """The address of an evaluator is only in its own TF_CONFIG, because MultiWorkerMirroredStrategy
    expects it there. If the cluster has parameter servers, it is in no TF_CONFIG.
    """
    together = {kind: hosts for kind, hosts in ADDRESSES.items() if kind != "ps"}
    for addresses in (together, ADDRESSES):
        told = tf_config.build(addresses, "evaluator", 0)
        assert told["task"] == {"type": "evaluator", "index": 0}
        assert ("evaluator" in told["cluster"]) is (addresses is together)
        if addresses is together:
            assert told["cluster"] == together
        for kind in told["cluster"].keys() - {"evaluator"}:
            assert "evaluator" not in tf_config.build(addresses, kind, 0)["cluster"]


def test_types_without_tasks_are_absent() -> None:
    """TF_CONFIG of a cluster without parameter servers has no key `ps`."""
    addresses: dict[str, list[str]] = {"worker": ["w:1"], "ps": []}
    tf_config.check({"worker": 1, "ps": 0}, addresses, "worker", 0)
    told = tf_config.build(addresses, "worker", 0)
    assert told["cluster"] == {"worker": ["w:1"]}


@pytest.mark.parametrize(
    ("task", "index", "counts", "said"),
    [
        ("worker", 2, COUNTS, "there is no worker-2 among 2 worker tasks"),
        ("worker", -1, COUNTS, "there is no worker--1"),
        ("worker", 0, {**COUNTS, "ps": 2}, "2 ps tasks have 1 addresses"),
        ("master", 0, COUNTS, "'master' is none of the task types"),
    ],
)
def test_what_does_not_fit(task: str, index: int, counts: dict[str, int], said: str) -> None:
    """A task that does not exist, or that has no address, is refused with the numbers of tasks and
    addresses.
    """
    with pytest.raises(ValueError, match=said):
        tf_config.check(counts, ADDRESSES, task, index)


def test_flags_are_spelled_as_the_program_does() -> None:
    """A program gets the flags that it takes, each by the name that it declares."""
    made = tf_config.flags(
        ("ps-hosts", "job_name", "task-index", "data_dir", "log-dir"),
        ADDRESSES,
        "ps",
        0,
        data_dir="/data",
        output_dir="/log/digits/1",
    )
    assert made == [
        "--ps-hosts=p:1",
        "--job_name=ps",
        "--task-index=0",
        "--data_dir=/data",
        "--log-dir=/log/digits/1",
    ]


@pytest.mark.parametrize(
    ("limit", "cores", "kind", "threads"),
    [
        (None, 2, "", None),  # TensorFlow's own default: as many as cores
        (None, 1, "", "2"),
        (None, 64, "", None),
        (1, 64, "", "2"),
        (16, 2, "", "16"),
        (None, 2, "coordinated", "4"),
        (None, 8, "coordinated", None),
        (2, 64, "coordinated", "4"),
        (None, 2, "in_graph", "8"),
        (2, 64, "in_graph", "8"),
        (None, 12, "in_graph", None),
    ],
)
def test_threads_follow_the_limit(
    limit: int | None, cores: int, kind: str, threads: str | None
) -> None:
    """The number of inter-op threads is the CPU limit, or without a limit TensorFlow's default, the
    number of cores. If a deadlock is possible with this number, as in a coordinator or in a server
    with several clients, the number is raised to the minimum without deadlocks.
    """
    counts = {"ps": 1, "worker": 2, "chief": int(kind == "coordinated")}
    found = tf_config.environment_defaults(limit, cores, counts, in_graph=kind == "in_graph")
    assert found.get("TF_NUM_INTEROP_THREADS") == threads
    assert found.get("TF_NUM_INTRAOP_THREADS") == (str(limit) if limit else None)


class Runtime:
    """A process that computes, as a task does, the values that follow from task.json."""

    SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from task_config import TaskConfig
for line in sys.stdin:
    data, task = json.loads(line)
    config = TaskConfig(data, task)
    print(json.dumps([config.tf_config, config.flags(), config.defaults()]), flush=True)
"""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", self.SCRIPT, str(RUNTIME)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, data: dict[str, Any], task: str) -> list[Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([data, task]) + "\n")
        self.process.stdin.flush()
        answer: list[Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def runtime() -> Any:
    """Start one process for all calls."""
    made = Runtime()
    yield made
    made.process.communicate()


host = st.from_regex(r"[a-z][a-z0-9.-]{0,8}:[1-9][0-9]{0,3}", fullmatch=True)
counted = st.fixed_dictionaries(
    {"worker": st.lists(host, min_size=1, max_size=4)},
    optional={kind: st.lists(host, max_size=3) for kind in ("chief", "ps", "evaluator")},
)
argument = st.one_of(
    st.sampled_from(
        [f"{dash}{name}{tail}" for dash in ("--", "-", "") for name in FLAGS for tail in ("", "=1")]
    ),
    st.text(max_size=5),
)


@given(
    addresses=counted,
    wanted=st.lists(st.sampled_from(FLAGS)),
    arguments=st.lists(argument, max_size=3),
    threads=st.one_of(st.none(), st.integers(1, 64)),
    draw=st.data(),
)
def test_package_and_runtime_agree(
    runtime: Runtime,
    addresses: dict[str, list[str]],
    wanted: list[str],
    arguments: list[str],
    threads: int | None,
    draw: st.DataObject,
) -> None:
    """A task computes exactly the values that the package shows for the task."""
    counts = {kind: len(hosts) for kind, hosts in addresses.items()}
    kind = draw.draw(st.sampled_from([kind for kind, count in counts.items() if count]))
    index = draw.draw(st.integers(0, counts[kind] - 1))
    program = {"dir": "/p", "entrypoint": "a.py", "arguments": arguments, "flags": wanted}
    data = {
        "mode": "between-graph",
        "counts": counts,
        "addresses": addresses,
        "program": program,
        "dataDir": "/data",
        "outputDir": "/log",
        "threads": {kind: threads} if threads else {},
    }
    tf_config.check(counts, addresses, kind, index)
    assert runtime.ask(data, f"{kind}-{index}") == [
        tf_config.build(addresses, kind, index),
        tf_config.flags(wanted, addresses, kind, index, data_dir="/data", output_dir="/log"),
        tf_config.environment_defaults(
            threads, len(os.sched_getaffinity(0)), counts, in_graph=False
        ),
    ]
