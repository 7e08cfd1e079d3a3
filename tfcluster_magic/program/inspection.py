"""Static inspection of a program: its syntax trees, whether it uses TensorFlow's distributed
runtime, and the files that it imports.

The program is never run or imported, and nothing outside of the given folder is read. In doubt,
`uses_distributed_runtime` returns False, because a wrong True would make a run wait for a port that
never opens.
"""

from __future__ import annotations

import ast
import contextlib
import posixpath
import re
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

from .tree import File, Tree, list_files, read_file

SERVING_NAMES = frozenset(
    {
        "ParameterServerStrategy",
        "ParameterServerStrategyV2",
        "MultiWorkerMirroredStrategy",
        "CollectiveAllReduceStrategy",
        "train_and_evaluate",  # of estimators, which TensorFlow has up to 2.15
    }
)
"""Names that make a task listen on its own port if the cluster has more than one task."""
_OWNERS = {
    "Server": frozenset({"train", "distribute", "server_lib"}),
    "train_and_evaluate": frozenset({"estimator"}),
}
"""The modules of TensorFlow that have each of these names. Programs use the same names for
functions of their own, so a name counts only as an attribute of one of its modules, or as an import
from one of them.
"""


def uses_distributed_runtime(tree: Tree) -> bool:
    """Return whether the program uses TensorFlow's distributed runtime (SERVING_NAMES or `Server`).

    True means that a task listens on its own port if the cluster has more than one task; a single
    task with MultiWorkerMirroredStrategy opens no port.
    """
    return any(name in SERVING_NAMES or name == "Server" for name in _used_names(tree))


def parse_file(path: str, file: File) -> ast.Module | None:
    """Return the syntax tree of a Python file; None for any other file, and for a file with syntax
    errors.
    """
    if not path.endswith(".py"):
        return None
    try:
        return parse_python(file.content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def script_text(path: str, file: File) -> str | None:
    """Return the text of a script without its comment lines; None if the file is not a script."""
    if not path.endswith((".sh", ".py")) and not file.content.startswith(b"#!"):
        return None
    text = file.content.decode("utf-8", "replace")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _used_names(tree: Tree) -> Iterator[str]:
    for path, file in tree.items():
        module = parse_file(path, file)
        for node in ast.walk(module) if module else ():
            yield from _used_names_of(node)


def _used_names_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        if _last_name(node.value) in _OWNERS.get(node.attr, {_last_name(node.value)}):
            yield node.attr
    elif isinstance(node, ast.ImportFrom):
        module = (node.module or "").rpartition(".")[2]
        for alias in node.names:
            if module in _OWNERS.get(alias.name, {module}):
                yield alias.name


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# The files of a program's folder that the program needs. They are found by following imports as
# Python does. An imported module adds its file, and an imported package adds its whole folder. A
# shell script adds the `.py` and `.sh` files that it names.

_NAMED_FILE = re.compile(r"[\w./-]+\.(?:py|sh)(?![\w.])")
_NAMED_MODULE = re.compile(r"(?<!\S)-m\s+([A-Za-z_][\w.]*)")
_ANY_FAILURE = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class ImportRoot(Protocol):
    """A folder in which imports are looked up; paths use `/`."""

    def has_file(self, path: str) -> bool:
        """Return whether `path` is a file."""

    def has_folder(self, path: str) -> bool:
        """Return whether `path` is a folder."""

    def read(self, path: str) -> File:
        """Return the file at `path`, which exists."""

    def modules(self, package: str) -> list[str]:
        """Return the paths of all Python files in the folder `package` and below."""


@dataclass(frozen=True)
class OnDisk:
    """A folder on disk; only requested files are read."""

    root: Path
    source: object
    limit_bytes: int

    def has_file(self, path: str) -> bool:
        """Return whether `path` is a file."""
        return (self.root / path).is_file()

    def has_folder(self, path: str) -> bool:
        """Return whether `path` is a folder."""
        return (self.root / path).is_dir()

    def read(self, path: str) -> File:
        """Return the file at `path`, which exists."""
        return read_file(self.root / path, self.limit_bytes, source=self.source)

    def modules(self, package: str) -> list[str]:
        """Return the paths of all Python files in the folder `package` and below."""
        listed = list_files(self.root, package, source=self.source, skipped=[])
        return [path for path in listed if path.endswith(".py")]


@dataclass(frozen=True)
class InTree:
    """A tree that is already in memory."""

    tree: Tree

    def has_file(self, path: str) -> bool:
        """Return whether `path` is a file."""
        return path in self.tree

    def has_folder(self, path: str) -> bool:
        """Return whether `path` is a folder."""
        return path in self._folders

    def read(self, path: str) -> File:
        """Return the file at `path`, which exists."""
        return self.tree[path]

    def modules(self, package: str) -> list[str]:
        """Return the paths of all Python files in the folder `package` and below."""
        return [p for p in self.tree if p.startswith(f"{package}/") and p.endswith(".py")]

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(str(above) for path in self.tree for above in PurePosixPath(path).parents)


@dataclass(frozen=True)
class ImportedModule:
    """One imported module. `sure` is False if the program may skip the import, for example in an
    `if`, or continue when the import fails.
    """

    name: str
    line: int
    sure: bool


@dataclass
class ImportClosure:
    """The files that a program needs from its folder.

    `files` has the single files, by path, and `packages` has the folders of packages, all of whose
    files are copied. For each imported top-level module that was not found, `missing` has the file
    and line of the import. `moves_path` says whether the program may change where Python finds
    modules, for example by `sys.path`.
    """

    files: dict[str, File] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    missing: dict[str, tuple[str, int]] = field(default_factory=dict)
    moves_path: bool = False


def imports_of(module: ast.Module) -> Iterator[ImportedModule]:
    """Yield every module that `module` imports by an absolute import; for `from a import b`, yield
    `a` and `a.b`.
    """
    pending: deque[tuple[ast.AST, bool]] = deque([(module, True)])
    while pending:
        node, sure = pending.popleft()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield ImportedModule(alias.name, node.lineno, sure)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield ImportedModule(node.module, node.lineno, sure)
            for alias in node.names:
                yield ImportedModule(f"{node.module}.{alias.name}", node.lineno, sure)
        for child in ast.iter_child_nodes(node):
            pending.append((child, sure and not _may_be_skipped(node, child)))


def import_closure(folder: ImportRoot, entry: str, entry_file: File | None = None) -> ImportClosure:
    """Return the files of `folder` that the program `entry` needs. If `entry_file` is passed, it is
    used as the content of `entry`.
    """
    found = ImportClosure()
    # The first queue has the files that surely run, the second those that may run. The first is
    # emptied first, so that a file in both queues counts as one that surely runs.
    pending: tuple[deque[tuple[str, str]], ...] = (deque(), deque())
    pending[0].append((entry, posixpath.dirname(entry)))
    while pending[0] or pending[1]:
        sure = bool(pending[0])
        path, root = pending[0 if sure else 1].popleft()
        given = entry_file if path == entry else None
        if path in found.files or (given is None and not folder.has_file(path)):
            continue
        found.files[path] = file = given or folder.read(path)
        for needed, its_root, surely in _required_files(folder, path, file, root, found, sure):
            pending[0 if sure and surely else 1].append((needed, its_root))
    return found


def _required_files(
    folder: ImportRoot, path: str, file: File, root: str, found: ImportClosure, sure: bool
) -> Iterator[tuple[str, str, bool]]:
    """Yield the files that run because the file `path` runs, as tuples: the path of a file, the
    folder in which its imports are looked up, and whether it surely runs.
    """
    module = parse_file(path, file)
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
        ran, package = _locate_module(folder, root, parts)
        if package is not None and package not in found.packages:
            found.packages.add(package)
            for path_inside in folder.modules(package):
                yield path_inside, root, False
        if not ran and sure and imported.sure and not folder.has_folder(_join(root, parts[0])):
            found.missing.setdefault(parts[0], (path, imported.line))
        for needed in ran:
            yield needed, root, imported.sure


def _locate_module(
    folder: ImportRoot, root: str, parts: tuple[str, ...]
) -> tuple[list[str], str | None]:
    """Return the files that run when a module is imported, and the folder of its outermost package.
    `parts` is the module's name, split at the dots; `root` is the folder in which it is looked up.
    The package is None if the module is in no package.
    """
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
        ):  # a folder without __init__.py is a namespace package, in which the search continues
            break
    return ran, package


def _named_by_script(folder: ImportRoot, text: str) -> Iterator[tuple[str, str, bool]]:
    for name in _NAMED_FILE.findall(text):
        path = posixpath.normpath(name)
        if not path.startswith(("/", "..")):
            yield path, posixpath.dirname(path), True
    for name in _NAMED_MODULE.findall(text):
        ran, package = _locate_module(folder, "", tuple(name.split(".")))
        for path in [*ran, *([f"{package}/__main__.py"] if package else [])]:
            yield path, "", True


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if root else name


def _may_be_skipped(node: ast.AST, child: ast.AST) -> bool:
    """Return whether the part `child` of the statement `node` may be skipped when `node` runs, or
    may fail without ending the program.
    """
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


# Parsing that works around a bug of Python. Before 3.11.8 and 3.12.2, Python has a single counter
# of tree depth for the whole process. So when a second thread parses, for example to show a
# traceback, the first one may fail with SystemError although its text is correct:
# https://github.com/python/cpython/issues/106905

_ATTEMPTS = 20
_T = TypeVar("_T")


def parse_python(content: bytes) -> ast.Module:
    """Return the syntax tree of a Python text without showing its warnings.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
    """

    def parse() -> ast.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)

    return retry_parsing(parse)


def retry_parsing(parse: Callable[[], _T]) -> _T:
    """Return the result of `parse`; call it again if parsing in another thread disturbed it."""
    for _attempt in range(_ATTEMPTS - 1):
        with contextlib.suppress(SystemError):
            return parse()
    return parse()
