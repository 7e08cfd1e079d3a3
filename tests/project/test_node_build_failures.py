"""Failed builds of the tests' Kubernetes node, whose message says why and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kubenode import build, go, paths
from kubenode.errors import NodeError
from support.go_modules import Make, cache, entries, go_cache, module

__all__ = ["cache", "go_cache", "module"]  # fixtures used by the tests below


def test_without_go_the_message_says_which_version_to_install(
    cache: Path, module: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Go is missing, the message names the version to install; built programs need no Go."""
    folder = module("built").folder.parent
    build.build(["built"], folder=folder)
    module("later", needs_go="1.23.4")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeError, match=r"Go is not installed.*later needs it.*Go 1\.23 or newer"):
        build.build(["built", "later"], folder=folder)
    assert build.build(["built"], folder=folder)["built"].exists()


def test_an_old_go_is_refused_before_anything_is_built(cache: Path, module: Make) -> None:
    """A Go that is too old for the last module is refused before the first module is built."""
    module("first")
    folder = module("last", needs_go="1.999").folder.parent
    with pytest.raises(NodeError, match=r"last needs Go 1\.999; /.*/go is go1\..*Do: install"):
        build.build(["first", "last"], folder=folder)
    assert not cache.exists()


def test_a_registry_that_does_not_answer_is_named(
    cache: Path, module: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If sources cannot be fetched, the message names the module and the registry's setting."""
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
    """On a full disk, the message has the folders, the free and the needed space, and the settings
    that choose other folders.
    """
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
    """If a file is at the path of the cache, the message names it and the variable that chooses
    another path.
    """
    cache.write_text("")
    with pytest.raises(NodeError, match=r"(?s)cache cannot be written.*TFCLUSTER_KUBE_CACHE"):
        build.make(module())


def test_an_unknown_module_or_program_is_refused(cache: Path) -> None:
    """An unknown name is refused, and the known names are listed."""
    with pytest.raises(NodeError, match=r"called kubernets\. There are: kubernetes, et"):
        build.build(["kubernets"])
    with pytest.raises(NodeError, match="builds a program called kubectx"):
        build.binary("kubectx")
