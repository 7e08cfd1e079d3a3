"""The code of a program that runs when the program is started, found without running it.

The search begins with the started file and follows imports, names and calls through the program's
own files. It ignores functions that nothing names, files that nothing imports, and, in imported
files, code below `if __name__ == "__main__"`. It follows names, not values, so it misses code that
is found through `getattr` or a registry of strings.
"""

from __future__ import annotations

import ast
import posixpath
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .inspection import ImportRoot, parse_file

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_MOST_ALIASES = 16
"""Maximum number of imports and assignments through which one name is followed. The limit ends
circles, in which modules import a name from each other.
"""


@dataclass
class _Module:
    """A file that is imported or started, with the meaning of its names."""

    path: str
    root: str
    is_entry: bool
    tree: ast.Module
    definitions: dict[str, Definition] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


class RunningCode:
    """The code that runs when `entries`, Python files of `folder`, are started.

    `imported_at_start` holds the paths of the files that are imported before any function runs.
    """

    def __init__(self, folder: ImportRoot, entries: Sequence[str]) -> None:
        self.imported_at_start: set[str] = set()
        self._folder = folder
        self._modules: dict[str, _Module] = {}
        self._nodes: list[tuple[str, ast.AST]] = []
        self._reached: set[int] = set()
        self._imported: deque[tuple[_Module, bool]] = deque()
        self._named: deque[tuple[_Module, Definition]] = deque()
        self._entries = tuple(entries)
        for entry in entries:
            self._import_file(entry, posixpath.dirname(entry), at_start=True)
        while self._imported or self._named:
            if self._imported:
                module, at_start = self._imported.popleft()
                self._walk(module, _running_nodes(module.tree.body, module.is_entry), at_start)
            else:
                module, definition = self._named.popleft()
                self._walk(module, _running_nodes([definition], module.is_entry, whole=True))

    def nodes(self) -> Iterator[tuple[str, ast.AST]]:
        """Return every syntax node of the code that runs, with the path of its file."""
        return iter(self._nodes)

    def runs(self, definition: Definition) -> bool:
        """Return whether the name of the function or class `definition` occurs in the code that
        runs.
        """
        return id(definition) in self._reached

    def definitions(self) -> Iterator[tuple[str, Definition]]:
        """Yield the functions and classes of all files that are imported or started, whether they
        run or not.
        """
        for module in self._modules.values():
            for definition in module.definitions.values():
                yield module.path, definition

    def is_entry(self, path: str) -> bool:
        """Return whether the file is started, and not only imported."""
        return path in self._entries

    def meaning(self, path: str, node: ast.AST) -> str:
        """Return the full name of a dotted expression, aliases resolved; empty for anything else.

        `flags.DEFINE_string` is `tensorflow.app.flags.DEFINE_string` after
        `import tensorflow as tf; flags = tf.app.flags`.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._first_name(path, node.id), *reversed(parts)])

    def _first_name(self, path: str, name: str) -> str:
        module = self._modules[path]
        for _step in range(_MOST_ALIASES):
            first, dot, rest = name.partition(".")
            if first in module.imported:
                return module.imported[first] + dot + rest
            if first not in module.renamed:
                break
            name = module.renamed[first] + dot + rest
        return name

    # -- following ---------------------------------------------------------------------------------

    def _import_file(self, path: str, root: str, at_start: bool) -> None:
        if at_start:
            self.imported_at_start.add(path)
        if path in self._modules or not self._folder.has_file(path):
            return
        tree = parse_file(path, self._folder.read(path))
        if tree is None:
            return
        module = _Module(path, root, path in self._entries, tree)
        self._modules[path] = module
        _learn_names(module)
        self._imported.append((module, at_start))
        if module.is_entry:
            for definition in module.definitions.values():
                # a decorator such as `@cli.command()` or `@hydra.main()` may call the function
                if isinstance(definition, _FUNCTIONS) and definition.decorator_list:
                    self._reach(module, definition)

    def _walk(self, module: _Module, nodes: Iterator[ast.AST], at_start: bool = False) -> None:
        for node in nodes:
            self._nodes.append((module.path, node))
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import_name(module, alias.name, at_start)
            elif isinstance(node, ast.ImportFrom):
                base = _imported_from(module, node)
                for name in (base, *(f"{base}.{alias.name}" for alias in node.names)):
                    self._import_name(module, name, at_start)
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                self._reach_name(module, self.meaning(module.path, node))
            elif isinstance(node, ast.Call) and self._runs_main(module, node):
                for entry in self._entries:
                    if (started := self._modules.get(entry)) and "main" in started.definitions:
                        self._reach(started, started.definitions["main"])

    def _runs_main(self, module: _Module, call: ast.Call) -> bool:
        """Return whether `call` is `tf.app.run()`, which calls the `main` of the started file."""
        named = any(keyword.arg == "main" for keyword in call.keywords)
        return (
            not call.args and not named and self.meaning(module.path, call.func).endswith("app.run")
        )

    def _import_name(self, module: _Module, name: str, at_start: bool) -> None:
        for root in _roots(module.root):
            here, found = root, False
            for part in name.split("."):
                here = f"{here}/{part}" if here else part
                for path in (f"{here}/__init__.py", f"{here}.py"):
                    if self._folder.has_file(path):
                        self._import_file(path, root, at_start)
                        found = True
                        break
            if found:
                return

    def _reach_name(self, module: _Module, name: str) -> None:
        """Record that running code uses `name`, if this full name is that of a function or class of
        the program.
        """
        for _step in range(_MOST_ALIASES):
            first, _dot, _rest = name.partition(".")
            if first in module.definitions:
                self._reach(module, module.definitions[first])
                return
            found = self._file_of(module.root, name)
            if found is None:
                found = self._from_stars(module, first)
            if found is None:
                return
            module, left = found
            if not left:
                return
            name = self._first_name(module.path, left)

    def _file_of(self, root: str, name: str) -> tuple[_Module, str] | None:
        """Return the file of the module in a full name such as `lab.model.build`, and the rest of
        the name after the module. If several modules match, the one with the longest name counts.
        """
        parts = name.split(".")
        for folder in _roots(root):
            for count in range(len(parts) - 1, 0, -1):
                here = "/".join([*([folder] if folder else []), *parts[:count]])
                for path in (f"{here}.py", f"{here}/__init__.py"):
                    if path in self._modules:
                        return self._modules[path], ".".join(parts[count:])
        return None

    def _from_stars(self, module: _Module, name: str) -> tuple[_Module, str] | None:
        for base in module.stars:
            found = self._file_of(module.root, f"{base}.{name}")
            if found and (name in found[0].definitions or name in found[0].imported):
                return found
        return None

    def _reach(self, module: _Module, definition: Definition) -> None:
        if id(definition) not in self._reached:
            self._reached.add(id(definition))
            self._named.append((module, definition))


def _roots(root: str) -> Sequence[str]:
    """Return the folders in which imports are looked up. These are the folder of the started file,
    and the program's folder, in which a script may start `python -m lab.train`.
    """
    return (root, "") if root else ("",)


def _learn_names(module: _Module) -> None:
    """Record the names that a file gives to functions, classes and imports, and those that it
    assigns to an existing name, such as `flags = tf.app.flags`.
    """
    top_level = list(_top_level(module.tree.body))
    for statement in top_level:
        if isinstance(statement, _DEFINITIONS):
            module.definitions[statement.name] = statement
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                module.imported[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            base = _imported_from(module, node)
            for alias in node.names:
                if alias.name == "*":
                    module.stars.append(base)
                else:
                    module.imported[alias.asname or alias.name] = f"{base}.{alias.name}"
    for statement in top_level:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], _dotted(statement.value)
            if isinstance(target, ast.Name) and value:
                module.renamed.setdefault(target.id, value)


def _top_level(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a file and those inside its `if`, `try` and `with`."""
    pending: deque[ast.AST] = deque(statements)
    while pending:
        node = pending.popleft()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (*_DEFINITIONS, ast.expr)):
            pending.extend(ast.iter_child_nodes(node))


def _imported_from(module: _Module, node: ast.ImportFrom) -> str:
    """Return the full name of the module that `from … import` names; a relative name is resolved to
    its path below the folder from which `module` imports.
    """
    if not node.level:
        return node.module or ""
    inside = posixpath.relpath(posixpath.dirname(module.path) or ".", module.root or ".")
    parts = [] if inside == "." else inside.split("/")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _running_nodes(
    roots: Sequence[ast.AST], is_entry: bool, whole: bool = False
) -> Iterator[ast.AST]:
    """Yield the nodes below `roots` that run. When a function is defined, only its decorators and
    defaults run. If `whole` is true, all code in functions counts as running.
    """
    pending: deque[ast.AST] = deque(roots)
    while pending:
        node = pending.popleft()
        yield node
        if isinstance(node, ast.If) and (taken := _taken(node, is_entry)) is not None:
            pending.extend(taken)
        elif not whole and isinstance(node, _FUNCTIONS):
            pending.extend(node.decorator_list)
            pending.extend(node.args.defaults)
            pending.extend(each for each in node.args.kw_defaults if each is not None)
        else:
            pending.extend(ast.iter_child_nodes(node))


def _taken(node: ast.If, is_entry: bool) -> Sequence[ast.stmt] | None:
    """Return the statements of the branch that an `if` runs; None if either branch may run."""
    test = node.test
    if isinstance(test, ast.Constant):
        return node.body if test.value else node.orelse
    if _dotted(test).rpartition(".")[2] == "TYPE_CHECKING":
        return node.orelse
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sides = (test.left, test.comparators[0])
        names = {side.id for side in sides if isinstance(side, ast.Name)}
        texts = {side.value for side in sides if isinstance(side, ast.Constant)}
        if "__name__" in names and "__main__" in texts:
            runs = is_entry is isinstance(test.ops[0], (ast.Eq, ast.Is))
            return node.body if runs else node.orelse
    return None
