"""The servers of the tests' Kubernetes node: built once, whole or not at all; failures say why."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubenode import build, go, modules, paths
from kubenode.errors import NodeError
from kubenode.modules import Module

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
TINY = "package main\n\nfunc main() {}\n"

Make = Callable[..., Module]


@pytest.fixture(scope="session")
def go_cache() -> str:
    """Go's own cache on this machine: in an empty one the smallest program costs half a minute."""
    if not shutil.which("go"):
        assert not os.environ.get("CI"), "the build machine needs Go for the tests of the build"
        pytest.skip("Go is not installed: the build of the Kubernetes node is not tested")
    return subprocess.run(
        ["go", "env", "GOCACHE"], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def cache(tmp_path: Path, go_cache: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the test's own."""
    monkeypatch.setenv("TFCLUSTER_KUBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOCACHE", go_cache)
    monkeypatch.setenv("GOFLAGS", "-mod=mod")  # whatever a person has set
    return tmp_path / "cache"


@pytest.fixture
def module(tmp_path: Path) -> Make:
    """Writes a module without dependencies."""

    def make(name: str = "tiny", program: str = TINY, needs_go: str = "1.21") -> Module:
        folder = tmp_path / "modules" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "go.mod").write_text(f"module example/{name}\n\ngo {needs_go}\n")
        (folder / "main.go").write_text(program)
        return Module(folder)

    return make


def depends(module: Module, path: str, version: str) -> Path:
    """Makes `module` depend on `path`, with sources beside it: no registry is asked."""
    sources = module.folder / "sources"
    sources.mkdir()
    (sources / "go.mod").write_text(f"module {path}\n\ngo 1.21\n")
    (sources / "main.go").write_text(TINY)
    with (module.folder / "go.mod").open("a") as go_mod:
        go_mod.write(f"\nrequire {path} {version}\n\nreplace {path} => ./sources\n")
    return sources


def entries(cache: Path) -> list[str]:
    """What lies in the cache, locks aside."""
    return sorted(path.name for path in (cache / "bin").iterdir() if path.suffix != ".lock")


def test_a_program_is_built_from_its_module_and_found_by_its_name(
    cache: Path, module: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    """A built program runs, is found again by its name, and one line tells its size and seconds."""
    folder = module().folder.parent
    assert build.build(["tiny"], folder=folder) == {"tiny": build.binary("tiny", folder=folder)}
    subprocess.run([build.binary("tiny", folder=folder)], check=True)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "building tiny"
    assert said[1].startswith("built tiny: tiny: 1 MB, ") and said[1].endswith(" s")
    build.build(["tiny"], folder=folder)
    assert capfd.readouterr().err == "Go servers: tiny: in the cache\n"


def test_a_program_is_not_built_twice(cache: Path, module: Make) -> None:
    """Of two builds at once one builds; the other waits for it and takes what it made."""
    tiny = module()
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(build.make, tiny) for _ in range(2)]:
            done.result()
    first = (tiny.entry / "tiny").stat()
    build.make(tiny)
    assert (tiny.entry / "tiny").stat().st_ino == first.st_ino
    assert entries(cache) == [tiny.entry.name]


def test_who_waits_for_another_build_is_told_so(cache: Path, module: Make) -> None:
    """A build that another process holds up says whose build it waits for."""
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
    """A module that does not compile is named with the compiler's words; the next is not begun."""
    module("bad", "package main\n\nfunc main() { undefined() }\n")
    folder = module("good").folder.parent
    with pytest.raises(NodeError, match=r"(?s)of bad failed.*main\.go:3.*undefined") as failed:
        build.build(["bad", "good"], folder=folder)
    assert str(folder / "bad") in str(failed.value)
    assert entries(cache) == []


def test_a_half_made_entry_is_never_used(cache: Path, module: Make) -> None:
    """What a killed build left is removed, and an entry that lost a byte is built again."""
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
    """A program whose package is called otherwise is built under its own name, as etcd."""
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
    """Gateway API's resources come with the module of traefik; who starts a node needs no Go."""
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
    """The place in the cache changes with go.mod, with the sources and with nothing else."""
    tiny = module()
    before = tiny.entry
    (tiny.folder / "README.md").write_text("words")
    assert tiny.entry == before
    later = module(needs_go="1.22").entry
    assert later != before
    assert module(program=TINY + "\n", needs_go="1.22").entry not in {before, later}


def test_older_versions_leave_the_cache_when_nobody_uses_them(cache: Path, module: Make) -> None:
    """After a new build an older one is removed, unless it runs or was handed out within a day."""
    tiny = module(program=HOLDS)
    build.make(tiny)
    old = tiny.entry
    with subprocess.Popen([old / "tiny"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.read(1)
        build.make(module(program=TINY))
        assert old.exists()  # young
        yesterday = time.time() - build.UNUSED - 1
        os.utime(old / build.STAMP, (yesterday, yesterday))
        build.remove_older(tiny := module(program=TINY))
        assert old.exists()  # runs
        running.communicate(b"x")
    build.remove_older(tiny)
    assert entries(cache) == [tiny.entry.name]


def test_without_go_the_message_says_which_version_to_install(
    cache: Path, module: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing Go is named with the version that is needed; what is built needs no Go any more."""
    folder = module("built").folder.parent
    build.build(["built"], folder=folder)
    module("later", needs_go="1.23.4")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeError, match=r"Go is not installed.*later needs it.*Go 1\.23 or newer"):
        build.build(["built", "later"], folder=folder)
    assert build.build(["built"], folder=folder)["built"].exists()


def test_an_old_go_is_refused_before_anything_is_built(cache: Path, module: Make) -> None:
    """A Go that is too old for the last module is refused before the first is built."""
    module("first")
    folder = module("last", needs_go="1.999").folder.parent
    with pytest.raises(NodeError, match=r"last needs Go 1\.999; /.*/go is go1\..*Do: install"):
        build.build(["first", "last"], folder=folder)
    assert not cache.exists()


def test_a_registry_that_does_not_answer_is_named(
    cache: Path, module: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sources cannot be fetched, the message names the module and the registry's setting."""
    far = module("far", 'package main\n\nimport _ "example.org/far"\n\nfunc main() {}\n')
    with (far.folder / "go.mod").open("a") as go_mod:
        go_mod.write("\nrequire example.org/far v1.0.0\n")
    some = f"h1:{'A' * 43}="
    (far.folder / "go.sum").write_text(
        f"example.org/far v1.0.0 {some}\nexample.org/far v1.0.0/go.mod {some}\n"
    )
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "sources"))
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:1")
    with pytest.raises(NodeError, match=r"(?s)build of far v1\.0\.0 failed.*GOPROXY is http://127"):
        build.make(far)
    assert entries(cache) == []


def test_a_full_disk_is_named_with_the_space_that_is_left(cache: Path, module: Make) -> None:
    """On a full disk the message tells the folders, what is free and needed, and the settings."""
    tiny = module()
    cache.mkdir()
    own = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    builds = (
        "import sys; from kubenode import build; from kubenode.modules import Module, Path\n"
        "try: build.make(Module(Path(sys.argv[1])))\n"
        "except build.NodeError as error: print(error)"
    )
    mounts = 'mount -t tmpfs -o size=512k tmpfs "$TFCLUSTER_KUBE_CACHE" && exec "$0" -c "$1" "$2"'
    said = subprocess.run(
        [*own, "sh", "-c", mounts, sys.executable, builds, tiny.folder],
        env={**os.environ, "PYTHONPATH": str(paths.KUBE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "The disk is full: the build of tiny stopped." in said.stdout, said.stderr
    assert f"MB  {cache}  (TFCLUSTER_KUBE_CACHE)" in said.stdout
    assert "(GOCACHE)" in said.stdout and go.NEEDED[1:] in said.stdout


def test_a_cache_that_cannot_be_written_says_which_variable_moves_it(
    cache: Path, module: Make
) -> None:
    """Where a file stands in the cache's place, the message names it and the variable."""
    cache.write_text("")
    with pytest.raises(NodeError, match=r"(?s)cache cannot be written.*TFCLUSTER_KUBE_CACHE"):
        build.make(module())


def test_an_unknown_module_or_program_is_refused(cache: Path) -> None:
    """A name that no folder has is answered with those that there are."""
    with pytest.raises(NodeError, match=r"called kubernets\. There are: kubernetes, et"):
        build.build(["kubernets"])
    with pytest.raises(NodeError, match="builds a program called kubectx"):
        build.binary("kubectx")


def test_every_module_folder_says_what_is_built_and_which_version() -> None:
    """Each program has one module, each server's version is in its go.mod, each go.sum is there."""
    known = modules.known()
    assert tuple(known)[: len(modules.DEFAULT)] == modules.DEFAULT
    names = [name for module in known.values() for name in module.programs.values()]
    assert len(names) == len({*names}) and {"kube-apiserver", "etcd", "pause"} <= {*names}
    for module in known.values():
        assert module.needs_go >= (1, 20)
        if module.name != "pause":
            assert module.version.startswith("v") and (module.folder / "go.sum").exists()
    assert {*modules.RESOURCES, *modules.TAGS, *modules.VERSIONED} <= {*known}


def test_the_servers_tell_the_version_of_go_mod() -> None:
    """Kubernetes is linked with the version that its go.mod names, and no other place names one."""
    kubernetes = modules.known()["kubernetes"]
    major, minor = kubernetes.version[1:].split(".")[:2]
    link = kubernetes.flags[-1]
    assert f"version.gitVersion={kubernetes.version} " in link
    assert f"gitMajor={major} " in link and f"gitMinor={minor} " in link


def test_the_stamp_tells_which_go_built_it(cache: Path, module: Make) -> None:
    """A stamp beside the programs tells the module, Go's version and the seconds."""
    tiny = module()
    build.make(tiny, quiet=True)
    stamp = json.loads((tiny.entry / build.STAMP).read_text())
    assert stamp["module"] == "tiny" and stamp["go"].startswith("go1.")
    assert stamp["sizes"] == {"tiny": (tiny.entry / "tiny").stat().st_size}
