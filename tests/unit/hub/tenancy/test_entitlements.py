"""The grants that a user gets from groups and overrides; for a new user, the groups are read
again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.polling import wait_until
from support.tenancy_world import HOME, World

from tfcluster_magic.hub.tenancy import entitlement_sources
from tfcluster_magic.hub.tenancy.controller import Tenancy
from tfcluster_magic.hub.tenancy.overrides import Override
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.api.labels import (
    BUDGET,
    PRIORITY_CLASS,
    QUEUE,
    REQUIRE_DIGEST,
    USER_GROUP,
)
from tfcluster_magic.kube.hour_ledgers import budget_of
from tfcluster_magic.quota.budgets import Budget

ALICE = "tfcluster-u-alice"
POLICY = """
default: {storage: {class: fast}, quota: {gpu: 1}}
groups: {vision: {storage: {class: large}, quota: {gpu: 2}}}
"""


@pytest.fixture
def world() -> Iterator[World]:
    """A hub with a group that has its own storage class; the test starts tenancy."""
    made = World()
    made.server.put(path("storageclasses", "", "large"), {"volumeBindingMode": "Immediate"})
    made.say(POLICY)
    yield made
    made.close()


def begun(world: World) -> Tenancy:
    """Start tenancy, and wait until it has read the groups."""
    tenancy = world.begin()
    wait_until(lambda: world.accepted.get("policy.yaml") == POLICY)
    wait_until(lambda: tenancy.membership.known)
    return tenancy


def first_notebook(world: World, user: str) -> tuple[str, str]:
    """Create a new user's namespace; return the storage class of its workspace and its quota of
    GPUs.
    """
    namespace = world.user(user)
    world.furnished(namespace)
    claim = world.get("persistentvolumeclaims", namespace, "workspace")
    quota = world.get("resourcequotas", namespace, "tasks")
    return claim["spec"]["storageClassName"], quota["spec"]["hard"]["requests.nvidia.com/gpu"]


def test_the_group_of_a_user_decides_and_changes_live(world: World) -> None:
    """Groups are read from the hub in pages; a user who joins a group gets its quota."""
    world.say(
        "default: {storage: {class: fast}}\n"
        "groups: {vision: {priority: 2, quota: {gpu: 2}}, audio: {quota: {gpu: 1}}}\n"
    )
    world.hub.groups = {"audio": ["alice"], "b": [], "c": [], "vision": ["bob"]}
    tenancy = world.begin()
    world.user("alice")
    bob = world.user("bob")
    world.furnished(ALICE)
    world.furnished(bob)

    def gpus(namespace: str) -> str:
        return str(world.get("resourcequotas", namespace, "tasks")["spec"]["hard"])

    wait_until(lambda: "'1'" in gpus(ALICE) and "'2'" in gpus(bob))
    world.hub.groups["vision"].append("alice")
    wait_until(lambda: world.groups_told() and "'2'" in gpus(ALICE))
    world.hub.away = True
    wait_until(lambda: world.groups_told() and tenancy.membership.problem)
    world.server.remove(path("resourcequotas", ALICE, "tasks"))
    wait_until(lambda: world.get("resourcequotas", ALICE, "tasks"))
    assert "'2'" in gpus(ALICE)
    world.begin()  # a restarted controller, which cannot read the groups from the hub
    carol = world.user("carol")
    world.furnished(carol)
    assert world.get("resourcequotas", carol, "tasks") is None
    assert "'2'" in gpus(ALICE)


def test_a_group_joined_just_before_the_first_notebook_decides_it(world: World) -> None:
    """Students who sign in right after they joined a group get the storage class and quota of this
    group. Otherwise, their claims would keep a wrong storage class forever.
    """
    begun(world)
    world.hub.groups["vision"] = []
    for user in ("alice", "bob"):
        world.hub.groups["vision"].append(user)
        assert first_notebook(world, user) == ("large", "2")


def test_a_hub_that_was_away_is_asked_again_before_somebody_new_is_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed reading, as during a restart of the hub, a new user still gets the group's
    storage class.
    """
    monkeypatch.setattr(entitlement_sources, "GROUPS_SECONDS", 2.0)
    tenancy = begun(world)
    world.hub.away = True
    wait_until(lambda: world.groups_told() and tenancy.membership.problem)
    world.hub.away, world.hub.groups["vision"] = False, ["alice"]
    assert first_notebook(world, "alice") == ("large", "2")


def test_a_hub_that_does_not_answer_keeps_nobody_waiting(world: World) -> None:
    """If groups cannot be read, a new user gets the defaults."""
    world.hub.away = True
    world.begin()
    assert first_notebook(world, "alice") == ("fast", "1")


def test_a_namespace_tells_the_queue_and_priority_of_its_group(world: World) -> None:
    """Tasks get the group's queue and priority class, which stay while groups cannot be read. The
    quota counts tasks of every group's priority class.
    """
    world.say(
        "default: {storage: {class: fast}}\n"
        "groups:\n"
        "  vision: {queue: gpus, priorityClass: urgent, requireDigest: true}\n"
        "  audio: {priorityClass: slow}\n"
    )
    world.hub.groups = {"vision": ["alice"]}
    tenancy = world.begin()
    world.user("alice")
    world.furnished(ALICE)

    def told(namespace: str) -> tuple[str | None, str | None]:
        marks = world.marks(namespace)
        return marks.get(QUEUE), marks.get(PRIORITY_CLASS)

    wait_until(lambda: told(ALICE) == ("gpus", "urgent"))
    assert world.marks(ALICE)[REQUIRE_DIGEST] == "true"
    bob = world.user("bob")
    world.furnished(bob)
    assert told(bob) == (None, None)
    scope = world.get("resourcequotas", bob, "others")["spec"]["scopeSelector"]
    classes = ["tfcluster-task", "slow", "urgent", "tfcluster-notebook"]
    assert scope["matchExpressions"][0]["values"] == classes
    world.hub.away = True
    wait_until(lambda: world.groups_told() and tenancy.membership.problem)
    tenancy = world.begin()
    wait_until(lambda: tenancy.turns.taken > 1 and not len(tenancy.turns.work))
    assert told(ALICE) == ("gpus", "urgent")
    world.hub.away, world.hub.groups = False, {"audio": ["alice"]}
    wait_until(lambda: world.groups_told() and told(ALICE) == (None, "slow"))


def test_an_override_counts_until_its_time(world: World) -> None:
    """An override that is set in the console takes effect at once, takes precedence over the group,
    and ends at its time.
    """
    world.hub.groups = {"vision": ["alice"]}
    begun(world)
    world.user("alice")
    world.furnished(ALICE)
    where = path("configmaps", HOME, entitlement_sources.OVERRIDES_MAP)

    def gpus() -> object:
        quota = world.get("resourcequotas", ALICE, "tasks")
        return quota["spec"]["hard"]["requests.nvidia.com/gpu"]

    def say(until_then: float) -> None:
        more = Override(until=until_then, reason="a thesis", quota={"gpu": 8})
        entitlement_sources.change_override(world.server.api(), HOME, "alice", more, time.time())

    say(time.time() + 3600)
    wait_until(lambda: gpus() == "8")
    assert (
        entitlement_sources.stored_overrides(world.server.api(), HOME)["alice"].reason == "a thesis"
    )
    world.server.put(where, {"data": {entitlement_sources.OVERRIDES_KEY: "cut off"}})
    world.begin()
    wait_until(lambda: gpus() == "2")
    world.server.put(where, {"data": {}})
    say(time.time() + 3)
    wait_until(lambda: gpus() == "8")
    wait_until(lambda: gpus() == "2")


def test_a_namespace_tells_the_group_and_budget_of_its_user(world: World) -> None:
    """The namespace has the user's group and budget, which the operator applies; a budget that was
    removed is deleted from the namespace.
    """
    default = "default: {storage: {class: fast}}\n"
    world.say(f"{default}groups: {{ml101: {{budget: {{cpuHours: 20, gpuHours: 0, days: 30}}}}}}\n")
    world.hub.groups = {"ml101": ["alice"]}
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    wait_until(lambda: USER_GROUP in world.marks(ALICE))
    marks = world.marks(ALICE)
    assert marks[USER_GROUP] == "ml101"
    assert budget_of(marks) == Budget(cpu_hours=20, gpu_hours=0, days=30)
    world.say(f"{default}groups: {{ml101: {{}}}}\n")
    wait_until(lambda: BUDGET not in world.marks(ALICE))
