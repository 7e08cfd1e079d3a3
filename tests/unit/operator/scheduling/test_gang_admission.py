"""Admission with Volcano, which binds all tasks of a run together, and without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.admission_cluster import RUNS, Place, two_nodes
from support.polling import wait_until

from tfcluster_magic.kube.api.labels import (
    PRIORITY_CLASS,
    QUEUE,
    REQUIRE_DIGEST,
    TENANT,
    UID,
    run_labels,
)
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.operator.scheduling.admission import (
    Admitted,
    LeftToGangScheduler,
    Refused,
    Waiting,
)
from tfcluster_magic.spec import Message, TaskType


@pytest.fixture
def there() -> Iterator[Place]:
    """A cluster with two nodes, two users, and PodGroups."""
    made = two_nodes()
    made.server.lacks.clear()
    yield made
    made.end()


def jobs(there: Place, namespace: str, name: str) -> None:
    """Create the Job of a submitted run."""
    uid = there.server.objects[f"{RUNS.format(namespace)}/{name}"]["metadata"]["uid"]
    head = {"labels": {**run_labels(name, uid, TaskType.WORKER), UID: uid}}
    where = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}-worker"
    there.server.put(where, {"metadata": head, "spec": {"completions": 2}, "status": {}})


def test_two_that_each_need_most_of_the_room_are_both_submitted(there: Place) -> None:
    """The scheduler decides which of two runs gets the nodes; waiting runs reserve nothing."""
    for user in ("alice", "bob"):
        there.run(user, "digits-1", 2, 3)
    there.begin()
    for user in ("alice", "bob"):
        assert there.decide(user, "digits-1") == LeftToGangScheduler()
        jobs(there, user, "digits-1")
        there.say(user, "digits-1", phase="Queued")
    nodes = there.look().nodes
    assert nodes is not None
    assert [node.free["cpu"] for node in nodes] == [4, 4]


def test_what_can_never_run_is_still_refused(there: Place) -> None:
    """A gang that is larger than all nodes together never reaches the scheduler."""
    there.run("alice", "digits-1", 3, 3)
    there.begin()
    assert isinstance(there.decide("alice", "digits-1"), Refused)


def test_quotas_and_turns_count_as_without(there: Place) -> None:
    """A run that was submitted to Volcano reserves its part of a quota until the quota counts its
    pods. An operator that starts later reserves this part, too.
    """
    there.tenant("alice", quota="4")
    there.run("alice", "digits-1", 2, 1.5)
    there.run("alice", "digits-2", 2, 1)
    there.begin()
    jobs(there, "alice", "digits-1")
    there.say("alice", "digits-1", phase="Queued")
    waits = there.decide("alice", "digits-2")
    assert isinstance(waits, Waiting)
    assert str(waits.sentence).startswith("1 CPU more in quota tasks")
    assert waits.place == 1


def test_a_policy_that_demands_volcano_where_there_is_none() -> None:
    """If the policy demands Volcano and the cluster has none, runs wait with this reason, and start
    once Volcano exists. A policy can also exclude Volcano.
    """
    made = Place(Policy(gang=True))
    try:
        made.node("node-1", 4)
        made.tenant("alice")
        made.run("alice", "digits-1", 1, 1)
        made.begin()
        waits = made.decide("alice", "digits-1")
        assert isinstance(waits, Waiting)
        assert waits.sentence == Message("VolcanoMissing")
        made.server.lacks.clear()
        wait_until(lambda: made.decide("alice", "digits-1") == LeftToGangScheduler())
        made.snapshotter.policy = Policy(gang=False)
        assert made.decide("alice", "digits-1") == Admitted()
    finally:
        made.end()


def test_a_namespace_names_its_queue_priority_class_and_digests(there: Place) -> None:
    """The annotations of a tenant's namespace take precedence over the policy: they set the queue,
    the priority class and the rule for image digests that are used and published in this namespace.
    """
    marks = {QUEUE: "gpus", PRIORITY_CLASS: "urgent", REQUIRE_DIGEST: "true"}
    head = {"labels": {TENANT: "true"}, "annotations": marks}
    there.server.put("/api/v1/namespaces/alice", {"metadata": head})
    there.snapshotter.policy = Policy(priority_class="tfcluster-task", queue="shared")
    there.begin()
    found = [there.snapshotter.published(each).policy for each in ("alice", "bob")]
    told = [(policy.queue, policy.priority_class, policy.gang) for policy in found]
    assert told == [("gpus", "urgent", True), ("shared", "tfcluster-task", True)]
    assert [policy.require_digest for policy in found] == [True, False]


def test_without_volcano_one_runs_whole_and_the_other_is_told_why() -> None:
    """Two clusters that each need most of the nodes do not deadlock, because the operator admits
    only one of them.
    """
    made = Place()
    try:
        for name in ("node-1", "node-2"):
            made.node(name, 4)
        for user in ("alice", "bob"):
            made.tenant(user)
            made.run(user, "digits-1", 2, 3)
        made.begin()
        assert made.decide("alice", "digits-1") == Admitted()
        waits = made.decide("bob", "digits-1")
        assert isinstance(waits, Waiting)
        assert str(waits.sentence) == "4 CPU more on the nodes"
    finally:
        made.end()
