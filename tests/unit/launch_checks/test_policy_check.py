"""The check of a spec against the policy and the namespace: images, claims, secrets, annotations
and time limits.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tfcluster_magic.kube.objects import pod_template
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.launch_checks import policy_check
from tfcluster_magic.launch_checks.capacity_check import NamespaceCapacity, NodeCapacity
from tfcluster_magic.launch_checks.kubernetes import LaunchFacts, launch_problems, read_facts
from tfcluster_magic.launch_checks.policy_check import ClaimFacts, NamespaceObjects
from tfcluster_magic.spec import (
    DataClaim,
    Lifecycle,
    Metadata,
    Mode,
    Pods,
    Replicas,
    ReplicaSet,
    Resources,
    SecretUse,
    Spec,
    TaskType,
    TFCluster,
    Volume,
)

STANDARD = {name: ClaimFacts() for name in ("data", "log", "workspace")}
NAMES = NamespaceObjects(
    claims={**STANDARD, "images": ClaimFacts(), "mine": ClaimFacts(modes=("ReadWriteOnce",))},
    secrets={"s3": "Opaque", "registry": "kubernetes.io/dockerconfigjson"},
    classes=("shared", "local"),
    nodes=3,
    claim_most=10 * 2.0**30,
)


def told(spec: Spec, policy: Policy = Policy(), names: NamespaceObjects = NAMES) -> list[str]:  # noqa: B008
    """Return the problems as a user reads them."""
    return [str(problem) for problem in policy_check.policy_problems(spec, policy, names)]


def pods(workers: int = 2, **more: Any) -> Spec:
    """Return the spec of a run with this number of workers; `more` are fields of `spec.pods`, such
    as volumes and secrets.
    """
    return Spec(replicas=ReplicaSet(worker=Replicas(count=workers)), pods=Pods(**more))


def test_a_plain_run_is_allowed() -> None:
    """A run that names no object of the namespace is allowed. A run whose named objects exist is
    allowed, too.
    """
    assert told(Spec()) == []
    named = pods(
        volumes=(Volume(claim="images", path="/mnt/images"),),
        secrets=(SecretUse(name="s3"),),
        image_pull_secrets=("registry",),
        annotations={"prometheus.io/scrape": "true"},
        data_claim=DataClaim(size="1Gi", storage_class="shared"),
    )
    assert told(named, Policy(annotations=("prometheus.io/*",))) == []


def test_images() -> None:
    """An image outside the policy's list is refused, with the allowed images; the default image is
    always allowed.
    """
    policy = Policy(default_image="hub/notebook:1", images=("hub/team/*",))
    (text,) = told(Spec(image="docker.io/miner"), policy)
    assert "spec.image: got 'docker.io/miner'" in text
    assert "hub/notebook:1, hub/team/*" in text
    for image in ("hub/team/a:2", "hub/notebook:1", None):
        assert told(Spec(image=image), policy) == []
    assert told(Spec(image="anything")) == []
    # the full name of the default image
    assert told(Spec(image="docker.io/hub/notebook:1"), policy) == []
    (text,) = told(Spec(image="python:33/evil/img"), Policy(images=("python:3*",)))
    assert "the administrator allows" in text
    (text,) = told(Spec(image="An Image"))
    assert "it is not an image reference: write REGISTRY/REPOSITORY:TAG" in text


def test_a_digest_may_be_required() -> None:
    """An image with only a tag is refused, and the refusal says how to find the digest; the default
    image is never refused.
    """
    policy = Policy(default_image="hub/notebook:1", images=("hub/team/*",), require_digest=True)
    (text,) = told(Spec(image="hub/team/a:2"), policy)
    assert "requires a digest, as in docker.io/hub/team/a@sha256:" in text
    assert text.endswith("`docker buildx imagetools inspect hub/team/a:2`")
    for image in (f"hub/team/a:2@sha256:{'0' * 64}", "hub/notebook:1", None):
        assert told(Spec(image=image), policy) == []


def test_who_has_no_secret_gets_no_image_from_a_nodes_cache() -> None:
    """If a run names a pull secret or an image of its own, its tasks always ask the registry for
    the image. Without a secret, they may use a node's copy of the administrator's image, and of any
    image if the policy says that nodes have images which no registry has.
    """
    default = Policy().default_image

    def policy_of(spec: Spec, policy: Policy = Policy()) -> Any:  # noqa: B008
        run = TFCluster(
            metadata=Metadata(name="a-1", cluster="a", run=1, uid="u", created_at=0.0), spec=spec
        )
        (container,) = pod_template.build_pod_template(run, policy, TaskType.WORKER, ())["spec"][
            "containers"
        ]
        return container.get("imagePullPolicy")

    secret = Pods(image_pull_secrets=("registry",))
    preloaded = Policy(always_pull=False)
    assert policy_of(Spec(image="private.example/img")) == "Always"
    assert policy_of(Spec(pods=secret)) == "Always"
    assert policy_of(Spec(pods=secret), preloaded) == "Always"
    assert policy_of(Spec()) is None
    assert policy_of(Spec(image=f"docker.io/{default}")) is None
    assert policy_of(Spec(image="private.example/img"), preloaded) is None


@pytest.mark.parametrize(
    ("field", "word", "most"),
    [
        ("grace", "grace", "10m"),
        ("reclaim_after", "reclaimAfter", "1h"),
        ("keep_for", "keepFor", "365d"),
    ],
)
def test_no_run_stays_for_as_long_as_it_likes(field: str, word: str, most: str) -> None:
    """Tasks and records stay only for a limited time after their run, even without a policy. A
    lower limit in the policy also applies to runs that set no value.
    """
    (text,) = told(Spec(lifecycle=Lifecycle(**{field: 4000 * 86400.0})))
    assert text.startswith(f"spec.lifecycle.{word}: ")
    assert f"the administrator allows at most {most}" in text
    low = replace(Policy(), **{f"max_{field}": 5.0})
    assert told(Spec(), low) == []
    assert getattr(policy_check.cap_durations(Spec(), low).lifecycle, field) == 5.0


def test_duration() -> None:
    """A run may last no longer than the policy allows; without `maxDuration`, it gets the policy's
    limit.
    """
    policy = Policy(max_duration=3600.0)
    (text,) = told(Spec(lifecycle=Lifecycle(max_duration=7200.0)), policy)
    assert "got '2h'; the administrator allows at most 1h" in text
    assert told(Spec(), policy) == []
    assert policy_check.cap_durations(Spec(), policy).lifecycle.max_duration == 3600.0
    short = Spec(lifecycle=Lifecycle(max_duration=60.0))
    assert policy_check.cap_durations(short, policy) is short


def test_stall_timeout() -> None:
    """Without a `stallTimeout`, a run gets the policy's default; a `stallTimeout` above the
    policy's limit is refused. An In-Graph cluster, whose servers wait for a notebook, has no such
    timeout.
    """

    def counts(spec: Spec, policy: Policy) -> float | None:
        return policy_check.cap_durations(spec, policy).lifecycle.stall_timeout

    asks = Spec(lifecycle=Lifecycle(stall_timeout=7200.0))
    assert counts(Spec(), Policy()) is None
    assert counts(Spec(), Policy(stall_timeout=600.0)) == 600.0
    assert counts(asks, Policy(stall_timeout=600.0)) == 7200.0
    assert counts(Spec(), Policy(max_stall_timeout=3600.0)) == 3600.0
    (text,) = told(asks, Policy(max_stall_timeout=3600.0))
    assert "spec.lifecycle.stallTimeout: got '2h'; the administrator allows at most 1h" in text
    servers = Spec(mode=Mode.IN_GRAPH)
    both = Policy(stall_timeout=600.0, max_stall_timeout=3600.0)
    assert counts(servers, both) is None and told(servers, both) == []


def test_claims() -> None:
    """Only existing claims can be used, and only as their access modes allow."""
    volumes = (
        Volume(claim="theirs", path="/mnt/a"),
        Volume(claim="mine", path="/mnt/b"),
        Volume(claim="once", path="/mnt/c"),
        Volume(claim="read", path="/mnt/d"),
        Volume(claim="raw", path="/mnt/e"),
    )
    names = replace(
        NAMES,
        claims={
            **(NAMES.claims or {}),
            "once": ClaimFacts(modes=("ReadWriteOncePod",)),
            "read": ClaimFacts(modes=("ReadOnlyMany",)),
            "raw": ClaimFacts(obstacle="it is being deleted"),
        },
    )
    missing, shared, once, read_only, raw = told(pods(volumes=volumes), names=names)
    assert "spec.pods.volumes[0].claim: got 'theirs'; there is no such" in missing
    assert "there are: data, images, log" in missing
    assert "the claim is ReadWriteOnce, for pods of one node, and 2 tasks" in shared
    assert "ReadWriteOncePod, for one pod" in once
    assert "mount it read-only" in read_only
    assert "it is being deleted" in raw
    one_node = replace(names, nodes=1)
    assert told(pods(volumes=volumes[1:2]), names=one_node) == []
    assert told(pods(workers=1, volumes=volumes[1:3]), names=names) == []


def test_paths_of_the_policy_are_taken() -> None:
    """Nothing can be mounted at the paths that the policy uses for the workspace, data or logs."""
    policy = Policy(data_path="/datasets", workspace_path="/home/ada")
    asked = (
        Volume(claim="images", path="/datasets"),
        Volume(claim="images", path="/home/ada"),
        Volume(claim="images", path="/home/jovyan"),
    )
    first, second = told(pods(volumes=asked), policy)
    assert "spec.pods.volumes[0].path: got '/datasets'; something else is mounted there" in first
    assert "spec.pods.volumes[1].path: got '/home/ada'" in second
    bare = Policy(workspace_claim="")
    assert told(pods(volumes=asked[2:]), bare) == []


def test_the_claims_of_every_run() -> None:
    """A missing claim that every run mounts is reported before any pod waits."""
    (text,) = told(
        Spec(), names=replace(NAMES, claims={"data": ClaimFacts(), "workspace": ClaimFacts()})
    )
    assert "the namespace: got 'log'; there is no such PersistentVolumeClaim" in text


def test_data_claims() -> None:
    """A data claim of the run needs an existing storage class, and may have at most the policy's
    size.
    """
    own = DataClaim(size="20Gi", storage_class="fast")
    first, second = told(pods(data_claim=own))
    assert "there is no such StorageClass; there are: local, shared" in first
    assert "at most 10Gi" in second
    (text,) = told(pods(data_claim=DataClaim(size="1Gi")))
    assert "the cluster has no default StorageClass: name one of local, shared" in text
    assert told(pods(data_claim=DataClaim(size="1Gi")), Policy(storage_class="shared")) == []


def test_secrets() -> None:
    """Only secrets that are labelled for tasks can be used, and pull secrets must be of a type for
    registries.
    """
    spec = pods(secrets=(SecretUse(name="admin"),), image_pull_secrets=("s3", "admin"))
    first, second, third = told(spec)
    assert "spec.pods.secrets[0].name: got 'admin'; tasks may use secrets that" in first
    assert "tfcluster.dev/for-tasks=true; there are: registry, s3" in first
    assert "it has type Opaque" in second
    assert "imagePullSecrets[1]: got 'admin'" in third
    unseen = replace(NAMES, secrets=None, asked_for_secrets=True)
    assert "the operator may not see" in told(spec, names=unseen)[0]
    assert told(spec, names=replace(NAMES, secrets=None)) == []


def test_annotations() -> None:
    """Annotations are refused unless the policy has a pattern for them."""
    (text,) = told(pods(annotations={"sidecar.istio.io/inject": "true"}))
    assert "the administrator allows no annotations" in text


def test_an_offer_judges_alike_when_it_was_published() -> None:
    """A client with the published options finds the same problems as the operator. If resources
    exist but are in use now, it finds no problem, because the run waits for them.
    """
    total = {"cpu": 4.0, "memory": 8 * 2.0**30, "pods": 110.0}
    busy = NodeCapacity(total=total, free={"cpu": 0.0})
    offer = LaunchFacts(place=NamespaceCapacity(nodes=(busy, busy)), names=NAMES, enforced=False)
    published = read_facts(msgspec.json.encode(offer.published()).decode())
    spec = pods(workers=4, secrets=(SecretUse(name="admin"),))
    spec = replace(
        spec,
        replicas=ReplicaSet(worker=Replicas(count=4, resources=Resources(cpu=3, memory="1Gi"))),
    )
    assert launch_problems(spec, published) == launch_problems(spec, offer)
    secret, network, room = map(str, launch_problems(spec, published))
    assert "NetworkPolicies are not enforced" in network
    assert "2 workers of 3 CPU, 1Gi fit, but 4 were requested" in room
    accepted = replace(offer, policy=Policy(require_network_policy=False, nodes_are_fixed=False))
    assert [str(p) for p in launch_problems(spec, accepted)] == [secret]
