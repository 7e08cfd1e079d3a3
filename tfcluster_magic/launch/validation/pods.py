"""The rules for what only Kubernetes has: what a pod could not be made with, or what would lie over
a folder that every task needs. What an administrator allows is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from ...errors import Problem
from ...i18n import _
from ...spec import Pods, Spec
from ...spec.quantities import parse_memory

OURS = ("/tfcluster", "/data", "/log", "/proc", "/sys", "/dev")
"""Nothing may be mounted at or below these."""
SYSTEM = (
    "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/opt", "/root", "/run", "/sbin", "/srv",
    "/tmp", "/usr", "/var",  # noqa: S108 - no temporary file is made here
)  # fmt: skip
"""Nothing may be mounted at these: it would hide what the image has there. Below them it may."""
RESERVED_ANNOTATIONS = ("tfcluster.dev/", "batch.kubernetes.io/")
SMALLEST_CLAIM = "1Mi"


def problems(spec: Spec) -> list[Problem]:
    """Everything that is wrong with `spec.pods`."""
    return [] if spec.pods is None else [*_paths(spec.pods), *_twice(spec.pods), *_rest(spec.pods)]


def _paths(pods: Pods) -> Iterator[Problem]:
    mounts = [(f"spec.pods.volumes[{i}].path", v.path) for i, v in enumerate(pods.volumes)]
    mounts += [(f"spec.pods.secrets[{i}].path", s.path) for i, s in enumerate(pods.secrets)]
    seen: set[str] = set()
    for field, path in mounts:
        if not path:
            continue
        if not _plain(path[1:]):
            rule = _("write the path without '.', '..', a doubled '/' or one at the end")
            yield Problem(field, path, rule)
        elif path in SYSTEM or f"/{PurePosixPath(path).parts[1]}" in OURS:
            rule = _(
                "it would hide what tasks need: choose another folder, such as /mnt/images, not "
                "one below {ours} nor a folder of the system"
            )
            yield Problem(field, path, rule.format(ours=", ".join(OURS)))
        elif path in seen:
            yield Problem(field, path, _("something else is mounted there: use each path once"))
        seen.add(path)
    for i, volume in enumerate(pods.volumes):
        if volume.sub_path and not _plain(volume.sub_path):
            rule = _("write the path without '.', '..', a doubled '/' or one at the end")
            yield Problem(f"spec.pods.volumes[{i}].subPath", volume.sub_path, rule)


def _plain(path: str) -> bool:
    return not {"", ".", ".."} & {*path.split("/")}


def _twice(pods: Pods) -> Iterator[Problem]:
    named = (("imagePullSecrets", "", pods.image_pull_secrets),)
    as_environment = [s.name if not s.path else "" for s in pods.secrets]
    for field, end, names in (*named, ("secrets", ".name", as_environment)):
        for index in _again(names):
            rule = _("it is named twice: once is enough")
            yield Problem(f"spec.pods.{field}[{index}]{end}", names[index], rule)


def _again(names: Iterable[str]) -> Iterator[int]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name and name in seen:
            yield index
        seen.add(name)


def _rest(pods: Pods) -> Iterator[Problem]:
    for key, value in pods.annotations.items():
        if key.startswith(RESERVED_ANNOTATIONS):
            rule = _("this name is set by TFCluster itself; choose another")
            yield Problem(f"spec.pods.annotations.{key}", value, rule)
    if (claim := pods.data_claim) and parse_memory(claim.size) < parse_memory(SMALLEST_CLAIM):
        rule = _("a claim has at least {least}").format(least=SMALLEST_CLAIM)
        yield Problem("spec.pods.dataClaim.size", claim.size, rule)
