"""The layout of the package and of its tests, as ARCHITECTURE.md describes it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from support.project import ROOT, TESTS

PACKAGE = ROOT / "tfcluster_magic"
OF_A_RUN = {".tfcluster-stacks/"}
"""Folders in where-is-what.md that exist only in the output of a run."""


@cache  # parsed on first use: every process of the suite imports this file, few use it
def trees() -> Mapping[Path, ast.Module]:
    """Return the parsed files of the package."""
    return {
        path.relative_to(ROOT).with_suffix(""): ast.parse(path.read_text("utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def modules() -> Mapping[str, ast.Module]:
    """Return the parsed modules by their full import names, without runtime/, which is not a
    package.
    """
    return {
        ".".join(path.parts).removesuffix(".__init__"): tree
        for path, tree in trees().items()
        if "runtime" not in path.parts
    }


def imports(module: str, tree: ast.Module) -> set[str]:
    """Return the modules of the package that `module` imports anywhere, even if only for types."""
    is_package = (ROOT / Path(*module.split(".")) / "__init__.py").exists()
    parts = module.split(".") if is_package else module.split(".")[:-1]
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = parts[: len(parts) - node.level + 1] if node.level else []
        where = ".".join([*base, *([node.module] if node.module else [])])
        for alias in node.names:
            name = f"{where}.{alias.name}"
            found.add(name if name in modules() else where)
    return {name for name in found if name in modules() and name != module}


def test_no_two_modules_import_each_other() -> None:
    """There are no import cycles, not even inside functions or through TYPE_CHECKING."""
    graph = {module: imports(module, tree) for module, tree in modules().items()}
    graph[PACKAGE.name] = set()  # the root package lists its names and imports them only on use
    TopologicalSorter(graph).prepare()


def test_few_modules_lie_loose_at_the_root() -> None:
    """The root has at most six modules, which every package uses."""
    assert len(list(PACKAGE.glob("*.py"))) <= 6


def test_a_class_name_is_used_once() -> None:
    """No two classes of the package share a name."""
    places = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_each_large_package_has_a_contract() -> None:
    """A package with more than eight modules has its layers in pyproject.toml."""
    sizes: dict[str, int] = defaultdict(int)
    for module in modules():
        sizes[module.rpartition(".")[0]] += 1
    contracts = re.findall(
        r'^containers = \["(.*)"\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    large = {name for name, size in sizes.items() if size > 8 and name}
    assert large - set(contracts) == set()


def test_the_guide_for_developers_names_what_exists() -> None:
    """Each path in where-is-what.md is a file or a folder of the package or of the project."""
    text = (ROOT / "docs/reference/where-is-what.md").read_text()
    code = set(re.findall(r"`([\w.-]+/[\w./-]*)`", text)) - OF_A_RUN
    assert len(code) > 100
    assert [
        each for each in code if not any((top / each).exists() for top in (PACKAGE, ROOT))
    ] == []


def test_no_test_imports_a_test() -> None:
    """Code that tests share is in tests/support."""
    sharing = re.compile(r"^\s*(from|import) (\w+\.)*test_\w+", re.MULTILINE)
    among = [path for path in TESTS.rglob("*.py") if sharing.search(path.read_text("utf-8"))]
    assert [path.relative_to(TESTS).as_posix() for path in among] == []
