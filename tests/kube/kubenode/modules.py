"""The Go servers of a node: a folder for each module, where go.mod is the one place of its version.

tools.go imports exactly the programs that are built; a folder with main.go is a program itself. A
newer version is `go get <module>@<version> && go mod tidy` in the folder; go.sum is committed, so a
build asks no checksum database. This module reads the folders; it never runs Go and writes nothing.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .errors import NodeError

# In the order of building: what a node starts first comes first, the longest comes last.
DEFAULT = ("kubernetes", "etcd", "pause", "coredns", "network-policies", "local-path", "traefik")

# Programs whose last path element is not the name they are known by.
NAMES = {
    "github.com/kubeflow/training-operator/cmd/training-operator.v1": "training-operator",
    "go.etcd.io/etcd/server/v3": "etcd",
    "sigs.k8s.io/kube-network-policies/cmd/kube-network-policies/standard": "kube-network-policies",
    "volcano.sh/volcano/cmd/controller-manager": "volcano-controller-manager",
    "volcano.sh/volcano/cmd/scheduler": "volcano-scheduler",
    "volcano.sh/volcano/cmd/webhook-manager": "volcano-webhook-manager",
}

# What is applied to a cluster and comes with a module, copied beside the programs at build time:
# folder of the copies: (module path, patterns in that module).
RESOURCES: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]] = {
    "kwok": {
        "stages": (
            "sigs.k8s.io/kwok",
            ["kustomize/stage/node/fast/node-*.yaml", "kustomize/stage/pod/fast/pod-*.yaml"],
        ),
    },
    "traefik": {"gateway-api": ("sigs.k8s.io/gateway-api", ["config/crd/standard/*.yaml"])},
    "training-operator": {
        "crds": (
            "github.com/kubeflow/training-operator",
            ["manifests/base/crds/kubeflow.org_tfjobs.yaml"],
        ),
    },
    "volcano": {
        "installer": ("volcano.sh/volcano", ["installer/volcano-development.yaml"]),
    },
}

TAGS = {"kubernetes": "selinux,notest,grpcnotrace"}  # those of Kubernetes' own release build
# Kubernetes learns its own version from the linker; without it kubectl and kubelet say v0.0.0.
VERSIONED = {"kubernetes": ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")}


@dataclass(frozen=True)
class Module:
    """A folder with go.mod, and what it asks to be built."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name, which is what a person calls the module."""
        return self.folder.name

    @property
    def version(self) -> str:
        """The version of the module that is built, as `v1.35.4`; empty for a program of our own."""
        found = re.search(r"^require \S+ (v\S+)$", self._go_mod(), re.MULTILINE)
        return found[1] if found else ""

    @property
    def needs_go(self) -> tuple[int, int]:
        """The oldest Go that builds it: `go mod tidy` keeps it where every dependency is served."""
        found = re.search(r"^go (\d+)\.(\d+)", self._go_mod(), re.MULTILINE)
        if not found:
            raise NodeError(f"{self.folder}/go.mod has no `go` line. Do: `go mod tidy` there.")
        return int(found[1]), int(found[2])

    @property
    def programs(self) -> dict[str, str]:
        """The packages that are built and the name of each program."""
        if (self.folder / "main.go").exists():
            return {".": self.name}
        imports = re.findall(r'_ "(\S+)"', (self.folder / "tools.go").read_text())
        return {package: NAMES.get(package, package.rsplit("/", 1)[-1]) for package in imports}

    @property
    def flags(self) -> list[str]:
        """What `go build` is given; a change of them is a new digest."""
        link = ["-s -w"]
        for package in VERSIONED.get(self.name, ()):
            major, minor = self.version.lstrip("v").split(".")[:2]
            values = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
            values["gitTreeState"] = "clean"
            link += [f"-X {package}.{key}={value}" for key, value in values.items()]
        tags = ["-tags", TAGS[self.name]] if self.name in TAGS else []
        return ["-trimpath", "-buildvcs=false", *tags, "-ldflags", " ".join(link)]

    @property
    def resources(self) -> Mapping[str, tuple[str, Sequence[str]]]:
        """What is copied beside the programs."""
        return RESOURCES.get(self.name, {})

    @property
    def entry(self) -> Path:
        """Where it lies in the cache: its name has a digest of everything the build depends on.

        Go's own version is not among it (the stamp tells it): a newer Go need not cost a new build,
        and a node whose servers are all built starts on a machine without Go.
        """
        digest = hashlib.sha256(
            repr([self.flags, self.programs, self.resources, platform.machine()]).encode()
        )
        for file in sorted(self.folder.iterdir()):
            if file.suffix in {".go", ".mod", ".sum"}:
                digest.update(f"\n{file.name}\n".encode() + file.read_bytes())
        return paths.binaries() / f"{self.name}-{digest.hexdigest()[:12]}"

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def _go_mod(self) -> str:
        return (self.folder / "go.mod").read_text()


def known(folder: Path = paths.MODULES) -> dict[str, Module]:
    """Every module by its name: those that each node needs, then the options."""
    names = sorted(path.parent.name for path in folder.glob("*/go.mod"))
    ordered = [*filter(names.__contains__, DEFAULT), *(n for n in names if n not in DEFAULT)]
    return {name: Module(folder / name) for name in ordered}
