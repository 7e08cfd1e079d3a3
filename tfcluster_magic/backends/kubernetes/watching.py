"""Changes of runs as the API server tells them: one list and one watch, however many runs.

Promises that no change is lost to a cut or a forgotten version, that a run which went meanwhile is
told as removed, and a word every half second. A server that is away is waited for while one run is
watched, because the run goes on; whoever watches all runs hears of it soon.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator

from ...kube.api import access
from ...kube.api.client import Api, Object, path
from ...kube.api.informer import Informer, Update
from ...spec import TFCluster
from ..base import Removed
from ..run_names import expired

POLL = 0.4
PATIENCE = 600.0
"""Seconds that a server which does not answer is waited for while one run is watched."""
REFUSED = 10.0
"""The same for one that refuses: after its own restart it does so for some seconds."""
SOON = 3.0
"""Seconds after which whoever watches all runs is told."""

Read = Callable[[Object], TFCluster | None]


def one(api: Api, namespace: str, cluster: TFCluster, read: Read) -> Iterator[TFCluster | None]:
    """The run now and whenever it changes, until nothing of it is left; None in between."""
    head = cluster.metadata
    last: TFCluster | None = None
    for update in _updates(api, namespace, head.name, lambda away: PATIENCE if away else REFUSED):
        if update is None:
            if last is None:
                return  # deleted since it was asked for
            yield None
            continue
        now = None if update.new is None else read(update.new)
        if now is None or now.metadata.uid != head.uid:
            return  # deleted, and perhaps launched again meanwhile
        if now != last:
            last = now
            yield now
        if now.status.released_at is not None:
            return


def every(api: Api, namespace: str, read: Read) -> Iterator[TFCluster | Removed | None]:
    """Each run now, whenever it changes, and when it is gone; None in between. Never ends."""
    told: dict[str, TFCluster] = {}
    for update in _updates(api, namespace, "", lambda _away: SOON):
        if update is None:
            yield None
            continue
        name = str(update.object["metadata"]["name"])
        now, before = read(update.new) if update.new else None, told.get(name)
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            del told[name]
            yield Removed(name)
        if now is not None and now != before and not expired(now, time.time()):
            told[name] = now
            yield now


def _updates(
    api: Api, namespace: str, name: str, patience: Callable[[bool], float]
) -> Iterator[Update | None]:
    """What an informer tells; None when it told all that it knows.

    Raises:
        TFClusterError: the server is away or refuses for longer than `patience(away)` seconds.
    """
    updates: queue.SimpleQueue[Update] = queue.SimpleQueue()
    informer = Informer(
        api,
        path("tfclusters", namespace),
        fields=f"metadata.name={name}" if name else "",
        changed=updates.put,
    )
    informer.start()
    away: bool | None = None  # None: all is well, else whether the server is away or refuses
    since = 0.0
    try:
        while True:
            try:
                yield updates.get(timeout=POLL)
                continue
            except queue.Empty:
                problem = informer.problem
            known = informer.synced.is_set()
            if (kind := None if problem is None else problem.unanswered) != away:
                away, since = kind, time.monotonic()
            if problem is not None:
                waited = time.monotonic() - since
                if not known or waited > patience(problem.unanswered):
                    raise access.explain(problem, name, server=api.server)
            if known and updates.empty():
                yield None
    finally:
        informer.stop()
