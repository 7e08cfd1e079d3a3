"""The policy check of a spec's image, claims, secrets, annotations and durations. Pure.

All problems are found at once, each with the values that are allowed instead. A spec has no field
for a service account, a node, a host path or a privilege, so nothing of this kind has to be
checked: a spec can name only objects of its own namespace. The operator runs the check, too,
because a TFCluster can be created without our client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import fields, replace

from ..errors import Problem
from ..kube.api.labels import FOR_TASKS
from ..kube.objects import images
from ..kube.objects.policy import Policy
from ..launch.validation.rules import MOUNTED_TWICE
from ..spec import Clause, DataClaim, Lifecycle, Message, Mode, Model, Pods, Spec, TFCluster
from ..spec.message_table import format_duration
from ..spec.quantities import format_bytes, parse_memory

MOST_NAMES = 10
MANY_NODES, ONE_POD = ("ReadWriteMany",), "ReadWriteOncePod"
PULL_TYPES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_BOUNDS = {
    "max_duration": "max_duration",
    "stall_timeout": "max_stall_timeout",
    "grace": "max_grace",
    "reclaim_after": "max_reclaim_after",
    "keep_for": "max_keep_for",
}
"""The durations of a run that the policy limits, each with the policy's field for the limit.
`startTimeout` and `idleTimeout` need no limit, because `maxDuration` ends a run anyway. The queue
timeout needs no limit, because a queued run uses no resources.
"""


class ClaimFacts(Model, frozen=True):
    """A PersistentVolumeClaim: its access modes, the `obstacle` that keeps pods from mounting it
    (empty: none), and its `size` in bytes (0 without a volume).
    """

    modes: tuple[str, ...] = MANY_NODES
    obstacle: str = ""
    size: float = 0.0


class NamespaceObjects(Model, frozen=True):
    """The objects that a run may name in its namespace; each field is None if unknown.

    `secrets` are the secrets labelled for tasks, with their types; `asked_for_secrets` says that
    the operator read the secrets. `classes` are the storage classes.
    """

    claims: dict[str, ClaimFacts] | None = None
    secrets: dict[str, str] | None = None
    asked_for_secrets: bool = False
    classes: tuple[str, ...] | None = None
    default_class: str = ""
    nodes: int | None = None
    claim_most: float | None = None


def cap_durations(spec: Spec, policy: Policy) -> Spec:
    """Return a copy of the spec with default durations lowered to the policy's limits. A duration
    that the user set is not changed.
    """
    ours = Lifecycle()
    if spec.mode is Mode.BETWEEN_GRAPH and policy.stall_timeout is not None:
        stall_timeout = spec.lifecycle.stall_timeout or policy.stall_timeout
        spec = replace(spec, lifecycle=replace(spec.lifecycle, stall_timeout=stall_timeout))
    less = {
        field: most
        for field, asked, most in _too_long(spec, policy)
        if asked in (getattr(ours, field), math.inf)
    }
    return replace(spec, lifecycle=replace(spec.lifecycle, **less)) if less else spec


def _too_long(spec: Spec, policy: Policy) -> Iterator[tuple[str, float, float]]:
    """Yield the durations above the policy's limits: the field, the requested duration and the
    limit. A duration without a value counts as infinite.
    """
    in_graph = spec.mode is Mode.IN_GRAPH
    for field, bound in _BOUNDS.items():
        asked, most = getattr(spec.lifecycle, field), getattr(policy, bound)
        asked = math.inf if asked is None else asked
        if most is not None and asked > most and not (field == "stall_timeout" and in_graph):
            yield field, asked, most


def with_capped_durations(cluster: TFCluster, policy: Policy) -> TFCluster:
    """Return the run with its durations capped by the policy; the stored record stays unchanged."""
    return replace(cluster, spec=cap_durations(cluster.spec, policy))


def policy_problems(spec: Spec, policy: Policy, names: NamespaceObjects) -> list[Problem]:
    """Return a problem for each setting of this spec that the policy does not allow."""
    asked = spec.pods or Pods()
    return [
        *image_problems(spec.image, policy),
        *_durations(spec, policy),
        *_paths(asked, policy),
        *_claims(spec, asked, policy, names),
        *_data_claim(asked.data_claim, policy, names),
        *_secrets(asked, names),
        *_annotations(asked, policy),
    ]


def image_problems(image: str | None, policy: Policy) -> Iterator[Problem]:
    """Yield the reasons why tasks may not run this image; `image` is None for the policy's default
    image.
    """
    patterns = policy.images
    if image is None or images.is_same_image(image, policy.default_image):
        return
    try:
        found = images.parse_image(image)
    except ValueError as error:
        yield Problem("spec.image", image, error.args[0])
        return
    if patterns and not any(images.admits_image(pattern, found) for pattern in patterns):
        allowed = [policy.default_image, *patterns]
        yield Problem("spec.image", image, Message("ImagesAllowed", {"images": _list(allowed)}))
    elif policy.require_digest and not found.digest:
        rule = Message("DigestRequired", {"name": found.name, "image": image})
        yield Problem("spec.image", image, rule)


def _durations(spec: Spec, policy: Policy) -> Iterator[Problem]:
    names = {each.name: each.encode_name for each in fields(Lifecycle)}
    for field, asked, most in _too_long(cap_durations(spec, policy), policy):
        rule = Message("DurationAllowed", {"most": most})
        yield Problem(f"spec.lifecycle.{names[field]}", format_duration(asked), rule)


def _paths(asked: Pods, policy: Policy) -> Iterator[Problem]:
    """Yield a problem for each volume or secret of the spec that would be mounted at the same path
    as a claim of the policy. `validation` checks the other rules for paths.
    """
    mounts = [(f"spec.pods.volumes[{i}].path", v.path) for i, v in enumerate(asked.volumes)]
    mounts += [(f"spec.pods.secrets[{i}].path", s.path) for i, s in enumerate(asked.secrets)]
    taken = {policy.data_path, policy.log_path, *filter(None, [_workspace(policy)])}
    for field, path in mounts:
        if path in taken:
            yield Problem(field, path, MOUNTED_TWICE)


def _workspace(policy: Policy) -> str:
    return policy.workspace_path if policy.workspace_claim else ""


def _claims(spec: Spec, asked: Pods, policy: Policy, names: NamespaceObjects) -> Iterator[Problem]:
    used: list[tuple[Clause, str, bool]] = [
        (f"spec.pods.volumes[{i}].claim", v.claim, not v.read_only)
        for i, v in enumerate(asked.volumes)
    ]
    standard = (
        ("" if asked.data_claim else policy.data_claim, not policy.data_read_only),
        (policy.log_claim, True),
        (policy.workspace_claim, False),
        *((each.claim, False) for each in policy.shared_data),
    )
    used += [(Message("TheNamespace"), claim, writes) for claim, writes in standard if claim]
    if names.claims is None:
        return
    for field, name, writes in used:
        claim = names.claims.get(name)
        if claim is None:
            rule = Message("NoSuchClaim", {"claims": _list(sorted(names.claims))})
            yield Problem(field, name, rule)
        elif why := claim.obstacle or _shared_by(spec.replicas.total, claim, writes, names.nodes):
            yield Problem(field, name, why)


def _shared_by(tasks: int, claim: ClaimFacts, writes: bool, nodes: int | None) -> Message | None:
    """Return a message that says why this number of tasks cannot use a claim with these access
    modes; None if they can.
    """
    modes = set(claim.modes)
    told = _list(sorted(modes))
    if modes & {*MANY_NODES} or ("ReadOnlyMany" in modes and not writes):
        return None
    if modes == {"ReadOnlyMany"}:
        return Message("ClaimReadOnly", {"modes": told})
    if modes == {ONE_POD} and tasks > 1:
        return Message("ClaimOfOnePod", {"modes": told, "count": tasks})
    if modes == {ONE_POD} or tasks == 1 or nodes == 1:
        return None
    return Message("ClaimOfOneNode", {"modes": told, "count": tasks})


def _data_claim(
    claim: DataClaim | None, policy: Policy, names: NamespaceObjects
) -> Iterator[Problem]:
    if claim is None:
        return
    name = claim.storage_class or policy.storage_class
    if names.classes is not None and name and name not in names.classes:
        rule = Message("NoSuchStorageClass", {"classes": _list(sorted(names.classes))})
        yield Problem("spec.pods.dataClaim.storageClass", name, rule)
    elif names.classes is not None and not name and not names.default_class:
        rule = Message("NoDefaultStorageClass", {"classes": _list(sorted(names.classes))})
        yield Problem("spec.pods.dataClaim.storageClass", None, rule)
    if names.claim_most is not None and parse_memory(claim.size) > names.claim_most:
        rule = Message("ClaimAtMost", {"most": format_bytes(names.claim_most)})
        yield Problem("spec.pods.dataClaim.size", claim.size, rule)


def names_secrets(spec: Spec) -> bool:
    """Return whether a spec names any secret."""
    return spec.pods is not None and bool(spec.pods.secrets or spec.pods.image_pull_secrets)


def _secrets(asked: Pods, names: NamespaceObjects) -> Iterator[Problem]:
    used = [(f"spec.pods.secrets[{i}].name", s.name, False) for i, s in enumerate(asked.secrets)]
    used += [
        (f"spec.pods.imagePullSecrets[{i}]", s, True)
        for i, s in enumerate(asked.image_pull_secrets)
    ]
    known = names.secrets
    for field, name, pulls in used:
        if known is None and names.asked_for_secrets:
            yield Problem(field, name, Message("SecretsNotSeen"))
        elif known is None:
            return  # this process cannot read secrets; the operator will check the names
        elif name not in known:
            values = {"label": FOR_TASKS, "secrets": _list(sorted(known))}
            yield Problem(field, name, Message("SecretNotForTasks", values))
        elif pulls and known[name] not in PULL_TYPES:
            values = {"type": known[name], "types": list(PULL_TYPES)}
            yield Problem(field, name, Message("SecretNoPullSecret", values))


def _annotations(asked: Pods, policy: Policy) -> Iterator[Problem]:
    for key, value in asked.annotations.items():
        if not any(fnmatchcase(key, pattern) for pattern in policy.annotations):
            rule = Message("NoAnnotationsAllowed")
            if policy.annotations:
                rule = Message("AnnotationsAllowed", {"patterns": _list(policy.annotations)})
            yield Problem(f"spec.pods.annotations.{key}", value, rule)


def _list(names: Sequence[str]) -> list[Clause]:
    """Return the first names and the number of the other names; "none" for an empty list."""
    shown: list[Clause] = list(names[:MOST_NAMES]) or [Message("None")]
    if (more := len(names) - MOST_NAMES) > 0:
        shown.append(Message("More", {"count": more}))
    return shown
