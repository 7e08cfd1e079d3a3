"""Checks of a program before any task starts.

The checks find empty programs, syntax errors, notebook-only lines, undefined names and missing
modules. A program is refused only if it could never run; for other problems, a warning names the
line. Nothing of the program is imported or run.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path

from ..i18n import _, mark
from .inspection import ImportClosure, parse_python, retry_parsing, script_text
from .interpreters import find_modules
from .tree import File, Tree, program_refusal

_MAGIC = re.compile(r"\s*(?:%{1,2}[A-Za-z_]|!|\?)|.*\?\s*$|\s*[\w.,\s]+=\s*(?:%[A-Za-z_]|!)")
"""A line that only IPython understands: `%x`, `%%x`, `!ls`, `?x`, `x?`, `files = !ls`."""
_PLAIN = mark("a task runs plain Python")


def check_entry(path: str, file: File, *, source: object, called: str = "") -> None:
    """Refuse an entry file that is empty or has a syntax error.

    Messages name `path`, or `called` if it is not empty.

    Raises:
        InvalidRequest: the file is refused; the error has the number and the text of the line.
    """
    if not path.endswith(".py"):
        if not (script_text(path, file) or "").strip():
            raise program_refusal(
                source, _("{path} is empty: it has no command to run").format(path=path)
            )
        return
    if (error := syntax_error(file.content, path)) is not None:
        line = f", `{error.text.strip()}`" if error.text and error.text.strip() else ""
        text = _(
            "{path} has a syntax error in line {number}{line}: {what}. "
            "Correct that line; no task was started"
        )
        words = {"path": called or path, "number": error.lineno, "line": line, "what": error.msg}
        raise program_refusal(source, text.format(**words))
    if not parse_python(file.content).body:
        text = _("{path} is empty: it has no statement to run")
        raise program_refusal(source, text.format(path=called or path))


def check_cell(text: str, file: File, first_line: int) -> None:
    """Refuse a cell that is empty, or has a syntax error or notebook-only lines.

    `text` is the body of the cell, and `file` is the file into which the body was written. Messages
    name the line numbers of `file`.
    """
    magics = _magic_lines(text)
    lines = text.split("\n")
    if magics:
        where = _("line {number}, `{line}`")
        shown = [where.format(number=n + first_line, line=lines[n].strip()) for n in magics[:3]]
        named = ", ".join(shown)
        if len(magics) > 3:
            named = _("{names} and {count} more").format(names=named, count=len(magics) - 3)
        text = _(
            "{named}: {plain}; magics, shell lines and `?` work in a notebook only. "
            "Put them into another cell"
        )
        raise program_refusal("cell", text.format(named=named, plain=_(_PLAIN)))
    check_entry("cell.py", file, source="cell", called=_("the cell"))


def syntax_error(content: bytes, path: str) -> SyntaxError | None:
    """Return why Python does not accept `content`; None if it does. The error's line is 1 if Python
    names no line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        error.lineno = error.lineno or 1
        # Python finds some errors only after parsing, when it no longer has the text of the line.
        if error.text is None:
            lines = content.decode("utf-8", "replace").split("\n")
            error.text = lines[error.lineno - 1] if error.lineno <= len(lines) else None
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or _("it is nested too deeply"), (path, 1, 0, ""))
    return None


def undefined_names(path: str, file: File) -> str | None:
    """Return a warning about names that the file uses and does not define; None if there are
    none.
    """
    from pyflakes import checker, messages  # type: ignore[import-untyped]  # 40 ms

    # IPython adds these names to the built-in names of this process; a task does not have them.
    checker.builtin_vars -= {"display", "get_ipython"}
    found: dict[str, int] = {}
    with warnings.catch_warnings():
        # pyflakes parses quoted annotations, and Python may show warnings about them
        warnings.simplefilter("ignore")
        module = parse_python(file.content)
        try:
            seen = retry_parsing(lambda: checker.Checker(module, filename=path).messages)
        except RecursionError:  # nested too deeply for pyflakes, though not for Python
            return None
    for message in seen:
        if isinstance(message, messages.UndefinedName):
            name, line = str(message.message_args[0]), int(message.lineno)
            found[name] = min(line, found.get(name, line))
    if not found:
        return None
    named = ", ".join(
        _("{name} (line {line})").format(name=name, line=line)
        for name, line in sorted(found.items(), key=lambda i: i[1])
    )
    if path == "cell.py":
        return _(
            "the cell uses {names} which it does not define: "
            "a task runs only this cell, not the notebook"
        ).format(names=named)
    return _(
        "{path} uses {names} which it does not define: {plain}, where names of the notebook do "
        "not exist"
    ).format(path=path, names=named, plain=_(_PLAIN))


def missing_modules(
    closure: ImportClosure, tree: Tree, cwd: Path, python: str | None = None
) -> list[str]:
    """Return warnings about modules that are neither in the program nor installed.

    `python` is the path of the interpreter that the tasks run with; None means this process's own.
    """
    if closure.moves_path:
        return []  # the program changes sys.path, so modules may be anywhere
    stems = {part.removesuffix(".py") for path in tree for part in path.split("/")}
    outside = sorted(set(closure.missing).difference(stems, sys.builtin_module_names))
    if python is None or python == sys.executable:
        found = {name for name in outside if _is_installed(name, cwd)}
    else:
        answer = find_modules(python, outside)
        if answer.trouble:
            return []  # if that Python does not work, the start of the tasks reports it
        found = answer.found
    return [
        _(
            "{path} imports {name} (line {line}), which is neither beside the program nor "
            "installed for {python}: a task that cannot find it fails"
        ).format(path=path, name=name, line=line, python=python or sys.executable)
        for name in outside
        if name not in found
        for path, line in [closure.missing[name]]
    ]


def broken_modules(closure: ImportClosure, entry: str) -> list[str]:
    """Return warnings about modules of the program that have syntax errors."""
    told = []
    for path, file in sorted(closure.files.items()):
        if path != entry and path.endswith(".py"):
            error = syntax_error(file.content, path)
            if error is not None:
                told.append(
                    _("{path} has a syntax error in line {number}: {what}").format(
                        path=path, number=error.lineno, what=error.msg
                    )
                )
    return told


def _is_installed(name: str, cwd: Path) -> bool:
    """Return whether this interpreter finds `name` outside of its working directory."""
    if name in sys.stdlib_module_names:
        return True
    # Leave out '' and the working directory at the head of sys.path. A task starts in another
    # folder, so it does not find the modules that these two entries find here.
    mine = {"", str(cwd)}
    if given := os.environ.get("PYTHONPATH"):
        mine -= set(given.split(os.pathsep))
    path = [p for i, p in enumerate(sys.path) if p not in mine or (p and i > 0)]
    for finder in sys.meta_path:
        if finder is PathFinder:
            spec = PathFinder.find_spec(name, path)
        else:
            spec = finder.find_spec(name, None)
        if spec is not None:
            return True
    return False


def _magic_lines(text: str) -> list[int]:
    """Return the indexes of the lines of a cell that only IPython understands.

    Only a line at which Python's parser stops can be such a line: `%d` inside a string or after `(`
    is not one.
    """
    lines = text.split("\n")
    found: list[int] = []
    while (error := syntax_error("\n".join(lines).encode(), "cell.py")) is not None:
        at = (error.lineno or 1) - 1
        if at >= len(lines) or not _MAGIC.match(lines[at]):
            break
        found.append(at)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at] = f"{indent}pass"
    return found
