"""Flags of a program's command line to which TFCluster can give a value.

Only code that runs when the program is started (`RunningCode`) is searched for flags. A flag is
found if it is defined with absl, `tf.app.flags`, argparse, optparse, click or getopt, or if the
code compares its prefix with `sys.argv`. The flags of a shell script are its `case` patterns and
the flags of programs to which it passes `"$@"`. A flag is not passed if that could break a program
that runs without it. So an optional flag keeps its default value unless the default is empty. If
two parsers read the same arguments, only flags that both declare are passed.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..spec import ADDRESS_FLAGS, FOLDER_FLAGS, flag_key
from .inspection import InTree
from .running_code import RunningCode
from .tree import Tree

_TAKEN = frozenset((*ADDRESS_FLAGS, *FOLDER_FLAGS))


@dataclass(frozen=True)
class Flag:
    """A flag as the program declares it, without its dashes, and the line that declares it.

    `required`: the program does not run without it. `empty`: its default is None or "". `left_out`
    is the code of the message that says why the flag is not passed; empty if the flag is passed.
    """

    name: str
    path: str
    line: int
    required: bool = False
    empty: bool = False
    left_out: str = ""

    @property
    def key(self) -> str:
        """The flag's name with underscores: `ps-hosts` and `ps_hosts` are the same flag."""
        return flag_key(self.name)

    @property
    def is_address(self) -> bool:
        """Whether the flag's value is an address or a task of the cluster."""
        return self.key in ADDRESS_FLAGS


def taken_flags(tree: Tree, entry: str, code: RunningCode) -> tuple[Flag, ...]:
    """Return the known flags of the command line of `entry`: address flags first, then folders.

    `code` is the running code of the program (`code_of`). If `--job_name` or `--task_index` is the
    only address flag, it is not passed, because it often means something else, such as the name of
    a log.
    """
    found = _of_code(code) if entry.endswith(".py") else _of_script(tree, entry)
    by_key: dict[str, Flag] = {}
    for flag in found:
        by_key.setdefault(flag.key, flag)
    known = [by_key[key] for key in (*ADDRESS_FLAGS, *FOLDER_FLAGS) if key in by_key]
    addresses = [flag for flag in known if flag.is_address]
    alone = len(addresses) == 1 and not addresses[0].key.endswith("_hosts")
    return tuple(
        replace(flag, left_out="FlagUnrelated") if alone and flag.is_address else flag
        for flag in known
        if flag.is_address or flag.required or flag.empty
    )


def code_of(tree: Tree, entry: str) -> RunningCode:
    """Return the Python code that runs when `entry` is started, directly or by a shell script."""
    started = [entry] if entry.endswith(".py") else [each.path for each in started_by(tree, entry)]
    return RunningCode(InTree(tree), list(dict.fromkeys(started)))


# -- Python ----------------------------------------------------------------------------------------


@dataclass
class _CommandLine:
    """The flags of one parser; a `strict` parser refuses flags that it does not know."""

    flags: list[Flag]
    reads: bool
    strict: bool


def _of_code(code: RunningCode) -> Sequence[Flag]:
    calls = [(path, node) for path, node in code.nodes() if isinstance(node, ast.Call)]
    argparse = _argparse(calls)
    absl = _absl(code, calls)
    absl.reads |= not argparse.reads
    lines = [line for line in (argparse, absl, _click(code)) if line.reads and line.flags]
    strict = [line for line in (argparse, absl) if line.reads and line.strict]
    found = [flag for line in lines for flag in line.flags]
    for line in strict:  # a strict parser refuses flags that it does not know
        names = {flag.name for flag in line.flags}
        found = [flag for flag in found if flag.name in names]
    return found or [*_getopt(code, calls), *_by_hand(code)]


_DECLARES = ("add_argument", "add_option")
_READS = {
    "parse_args": True,
    "parse_intermixed_args": True,
    "parse_known_args": False,
    "parse_known_intermixed_args": False,
    "parse_args_into_dataclasses": True,
}
"""Methods of a parser that read the command line, and whether they refuse undeclared flags."""


def _argparse(calls: Sequence[tuple[str, ast.Call]]) -> _CommandLine:
    parse = [
        _READS[name]
        for _path, call in calls
        if (name := _method(call)) in _READS and _reads_command_line(call)
    ]
    branched, mains = False, set()
    for path, call in calls:
        if _method(call) in ("add_subparsers", "add_parser"):
            branched = True
            if _method(call) == "add_subparsers":
                mains.add((path, _receiver(call)))
    preset = {
        keyword.arg
        for _path, call in calls
        if _method(call) == "set_defaults"
        for keyword in call.keywords
    }
    flags = []
    for path, call in calls:
        if _method(call) not in _DECLARES:
            continue
        flag = _declared(path, call, call.args)
        if flag is None:
            continue
        if flag.key in preset:
            flag = replace(flag, empty=False)
        if branched and (path, _receiver(call)) not in mains:
            flag = replace(flag, left_out="FlagOfSubcommand")
        flags.append(flag)
    return _CommandLine(flags, reads=bool(parse), strict=any(parse))


def _reads_command_line(call: ast.Call) -> bool:
    """Return whether a call passes no list of arguments, so that the parser reads the command
    line.
    """
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "args")]
    if not given or isinstance(given[0], (ast.Name, ast.Attribute, ast.Subscript)):
        return True
    return isinstance(given[0], ast.Constant) and given[0].value is None


def _absl(code: RunningCode, calls: Sequence[tuple[str, ast.Call]]) -> _CommandLine:
    required: set[str] = set()
    flags: list[Flag] = []
    reads, strict = False, False
    rewritten = False
    for path, node in code.nodes():
        if isinstance(node, ast.Attribute):
            # tf.app.flags reads the command line when the first flag is read
            reads |= _last(node.value) == "FLAGS"
            stored = isinstance(node.ctx, ast.Store)
            rewritten |= stored and code.meaning(path, node) == "sys.argv"
    for path, call in calls:
        name = _method(call)
        if name in ("mark_flag_as_required", "mark_flags_as_required"):
            required |= set(_texts(call.args[:1]))
        elif name == "FLAGS":
            reads = True
        elif name == "run" and code.meaning(path, call.func) == "absl.app.run":
            reads = True
            strict |= not rewritten and not any(k.arg == "argv" for k in call.keywords)
        elif name.startswith("DEFINE") and path in code.imported_at_start:
            flags += _defined(path, call)
    flags = [replace(f, required=True) if f.name in required else f for f in flags]
    return _CommandLine(flags, reads, strict)


def _defined(path: str, call: ast.Call) -> Iterator[Flag]:
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    first = [*call.args[:1], *(named[k] for k in ("name", "flag_name") if k in named)]
    default = [*call.args[1:2], *(named[k] for k in ("default", "default_value") if k in named)]
    kind = _method(call).removeprefix("DEFINE").lstrip("_")
    for name in _texts(first[:1]):
        key = flag_key(name)
        if name != key or key not in _TAKEN:
            continue  # absl knows a flag only by its exact name
        if key == "job_name" and kind == "enum" and _excludes_workers(call.args[2:3]):
            continue
        if key in FOLDER_FLAGS and kind not in ("", "string", "multi_string", "list"):
            continue
        flag = Flag(
            name,
            path,
            call.lineno,
            required=_is_true(named.get("required")),
            empty=bool(default) and _is_empty(default[0]),
        )
        texts = [*call.args[2:3], *([named["help"]] if "help" in named else [])]
        yield _judged(flag, texts)


def _click(code: RunningCode) -> _CommandLine:
    flags = []
    for path, definition in code.definitions():
        if isinstance(definition, ast.ClassDef) or not code.runs(definition):
            continue
        decorators = [d for d in definition.decorator_list if isinstance(d, ast.Call)]
        plain = {code.meaning(path, d) for d in definition.decorator_list}
        called = {code.meaning(path, d.func) for d in decorators} | plain
        is_main = bool(called & {"click.command", "click.group"})
        if not is_main and not any(name.endswith(".command") for name in called):
            continue
        for decorator in decorators:
            if code.meaning(path, decorator.func) != "click.option":
                continue
            flag = _declared(path, decorator, decorator.args)
            named = {keyword.arg: keyword.value for keyword in decorator.keywords}
            if flag is None or "is_flag" in named or "envvar" in named:
                continue
            if _is_true(named.get("prompt")):
                flag = replace(flag, required=True)
            flags.append(flag if is_main else replace(flag, left_out="FlagOfSubcommand"))
    return _CommandLine(flags, reads=True, strict=True)


def _declared(path: str, call: ast.Call, names: Sequence[ast.expr]) -> Flag | None:
    """Return the flag that one call of `add_argument` or `click.option` declares; None if it is not
    a known flag.
    """
    options = [text.lstrip("-") for text in _texts(names) if text.startswith("--")]
    name = next((option for option in options if flag_key(option) in _TAKEN), None)
    if name is None:
        return None
    named: Mapping[str | None, ast.expr] = {k.arg: k.value for k in call.keywords}
    choices = [named["choices"]] if "choices" in named else []
    if flag_key(name) in FOLDER_FLAGS:
        takes_text = _texts([named["action"]]) in ([], ["store"]) if "action" in named else True
        numeric = _last(named["type"]) in ("int", "float", "bool") if "type" in named else False
        if choices or not takes_text or numeric or None in named:
            return None
    elif flag_key(name) == "job_name" and _excludes_workers(choices):
        return None
    flag = Flag(
        name,
        path,
        call.lineno,
        required=_is_true(named.get("required")),
        empty="default" not in named or _is_empty(named["default"]),
    )
    return _judged(flag, [named["help"]] if "help" in named else [])


# The name of a flag does not say what its folder is for: `--train_dir` is for checkpoints in one
# program and for training images in another.
_READ_FROM = re.compile(
    r"\b(pre-?trained|load|loads|restore|restores|resum\w+|initial\w*|fine-?tun\w+|read|reads|"
    r"existing|trained|warm)\b",
    re.IGNORECASE,
)
_WRITTEN_TO = re.compile(
    r"\b(write|writes|writing|written|save|saves|saving|store|stores|storing|event|log|logs|"
    r"summar\w+|output\w*|checkpoints?)\b",
    re.IGNORECASE,
)
_GENERATED = re.compile(r"\b(synthetic|fake|random|download\w*|default\w*)\b", re.IGNORECASE)
_WRITTEN_FOLDERS = ("log_path", "log_dir", "logdir", "output_dir")


def _judged(flag: Flag, helps: Sequence[ast.expr]) -> Flag:
    """Return the flag, marked as left out if its help text describes another folder than the one
    that TFCluster would pass. `helps` are the expressions that contain the help text.
    """
    if flag.is_address or flag.key in _WRITTEN_FOLDERS:
        return flag
    said = " ".join(
        str(node.value)
        for part in helps
        for node in ast.walk(part)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    if flag.key == "data_dir":
        unclear = bool(_GENERATED.search(said)) and not flag.required
    elif flag.key == "train_dir":
        unclear = not _WRITTEN_TO.search(said) or bool(_READ_FROM.search(said))
    else:
        unclear = bool(_READ_FROM.search(said)) and not _WRITTEN_TO.search(said)
    return replace(flag, left_out="FlagUnclear") if unclear else flag


def _getopt(code: RunningCode, calls: Sequence[tuple[str, ast.Call]]) -> Iterator[Flag]:
    for path, call in calls:
        if code.meaning(path, call.func) not in ("getopt.getopt", "getopt.gnu_getopt"):
            continue
        named = [k.value for k in call.keywords if k.arg == "longopts"]
        for text in _texts([*call.args[2:3], *named]):
            if text.endswith("=") and flag_key(text[:-1]) in _TAKEN:
                yield Flag(text[:-1], path, call.lineno)


def _by_hand(code: RunningCode) -> Iterator[Flag]:
    """Yield prefixes such as "--job_name=" that a program looks for in `sys.argv`."""
    nodes = list(code.nodes())
    if not any(code.meaning(p, n) == "sys.argv" for p, n in nodes if isinstance(n, ast.Attribute)):
        return
    for path, node in nodes:
        if isinstance(node, ast.Call) and _method(node) in ("startswith", "removeprefix"):
            for text in _texts(node.args[:1]):
                name = text.removeprefix("--").removesuffix("=")
                if text == f"--{name}=" and flag_key(name) in _TAKEN:
                    yield Flag(name, path, node.lineno)


# -- parts of expressions --------------------------------------------------------------------------


def _method(call: ast.Call) -> str:
    return _last(call.func)


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _receiver(call: ast.Call) -> str:
    return ast.dump(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _texts(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the strings in expressions, each of which is a constant or a list of constants."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            found += _texts(node.elts)
    return found


def _excludes_workers(choices: Sequence[ast.expr]) -> bool:
    """Return whether a flag accepts only certain words, and `worker` is none of them."""
    said = _texts(choices)
    return bool(said) and "worker" not in said


def _is_true(node: Any) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, "")


# -- shell scripts ---------------------------------------------------------------------------------

_PATTERN = re.compile(r"--([A-Za-z][\w-]*)=\*")
_LONG_OPTIONS = re.compile(r"\bgetopt\b.*?\s--?l(?:ong(?:options)?)?[= ]([\"']?)([\w:,-]+)\1")
_STARTED = re.compile(r"(?<![\w./-])([\w./-]+\.(?:py|sh))(?![\w.])|-m\s+([A-Za-z_][\w.]*)")
_HANDED_ON = re.compile(r"\$(?:[@*]|\{[@*]\})")


@dataclass(frozen=True)
class StartedFile:
    """A Python file that a shell script starts, with the `command` that starts it."""

    path: str
    command: str

    @property
    def gets_arguments(self) -> bool:
        """Whether the script passes its own arguments to this file."""
        return _HANDED_ON.search(self.command) is not None


def started_by(tree: Tree, entry: str) -> list[StartedFile]:
    """Return the Python files that a shell script starts, directly or by other scripts."""
    found: list[StartedFile] = []
    pending, seen = [(entry, "$@")], {entry}
    while pending:
        script, outer = pending.pop(0)
        for _line, command in _commands(tree, script):
            for match in _STARTED.finditer(command):
                path = _named_file(tree, script, match)
                if path is not None and path.endswith(".py"):
                    handed = command if _HANDED_ON.search(outer) else ""
                    found.append(StartedFile(path, handed))
                elif path is not None and path not in seen:
                    seen.add(path)
                    pending.append((path, command if _HANDED_ON.search(outer) else ""))
    return found


def _of_script(tree: Tree, entry: str) -> list[Flag]:
    found: list[Flag] = []
    for line, command in _commands(tree, entry):
        names = _PATTERN.findall(command)
        for _quote, options in _LONG_OPTIONS.findall(command):
            names += [each.rstrip(":") for each in options.split(",") if each.endswith(":")]
        found += [Flag(name, entry, line) for name in names if flag_key(name) in _TAKEN]
    handed = []
    for started in started_by(tree, entry):
        if started.gets_arguments:
            flags = taken_flags(tree, started.path, RunningCode(InTree(tree), [started.path]))
            handed.append([f for f in flags if f"--{f.name}" not in started.command])
    if handed:
        common = set.intersection(*({flag.name for flag in flags} for flags in handed))
        found += [flag for flag in handed[0] if flag.name in common]
    return found


def _commands(tree: Tree, path: str) -> Iterator[tuple[int, str]]:
    """Yield the commands of a script, each with its line number. Comments are left out, and
    continued lines are joined.
    """
    joined, begins = "", 0
    for number, line in enumerate(tree[path].content.decode("utf-8", "replace").splitlines(), 1):
        begins = begins or number
        command = "" if line.lstrip().startswith("#") else line
        if command.endswith("\\"):
            joined += command[:-1] + " "
            continue
        yield begins, joined + command
        joined, begins = "", 0
    if joined:
        yield begins, joined


def _named_file(tree: Tree, script: str, match: re.Match[str]) -> str | None:
    if match[1]:
        return _in_tree(tree, script, match[1])
    folder = match[2].replace(".", "/")
    return _in_tree(tree, script, f"{folder}.py") or _in_tree(tree, script, f"{folder}/__main__.py")


def _in_tree(tree: Tree, script: str, name: str) -> str | None:
    """Return the path of the file that a shell script calls `name`. It is looked up in the script's
    folder; failing that, the only file in the tree with this name is returned. Return None if there
    is no such file, or if several have the name.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(script), name))
    if path in tree:
        return path
    tail = "/" + re.sub(r"^(\.{1,2}/|/)+", "", name)
    fits = [each for each in tree if f"/{each}".endswith(tail)]
    return fits[0] if len(fits) == 1 else None
