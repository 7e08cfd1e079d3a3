"""Packages that tools/install.py keeps on a build machine for the next clone."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest
from support.project import ROOT

SCRIPT = "#!{python}\nimport kept\nprint(kept.WORD, kept.__cached__)\n"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module tools/install.py."""
    tools = ROOT / "tools"
    monkeypatch.syspath_prepend(str(tools))
    spec = importlib.util.spec_from_file_location("install", tools / "install.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(folder: Path) -> Path:
    """Make a new virtual environment, without packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.fixture
def first(install: ModuleType, tmp_path: Path) -> Path:
    """Return an environment with an installed package, which has a module, a script and a data
    file. The environment also has files that belong to its own clone of the project.
    """
    made = environment(tmp_path / "first")
    (made / install.PACKAGES / "kept.py").write_text("WORD = 'from a package'\n")
    (made / install.PACKAGES / "__editable__.tfcluster_magic-0.1.0.pth").write_text("")
    script = made / "bin" / "says"
    script.write_text(SCRIPT.format(python=made / "bin" / "python"))
    script.chmod(0o755)
    (made / "share").mkdir()
    (made / "share" / "settings.json").write_text("{}")
    (made / "etc").mkdir()
    assert said(made) == f"from a package {cached(made, install)}"
    return made


def cached(made: Path, install: ModuleType) -> Path:
    """Return the path of the compiled module."""
    return made / install.PACKAGES / "__pycache__" / f"kept.{sys.implementation.cache_tag}.pyc"


def said(made: Path) -> str:
    """Run the script of the environment, which compiles the modules that it imports; return its
    output.
    """
    script = str(made / "bin" / "says")
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run([script], capture_output=True, text=True, check=True, env=env)
    return ran.stdout.strip()


def test_another_clone_takes_what_was_unpacked_and_compiled(
    install: ModuleType, first: Path, tmp_path: Path
) -> None:
    """Scripts of the second clone run with its own Python, and no file that belongs to the first
    clone is copied.
    """
    kept = tmp_path / "cache" / "dev-1"
    install.keep_packages(kept, first)
    second = environment(tmp_path / "second")
    assert install.bring_packages(kept, second)
    assert cached(second, install).read_bytes() == cached(first, install).read_bytes()
    assert said(second) == f"from a package {cached(second, install)}"
    assert not list((second / install.PACKAGES).glob("*tfcluster*"))
    (second / "share" / "settings.json").write_text("another")
    assert (first / "share" / "settings.json").read_text() == "{}"
    assert not install.bring_packages(tmp_path / "cache" / "dev-2", second)


def test_only_the_newest_are_kept(install: ModuleType, first: Path, tmp_path: Path) -> None:
    """Packages of earlier pinned versions are removed from the cache, and packages that are in the
    cache are not stored again.
    """
    for number in range(install.KEPT + 1):
        install.keep_packages(tmp_path / "cache" / f"dev-{number}", first)
    left = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert left == [f"dev-{number + 1}" for number in range(install.KEPT)]
    install.keep_packages(tmp_path / "cache" / left[0], tmp_path / "nothing")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == left


def test_what_was_killed_is_not_taken_for_whole(
    install: ModuleType, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages that were stored or removed only in part are never used, and are deleted later.
    Packages that another process is storing stay.
    """
    cache = tmp_path / "cache"
    (cache / ".dev-9.1").mkdir(parents=True)
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: sys.exit("killed"))
        for number in range(install.KEPT):
            install.keep_packages(cache / f"dev-{number}", first)
        with pytest.raises(SystemExit):
            install.keep_packages(cache / f"dev-{install.KEPT}", first)
    left = {path.name for path in cache.iterdir()}
    whole = {f"dev-{number + 1}" for number in range(install.KEPT)}
    assert left >= {*whole, ".dev-9.1"}
    assert not install.bring_packages(cache / "dev-0", tmp_path / "second")
    for path in cache.glob(".*"):
        os.utime(path, (0, 0))
    install.prune(cache)
    assert {path.name for path in cache.iterdir()} == whole
