"""Which files beside a program it needs, found by reading its imports.

Promises to follow imports as Python would from the program's own folder, without importing
anything: a module brings its file, a package its whole folder, and a shell script the `.py` and
`.sh` files that it names. Owns what counts as an import that will surely run. Never looks outside
the folder it is given.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Protocol

from .folder import list_files, read_file
from .mentions import parse, script_text
from .tree import File, Tree

_NAMED_FILE = re.compile(r"[\w./-]+\.(?:py|sh)(?![\w.])")
_NAMED_MODULE = re.compile(r"(?<!\S)-m\s+([A-Za-z_][\w.]*)")
_ANY_FAILURE = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class Folder(Protocol):
    """Where imports are looked up; paths have `/` between their parts."""

    def has_file(self, path: str) -> bool:
        """Whether `path` is a file."""

    def has_folder(self, path: str) -> bool:
        """Whether `path` is a folder."""

    def read(self, path: str) -> File:
        """The file at `path`, which exists."""

    def modules(self, package: str) -> list[str]:
        """Paths of all Python files in the folder `package` and below."""


@dataclass(frozen=True)
class OnDisk:
    """A folder on disk, of which only what is asked for is read."""

    root: Path
    source: object
    limit_bytes: int

    def has_file(self, path: str) -> bool:
        """Whether `path` is a file."""
        return (self.root / path).is_file()

    def has_folder(self, path: str) -> bool:
        """Whether `path` is a folder."""
        return (self.root / path).is_dir()

    def read(self, path: str) -> File:
        """The file at `path`, which exists."""
        return read_file(self.root / path, self.limit_bytes, source=self.source)

    def modules(self, package: str) -> list[str]:
        """Paths of all Python files in the folder `package` and below."""
        listed = list_files(self.root, package, source=self.source, skipped=[])
        return [path for path in listed if path.endswith(".py")]


@dataclass(frozen=True)
class InTree:
    """A tree that was read before."""

    tree: Tree

    def has_file(self, path: str) -> bool:
        """Whether `path` is a file."""
        return path in self.tree

    def has_folder(self, path: str) -> bool:
        """Whether `path` is a folder."""
        return path in self._folders

    def read(self, path: str) -> File:
        """The file at `path`, which exists."""
        return self.tree[path]

    def modules(self, package: str) -> list[str]:
        """Paths of all Python files in the folder `package` and below."""
        return [p for p in self.tree if p.startswith(f"{package}/") and p.endswith(".py")]

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(str(above) for path in self.tree for above in PurePosixPath(path).parents)


@dataclass(frozen=True)
class Import:
    """One imported module; `sure` when nothing but an error keeps it from being imported."""

    name: str
    line: int
    sure: bool


@dataclass
class Closure:
    """What a program needs of its folder.

    `files` holds single files by path, `packages` folders to take whole, `missing` by top-level
    module the file and line that import it, and `moves_path` whether the program changes where it
    imports from.
    """

    files: dict[str, File] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    missing: dict[str, tuple[str, int]] = field(default_factory=dict)
    moves_path: bool = False


def imports_of(module: ast.Module) -> Iterator[Import]:
    """Every absolute import of a module, submodule candidates of `from a import b` included."""
    pending: deque[tuple[ast.AST, bool]] = deque([(module, True)])
    while pending:
        node, sure = pending.popleft()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, sure)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield Import(node.module, node.lineno, sure)
            for alias in node.names:
                yield Import(f"{node.module}.{alias.name}", node.lineno, sure)
        for child in ast.iter_child_nodes(node):
            pending.append((child, sure and not _may_be_skipped(node, child)))


def closure(folder: Folder, entry: str, entry_file: File | None = None) -> Closure:
    """What a program needs of `folder`; it starts with `entry`, or `entry_file` in its place."""
    found = Closure()
    # Files that surely run come first, so that a file is read as sure when it is both.
    pending: tuple[deque[tuple[str, str]], ...] = (deque(), deque())
    pending[0].append((entry, posixpath.dirname(entry)))
    while pending[0] or pending[1]:
        sure = bool(pending[0])
        path, root = pending[0 if sure else 1].popleft()
        given = entry_file if path == entry else None
        if path in found.files or (given is None and not folder.has_file(path)):
            continue
        found.files[path] = file = given or folder.read(path)
        for needed, its_root, surely in _needed(folder, path, file, root, found, sure):
            pending[0 if sure and surely else 1].append((needed, its_root))
    return found


def _needed(
    folder: Folder, path: str, file: File, root: str, found: Closure, sure: bool
) -> Iterator[tuple[str, str, bool]]:
    """Paths that `path` runs, the folder each imports from, and whether it surely runs."""
    module = parse(path, file)
    if module is None:
        text = script_text(path, file) or ""
        found.moves_path |= re.search(r"PYTHONPATH|\bcd\b|\bpip\b|conda|activate", text) is not None
        yield from _named_by_script(folder, text)
        return
    found.moves_path |= re.search(rb"\bsys\.path\b", file.content) is not None
    for imported in imports_of(module):
        parts = tuple(imported.name.split("."))
        if parts[0] in sys.builtin_module_names:
            continue
        ran, package = _locate(folder, root, parts)
        if package is not None and package not in found.packages:
            found.packages.add(package)
            for path_inside in folder.modules(package):
                yield path_inside, root, False
        if not ran and sure and imported.sure and not folder.has_folder(_join(root, parts[0])):
            found.missing.setdefault(parts[0], (path, imported.line))
        for needed in ran:
            yield needed, root, imported.sure


def _locate(folder: Folder, root: str, parts: tuple[str, ...]) -> tuple[list[str], str | None]:
    """Files that importing `parts` from `root` runs, and the outermost package of them."""
    ran: list[str] = []
    package = None
    here = root
    for part in parts:
        here = _join(here, part)
        if folder.has_file(f"{here}/__init__.py"):
            ran.append(f"{here}/__init__.py")
            package = package or here
        elif folder.has_file(f"{here}.py"):
            ran.append(f"{here}.py")
            break
        elif not folder.has_folder(
            here
        ):  # a folder without __init__.py is a namespace: look deeper
            break
    return ran, package


def _named_by_script(folder: Folder, text: str) -> Iterator[tuple[str, str, bool]]:
    for name in _NAMED_FILE.findall(text):
        path = posixpath.normpath(name)
        if not path.startswith(("/", "..")):
            yield path, posixpath.dirname(path), True
    for name in _NAMED_MODULE.findall(text):
        ran, package = _locate(folder, "", tuple(name.split(".")))
        for path in [*ran, *([f"{package}/__main__.py"] if package else [])]:
            yield path, "", True


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if root else name


def _may_be_skipped(node: ast.AST, child: ast.AST) -> bool:
    """Whether `child` may not run, or may fail without harm, although `node` runs."""
    if isinstance(node, ast.If):
        return child is not node.test and "__name__" not in ast.dump(node.test)
    if isinstance(node, ast.ExceptHandler):
        return True
    if isinstance(node, ast.Try) and isinstance(child, ast.stmt):
        return child in node.body and any(_catches_import(handler) for handler in node.handlers)
    return False


def _catches_import(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    if caught is None:
        return True
    elements = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(e, ast.Name) and e.id in _ANY_FAILURE for e in elements)
