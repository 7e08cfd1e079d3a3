"""Settings of a notebook's pod: size, image, volumes and uid. Pure.

Users are offered only the sizes of their own group; KubeSpawner refuses others.
`tenancy/entitlements` decides which group applies.

Ref: https://jupyterhub-kubespawner.readthedocs.io/en/latest/spawner.html#kubespawner.KubeSpawner.profile_list
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...i18n import _
from ...kube.api.resource_amounts import parse_quantity
from ..tenancy.entitlements import Grant, HubPolicy, Size

USER, GROUP = 1000, 100
"""The uid and gid of notebooks and tasks, which own the files in claims."""


def pod_security() -> dict[str, Any]:
    """Return a pod's `securityContext`."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": GROUP,
        "fsGroup": GROUP,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


# -- sizes, images and volumes, as KubeSpawner's options

Object = dict[str, Any]
VOLUMES = {"workspace": "/home/jovyan", "data": "/data", "log": "/log"}
"""A tenant's claims and their mount paths, the same in notebooks and tasks."""


def profiles(policy: HubPolicy, grant: Grant) -> list[Object]:
    """Return the offered sizes with the offered images; the first size is the default."""
    offered = _images(policy)
    return [
        {
            "slug": size.name,
            "display_name": size.title or size.name,
            "description": described(size),
            "default": place == 0,
            "kubespawner_override": _resources(size, policy.gpu_resource),
            **({"profile_options": offered} if offered else {}),
        }
        for place, size in enumerate(grant.sizes)
    ]


def is_a_choice(policy: HubPolicy, grant: Grant) -> bool:
    """Return whether users can choose: without a second size or image, no form is shown."""
    return len(grant.sizes) > 1 or len(policy.images) > 1


def not_offered(options: Mapping[str, Any], policy: HubPolicy, grant: Grant) -> str:
    """Return why the chosen size or image is refused; empty if both are offered."""
    offered = {
        "profile": (_("size"), [each.name for each in grant.sizes]),
        "image": (_("image"), [each.name for each in policy.images]),
    }
    for word, (what, names) in offered.items():
        chosen = options.get(word)
        if chosen and chosen not in names:
            text = _("You may not use the {what} {name!r}. Choose one of: {names}.")
            return text.format(what=what, name=chosen, names=", ".join(names) or _("none"))
    return ""


def too_many(name: str, others: int, grant: Grant) -> str:
    """Return why a further server with this name is refused; empty if it is allowed. The default
    server, which has no name, is always allowed. `others` is the number of the user's other named
    servers.
    """
    if not name or others < grant.named_servers:
        return ""
    if not grant.named_servers:
        return _("You may have only the default server. Ask an administrator to allow more.")
    text = _(
        "You may run {count} named servers at a time, and you already do. Stop one of them first."
    )
    return text.format(count=grant.named_servers)


def described(size: Size) -> str:
    """Return a description such as `1 CPU (at most 4), 2Gi of memory, 1 GPU`."""
    parts = [_upto(f"{size.cpu:g} CPU", f"{size.cpu_limit:g}" if size.cpu_limit else None)]
    most = size.memory_limit if size.memory_limit != size.memory else None
    parts.append(_upto(_("{amount} of memory").format(amount=size.memory), most))
    if size.gpu:
        parts.append(f"{size.gpu} GPU")
    return _(", ").join(parts)


def pull_policy(policy: HubPolicy) -> str | None:
    """Return `Always` if any group has pull secrets, else None. With another pull policy, a node
    would give everybody an image that it pulled with one group's secret.
    """
    every = (policy.default, *policy.grants.values())
    return "Always" if any(grant.image_pull_secrets for grant in every) else None


def volumes(grant: Grant) -> dict[str, Object]:
    """Return the volumes of a notebook by name: the tenant's claims, and shared data."""
    shared = {each.name: {"readOnly": True} for each in grant.shared_data}
    return {
        name: {"name": name, "persistentVolumeClaim": {"claimName": name, **shared.get(name, {})}}
        for name in (*VOLUMES, *shared)
    }


def mounts(grant: Grant) -> dict[str, Object]:
    """Return the mounts of the volumes from `volumes`; shared data is read-only."""
    own = {name: {"name": name, "mountPath": path} for name, path in VOLUMES.items()}
    shared = {
        each.name: {"name": each.name, "mountPath": each.path, "readOnly": True}
        for each in grant.shared_data
    }
    return {**own, **shared}


def _resources(size: Size, gpu_resource: str) -> Object:
    memory = int(parse_quantity(size.memory))
    gpu = {gpu_resource: str(size.gpu)} if size.gpu else {}
    return {
        "cpu_guarantee": size.cpu,
        "cpu_limit": size.cpu_limit,
        "mem_guarantee": memory,
        "mem_limit": int(parse_quantity(size.memory_limit)) if size.memory_limit else memory,
        "extra_resource_guarantees": gpu,
        "extra_resource_limits": gpu,
    }


def _images(policy: HubPolicy) -> Object:
    choices = {
        each.name: {
            "display_name": each.title or each.name,
            "default": place == 0,
            "kubespawner_override": {"image": each.image},
        }
        for place, each in enumerate(policy.images)
    }
    return {"image": {"display_name": _("Image"), "choices": choices}} if choices else {}


def _upto(amount: str, most: str | None) -> str:
    return _("{amount} (at most {most})").format(amount=amount, most=most) if most else amount
