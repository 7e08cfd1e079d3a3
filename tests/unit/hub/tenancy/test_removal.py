"""Removed users and deleted namespaces: what ends, what stays, and in which order."""

from __future__ import annotations

from support.polling import wait_until
from support.tenancy_world import ALICE, World, world

from tfcluster_magic.hub.tenancy.controller import PROVISIONED, TROUBLE
from tfcluster_magic.kube.api.client import path

__all__ = ["world"]  # a fixture used by the tests below


def test_a_removed_user_loses_rights_and_runs_and_keeps_the_data(world: World) -> None:
    """A removal stops runs and suspends schedules with a reason; a returning user gets the rights
    back.
    """
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    run = path("tfclusters", ALICE, "digits-1")
    world.server.put(run, {"spec": {}, "status": {"phase": "Running"}})
    over = path("tfclusters", ALICE, "digits-2")
    world.server.put(over, {"spec": {}, "status": {"phase": "Succeeded"}})
    nightly = path("tfclusterschedules", ALICE, "nightly")
    world.server.put(nightly, {"spec": {"cron": "@daily"}})
    world.annotate(ALICE, removed="2026-01-01T00:00:00Z")
    wait_until(lambda: world.get("rolebindings", ALICE, "tfcluster-user") is None)
    wait_until(lambda: world.server.objects[run]["spec"].get("stop"))
    assert world.server.objects[run]["spec"]["stop"]["reason"] == (
        "user alice was removed from the hub"
    )
    assert world.server.objects[over]["spec"] == {}
    schedule = world.server.objects[nightly]["spec"]
    assert schedule["suspend"] and schedule["suspension"]["by"] == "tfcluster-tenancy"
    assert world.get("persistentvolumeclaims", ALICE, "workspace")
    wait_until(lambda: PROVISIONED not in world.marks(ALICE))
    world.annotate(ALICE, removed=None)
    world.furnished(ALICE)
    assert world.get("rolebindings", ALICE, "tfcluster-user")


def test_data_goes_only_when_it_was_asked_for_and_after_the_runs(world: World) -> None:
    """A removed user's namespace is deleted only on request, and last, after all tasks are gone."""
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    world.server.put(path("tfclusters", ALICE, "digits-1"), {"spec": {}})
    pod = path("pods", ALICE, "digits-1-worker-0")
    labels = {"app.kubernetes.io/managed-by": "tfcluster-operator"}
    world.server.put(pod, {"metadata": {"labels": labels}})
    world.annotate(ALICE, removed="2026-01-01T00:00:00Z", removed_data="true")
    wait_until(lambda: world.get("tfclusters", ALICE, "digits-1") is None)
    assert path("namespaces", "", ALICE) in world.server.objects
    world.server.remove(pod)
    wait_until(lambda: path("namespaces", "", ALICE) not in world.server.objects)


def test_runs_are_in_no_deleted_namespaces_way(world: World) -> None:
    """Runs in a namespace that is being deleted are deleted; otherwise, the namespace would stay
    Terminating.
    """
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    run = path("tfclusters", ALICE, "digits-1")
    world.server.put(run, {"spec": {}})
    found = world.server.objects[path("namespaces", "", ALICE)]
    head = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.server.put(path("namespaces", "", ALICE), {**found, "metadata": head})
    wait_until(lambda: run not in world.server.objects)


def test_a_finalizer_keeps_no_removed_user(world: World) -> None:
    """If a user is removed with all data, finalizers that the user set on clusters prevent neither
    the deletion of the clusters nor that of the namespace. The finalizers of the garbage collector
    are not removed.
    """
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    kept = {
        "digits-1": ["example.com/hold"],
        "digits-2": ["example.com/hold", "foregroundDeletion", "kubernetes.io/hold"],
    }
    for name, finalizers in kept.items():
        where = path("tfclusters", ALICE, name)
        world.server.put(where, {"metadata": {"finalizers": finalizers}, "spec": {}})
    world.annotate(ALICE, removed="2026-01-01T00:00:00Z", removed_data="true")
    wait_until(lambda: world.get("tfclusters", ALICE, "digits-1") is None)
    second = path("tfclusters", ALICE, "digits-2")
    wait_until(
        lambda: world.server.objects[second]["metadata"]["finalizers"] == ["foregroundDeletion"]
    )
    assert path("namespaces", "", ALICE) in world.server.objects
    world.server.remove(second)  # stands for the garbage collector
    wait_until(lambda: path("namespaces", "", ALICE) not in world.server.objects)


def test_a_finalizer_keeps_no_deleted_namespace(world: World) -> None:
    """A user's finalizer delays the deletion of a run. If an administrator deletes the namespace,
    the finalizer is removed, and the run is deleted.
    """
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    run = path("tfclusters", ALICE, "digits-1")
    world.server.put(run, {"metadata": {"finalizers": ["example.com/hold"]}, "spec": {}})
    world.server.api().delete(run)
    assert world.server.objects[run]["metadata"]["finalizers"]
    found = world.server.objects[path("namespaces", "", ALICE)]
    head = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    why = "Some content in the namespace has finalizers remaining: a/b in 1 resource instances"
    told = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": why}
    going = {**found, "metadata": head, "status": {"conditions": [told]}}
    world.server.put(path("namespaces", "", ALICE), going)
    wait_until(lambda: run not in world.server.objects)
    wait_until(lambda: why in world.marks(ALICE).get(TROUBLE, ""))
