"""The cost of the operator and of `list` with 2000 records of ended runs and 100 running runs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kubenode.commands import say

from benchmarks.product import COMMAND
from benchmarks.rows import Row, bounded, compared
from tfcluster_magic.kube.api.client import Object, path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import Phase, Reason, Status, TypeCounts

from .api_watch import counting, phases
from .follow_latency import EXIT, workers
from .site import Site
from .variants import RUN, record

FINISHED, RUNNING, USERS = 2000, 100, 10
CHANGES = 60


def records(site: Site, rounds: int) -> list[Row]:
    """Measure without records, create them, and measure again."""
    alone = [_change(site) for _ in range(rounds)]
    names = [site.new_name("records") for _ in range(USERS)]
    for name in names:
        site.make_namespace(name)
    try:
        for name in names:
            site.wait_furnished(name)
        site.operator.stop()  # it would start the new runs before their status is written
        _finish(site, names)
        site.operator.start()
        _run(site, names)
        among = [_change(site) for _ in range(rounds)]
        memory = site.memory()
        starts = [_restart(site) for _ in range(3)]
        listed = [_list(site, names[0]) for _ in range(3)]
    finally:
        site.remove(*names)
    words = f"{FINISHED} finished, {RUNNING} running"
    return [
        bounded("scale_memory", "MiB", [memory, site.memory()], at_most=150.0, note=words),
        bounded("scale_restart", "s", starts, at_most=3.0, note="from its start until it leads"),
        bounded("scale_list", "s", listed, at_most=1.0, note=f"{FINISHED // USERS} of one user"),
        compared(
            "scale_change_cpu",
            "ms",
            [each * 1000 for each in among],
            [each * 1000 for each in alone],
            at_most=1.25,
            note="the operator's CPU for a task that ends; beside the same without records",
        ),
    ]


def _finish(site: Site, names: Sequence[str]) -> None:
    """Create records of ended runs, as the operator leaves them."""

    def one(number: int) -> None:
        namespace = names[number % USERS]
        name = f"over-{number // USERS + 1}"
        made = site.api.create(path("tfclusters", namespace), record(name, 4, 2))
        head = {"apiVersion": made["apiVersion"], "kind": made["kind"]}
        meta = {"name": name, "resourceVersion": made["metadata"]["resourceVersion"]}
        body = {**head, "metadata": meta, "spec": made["spec"], "status": over_status()}
        site.api.replace(f"{path('tfclusters', namespace, name)}/status", body)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(one, number) for number in range(FINISHED)]:
            done.result()
    say(f"{FINISHED} records of runs that are over")


def over_status() -> Object:
    """Return the status of a run that has just ended."""
    now = time.time()
    return custom_resource.write_status(
        Status(
            phase=Phase.SUCCEEDED,
            reason=Reason.COMPLETED,
            message="All workers succeeded.",
            queued_at=now - 60,
            started_at=now - 60,
            running_at=now - 50,
            finished_at=now - 5,
            released_at=now,
            counts={"ps": TypeCounts(2, stopped=2), "worker": TypeCounts(4, succeeded=4)},
            paths={"output": "/log/over/1", "logs": "/log/over/1"},
        )
    )


def _run(site: Site, names: Sequence[str]) -> None:
    with counting(site.api, selector="tfcluster.dev/task-type=worker") as pods:
        for number in range(RUNNING):
            body = record(f"run-{number // USERS + 1}", 1, 0)
            site.api.create(path("tfclusters", names[number % USERS]), body)
        pods.wait(RUNNING, "the runs among the records")


def _change(site: Site) -> float:
    """Return the operator's CPU seconds for one ended task, without those of an idle operator."""
    with site.namespace("change") as namespace, phases(site.api, namespace) as told:
        site.api.create(path("tfclusters", namespace), record(RUN, CHANGES + 1, 0))
        told.wait((namespace, RUN), "Running")
        idle = _used(site, 5.0)
        with counting(site.api, namespace, fields="status.phase=Succeeded") as pods:
            before, began = site.cpu(), time.monotonic()
            for number, name in enumerate(workers(site, namespace)[:CHANGES], 1):
                site.api.merge(name, {"metadata": {"annotations": {EXIT: "0"}}})
                pods.wait(number, "a worker has ended")
            _used(site, 1.0)  # time for the operator's work after the last task
            spent, passed = site.cpu() - before, time.monotonic() - began
    return (spent - idle * passed) / CHANGES


def _used(site: Site, seconds: float) -> float:
    """Return the CPU cores that the operator uses while idle."""
    before = site.cpu()
    time.sleep(seconds)  # the idle time is the measurement
    return (site.cpu() - before) / seconds


def _restart(site: Site) -> float:
    site.operator.stop()
    return site.operator.start()


def _list(site: Site, namespace: str) -> float:
    environment = {
        **os.environ,
        "TFCLUSTER_BACKEND": "kubernetes",
        "TFCLUSTER_NAMESPACE": namespace,
    }
    began = time.monotonic()
    done = subprocess.run(
        [COMMAND, "list", "--all"], env=environment, check=True, capture_output=True, text=True
    )
    seconds = time.monotonic() - began
    assert len(done.stdout.splitlines()) > FINISHED // USERS, done.stdout
    return seconds
