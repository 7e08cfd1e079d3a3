"""Small Go modules, and an empty cache for their builds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kubenode.modules import Module

TINY = "package main\n\nfunc main() {}\n"

Make = Callable[..., Module]


@pytest.fixture(scope="session")
def go_cache() -> str:
    """Return this machine's Go cache: with an empty cache even a small build takes half a
    minute.
    """
    if not shutil.which("go"):
        assert not os.environ.get("CI"), "the build machine needs Go for the tests of the build"
        pytest.skip("Go is not installed: the build of the Kubernetes node is not tested")
    return subprocess.run(
        ["go", "env", "GOCACHE"], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def cache(tmp_path: Path, go_cache: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty cache for the test."""
    monkeypatch.setenv("TFCLUSTER_KUBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOCACHE", go_cache)
    monkeypatch.setenv("GOFLAGS", "-mod=mod")  # ignore the user's setting
    return tmp_path / "cache"


@pytest.fixture
def module(tmp_path: Path) -> Make:
    """Return a function that writes a module without dependencies."""

    def make(name: str = "tiny", program: str = TINY, needs_go: str = "1.21") -> Module:
        folder = tmp_path / "modules" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "go.mod").write_text(f"module example/{name}\n\ngo {needs_go}\n")
        (folder / "main.go").write_text(program)
        return Module(folder)

    return make


def entries(cache: Path) -> list[str]:
    """Return the entries of the cache, without locks."""
    return sorted(path.name for path in (cache / "bin").iterdir() if path.suffix != ".lock")
