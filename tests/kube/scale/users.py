"""50 users with 10 tasks each, who launch all at once or one after the other within ten seconds.

They are compared with one bare Job of as many tasks, and with the same objects made by hand. The
latter show the cost of a hundred Jobs, Services and policies in Kubernetes without an operator.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kubenode.commands import say

from benchmarks.rows import Row, bounded, compared
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import path

from .api_watch import Pods, counting
from .site import Site
from .variants import RUN, Way, bare, by_hand, in_turn, measure, record, where

USERS, PS, WORKERS = 50, 2, 8
TASKS = PS + WORKERS
SPREAD = 10.0
OURS = labels.TASK_TYPE
JOB = Way("bare_job", lambda _site: [bare(USERS * TASKS)], ends=False)


def users(site: Site, rounds: int) -> list[Row]:
    """Measure a bare Job of as many tasks, the users, and the same objects by hand, in turn."""
    ways: dict[str, Callable[[], float]] = {
        "bare": lambda: measure(site, JOB, USERS * TASKS)["running"],
        "at once": lambda: _at_once(site, _launch),
        "by hand": lambda: _at_once(site, _make_by_hand),
    }
    values: dict[str, list[float]] = defaultdict(list)
    last, every = [], list[float]()
    for number in range(1, rounds + 1):
        for name in in_turn(list(ways), number):
            values[name].append(ways[name]())
        waits = _spread(site)
        last.append(waits[-1])
        every += waits
        took = ", ".join(f"{name} {each[-1]:.2f} s" for name, each in values.items())
        say(f"{USERS} users: {took}, the last of all {last[-1]:.2f} s")
    alone, together, hand = (values[name] for name in ways)
    every.sort()
    words = f"of all {len(every)}: median {every[len(every) // 2]:.2f}, longest {every[-1]:.2f}"
    note = f"{USERS} x {TASKS} tasks, no error; beside a bare Job of {USERS * TASKS}"
    return [
        compared("scale_users", "s", together, alone, at_most=2.0, note=note),
        compared("scale_users_by_hand", "s", hand, alone, note="the same objects, no operator"),
        compared("scale_users_to_by_hand", "s", together, hand),
        bounded("scale_users_spread", "s", last, at_most=1.5, note=f"the last; {words}"),
    ]


def _at_once(site: Site, launch: Callable[[Site, str], None]) -> float:
    """Return the seconds until all tasks are running if all users launch at the same time."""
    with _everybody(site) as (names, pods), ThreadPoolExecutor(16) as pool:
        began = time.monotonic()
        for done in [pool.submit(launch, site, name) for name in names]:
            done.result()
        ended = pods.wait(USERS * TASKS, "all users' tasks run")
        if launch is _launch:
            _no_errors(site, names)
    return ended - began


def _spread(site: Site) -> list[float]:
    """Return the seconds from each launch's POST until its tasks are running."""
    posted: dict[str, float] = {}
    with _everybody(site) as (names, pods):
        began = time.monotonic()
        for number, name in enumerate(names):
            # the pace of the launches is part of the measurement
            time.sleep(max(0.0, began + number * SPREAD / USERS - time.monotonic()))
            posted[name] = time.monotonic()
            _launch(site, name)
        pods.wait(USERS * TASKS, "all users' tasks run")
        waits = [pods.changed_at[name] - posted[name] for name in names]
        _no_errors(site, names)
    return waits


@contextmanager
def _everybody(site: Site) -> Iterator[tuple[Sequence[str], Pods]]:
    names = [site.new_name("user") for _ in range(USERS)]
    for name in names:
        site.make_namespace(name)
    try:
        for name in names:
            site.wait_furnished(name)
        with counting(site.api, selector=OURS) as pods:
            yield names, pods
    finally:
        site.remove(*names)


def _launch(site: Site, name: str) -> None:
    site.api.create(path("tfclusters", name), record(RUN, WORKERS, PS))


def _make_by_hand(site: Site, name: str) -> None:
    for each in by_hand(site, WORKERS, PS):
        site.api.create(where(each, name), each)


def _no_errors(site: Site, names: Sequence[str]) -> None:
    for name in names:
        status = site.api.get(path("tfclusters", name, RUN)).get("status") or {}
        assert status["phase"] in ("Starting", "Running") and not status.get("failures"), status
    assert not site.metric("failed_turns_total"), site.operator.log()[-3000:]
