"""Admission of runs, based on caches of a server that stores objects."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import to_builtins
from support.admission_cluster import NODES, RUNS, Place, there
from support.kube_server import Refusal
from support.polling import wait_until

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.launch_checks.capacity_check import node_kinds
from tfcluster_magic.operator.scheduling.admission import (
    Admitted,
    Held,
    Refused,
    Verdict,
    Waiting,
)
from tfcluster_magic.spec import AwaitedRun, Dependency, Message, Pods, SecretUse

__all__ = ["there"]  # a fixture of another module


def test_two_launches_never_both_take_the_last_room(there: Place) -> None:
    """If two users launch at the same time and the nodes can take only one of the runs, only one is
    admitted. If the operator decides again, the decisions are the same.
    """
    for user in ("alice", "bob"):
        there.run(user, "digits-1", 2, 3)
    there.begin()
    with ThreadPoolExecutor(8) as pool:
        asked = [user for _i in range(8) for user in ("alice", "bob")]
        told = list(zip(asked, pool.map(lambda u: there.decide(u, "digits-1"), asked), strict=True))
    admitted = {user for user, verdict in told if isinstance(verdict, Admitted)}
    assert len(admitted) == 1
    (waits,) = {str(v.sentence) for _u, v in told if isinstance(v, Waiting)}
    assert waits == "4 CPU more on the nodes"
    assert len({(user, type(verdict)) for user, verdict in told}) == 2


def test_first_in_first_out_with_places(there: Place) -> None:
    """Within a namespace, no run overtakes an earlier run, even if it would fit. The message of
    each run has its place in the queue; that of the first run also has the resources for which it
    waits and the runs that use them.
    """
    there.tenant("alice", quota="4")
    there.run("alice", "old-1", 1, 3)
    there.begin()
    assert there.decide("alice", "old-1") == Admitted()
    for name, cpu in (("large-1", 2.0), ("small-1", 0.5)):
        there.run("alice", name, 1, cpu)
        there.seen()
    assert there.decide("alice", "small-1") == Waiting(Message("TurnAfter", {"name": "large-1"}), 2)
    first = "1 CPU more in quota tasks (requests.cpu), used by old-1 (3 CPU, 1Gi)"
    waits = there.decide("alice", "large-1")
    assert isinstance(waits, Waiting)
    assert (str(waits.sentence), waits.place) == (first, 1)
    there.say("alice", "old-1", phase="Succeeded", releasedAt=1.0)
    assert there.decide("alice", "large-1") == Admitted()
    assert there.decide("alice", "small-1") == Admitted()


def test_room_is_reserved_until_tasks_end(there: Place) -> None:
    """An admitted run reserves resources only once: until its pods are on nodes, the run's
    requests; then the requests of the pods; after their end, nothing. While a pod is replaced, its
    resources stay reserved.
    """
    there.run("alice", "a-1", 2, 3)
    there.begin()
    assert there.decide("alice", "a-1") == Admitted()
    there.say("alice", "a-1", phase="Starting")

    def free() -> float:
        nodes = there.look().nodes
        return sum(node.free["cpu"] for node in nodes or ())

    assert free() == 2
    there.pod("alice", "a-1", 0, "node-1", "3")
    there.pod("alice", "a-1", 1, "", "3")
    there.seen()
    assert free() == 2
    there.pod("alice", "a-1", 1, "node-2", "3", phase="Failed")
    there.seen()
    assert free() == 2
    done = {"worker": {"desired": 2, "succeeded": 1, "running": 1}}
    there.pod("alice", "a-1", 1, "node-2", "3", phase="Succeeded")
    there.say("alice", "a-1", phase="Running", counts=done)
    assert free() == 5


def test_a_record_in_deletion_keeps_the_room_of_its_tasks(there: Place) -> None:
    """A run that is being deleted keeps its resources until it has ended; no other run gets them
    before.
    """
    there.run("alice", "a-1", 2, 3)
    there.run("bob", "b-1", 2, 3)
    there.begin()
    assert there.decide("alice", "a-1") == Admitted()
    there.say("alice", "a-1", phase="Starting")
    where = f"{RUNS.format('alice')}/a-1"
    api = there.server.api()
    api.merge(where, {"metadata": {"finalizers": ["example.com/hold"]}})
    api.delete(where)
    there.seen()
    assert isinstance(there.decide("bob", "b-1"), Waiting)
    there.say("alice", "a-1", phase="Stopped", releasedAt=1.0)
    assert there.decide("bob", "b-1") == Admitted()


def test_what_is_admitted_is_taken_from_what_was_seen(there: Place) -> None:
    """After an admission, the operator does not count the free resources of all nodes again; it
    subtracts the requests of the admitted run from the last count.
    """
    there.run("alice", "a-1", 2, 3)
    there.run("bob", "b-1", 1, 3)
    there.begin()
    seen = there.snapshotter.current().at
    assert there.decide("alice", "a-1") == Admitted()
    left = there.snapshotter.current()
    assert sum(node.free["cpu"] for node in left.nodes or ()) == 2
    assert [each.key for each in left.reservations["alice"]] == [("alice", "a-1")]
    assert isinstance(there.decide("bob", "b-1"), Waiting)
    assert left.at - seen < 60


def test_what_can_never_run_is_refused_at_once(there: Place) -> None:
    """Four workers of 3 CPU on two nodes of 4 CPU are refused at once, even behind other runs in
    the queue. A run that names secrets is also refused if the operator cannot read which secrets
    are allowed.
    """
    for name in ("full-1", "first-1"):
        there.run("alice", name, 2, 4)
    there.run("alice", "large-1", 4, 3)
    named = Pods(secrets=(SecretUse(name="s3"),))
    there.run("bob", "named-1", 1, 1, pods=named)
    there.server.refuses = lambda _method, path: _forbidden(path)
    there.begin()
    assert there.decide("alice", "full-1") == Admitted()
    refused = there.decide("alice", "large-1")
    assert isinstance(refused, Refused)
    assert "2 workers of 3 CPU, 1Gi fit, but 4 were requested" in str(refused.problems[0])
    blind = there.decide("bob", "named-1")
    assert isinstance(blind, Refused)
    assert "may not see which secrets" in str(blind.problems[0])


def _forbidden(path: str) -> Any:
    from support.kube_server import Refusal

    return Refusal(403, "Forbidden") if "/secrets" in path else None


def test_a_namespace_that_is_closed_to_the_operator(there: Place) -> None:
    """In a namespace that the operator may not use, a launch waits, and its message has the command
    for the missing label or binding. Once the label or binding exists, the launch starts.
    """
    there.run("team", "a-1", 1, 1)
    there.server.may = lambda asked: asked["namespace"] != "team"
    there.begin()

    def says() -> str:
        waits = there.decide("team", "a-1")
        assert isinstance(waits, Waiting)
        return str(waits.sentence)

    label = "kubectl label namespace team tfcluster.dev/tenant=true"
    bind = "kubectl -n team create rolebinding tfcluster-operator-tenant"
    assert f"`{label} && {bind}" in says()
    there.tenant("team")
    wait_until(lambda: f"`{bind}" in says())
    there.server.may = lambda _asked: True
    wait_until(lambda: there.decide("team", "a-1") == Admitted())


def test_what_was_published_asks_for_no_right(there: Place) -> None:
    """If the operator could publish options in a namespace, it has the rights that it needs there,
    so admission does not ask the API for them. After a write that was forbidden, admission asks
    again.
    """
    there.run("alice", "a-1", 1, 1)
    there.begin()
    there.publisher.publish()
    assert there.decide("alice", "a-1") == Admitted()
    review = ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert review not in there.server.calls
    there.run("bob", "b-1", 1, 1)
    there.seen()
    forbidden = Refusal(403, "Forbidden")
    there.server.refuses = lambda method, _path: forbidden if method == "PATCH" else None
    there.publisher._written.clear()
    there.publisher.publish()
    there.server.may = lambda _asked: False
    assert isinstance(there.decide("bob", "b-1"), Waiting)
    assert review in there.server.calls


def test_network_policies(there: Place) -> None:
    """Launches wait until the operator has checked whether NetworkPolicies are enforced. They are
    refused if NetworkPolicies are not enforced, unless the administrator accepts this.
    """
    there.run("alice", "a-1", 1, 1)
    there.begin()
    there.enforced = None
    waits = there.decide("alice", "a-1")
    assert isinstance(waits, Waiting)
    assert "NetworkPolicies" in str(waits.sentence)
    there.enforced = False
    assert isinstance(there.decide("alice", "a-1"), Refused)
    there.snapshotter.policy = Policy(require_network_policy=False)
    there.look()
    assert there.decide("alice", "a-1") == Admitted()


def test_a_node_that_changes_is_read_again(there: Place) -> None:
    """The total resources and the kind of a node are read once, and again only when the node
    changes.
    """
    there.begin()
    assert [node.total["cpu"] for node in there.look().nodes or ()] == [4, 4]
    there.node("node-1", cpu=6)
    there.seen()
    look = there.look()
    assert sorted(node.total["cpu"] for node in look.nodes or ()) == [4, 6]
    assert look.kinds == node_kinds(look.nodes or ())
    there.server.remove(f"{NODES}/node-1")
    wait_until(lambda: [node.total["cpu"] for node in there.look().nodes or ()] == [4])


def test_a_run_that_waits_for_another_is_in_no_queue(there: Place) -> None:
    """A run that waits for another run takes no resources and delays no other run; its place in the
    queue counts from the end of this wait.
    """
    there.tenant("alice", quota="4")
    there.run("alice", "held-1", 1, 3, after=(Dependency(run="prepare-1"),))
    there.run("alice", "first-1", 1, 3)
    there.begin()
    assert there.decide("alice", "first-1") == Admitted()
    there.run("alice", "second-1", 1, 3)
    there.seen()
    waits = there.decide("alice", "second-1")
    assert isinstance(waits, Waiting) and waits.place == 1
    done = AwaitedRun(run="prepare-1", uid="u", done_at=time.time() + 60)
    there.say("alice", "held-1", phase="Queued", reason="Queued", awaited=(to_builtins(done),))
    assert there.decide("alice", "held-1") == Waiting(Message("TurnAfter", {"name": "second-1"}), 2)


def test_an_impossible_run_is_refused_before_it_waits(there: Place) -> None:
    """A run that waits for another run, and can never fit, is refused at once, before the awaited
    run has ended.
    """
    there.run("alice", "huge-1", 1, 900, after=(Dependency(run="prepare-1"),))
    there.run("alice", "held-1", 1, 1, after=(Dependency(run="prepare-1"),))
    there.begin()

    def held(name: str) -> Verdict:
        found = there.server.objects[f"{RUNS.format('alice')}/{name}"]
        return there.admission.decide_held(custom_resource.read(found))

    assert isinstance(held("huge-1"), Refused)
    assert held("held-1") == Held()
