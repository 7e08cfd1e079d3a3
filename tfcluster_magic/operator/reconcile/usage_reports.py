"""The usage that tasks report: samples in the termination messages of their pods.

A task writes its samples to a volume of its tenant, which the operator does not mount. So if a
schedule uses advice, the tasks of its runs also report a few merged samples when they end. The
program of a task can write such a report, too, so a report is never trusted, and the container's
limits in it are ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from ...kube.api import labels
from ...kube.api.informer import CacheUpdate, Informer
from ...kube.status.exit_status import reported_usage
from ...kube.status.task_pods import newest_pods
from ...usage.samples import Attempt, parse
from ..cluster_state import Key, owner_uid, run_key

MOST_KEPT, MOST_CHARS = 1000, 4096
"""MOST_KEPT: maximum number of reports of deleted pods that are kept for one run. MOST_CHARS:
maximum characters of each report. Limits are needed because anybody who may create pods in a
namespace can forge reports.
"""


class UsageReports:
    """The usage reports of the tasks of runs.

    Args:
        pods: the cache of the tasks' pods.
        follows: returns whether the reports of a run are kept after its pods are deleted. They must
            be kept for runs of schedules, because the pods of parameter servers are deleted when
            their run ends.
    """

    def __init__(self, pods: Informer, follows: Callable[[Key], bool]) -> None:
        self._pods, self._follows = pods, follows
        self._lock = threading.Lock()
        self._kept: dict[Key, dict[tuple[str, str], str]] = {}
        """The reports of deleted pods: by run, then by the run's uid and the task."""

    def pod_changed(self, update: CacheUpdate) -> None:
        """Keep the report of a deleted pod."""
        if update.new is not None:
            return
        pod, key = update.object, run_key(update.object)
        task, text = labels.task_of(pod), reported_usage(pod)
        if task is not None and text and self._follows(key):
            with self._lock:
                kept = self._kept.setdefault(key, {})
                if len(kept) < MOST_KEPT:
                    kept[owner_uid(pod), task] = text[:MOST_CHARS]

    def forget(self, key: Key) -> None:
        """Forget the reports of a run's deleted pods."""
        with self._lock:
            self._kept.pop(key, None)

    def samples(self, key: Key, uid: str) -> dict[str, list[Attempt]]:
        """Return the samples that the tasks of a run reported, by task. Only the newest pod of a
        task counts.
        """
        with self._lock:
            kept = self._kept.get(key, {})
            texts = {task: text for (of, task), text in kept.items() if of == uid}
        own = [pod for pod in self._pods.of(key) if owner_uid(pod) == uid]
        for task, pod in newest_pods(own).items():
            if text := reported_usage(pod):
                texts[task] = text[:MOST_CHARS]
        parsed = {task: parse(text.encode()) for task, text in texts.items()}
        return {
            task: [replace(each, cpu_limit=None, memory_limit=None) for each in attempts]
            for task, attempts in parsed.items()
            if attempts
        }
