"""Gang scheduling with Volcano: the PodGroups of runs, and Volcano's messages.

Volcano may be installed or removed at any time. A PodGroup that was deleted while pods wait for it
is created again. Finished tasks are subtracted from the minimum size of a PodGroup, so that a
restarted task can be bound without them. This module does not admit runs: the operator counts a run
as admitted when its pods show that Volcano has bound them to nodes.

Ref: https://volcano.sh/en/docs/podgroup/
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from ...kube.api import labels
from ...kube.api.client import Api, ApiError, Object, discard_object, path
from ...kube.api.informer import CacheUpdate, Informer, InformerGroup
from ...kube.objects import run_objects
from ...kube.objects.pod_template import VOLCANO
from ...kube.objects.policy import Policy
from ...kube.status.pod_problems import UNSCHEDULABLE, event_time
from ...lifecycle import Observation, WaitingReason
from ...spec import Cause, Message, TFCluster
from ..cluster_state import OWN_OBJECTS, Key, ObservedRun, is_forbidden, owner_uid, run_key
from ..pending_tasks import PodGroupEvents

OPEN = "Open"
"""The state of a queue that accepts PodGroups."""
MESSAGE_LENGTH = 300
"""Maximum characters of a message from Volcano. The rest is cut, because a message about 600 tasks
would be long.
"""
_QUEUE = re.compile(
    r"queue\S* [`\"]?(?P<name>[^`\"\s]+)[`\"]? (?:not found|status is `(?P<state>\w+)`)"
)

_COUNTS = re.compile("tasks? in gang")

log = logging.getLogger(__name__)


class PodGroups(InformerGroup):
    """The PodGroups of our runs.

    Args:
        api: the connection to the API server.
        namespace: the namespace to watch; empty for all.
        wake: called, after each change of a PodGroup, with the run to which the PodGroup belongs.
    """

    def __init__(self, api: Api, namespace: str, wake: Callable[[Key], None]) -> None:
        def changed(update: CacheUpdate) -> None:
            wake(run_key(update.object))

        self._api = api
        self.groups = Informer(
            api, path("podgroups", namespace), selector=OWN_OBJECTS, optional=True, changed=changed
        )
        self.all = (self.groups,)

    @property
    def known(self) -> bool:
        """Whether the operator knows if the cluster has Volcano."""
        return self.groups.synced.is_set() or is_forbidden(self.groups)

    @property
    def available(self) -> bool:
        """Whether the cluster has the resource PodGroup and the operator may read it."""
        problem = self.groups.problem
        lost = problem is not None and problem.status in (401, 403, 404)
        return self.groups.synced.is_set() and not lost

    def of(self, cluster: TFCluster) -> Object | None:
        """Return the PodGroup of a run; None if there is none."""
        head = cluster.metadata
        found = self.groups.get(head.owner, head.name)
        return found if found is not None and owner_uid(found) == head.uid else None

    def waits_for(
        self, run: ObservedRun, why: Sequence[WaitingReason], told: PodGroupEvents
    ) -> Message:
        """Return a message that says what the tasks of a run wait for, if Volcano binds them
        together.
        """
        others = [each.text for each in why if each.reason != UNSCHEDULABLE]
        if others:  # reasons that Volcano does not know, such as pods that the API refused
            return Message("TasksLack", {"why": others[0]})
        if not self.available:
            return Message("VolcanoGone")
        group = run.group or {}
        queue = str((group.get("spec") or {}).get("queue") or "default")
        if told.queue not in ("", OPEN):
            return _queue_closed(queue, told.queue)
        words = pod_group_message(group, told.events)
        if not words:
            return Message("VolcanoSilent", {"queue": queue})
        count = run.cluster.spec.replicas.total
        return Message("VolcanoSays", {"count": count, "queue": queue, "why": words})

    def repair(
        self,
        cluster: TFCluster,
        policy_of: Callable[[str], Policy],
        pods: Sequence[Object],
        seen: Observation,
    ) -> None:
        """Change the PodGroup so that Volcano can bind the pods that wait for it.

        Raises:
            ApiError: the API refuses.
        """
        if not self.available:
            return
        ours = [pod for pod in pods if pod["spec"].get("schedulerName") == VOLCANO]
        if all(pod["spec"].get("nodeName") for pod in ours):
            return
        head, group = cluster.metadata, self.of(cluster)
        if group is None:
            wanted = run_objects.pod_group(cluster, policy_of(head.owner), head.owner)
            try:
                self._api.create(path("podgroups", head.owner), wanted)
                log.info("%s/%s: its PodGroup was gone and is made again", head.owner, head.name)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            return
        there = {labels.task_of(pod) for pod in pods}
        done = [
            task.name
            for task in seen.tasks.values()
            if task.exit is not None and task.exit.cause is Cause.COMPLETED
        ]
        least = cluster.spec.replicas.total - len([name for name in done if name not in there])
        if group["spec"].get("minMember") != least:
            where = path("podgroups", head.owner, head.name)
            self._api.merge(where, {"spec": {"minMember": least}})

    def discard(self, key: Key, uid: str) -> None:
        """Delete the PodGroup of an ended run, because the PodGroup counts against the capacity of
        its queue.

        Raises:
            ApiError: the API refuses or does not answer.
        """
        found = self.groups.get(*key)
        if found is None or owner_uid(found) != uid or not self.available:
            return
        discard_object(self._api, path("podgroups", *key), found["metadata"]["uid"])


def pod_group_message(group: Object, events: Sequence[Object]) -> str:
    """Return Volcano's newest message that says why a PodGroup waits; empty if there is none yet.

    If the queue has not enough resources, the PodGroup's condition only has numbers of tasks, and
    the reason is in an event.
    """
    status = group.get("status") or {}
    told = [c for c in status.get("conditions") or [] if c.get("type") == UNSCHEDULABLE]
    words = [str(c.get("message", "")) for c in told[-1:] if c.get("status") == "True"]
    if status.get("phase") == "Pending":
        queued = [
            e
            for e in events
            if e.get("reason") == UNSCHEDULABLE and not _COUNTS.search(_event_message(e))
        ]
        words += [_event_message(max(queued, key=event_time))] if queued else []
    whole = "; ".join(" ".join(each.split()).rstrip(".") for each in reversed(words) if each)
    return whole if len(whole) <= MESSAGE_LENGTH else f"{whole[: MESSAGE_LENGTH - 1]}…"


def _event_message(event: Object) -> str:
    return str(event.get("message", ""))


def queue_refusal(words: str) -> Message | None:
    """Return a message that explains the refusal of a PodGroup; None if `words` is not a refusal by
    Volcano's queue.
    """
    found = _QUEUE.search(words)
    if found is None:
        return None
    if found["state"] is None:
        return Message("VolcanoQueueMissing", {"queue": found["name"]})
    return _queue_closed(found["name"], found["state"])


def _queue_closed(queue: str, state: str) -> Message:
    return Message("VolcanoQueueClosed", {"queue": queue, "state": state})
