"""What a program's text says about how it wants to be started.

Promises to look at code only: a README, a comment or a variable that has the name of a flag is not
a mention. Owns the list of address flags and the list of what makes a program listen on its task's
port. Never runs or imports the program.

`serves` errs on the side of no: a wrong yes would make a run wait for a port that never opens.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .syntax import tree_of
from .tree import File, Tree

FLAGS = ("ps_hosts", "worker_hosts", "job_name", "task_index", "data_dir", "log_path")
"""The flags that a task passes to a program that mentions them, in this order."""

SERVERS = frozenset(
    {
        "ParameterServerStrategy",
        "ParameterServerStrategyV2",
        "MultiWorkerMirroredStrategy",
        "CollectiveAllReduceStrategy",
        "train_and_evaluate",  # estimators, in images with TensorFlow 2.15 or older
    }
)
"""Names that make a task listen on its own port when the cluster has more than one task."""
SERVER_MODULES = frozenset({"train", "distribute", "server_lib"})
"""`Server` counts as an attribute of, or an import from, one of these."""

_DASHED = re.compile(rf"--({'|'.join(FLAGS)})(?![A-Za-z0-9_])")
_GETOPT = re.compile(rf"({'|'.join(FLAGS)})=")


def flags(tree: Tree) -> tuple[str, ...]:
    """Which of `FLAGS` the program takes.

    In Python that is `--name` in any string, `FLAGS.name`, the first argument of a `DEFINE...`
    call, and `name=` as getopt writes it; in a shell script `--name` outside comments.
    """
    found: set[str] = set()
    for path, file in tree.items():
        if (module := parse(path, file)) is not None:
            for node in ast.walk(module):
                found.update(_flags_of(node))
        elif (text := script_text(path, file)) is not None:
            found.update(_DASHED.findall(text))
    return tuple(name for name in FLAGS if name in found)


def serves(tree: Tree) -> bool:
    """Whether the program uses TensorFlow's distributed runtime: one of `SERVERS`, or a `Server`.

    True means that a task listens on its own port if the cluster has more than one task; a
    MultiWorkerMirroredStrategy that is alone opens none.
    """
    return any(name in SERVERS or name == "Server" for name in _names(tree))


def speaks_of_ps(tree: Tree) -> bool:
    """Whether the program is one for parameter servers: `--ps_hosts`, or their strategy."""
    strategies = {"ParameterServerStrategy", "ParameterServerStrategyV2"}
    return "ps_hosts" in flags(tree) or any(name in strategies for name in _names(tree))


def parse(path: str, file: File) -> ast.Module | None:
    """The syntax tree of a Python file; None for any other file and for one with errors."""
    if not path.endswith(".py"):
        return None
    try:
        return tree_of(file.content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def script_text(path: str, file: File) -> str | None:
    """A script without its comment lines; None for what is no script."""
    if not path.endswith((".sh", ".py")) and not file.content.startswith(b"#!"):
        return None
    text = file.content.decode("utf-8", "replace")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _names(tree: Tree) -> Iterator[str]:
    for path, file in tree.items():
        module = parse(path, file)
        for node in ast.walk(module) if module else ():
            yield from _names_of(node)


def _names_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        if node.attr != "Server" or _last_name(node.value) in SERVER_MODULES:
            yield node.attr
    elif isinstance(node, ast.ImportFrom):
        module = (node.module or "").rpartition(".")[2]
        for alias in node.names:
            if alias.name != "Server" or module in SERVER_MODULES:
                yield alias.name


def _flags_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _DASHED.findall(node.value)
        if match := _GETOPT.fullmatch(node.value):
            yield match[1]
    elif isinstance(node, ast.Attribute) and _last_name(node.value) == "FLAGS":
        yield node.attr
    elif isinstance(node, ast.Call) and _last_name(node.func).startswith("DEFINE"):
        named = [k.value for k in node.keywords if k.arg in ("name", "flag_name")]
        first = (node.args + named)[:1]
        if first and isinstance(first[0], ast.Constant):
            yield str(first[0].value)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
