"""The build of the servers for the tests' Kubernetes node, which happens once, and completely or
not at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubenode import build, images, paths
from kubenode.errors import NodeError
from kubenode.modules import Module
from support.go_modules import TINY, Make, cache, entries, go_cache, module

__all__ = ["cache", "go_cache", "module"]  # fixtures used by the tests below

HOLDS = """
package main

import (
	"os"
	"syscall"
)

// Says where it is, then waits for the end of its stdin.
func main() {
	syscall.Write(1, []byte(os.Args[0]))
	syscall.Read(0, make([]byte, 1))
}
"""


def depends(module: Module, path: str, version: str) -> Path:
    """Make `module` depend on local sources of `path`, so that no registry is asked."""
    sources = module.folder / "sources"
    sources.mkdir()
    (sources / "go.mod").write_text(f"module {path}\n\ngo 1.21\n")
    (sources / "main.go").write_text(TINY)
    with (module.folder / "go.mod").open("a") as go_mod:
        go_mod.write(f"\nrequire {path} {version}\n\nreplace {path} => ./sources\n")
    return sources


def test_a_program_is_built_from_its_module_and_found_by_its_name(
    cache: Path, module: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    """A built program runs and is found by its name. One line reports its size and build time."""
    folder = module().folder.parent
    assert build.build(["tiny"], folder=folder) == {"tiny": build.binary("tiny", folder=folder)}
    subprocess.run([build.binary("tiny", folder=folder)], check=True)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "building tiny"
    assert said[1].startswith("built tiny: tiny: 1 MB, ") and said[1].endswith(" s")
    build.build(["tiny"], folder=folder)
    assert capfd.readouterr().err == "Go servers: tiny: in the cache\n"


def test_a_program_is_not_built_twice(cache: Path, module: Make) -> None:
    """If two builds of the same module run at once, one of them builds; the other waits and uses
    the result.
    """
    tiny = module()
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(build.make, tiny) for _ in range(2)]:
            done.result()
    first = (tiny.entry / "tiny").stat()
    build.make(tiny)
    assert (tiny.entry / "tiny").stat().st_ino == first.st_ino
    assert entries(cache) == [tiny.entry.name]


def test_who_waits_for_another_build_is_told_so(cache: Path, module: Make) -> None:
    """A build that waits for another process prints what that process builds."""
    tiny = module()
    holds = (
        "from kubenode import paths; from kubenode.commands import locked\n"
        "with locked(paths.binaries() / 'tiny.lock', waiting_for=''): print(flush=True), input()"
    )
    waits = (
        "import sys; from kubenode import build; from kubenode.modules import Module, Path\n"
        "build.make(Module(Path(sys.argv[1])))"
    )
    options = {"text": True, "env": {**os.environ, "PYTHONPATH": str(paths.KUBE)}}
    with subprocess.Popen(
        [sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    ) as holder:
        assert holder.stdout and holder.stdout.readline()
        with subprocess.Popen(
            [sys.executable, "-c", waits, tiny.folder], stderr=subprocess.PIPE, **options
        ) as waiter:
            assert waiter.stderr
            assert waiter.stderr.readline() == "waiting for another process: it builds tiny\n"
            holder.communicate("\n")
            assert "built tiny" in waiter.communicate()[1]


def test_the_first_module_that_fails_ends_the_build_and_leaves_nothing(
    cache: Path, module: Make
) -> None:
    """A module that does not compile is named with the compiler's message, and no further module is
    built.
    """
    module("bad", "package main\n\nfunc main() { undefined() }\n")
    folder = module("good").folder.parent
    with pytest.raises(NodeError, match=r"(?s)of bad failed.*main\.go:3.*undefined") as failed:
        build.build(["bad", "good"], folder=folder)
    assert str(folder / "bad") in str(failed.value)
    assert entries(cache) == []


def test_a_half_made_entry_is_never_used(cache: Path, module: Make) -> None:
    """Leftovers of a killed build are removed, and a damaged entry is built again."""
    tiny = module()
    killed = tiny.entry.with_name(f"{tiny.entry.name}.making-1")
    killed.mkdir(parents=True)
    with pytest.raises(NodeError, match=r"tiny is not built\. Do: "):
        build.binary("tiny", folder=tiny.folder.parent)
    build.make(tiny)
    assert entries(cache) == [tiny.entry.name]
    program = tiny.entry / "tiny"
    whole = program.stat().st_size
    os.truncate(program, whole - 1)
    assert not build.is_built(tiny)
    build.make(tiny)
    assert build.is_built(tiny) and program.stat().st_size == whole
    (tiny.entry / build.STAMP).write_text("{")
    assert not build.is_built(tiny)


def test_programs_have_the_names_that_people_know(cache: Path, module: Make) -> None:
    """A program whose package has another name is built under the name by which people know it,
    such as etcd.
    """
    etcd = module("etcd")
    depends(etcd, "go.etcd.io/etcd/server/v3", "v3.0.1")
    folder = etcd.folder
    (folder / "main.go").unlink()
    (folder / "tools.go").write_text(
        '//go:build tools\n\npackage tools\n\nimport _ "go.etcd.io/etcd/server/v3"\n'
    )
    built = build.build(["etcd"], folder=folder.parent)
    assert [*built] == ["etcd"]
    subprocess.run([built["etcd"]], check=True)


def test_what_a_module_brings_for_the_cluster_lies_beside_its_programs(
    cache: Path, module: Make
) -> None:
    """The resources of the Gateway API, which are in traefik's module, are stored next to its
    program, so starting a node needs no Go.
    """
    traefik = module("traefik")
    brings = depends(traefik, "sigs.k8s.io/gateway-api", "v1.4.0") / "config/crd/standard"
    brings.mkdir(parents=True)
    (brings / "gateways.yaml").write_text("kind: CustomResourceDefinition\n")
    folder = traefik.folder.parent
    build.build(["traefik"], folder=folder)
    [copied] = build.resources("traefik", "gateway-api", folder=folder)
    assert copied.read_text() == "kind: CustomResourceDefinition\n"
    assert copied.is_relative_to(cache)
    with pytest.raises(NodeError, match="traefik comes with no crds"):
        build.resources("traefik", "crds", folder=folder)


def test_another_version_is_another_entry(cache: Path, module: Make) -> None:
    """The cache key depends only on go.mod and on the sources."""
    tiny = module()
    before = tiny.entry
    (tiny.folder / "README.md").write_text("words")
    assert tiny.entry == before
    later = module(needs_go="1.22").entry
    assert later != before
    assert module(program=TINY + "\n", needs_go="1.22").entry not in {before, later}


def test_older_versions_leave_the_cache_when_nobody_uses_them(cache: Path, module: Make) -> None:
    """A build removes an older version unless it is running or was used within a day."""
    tiny = module(program=HOLDS)
    build.make(tiny)
    old = tiny.entry
    with subprocess.Popen([old / "tiny"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.read(1)
        build.make(module(program=TINY))
        assert old.exists()  # kept, because it was used within a day
        yesterday = time.time() - build.UNUSED - 1
        os.utime(old / build.STAMP, (yesterday, yesterday))
        build.remove_older(tiny := module(program=TINY))
        assert old.exists()  # kept, because it is running
        running.communicate(b"x")
    build.remove_older(tiny)
    assert entries(cache) == [tiny.entry.name]


def test_the_stamp_tells_which_go_built_it(cache: Path, module: Make) -> None:
    """A stamp next to the programs has the module, Go's version and the build time."""
    tiny = module()
    build.make(tiny, quiet=True)
    stamp = json.loads((tiny.entry / build.STAMP).read_text())
    assert stamp["module"] == "tiny" and stamp["go"].startswith("go1.")
    assert stamp["sizes"] == {"tiny": (tiny.entry / "tiny").stat().st_size}


def test_versions_of_an_image_leave_the_cache_when_newer_ones_are_built(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the versions that were built last stay in buildah's storage and in the nodes' caches."""
    removed: list[str] = []
    monkeypatch.setattr(images, "buildah", lambda words: removed.append(words[-1]))
    built = images.storage() / "built"
    built.mkdir(parents=True)
    for age, name in enumerate(["hub-" + f"{number:012x}" for number in range(images.KEPT + 2)]):
        (built / name).write_text("1 MB")
        os.utime(built / name, (1_000_000 - age, 1_000_000 - age))
    (built / "operator-000000000000").write_text("1 MB")
    images.remove_older("hub")
    assert sorted(removed) == [
        f"registry:5000/hub:{number:012x}" for number in (images.KEPT, images.KEPT + 1)
    ]
    assert "registry:5000/operator:000000000000" in images.known()
    assert not {*removed} & images.known() and len(images.known()) == images.KEPT + 1
