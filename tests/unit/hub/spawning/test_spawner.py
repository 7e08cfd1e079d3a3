"""Decisions of the hub's spawner without a cluster: the owner of a namespace, and the options
offered.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubespawner import KubeSpawner

from tfcluster_magic.hub.spawning import namespace_creation, pod_settings
from tfcluster_magic.hub.spawning.namespace_creation import NotProvisioned
from tfcluster_magic.hub.spawning.spawner import TenantSpawner
from tfcluster_magic.hub.tenancy.policy import Grant, entitlement_for_groups, parse_policy

TENANT = namespace_creation.Tenant("tfcluster-u-ann", "Ann", "tfcluster-hub")
POLICY = parse_policy(
    """
default:
  sizes: [{name: small, cpu: 1, memory: 2Gi, cpuLimit: 4}]
  sharedData: [{name: images, path: /mnt/images, volume: images}]
groups:
  gpu: {sizes: [{name: small}, {name: gpu, title: One GPU, cpu: 4, memory: 16Gi, gpu: 1}]}
images: [{name: plain, image: example.com/plain:1}, {name: extra, image: example.com/extra:2}]
"""
)


class Answers:
    """A stand-in for the API server that `namespace_creation` uses: it returns each answer once,
    then repeats the last answer.
    """

    def __init__(self, *namespaces: Any) -> None:
        self.answers = list(namespaces)
        self.written: list[Any] = []

    async def namespace(self, _name: str) -> Any:
        """Return the next answer."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def make_namespace(self, *words: Any) -> None:
        """Record the namespace to create."""
        self.written.append(words)

    async def annotate(self, *words: Any) -> None:
        """Record the annotations to write."""
        self.written.append(words)


def found(labels: Any = None, annotations: Any = None, **head: Any) -> dict[str, Any]:
    """Return TENANT's namespace, with other labels, annotations or metadata if they are passed."""
    return {
        "metadata": {
            "labels": TENANT.labels if labels is None else labels,
            "annotations": {**TENANT.annotations, **(annotations or {})},
            **head,
        }
    }


READY = found(annotations={namespace_creation.PROVISIONED: "1"})


def ensure(*seen: Any, seconds: float = 5) -> tuple[Answers, list[str]]:
    """Wait until TENANT's namespace is ready; `seen` are the API server's successive answers about
    it. Return the stand-in for the API server, which has recorded the writes, and the messages to
    the user.
    """
    answers, told = Answers(*seen), []
    asyncio.run(namespace_creation.ensure_namespace(answers, TENANT, told.append, seconds))  # type: ignore[arg-type]
    return answers, told


def test_a_namespace_can_be_made_beforehand() -> None:
    """A namespace is created once, with labels and an owner, without waiting; a namespace of
    another user is refused.
    """
    answers = Answers(None, found())
    for _ in range(2):
        asyncio.run(namespace_creation.prepare_namespace(answers, TENANT))  # type: ignore[arg-type]

    assert answers.written == [(TENANT.name, TENANT.labels, {namespace_creation.USER: "Ann"})]
    theirs = Answers(found(annotations={namespace_creation.USER: "Anna"}))
    with pytest.raises(NotProvisioned, match="does not belong to Ann"):
        asyncio.run(namespace_creation.prepare_namespace(theirs, TENANT))  # type: ignore[arg-type]


def test_a_new_namespace_is_marked_and_waited_for() -> None:
    """A new namespace has labels and an owner, and is used once tenancy has set it up."""
    answers, told = ensure(None, found(), READY)
    assert answers.written == [(TENANT.name, TENANT.labels, {namespace_creation.USER: "Ann"})]
    assert told == [
        "Creating your namespace tfcluster-u-ann.",
        "Your namespace is being prepared: rights, quotas and volumes.",
    ]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (found(labels={}), "it was not created by this hub"),
        (
            found(labels={**TENANT.labels, namespace_creation.HUB: "theirs"}),
            "the hub in the namespace theirs",
        ),
        (found(annotations={namespace_creation.USER: "Anna"}), "it belongs to another user"),
    ],
)
def test_a_foreign_namespace_is_refused(other: Any, why: str) -> None:
    """A namespace of another hub or user is reported and never written to."""
    with pytest.raises(NotProvisioned, match=why):
        ensure(other)
    answers = Answers(other)
    assert not asyncio.run(namespace_creation.mark_removed(answers, TENANT, with_data=True))  # type: ignore[arg-type]
    assert answers.written == []


def test_a_namespace_that_is_going_is_waited_for() -> None:
    """A namespace that is being deleted is waited for, and then made again."""
    answers, told = ensure(found(deletionTimestamp="2026-11-22T00:00:00Z"), None, READY)
    assert "is being deleted. A new one is created" in told[0]
    assert len(answers.written) == 1


def test_a_user_who_comes_back_is_no_more_removed() -> None:
    """The mark of a removed user is deleted when the user is back and the data was kept."""
    answers, _told = ensure(found(annotations={namespace_creation.REMOVED: "2026"}), READY)
    assert answers.written == [(TENANT.name, {namespace_creation.REMOVED: None})]


def test_tenancy_that_is_late_is_told_with_its_trouble() -> None:
    """If a namespace is not set up in time, the error has tenancy's reason and a remedy."""
    with pytest.raises(NotProvisioned, match=r"There is no class x\. Ask the administrator"):
        ensure(found(annotations={namespace_creation.TROUBLE: "There is no class x."}), seconds=0)
    with pytest.raises(NotProvisioned, match="whether the hub's tenancy service is running"):
        ensure(found(), seconds=0)


def test_groups_decide_what_is_offered() -> None:
    """A user can choose only the sizes of the user's group and the policy's images."""
    grant = entitlement_for_groups(POLICY, ["gpu"]).grant
    small, gpu = pod_settings.profiles(POLICY, grant)
    assert small["default"]
    assert gpu["description"] == "4 CPU, 16Gi of memory, 1 GPU"
    assert gpu["kubespawner_override"]["mem_limit"] == 16 << 30
    assert gpu["kubespawner_override"]["extra_resource_limits"] == {"nvidia.com/gpu": "1"}
    assert list(gpu["profile_options"]["image"]["choices"]) == ["plain", "extra"]
    plain = entitlement_for_groups(POLICY, []).grant
    assert pod_settings.described(plain.sizes[0]) == "1 CPU (at most 4), 2Gi of memory"
    assert "Choose one of: small." in pod_settings.not_offered({"profile": "gpu"}, POLICY, plain)
    assert "Choose one of: plain, extra." in pod_settings.not_offered({"image": "x"}, POLICY, grant)
    assert not pod_settings.not_offered({"profile": "gpu", "image": "extra"}, POLICY, grant)


def test_servers_with_names_are_granted_by_number() -> None:
    """The number of named servers is limited, with advice; the default server is always allowed."""
    none, two = Grant(), Grant(named_servers=2)
    assert not pod_settings.too_many("", 5, none)
    assert "only the default server" in pod_settings.too_many("second", 0, none)
    assert not pod_settings.too_many("second", 1, two)
    assert "2 named servers" in pod_settings.too_many("third", 2, two)


def test_the_registry_is_asked_for_each_notebook_where_images_are_private() -> None:
    """If one group has a pull secret, no user gets that group's images from a node's cache without
    the secret.
    """
    private = parse_policy("groups: {vision: {imagePullSecrets: [registry]}}")
    assert (pod_settings.pull_policy(private), pod_settings.pull_policy(POLICY)) == ("Always", None)


def test_shared_data_is_read_only() -> None:
    """Shared data is mounted read-only, in addition to the user's claims."""
    grant = entitlement_for_groups(POLICY, []).grant
    assert list(pod_settings.volumes(grant)) == ["workspace", "data", "log", "images"]
    assert pod_settings.mounts(grant)["images"]["readOnly"]
    assert pod_settings.volumes(grant)["images"]["persistentVolumeClaim"]["readOnly"]
    assert "readOnly" not in pod_settings.volumes(grant)["data"]["persistentVolumeClaim"]
    assert pod_settings.mounts(grant)["workspace"] == {
        "name": "workspace",
        "mountPath": "/home/jovyan",
    }


def test_nothing_of_kubespawner_is_replaced_by_accident() -> None:
    """The spawner overrides only those methods of KubeSpawner that are listed here."""
    own = {name for name in vars(TenantSpawner) if not name.startswith("__")}
    taken = {
        name for name in own if name in dir(KubeSpawner) and callable(getattr(KubeSpawner, name))
    }
    assert taken == {
        "_ensure_namespace",
        "_start",
        "delete_forever",
        "get_options_form",
        "get_url",
        "load_user_options",
        "progress",
    }
