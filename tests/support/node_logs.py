"""The log of a pod as its node serves it: lines with timestamps. A request asks for the last lines
or those since a time; timestamps may be out of order.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from support.kube_server import KubeServer
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import Object, path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import TaskType, TFCluster

NAMESPACE = "alice"
START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)
LINE = 1000.0
"""Default interval between two lines, in milliseconds."""


class NodeLog:
    """The output of one pod; `questions` counts the requests."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.clock = START
        self.questions: list[Mapping[str, str]] = []
        self.body: bytes | None = None
        """A kubelet's message that replaces the log."""

    def say(self, *texts: str, every: float = LINE) -> NodeLog:
        """Print lines, with this many milliseconds between them by the node's clock."""
        for text in texts:
            self.clock += timedelta(milliseconds=every)
            self.lines.append((self._stamp(), text))
        return self

    def begin(self, text: str) -> None:
        """Print a part of a line."""
        self.say(text)

    def end(self, text: str) -> None:
        """Print the rest of that line."""
        stamp, begun = self.lines[-1]
        self.lines[-1] = (stamp, begun + text)

    def rotate(self) -> NodeLog:
        """Start a new log file, as a node does when the file is large. The API serves only the
        newest file.
        """
        self.lines.clear()
        return self

    def set_clock(self, seconds: float) -> NodeLog:
        """Move the node's clock by an offset."""
        self.clock += timedelta(seconds=seconds)
        return self

    def __call__(self, query: Mapping[str, str]) -> bytes:
        """Return the answer to a request."""
        self.questions.append(query)
        if self.body is not None:
            return self.body
        found = list(self.lines)
        if count := query.get("tailLines"):
            found = found[-int(count) :] if int(count) else []
        if since := query.get("sinceTime"):
            found = [each for each in found if _moment(each[0]) >= datetime.fromisoformat(since)]
        return "".join(f"{stamp} {text}\n" for stamp, text in found).encode()

    def _stamp(self) -> str:
        return self.clock.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.clock.microsecond:06}000Z"


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp[:26] + "+00:00")


def put_run(server: KubeServer, phase: str = "Running") -> TFCluster:
    """Write the run `digits-1` in its current state, and read it."""
    written = {
        "metadata": {"uid": "1"},
        "spec": {"mode": "InGraph"},
        "status": {"phase": phase, "startTime": "1970-01-01T00:00:01Z"},
    }
    return custom_resource.read(server.put(path("tfclusters", NAMESPACE, "digits-1"), written))


def put_pod(server: KubeServer, worker: int, log: NodeLog, phase: str = "Running") -> Object:
    """Write a worker's pod and its log."""
    name = f"digits-1-worker-{worker}"
    server.logs[name] = log
    head = {
        "uid": name,
        "labels": labels.run_labels("digits-1", "1", TaskType.WORKER),
        "annotations": {labels.INDEX: str(worker)},
    }
    return server.put(path("pods", NAMESPACE, name), {"metadata": head, "status": {"phase": phase}})
