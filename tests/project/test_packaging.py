"""The wheel, the layout of packages, and what must not be in the project."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import itertools
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from support.project import ROOT

import tfcluster_magic

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = ROOT / "tfcluster_magic"
NOT_OURS = {"build", "dist", "lib", "node_modules", "tfcluster_magic.egg-info", "__pycache__"}


def _files(*endings: str) -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        hidden = {name for name in folders if name.startswith(".") and name != ".ci"}
        folders[:] = sorted({*folders} - hidden - NOT_OURS)
        yield from (Path(folder, name) for name in names if Path(name).suffix in endings)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that is built as for a release, from a copy of the sources without built
    files.
    """
    copy = tmp_path_factory.mktemp("sources")
    also = ("pyproject.toml", "setup.py", "tfcluster.py", "README.md", "LICENSE", "MANIFEST.in")
    for name in also:
        shutil.copy(ROOT / name, copy)
    built = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(PACKAGE, copy / PACKAGE.name, ignore=built)
    shutil.copytree(ROOT / "tools", copy / "tools", ignore=built)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(build, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next((copy / "dist").iterdir())


def test_one_wheel_serves_every_python_of_a_platform(wheel: Path) -> None:
    """Because of the compiled guard, the wheel has the tag of a platform, but not the tag of a
    single Python.
    """
    assert re.fullmatch(r"tfcluster_magic-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)


def test_the_wheel_holds_everything_that_is_started_or_read_by_path(wheel: Path) -> None:
    """Runtime, guard, templates and types are in the wheel; C sources are not."""
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in {".py", ".j2", ".bash"} or path.name == "py.typed"
    }
    assert source <= names
    assert "tfcluster_magic/runtime/libloopback_guard.so" in names
    assert {"tfcluster_magic/runtime/site/sitecustomize.py", "tfcluster.py"} <= names
    assert not [name for name in names if name.endswith((".c", ".h"))]


def test_the_guard_in_the_wheel_can_be_preloaded(wheel: Path, tmp_path: Path) -> None:
    """A process starts with the compiled guard without printing a warning."""
    guard = zipfile.ZipFile(wheel).extract("tfcluster_magic/runtime/libloopback_guard.so", tmp_path)
    said = subprocess.run(
        [sys.executable, "-S", "-c", "print('hello')"],
        env={"LD_PRELOAD": guard},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (said.stdout, said.stderr) == ("hello\n", "")


def test_the_wheel_carries_the_version_of_the_package(wheel: Path) -> None:
    """`tfcluster --version`, the wheel's name and the package have the same version."""
    said = subprocess.run(
        [sys.executable, "-c", "from tfcluster_magic.cli import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert tfcluster_magic.__version__ in said.stdout
    assert wheel.name.startswith(f"tfcluster_magic-{tfcluster_magic.__version__}-")


def test_make_tells_its_targets() -> None:
    """`make` without a target prints a line for each target."""
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("install", "run", "test", "lint", "fix", "bench", "clean"):
        assert re.search(rf"^  make {target} +\w", said, re.MULTILINE), target


def _pins(name: str) -> set[str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    found = {re.split(r"[ ;]", line)[0] for line in lines if line[0] != "#"}
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", pin) for pin in found)
    return found


def _names(name: str) -> set[str]:
    return {pin.partition("==")[0] for pin in _pins(name)}


def test_every_pin_is_exact_and_dev_differs_from_run_only_by_more() -> None:
    """`make test` after `make run` only adds packages and changes no version."""
    assert _pins("run.txt") < _pins("dev.txt")


def test_an_image_holds_the_versions_that_are_tested_here() -> None:
    """The notebook image has all packages of run.txt except those of a sign-in, which only a hub
    imports. No two images have different versions of a package.
    """
    sign_in = {"oauthenticator", "pyjwt", "ruamel-yaml"}
    assert _names("run.txt") - _names("notebook.txt") == sign_in
    assert {pin for pin in _pins("run.txt") if pin.partition("==")[0] not in sign_in} < _pins(
        "notebook.txt"
    )
    for one, other in itertools.combinations(("notebook.txt", "hub.txt", "operator.txt"), 2):
        differing = {pin.partition("==")[0] for pin in _pins(one) ^ _pins(other)}
        in_both = _names(one) & _names(other)
        assert not differing & in_both, (one, other)


def test_every_pin_is_for_the_oldest_python() -> None:
    """Each package that `make run` installs on Python 3.10 accepts this Python. Packages that are
    not installed here are not checked.
    """
    environment = {**default_environment(), "python_version": "3.10"}
    environment["python_full_version"] = "3.10.0"
    for line in (ROOT / "requirements" / "run.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pin = Requirement(line.split("  #")[0])
        if pin.marker is None or pin.marker.evaluate(environment):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                there = importlib.metadata.distribution(pin.name)
                if pin.specifier.contains(there.version):
                    wanted = SpecifierSet(there.metadata["Requires-Python"] or "")
                    assert wanted.contains("3.10.0"), f"{line}: needs Python {wanted}"


def test_run_installs_what_a_hub_imports_for_a_sign_in() -> None:
    """run.txt has the distribution of every package that both ways to sign in import."""
    modules = [
        "tfcluster_magic.hub.auth.openid_authenticator",
        "tfcluster_magic.hub.auth.password_authenticator",
    ]
    code = f"import {', '.join(modules)}, sys; print(*sys.modules, sep=chr(10))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    owners = importlib.metadata.packages_distributions()
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    used = {
        re.sub(r"[-_.]+", "-", owner).lower() for name in imported for owner in owners.get(name, ())
    } - {"tfcluster-magic"}
    assert {"oauthenticator", "pyjwt", "jupyterhub"} <= used
    assert used <= _names("run.txt")


def test_faces_know_nothing_of_each_other_and_imports_only_go_down() -> None:
    """Imports follow the layers of ARCHITECTURE.md, and the user interfaces do not import each
    other.
    """
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [tool, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted((PACKAGE / "runtime").rglob("*.py")), ids=lambda p: p.name)
def test_what_runs_in_a_task_needs_only_python_3_8(path: Path) -> None:
    """A module of the runtime parses as Python 3.8 and imports only the standard library and other
    modules of the runtime.
    """
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    siblings = {sibling.stem for sibling in (PACKAGE / "runtime").glob("*.py")}
    late = {"tensorflow"}  # imported only with `--server python`
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] in {*sys.stdlib_module_names, *siblings, *late}, name


def test_the_figure_of_the_layers_is_that_of_the_contract() -> None:
    """docs/explanation/layers.svg shows each package of the contract, and no package above its
    layer.
    """
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"\w+", layer) for layer in contracts[0]["layers"]]
    level = {name: number for number, names in enumerate(layers) for name in names}
    drawn = re.findall(r'y="(\d+)">(\w+)/<', (ROOT / "docs/explanation/layers.svg").read_text())
    order = [(level[name], int(y)) for y, name in drawn if name != "runtime"]
    small = {"web", "state_files", "paths", "errors", "i18n"}
    assert {name for _y, name in drawn} - {"runtime"} == level.keys() - small, (
        "draw each package of the first contract of pyproject.toml in docs/explanation/layers.svg"
    )
    assert order == sorted(order, key=lambda each: each[0])
    assert [y for _level, y in order] == sorted(y for _level, y in order)


def test_the_project_names_no_machine_and_no_registry() -> None:
    """The project contains no paths of a developer's machine and no registry hosts."""
    words = [r"(?<![\w.~$}])/(work|root)/", r"[s]pikes?/", r"\b[i]ssue \d", r"pypi\.o[r]g/simple"]
    forbidden = re.compile("|".join(words))
    endings = (".py", ".md", ".txt", ".toml", ".sh", ".ipynb", ".j2", ".c", ".h", ".yaml", ".in")
    endings += ("", ".ts", ".tsx", ".mjs", ".mts", ".css", ".json", ".lock", ".po")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in _files(*endings)
        if (match := forbidden.search(path.read_text(errors="replace")))
    ]
    assert not found


def test_the_threat_model_names_tests_that_exist() -> None:
    """Each row of SECURITY.md names a test that exists."""
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line[:2] == "| "]
    rows = [row for row in rows if not row.startswith("| who |")]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`([a-z_/]+\.py)(?:::(\w+))?`", row.rsplit("|", 2)[1])
        assert named, row
        for path, test in named:
            assert f"def {test}(" in (ROOT / "tests" / path).read_text() or not test, (path, test)
