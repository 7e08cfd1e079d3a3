"""The Go modules of a node's servers: one folder for each module. Only the folder's go.mod states
the module's version.

tools.go imports exactly the programs to build; a folder with main.go is itself a program. To
upgrade, run `go get <module>@<version> && go mod tidy` in the folder; go.sum is committed, so that
a build needs no checksum database. This module reads the folders; it never runs Go and writes
nothing.
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

# In build order: the servers that a node starts first, and the longest build last.
DEFAULT = ("kubernetes", "etcd", "pause", "coredns", "network-policies", "local-path", "traefik")

# Programs whose name differs from the last element of their path.
NAMES = {
    "github.com/kubeflow/training-operator/cmd/training-operator.v1": "training-operator",
    "go.etcd.io/etcd/server/v3": "etcd",
    "sigs.k8s.io/kube-network-policies/cmd/kube-network-policies/standard": "kube-network-policies",
    "volcano.sh/volcano/cmd/controller-manager": "volcano-controller-manager",
    "volcano.sh/volcano/cmd/scheduler": "volcano-scheduler",
    "volcano.sh/volcano/cmd/webhook-manager": "volcano-webhook-manager",
}

# Objects for a cluster that come with a module and are copied beside its programs. The keys are the
# module and the folder of the copies; the values are (path of a Go module, patterns of its files).
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

TAGS = {"kubernetes": "selinux,notest,grpcnotrace"}  # the build tags of Kubernetes' own releases
# Packages whose version the linker sets; otherwise kubectl and kubelet report v0.0.0.
VERSIONED = {"kubernetes": ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")}


@dataclass(frozen=True)
class Module:
    """A folder with go.mod, and the programs to build from it."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name, by which users call the module."""
        return self.folder.name

    @property
    def version(self) -> str:
        """The module's version, such as `v1.35.4`; empty for the project's own programs."""
        found = re.search(r"^require \S+ (v\S+)$", self._go_mod(), re.MULTILINE)
        return found[1] if found else ""

    @property
    def needs_go(self) -> tuple[int, int]:
        """The oldest Go that builds the module; `go mod tidy` sets it to what all dependencies
        need.
        """
        found = re.search(r"^go (\d+)\.(\d+)", self._go_mod(), re.MULTILINE)
        if not found:
            raise NodeError(f"{self.folder}/go.mod has no `go` line. Do: `go mod tidy` there.")
        return int(found[1]), int(found[2])

    @property
    def programs(self) -> dict[str, str]:
        """The packages to build, with the name of each program."""
        if (self.folder / "main.go").exists():
            return {".": self.name}
        imports = re.findall(r'_ "(\S+)"', (self.folder / "tools.go").read_text())
        return {package: NAMES.get(package, package.rsplit("/", 1)[-1]) for package in imports}

    @property
    def flags(self) -> list[str]:
        """The arguments of `go build`; a changed argument makes a new digest."""
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
        """The module's entry in RESOURCES, whose files a build copies beside the programs."""
        return RESOURCES.get(self.name, {})

    @property
    def entry(self) -> Path:
        """The cache folder, whose name has a digest of everything that the build depends on.

        Go's own version is not included (it is in the stamp), so that a newer Go does not force a
        new build, and a node with all servers built starts on a machine without Go.
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
    """Return every module by name: first the modules that each node needs, then the options."""
    names = sorted(path.parent.name for path in folder.glob("*/go.mod"))
    ordered = [*filter(names.__contains__, DEFAULT), *(n for n in names if n not in DEFAULT)]
    return {name: Module(folder / name) for name in ordered}
