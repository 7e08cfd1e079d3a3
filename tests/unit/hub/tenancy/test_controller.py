"""The Kubernetes objects of each tenant, which tenancy creates and repairs."""

from __future__ import annotations

import copy

import pytest
from support.kube_server import Refusal
from support.polling import wait_until
from support.tenancy_world import ALICE, CLASS, HOME, World, world

from tfcluster_magic.hub.tenancy import caches
from tfcluster_magic.hub.tenancy.controller import PROVISIONED, TROUBLE
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.spec.record_size import RECORD_BYTES

__all__ = ["world"]  # a fixture used by the tests below


def test_a_new_namespace_is_furnished_and_an_unchanged_one_costs_nothing(world: World) -> None:
    """A tenant gets all its objects; afterwards, even a restarted controller writes nothing."""
    world.begin()
    assert world.user("alice") == ALICE
    world.furnished(ALICE)
    assert {
        kind: len([p for p in world.server.objects if f"/{ALICE}/{kind}/" in p])
        for kind in ("serviceaccounts", "rolebindings", "resourcequotas", "networkpolicies")
    } == {"serviceaccounts": 2, "rolebindings": 3, "resourcequotas": 4, "networkpolicies": 5}
    assert world.server.names("persistentvolumeclaims") == ["data", "log", "workspace"]
    world.end()
    before = len(world.server.writes())
    tenancy = world.begin()
    wait_until(lambda: tenancy.turns.taken and not len(tenancy.turns.work))
    world.end()
    assert world.server.writes()[before:] == []


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("rolebindings", "tfcluster-user"),
        ("networkpolicies", "default-deny"),
        ("resourcequotas", "others"),
        ("persistentvolumeclaims", "log"),
        ("serviceaccounts", "notebook"),
    ],
)
def test_what_somebody_deletes_comes_back(world: World, resource: str, name: str) -> None:
    """An object of a tenant that somebody deletes is created again."""
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    world.server.remove(path(resource, ALICE, name))
    wait_until(lambda: world.get(resource, ALICE, name))


def test_what_somebody_alters_is_put_right(world: World) -> None:
    """If somebody changes a tenant's NetworkPolicies, role bindings or namespace labels, they are
    restored.
    """
    world.begin()
    world.user("alice")
    world.furnished(ALICE)
    where = path("networkpolicies", ALICE, "default-deny")
    was = copy.deepcopy(world.server.objects[where])
    world.server.put(where, {**was, "spec": {**was["spec"], "egress": [{}]}})
    wait_until(lambda: world.server.objects[where]["spec"] == was["spec"])
    binding = path("rolebindings", ALICE, "tfcluster-user")
    bound = copy.deepcopy(world.server.objects[binding])
    world.server.put(binding, {**bound, "roleRef": {**bound["roleRef"], "name": "admin"}})
    wait_until(
        lambda: (
            (world.server.objects.get(binding) or {}).get("roleRef", {}).get("name")
            == "tfcluster-user"
        )
    )
    namespace = path("namespaces", "", ALICE)
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    world.server.answer("PATCH", namespace, labels)
    key = "pod-security.kubernetes.io/enforce"
    wait_until(lambda: world.server.objects[namespace]["metadata"]["labels"][key] == "restricted")


def test_a_changed_policy_is_live_and_a_mistake_changes_nothing(world: World) -> None:
    """A changed quota is applied without a restart; a mistake is reported with its line, and the
    old policy stays.
    """
    world.begin()
    world.user("alice")
    first = world.furnished(ALICE)
    world.say("default:\n  storage: {class: fast}\n  quota: {cpu: 4, gpu: 1}\n")
    wait_until(lambda: world.get("resourcequotas", ALICE, "tasks"))
    wait_until(lambda: world.marks(ALICE)[PROVISIONED] != first)
    hard = {"requests.cpu": "4", "requests.nvidia.com/gpu": "1"}
    assert world.get("resourcequotas", ALICE, "tasks")["spec"]["hard"] == hard
    good = world.accepted["policy.yaml"]
    world.say("default:\n  quota: {cpu: none}\n")
    wait_until(lambda: world.accepted["error"].startswith("line 2: default.quota.cpu"))
    assert world.accepted["policy.yaml"] == good
    world.begin()
    wait_until(lambda: world.tenancy is not None and world.tenancy.turns.taken > 0)
    assert world.get("resourcequotas", ALICE, "tasks")["spec"]["hard"] == hard
    world.say(good.replace(", gpu: 1", ""))
    wait_until(lambda: world.accepted["error"] == "")
    wait_until(
        lambda: (
            world.get("resourcequotas", ALICE, "tasks")["spec"]["hard"].keys() == {"requests.cpu"}
        )
    )


def test_a_claim_grows_and_never_shrinks_or_goes(world: World) -> None:
    """A claim grows with the policy, but never shrinks and is never deleted."""
    shared = "sharedData: [{name: mnist, path: /mnist, class: fast}]"
    world.say(f"default: {{storage: {{class: fast, log: 5Gi}}, {shared}}}")
    world.begin()
    world.user("alice")
    first = world.furnished(ALICE)

    def marks() -> dict[str, str]:
        found = world.get("persistentvolumeclaims", ALICE, "mnist")["metadata"]
        return dict(found.get("annotations") or {})

    assert marks() == {"tfcluster.dev/mounted-at": "/mnist"}

    def size() -> str:
        found = world.get("persistentvolumeclaims", ALICE, "log")
        return str(found["spec"]["resources"]["requests"]["storage"])

    world.say("default: {storage: {class: fast, log: 8Gi}}")
    wait_until(lambda: size() == "8Gi")
    second = world.furnished(ALICE)
    world.say("default: {storage: {class: fast, log: 1Gi}}")
    wait_until(lambda: world.marks(ALICE)[PROVISIONED] not in (first, second))
    assert size() == "8Gi"
    # the claim `mnist` stays, but new tasks do not mount it
    wait_until(lambda: not any(marks().values()))


def test_a_namespace_that_is_not_of_this_hub_is_never_touched(world: World) -> None:
    """A namespace without the hub's labels is never changed. If a namespace of the hub names a user
    whose own namespace is another one, it is not set up, and a message on it says why.
    """
    world.begin()
    world.server.put(path("namespaces", "", "tfcluster-u-bob"), {"metadata": {}})
    labels = {"tfcluster.dev/tenant": "true", "tfcluster.dev/hub": "other-hub"}
    other = {"metadata": {"labels": labels, "annotations": {"tfcluster.dev/user": "dave"}}}
    world.server.put(path("namespaces", "", "tfcluster-u-dave"), other)
    labels = {**labels, "tfcluster.dev/hub": HOME}
    wrong = {"metadata": {"labels": labels, "annotations": {"tfcluster.dev/user": "mallory"}}}
    world.server.put(path("namespaces", "", "tfcluster-u-eve"), wrong)
    assert world.trouble("tfcluster-u-eve") == (
        "the namespace names mallory as its user, but the namespace of mallory is "
        "tfcluster-u-mallory"
    )
    world.user("alice")
    world.furnished(ALICE)
    assert [world.count(f"tfcluster-u-{name}") for name in ("bob", "dave", "eve")] == [0, 0, 0]
    assert world.marks("tfcluster-u-bob") == {}


def test_a_missing_storage_class_is_a_sentence_until_it_is_there(world: World) -> None:
    """The message about a missing storage class is on the namespace until the class exists."""
    world.server.binds = False
    world.server.remove(CLASS)
    world.begin()
    world.user("alice")
    assert "waits for the StorageClass fast, which does not exist" in world.trouble(ALICE)
    world.server.binds = True
    for claim in ("data", "log", "workspace"):
        where = path("persistentvolumeclaims", ALICE, claim)
        world.server.put(where, {**world.server.objects[where], "status": {"phase": "Bound"}})
    wait_until(lambda: TROUBLE not in world.marks(ALICE))
    world.furnished(ALICE)


def test_a_claim_that_waits_in_vain_is_made_again_as_the_policy_is_mended(world: World) -> None:
    """Claims that wait for a missing storage class are replaced by claims of the policy's new
    class; bound claims stay.
    """
    world.server.binds = False
    world.say("default: {storage: {class: none-such}}")
    world.begin()
    world.user("alice")
    assert "waits for the StorageClass none-such" in world.trouble(ALICE)

    def classes() -> set[str]:
        every = ("data", "log", "workspace")
        found = [world.get("persistentvolumeclaims", ALICE, name) for name in every]
        return {str(each["spec"]["storageClassName"]) if each else "none" for each in found}

    assert classes() == {"none-such"}
    world.server.binds = True
    world.say("default: {storage: {class: fast}}")
    wait_until(lambda: classes() == {"fast"})
    wait_until(lambda: TROUBLE not in world.marks(ALICE))
    before = world.furnished(ALICE)
    world.say("default: {storage: {class: other}}")
    wait_until(lambda: world.marks(ALICE)[PROVISIONED] != before)
    assert classes() == {"fast"}


def test_a_refusal_is_told_and_keeps_nothing_else_from_being_made(world: World) -> None:
    """If an object is refused, one sentence reports this, and all other objects are created."""
    full = Refusal(403, "Forbidden", "exceeded quota: storage")
    world.server.refuses = lambda method, where: (
        full if method == "POST" and where.endswith("/persistentvolumeclaims") else None
    )
    world.begin()
    world.user("alice")
    assert world.trouble(ALICE) == (
        "PersistentVolumeClaim workspace cannot be updated: exceeded quota: storage"
    )
    assert PROVISIONED not in world.marks(ALICE)
    assert world.get("networkpolicies", ALICE, "default-deny")


def test_an_api_server_that_is_away_is_asked_again(world: World) -> None:
    """A failed reconciliation is repeated until it succeeds."""
    away = Refusal(503, "ServiceUnavailable")
    failures = iter([away] * 5)
    world.server.refuses = lambda method, _where: next(failures, None) if method == "POST" else None
    world.begin()
    world.user("alice")
    world.furnished(ALICE)


def test_pull_secrets_are_copied_and_follow_their_source(world: World) -> None:
    """The policy's pull secrets are copied to the tenant for its tasks, and follow changes of their
    source.
    """
    source = path("secrets", HOME, "registry")
    kind = {"type": "kubernetes.io/dockerconfigjson"}
    world.server.put(source, {**kind, "data": {".dockerconfigjson": "b25l"}})
    world.say("default: {storage: {class: fast}, imagePullSecrets: [registry]}")
    tenancy = world.begin()
    world.user("alice")
    world.furnished(ALICE)
    copied = world.get("secrets", ALICE, "registry")
    assert copied["metadata"]["labels"]["tfcluster.dev/for-tasks"] == "true"
    for account in ("notebook", "default"):
        found = world.get("serviceaccounts", ALICE, account)
        assert found["imagePullSecrets"] == [{"name": "registry"}]
    world.server.put(source, {**kind, "data": {".dockerconfigjson": "dHdv"}})
    tenancy._pulling._sources.clear()
    wait_until(
        lambda: world.get("secrets", ALICE, "registry")["data"][".dockerconfigjson"] == "dHdv"
    )
    world.say("default: {storage: {class: fast}}")
    wait_until(lambda: world.get("secrets", ALICE, "registry") is None)
    assert not any(w for w in world.server.calls if w == ("GET", path("secrets", ALICE)))


def test_a_changed_policy_reaches_five_hundred_tenants_in_ten_seconds(world: World) -> None:
    """A changed quota reaches 500 namespaces within ten seconds."""
    world.say("default: {storage: {class: fast}, quota: {cpu: 4}}")
    every = [world.user(f"user-{n}") for n in range(500)]
    for each in every:
        world.furnish(each)
    world.begin()
    wait_until(lambda: all(PROVISIONED in world.marks(each) for each in every))
    first = {each: world.marks(each)[PROVISIONED] for each in every}
    world.say("default: {storage: {class: fast}, quota: {cpu: 5}}")
    wait_until(lambda: all(world.marks(each)[PROVISIONED] != first[each] for each in every))
    quotas = (world.get("resourcequotas", each, "tasks") for each in every)
    assert {quota["spec"]["hard"]["requests.cpu"] for quota in quotas} == {"5"}


def test_records_are_held_against_the_budget_for_etcd(world: World) -> None:
    """If the TFClusters of all users are unlimited, or may exceed the policy's etcd budget, a
    warning says so; the policy still applies.
    """
    tenancy = world.begin()
    for user in ("alice", "bob"):
        world.user(user)
    world.furnished(ALICE)
    wait_until(lambda: tenancy.records.users == 2)
    assert tenancy.records.most == 2 * 40 * RECORD_BYTES
    wait_until(lambda: world.accepted.get("warning") == "")
    world.say("etcdBudget: 10Mi\ndefault: {storage: {class: fast}}")
    wait_until(lambda: "TFClusters of 2 users may take 12Mi" in world.accepted["warning"])
    assert world.accepted["error"] == ""
    world.say("etcdBudget: 10Mi\ndefault: {storage: {class: fast}, quota: {records: 20}}")
    wait_until(lambda: world.accepted["warning"] == "")
    kinds = ("tfclusters", "tfclusterschedules")
    hard = {f"count/{kind}.tfcluster.dev": "20" for kind in kinds}
    wait_until(lambda: world.get("resourcequotas", ALICE, "records")["spec"]["hard"] == hard)
    world.say("default: {storage: {class: fast}, quota: {records: null}}")
    wait_until(lambda: "2 of 2 users may have any number" in world.accepted["warning"])
    wait_until(lambda: not world.get("resourcequotas", ALICE, "records"))


def test_a_quota_that_does_not_count_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota of TFClusters that was created before the CRD refuses every TFCluster for minutes, so
    the quota is created again. The namespace is ready once the quota works.
    """
    monkeypatch.setattr(caches, "COUNT_SECONDS", 0.0)
    world.server.counts = False
    world.begin()
    world.user("alice")
    wait_until(lambda: world.get("resourcequotas", ALICE, "records"))
    first = world.get("resourcequotas", ALICE, "records")["metadata"]["uid"]
    assert PROVISIONED not in world.marks(ALICE)
    world.server.counts = True
    world.furnished(ALICE)
    assert world.get("resourcequotas", ALICE, "records")["metadata"]["uid"] != first
