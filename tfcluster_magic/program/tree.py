"""A program as a tree of files in memory: paths, limits and the checksum.

Promises that equal programs have equal checksums on every machine, and that a checked path is safe
to write below any folder. Owns the limits, the names that are never copied, and the checksum.
Never reads or writes files.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import InvalidRequest, Problem
from ..i18n import _

LIMIT_BYTES = 50 * 1024 * 1024
"""Most bytes that the files of a program may have together."""
MAX_FILES = 10_000
"""Most files that a program may have; a folder with more is surely not one."""

IGNORED = (
    ".git",
    ".hg",
    ".svn",
    ".tfcluster",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    ".DS_Store",
    ".#*",  # lock links of Emacs
    "__pycache__",
    "*.pyc",
    "node_modules",
)
"""Names of files and folders that are never copied: history, caches, environments, our store."""


@dataclass(frozen=True)
class File:
    """One file of a program; of its mode only the owner's executable bit counts."""

    content: bytes
    executable: bool = False


Tree = Mapping[str, File]
"""A program's files by their path below its folder, with `/` between the parts."""


def refusal(source: object, allowed: str) -> InvalidRequest:
    """The error for a program that is refused: what was named, and what is wrong or allowed."""
    return InvalidRequest([Problem("program", str(source), allowed)])


def is_ignored(path: str) -> bool:
    """Whether a part of `path` is a name that is never copied."""
    return any(fnmatch.fnmatchcase(part, name) for part in path.split("/") for name in IGNORED)


def is_safe(path: str) -> bool:
    """Whether `path` stays below any folder it is joined to, and can be written down in JSON."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path:
        return False
    return path.isprintable() and len(path.encode()) < 1024


def checksum(tree: Tree) -> str:
    """The SHA-256 over paths, executable bits and contents, in the order of the paths."""
    digest = hashlib.sha256(b"tfcluster program 1\n")
    for path, file in sorted(tree.items(), key=lambda item: item[0].encode()):
        name = path.encode()
        head = f"{len(name)} {len(file.content)} {'x' if file.executable else '-'}\n"
        digest.update(head.encode() + name + file.content)
    return digest.hexdigest()


def check_limits(source: object, sizes: Mapping[str, int], limit_bytes: int) -> None:
    """Refuse files that are too many or too large together; `sizes` are bytes by path."""
    total = sum(sizes.values())
    if len(sizes) <= MAX_FILES and total <= limit_bytes:
        return
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:3]
    named = ", ".join(f"{path} ({size_text(sizes[path])})" for path in largest)
    what = (
        _("it has {count} files or more with {size} together")
        if len(sizes) > MAX_FILES
        else _("it has {count} files with {size} together")
    )
    text = _(
        "{what}, and a program may have at most {most} files with {limit}; the largest: "
        "{named}. Keep data out of the program's folder: tasks read it from the data folder "
        "(TFCLUSTER_DATA_DIR)"
    )
    words = {
        "what": what.format(count=len(sizes), size=size_text(total)),
        "most": MAX_FILES,
        "limit": size_text(limit_bytes),
        "named": named,
    }
    raise refusal(source, text.format(**words))


def check_paths(source: object, paths: Iterable[str]) -> None:
    """Refuse paths that are not safe, or that are a file and a folder at once."""
    known = set(paths)
    if strange := sorted(path for path in known if not is_safe(path)):
        text = _("file names may not hold {name!a}; rename that file")
        raise refusal(source, text.format(name=strange[0]))
    for path in sorted(known):
        parts = path.split("/")
        for i in range(1, len(parts)):
            if (above := "/".join(parts[:i])) in known:
                text = _("{path} is a file and a folder in it; keep one of the two")
                raise refusal(source, text.format(path=above))


def size_text(size: int) -> str:
    """Bytes for people: `512 bytes`, `70 KiB`, `48.2 MiB`."""
    if size < 1024:
        return _("{count} bytes").format(count=size)
    if size < 1024 * 1024:
        return f"{size / 1024:.3g} KiB" if size < 1000 * 1024 else "1 MiB"
    mib = size / (1024 * 1024)
    return f"{mib:.1f}".removesuffix(".0") + " MiB"
