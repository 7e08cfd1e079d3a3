"""Files in the folder of a single-file program: settings, vocabularies and small data that it
reads.

Small files are copied with the program; files that its text names are copied first. A warning lists
the files that the text names but that are not copied. Some files are copied only if the text names
them: code, output of training (logs, event files, checkpoints), hidden files, and all files in a
folder that serves more than one program (a home, a temporary folder). Nothing outside of the
program's folder is read.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidRequest
from ..i18n import _, mark
from ..spec.record_size import file_bytes
from ..spec.spec import MOST_FILES
from .inspection import parse_file, script_text
from .tree import File, Tree, format_size, is_ignored, is_safe, list_files, read_file

MOST_BYTES_EACH = 1 << 20
"""Maximum bytes of a file that is copied."""
MOST_NAMES = 2000
"""Threshold: a folder with more entries counts as shared by several programs."""
_UNNAMED = (
    ".*",
    "*.py",
    "*.sh",
    "*.ipynb",
    "*.log",
    "nohup.out",
    "*.tfevents.*",
    "checkpoint",
    "*.ckpt*",
    "*.swp",
    "*~",
)
"""Patterns of the files that are copied only if the program names them."""
_LINK_OUT = mark("a link in its path leads out of the program's folder")
_UNREADABLE = mark("it cannot be read, or a link in it leads out of the program's folder")
_MANY_INSIDE = mark("a folder is copied only if it has at most {most} files")
_TOO_LARGE = mark(
    "a file beside a program may have at most {each}, and all of them {limit} together"
)
_WORD = re.compile(r"[\w./+-]+")
_MOST_TOLD = 3


@dataclass(frozen=True)
class _Mention:
    """A place where a program names a file or folder; `is_path` says whether the text is surely a
    path.
    """

    path: str
    line: int
    is_path: bool


@dataclass(frozen=True)
class _LeftOut:
    """A file or folder that is not copied. `why` is the message id of the reason, and `size` is the
    size in bytes; 0 if it is unknown.
    """

    why: str
    size: int = 0


def files_beside(
    root: Path,
    code: Mapping[str, File],
    tree: Tree,
    limit_bytes: int,
    source: object,
    unnamed_bytes: int | None = None,
) -> tuple[dict[str, File], list[str]]:
    """Return the files in `root` to copy with a program, and warnings about those left out.

    Args:
        root: the folder of the program.
        code: the program's files, whose text is searched for names of data files.
        tree: all files that are already copied.
        limit_bytes: maximum bytes that the copied files and their names take in a record.
        source: the program as the user named it.
        unnamed_bytes: a file that the program does not name is copied only if all copied files
            together then have at most this many bytes. None: `limit_bytes`.
    """
    named = _mentions(root, code)
    sizes, left_out = _sizes_of_named(root, named, source)
    others = {} if _is_shared(root) else _sizes_of_others(root)
    ranked = [
        *sorted(sizes.items(), key=lambda item: (item[1], item[0])),
        *sorted((o for o in others.items() if o[0] not in sizes), key=lambda o: (o[1], o[0])),
    ]
    taken: dict[str, File] = {}
    most_unnamed = limit_bytes if unnamed_bytes is None else min(unnamed_bytes, limit_bytes)
    used = 0
    for path, size in ranked:
        if path in tree:
            continue
        room = (limit_bytes if path in sizes else most_unnamed) - used
        why = ""
        if len(tree) + len(taken) >= MOST_FILES and path not in sizes:
            continue
        if size > MOST_BYTES_EACH or file_bytes(path, size) > room:
            why = _TOO_LARGE
        else:
            try:
                taken[path] = read_file(root / path, MOST_BYTES_EACH, source=source)
            except InvalidRequest:  # the file is unreadable, or has grown in the meantime
                why = _UNREADABLE
        if why:
            if path in sizes:
                left_out.setdefault(path, _LeftOut(why, size))
            continue
        used += file_bytes(path, len(taken[path].content))
    return taken, _warnings(left_out, named, limit_bytes)


def _is_shared(root: Path) -> bool:
    """Return whether a folder serves more than one program: a home folder or a folder above it,
    /tmp, or a folder with many entries.
    """
    home = Path(os.path.realpath(os.path.expanduser("~")))
    real = Path(os.path.realpath(root))
    if real == home or real in home.parents:
        return True
    try:
        if os.stat(root).st_mode & stat.S_ISVTX:
            return True
        with os.scandir(root) as entries:
            return (
                sum(1 for _entry in zip(entries, range(MOST_NAMES + 1), strict=False)) > MOST_NAMES
            )
    except OSError:
        return True


def _sizes_of_others(root: Path) -> dict[str, int]:
    """Return the files directly in `root` that may be copied although the program does not name
    them: their sizes in bytes, by name.
    """
    found: dict[str, int] = {}
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                fits = _comes_unnamed(entry.name) and _may_be_taken(entry.name)
                if fits and entry.is_file(follow_symlinks=False):
                    found[entry.name] = entry.stat().st_size
    except OSError:
        pass
    return found


def _comes_unnamed(name: str) -> bool:
    return not any(fnmatch.fnmatchcase(name, each) for each in _UNNAMED)


def _may_be_taken(path: str) -> bool:
    return is_safe(path) and not is_ignored(path)


# ---- names in the text ----


def _mentions(root: Path, code: Mapping[str, File]) -> dict[str, _Mention]:
    """Return the places where the program names a file or folder in `root`, by path below
    `root`.
    """
    found: dict[str, _Mention] = {}
    for path, file in code.items():
        for text, line in _texts(path, file):
            named = _path_in(root, text)
            if named is not None and named not in code:
                mention = _Mention(path, line, "/" in text or "." in text.strip("./"))
                if named not in found or (mention.is_path and not found[named].is_path):
                    found[named] = mention
    return found


def _texts(path: str, file: File) -> Iterator[tuple[str, int]]:
    """Yield the strings of a Python file, or the words of a script, each with its line number."""
    module = parse_file(path, file)
    if module is not None:
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value, node.lineno
    elif path.endswith(".sh"):
        for number, line in enumerate((script_text(path, file) or "").splitlines(), 1):
            for word in _WORD.findall(line):
                yield word, number


def _path_in(root: Path, text: str) -> str | None:
    """Return the path in `root` that a text names, if it exists. Else return the first folder of
    the path if this folder exists, and None if it does not.
    """
    if not 0 < len(text) < 256 or text.startswith(("/", "~")) or "://" in text or "\n" in text:
        return None
    path = posixpath.normpath(text)
    if path == "." or not _may_be_taken(path):
        return None
    if os.path.exists(root / path):
        return path
    head = path.partition("/")[0]
    return head if "/" in path and os.path.isdir(root / head) else None


def _sizes_of_named(
    root: Path, named: Mapping[str, _Mention], source: object
) -> tuple[dict[str, int], dict[str, _LeftOut]]:
    """Return two dicts, both by path. The first has the size in bytes of each file that the program
    names, or whose folder it names. The second has the named files and folders that cannot be
    copied, with the reasons.
    """
    sizes: dict[str, int] = {}
    left_out: dict[str, _LeftOut] = {}
    real_root = os.path.realpath(root)
    for path in named:
        real = os.path.realpath(root / path)
        if os.path.commonpath([real, real_root]) != real_root:
            left_out[path] = _LeftOut(_LINK_OUT)
        elif os.path.isfile(real):
            sizes[path] = os.path.getsize(real)
        elif os.path.isdir(real):
            try:
                inside = list_files(root, path, source=source, skipped=[])
            except InvalidRequest:
                left_out[path] = _LeftOut(_UNREADABLE)
                continue
            inside = {p: n for p, n in inside.items() if _comes_unnamed(posixpath.basename(p))}
            if len(inside) > MOST_NAMES:
                left_out[path] = _LeftOut(_MANY_INSIDE, sum(inside.values()))
            else:
                sizes.update(inside)
    return sizes, left_out


def _warnings(
    left_out: Mapping[str, _LeftOut], named: Mapping[str, _Mention], limit_bytes: int
) -> list[str]:
    """Return a sentence for each named file or folder that is not copied."""
    told: dict[str, _LeftOut] = {}
    for path, found in left_out.items():
        parents = [path, *map(str, Path(path).parents)]
        by = next((each for each in parents if each in named), None)
        if by is not None and named[by].is_path:
            before = told[by].size if by in told else 0
            told[by] = _LeftOut(found.why, before + found.size)
    text = _(
        "{path} names {name} (line {line}), which is not copied with it{size}: {why}. A task can "
        "read {name} only where the task sees the folder that you launch from; put {name} into "
        "the data folder (TFCLUSTER_DATA_DIR)"
    )
    return [
        text.format(
            path=named[name].path,
            name=name,
            line=named[name].line,
            size=f" ({format_size(found.size)})" if found.size else "",
            why=_(found.why).format(
                each=format_size(MOST_BYTES_EACH),
                limit=format_size(limit_bytes),
                most=MOST_NAMES,
            ),
        )
        for name, found in sorted(told.items(), key=lambda item: item[0])[:_MOST_TOLD]
    ]
