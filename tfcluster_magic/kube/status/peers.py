"""Tasks that run and wait for other tasks. Pure.

Promises to name the peer: `worker-1 waits for ps-0`. What a task itself prints while it waits is
read from its last lines; that workers cannot go on without a parameter server is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...i18n import _
from ...lifecycle.messages import shorten
from . import task_pods
from .exit_status import is_over
from .said import BY_SOMEBODY, GOES_ON, Clause, Object

REASON = "PeerNotUp"
_ADDRESS = re.compile(r"waiting for the address of (.+)$")
_GOES_ON = re.compile(r"every address is there$|going on without the address of ")
"""What it prints when that wait is over; TensorFlow may be silent for long afterwards."""
_HOST = re.compile(r"[a-z0-9-]+?-((?:ps|worker|chief|evaluator)-\d+)\.")
_SESSION = re.compile(r"still waiting for response from worker: /job:(\w+)/replica:\d+/task:(\d+)")


def in_output(lines: Sequence[str], tasks: Mapping[str, Object]) -> Clause | None:
    """What the last lines of a task that is not up say of other tasks; the last word counts."""
    for line in reversed(lines):
        if found := _SESSION.search(line):
            peer = f"{found.group(1)}-{found.group(2)}"
            text = _("TensorFlow in it gets no answer from {peer}").format(peer=peer)
            return Clause(GOES_ON, text, REASON)
        if _GOES_ON.search(line):
            break
        if found := _ADDRESS.search(line):
            return _no_address(_HOST.findall(found.group(1)), found.group(1), tasks)
    text = _("it runs and has not opened its port yet: importing TensorFlow takes a while")
    return Clause(GOES_ON, text, "NotReady")


def _no_address(peers: Sequence[str], words: str, tasks: Mapping[str, Object]) -> Clause:
    away = [peer for peer in peers if not _runs(tasks.get(peer))]
    if peers and not away:
        text = _(
            "the name of {peer} does not resolve though it runs: the cluster's DNS does not answer "
            "its question; ask the administrator"
        ).format(peer=peers[0])
        return Clause(BY_SOMEBODY, text, "NoAddress")
    text = _("it waits for the address of {peers}").format(peers=shorten(away) or words)
    return Clause(GOES_ON, text, REASON)


def _runs(pod: Object | None) -> bool:
    statuses = (pod["status"].get("containerStatuses") or ()) if pod is not None else ()
    return any("running" in (each.get("state") or {}) for each in statuses)


def missed(tasks: Mapping[str, Object], jobs: Sequence[Object]) -> tuple[list[str], list[str]]:
    """The parameter servers that are not up, and the trainers that run and cannot go on."""
    counts = {task_pods.type_of(job): job["spec"].get("completions") or 0 for job in jobs}
    servers = [f"ps-{index}" for index in range(counts.get("ps", 0))]
    away = [name for name in servers if name not in tasks or not task_pods.is_up(tasks[name])]
    trainers = [
        name
        for name, pod in tasks.items()
        if name.startswith(("worker-", "chief-")) and task_pods.is_up(pod) and not is_over(pod)
    ]
    return (away, trainers) if away and trainers else ([], [])
