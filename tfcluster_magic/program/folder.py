"""Reading a folder from disk into a tree.

Promises that nothing outside the folder is read: a link that leads out is refused by its name.
Owns the walk and what counts as a regular file. Never writes, and reads no content before the sizes
of all files are known to be within the limit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import InvalidRequest
from ..i18n import _
from .tree import MAX_FILES, File, check_limits, check_paths, is_ignored, refusal, size_text


def list_files(
    root: Path, below: str = "", *, source: object, skipped: list[str]
) -> dict[str, int]:
    """Sizes by path (below `root`) of the files in `root/below`.

    Stops above `MAX_FILES`. Adds to `skipped` what is neither a file nor a folder (sockets, pipes).

    Raises:
        InvalidRequest: a link leads out of `root`, is broken or leads to a folder above itself, or
            a folder cannot be read.
    """
    real_root = os.path.realpath(root)
    sizes: dict[str, int] = {}
    links: list[str] = []
    pending, folders = [below], 0
    while pending and len(sizes) <= MAX_FILES and folders <= MAX_FILES:
        folders += 1
        for path, entry in _scan(root, pending.pop(), source):
            if entry.is_symlink() and (wrong := _wrong_link(root, real_root, path)):
                links.append(wrong.format(path=path, target=os.readlink(root / path)))
                continue
            state = _stat(entry, source)
            if stat.S_ISDIR(state.st_mode):
                if not os.path.lexists(root / path / "pyvenv.cfg"):  # a virtual environment
                    pending.append(path)
            elif stat.S_ISREG(state.st_mode):
                sizes[path] = state.st_size
            else:
                skipped.append(path)
    if links:
        named = "; ".join(sorted(links)[:3])
        if len(links) > 3:
            named += _(" (and {count} more)").format(count=len(links) - 3)
        text = _(
            "{links}. Only files inside the folder are copied: "
            "put a copy in place of the link, or remove it"
        )
        raise refusal(source, text.format(links=named))
    return sizes


def read_files(
    root: Path, sizes: Mapping[str, int], limit_bytes: int, *, source: object
) -> dict[str, File]:
    """The files named in `sizes`, read from `root` after their sizes and names were checked."""
    check_limits(source, sizes, limit_bytes)
    check_paths(source, sizes)
    tree: dict[str, File] = {}
    left = limit_bytes
    for path in sorted(sizes):
        tree[path] = read_file(root / path, left, source=source)
        left -= len(tree[path].content)
    return tree


def read_file(path: Path, limit_bytes: int, *, source: object) -> File:
    """One file; refused when it cannot be read, or has grown above `limit_bytes`."""
    try:
        with path.open("rb") as stream:
            executable = bool(os.fstat(stream.fileno()).st_mode & stat.S_IXUSR)
            content = stream.read(limit_bytes + 1)
    except OSError as error:
        raise _unreadable(source, path, error) from None
    if len(content) > limit_bytes:
        text = _("{name} is above the limit of {size}; keep data out of it")
        raise refusal(source, text.format(name=path.name, size=size_text(limit_bytes)))
    return File(content, executable)


def _scan(root: Path, below: str, source: object) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(root / below) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(source, root / below, error) from None
    for entry in listed:
        if not is_ignored(entry.name):
            yield (f"{below}/{entry.name}" if below else entry.name), entry


def _stat(entry: os.DirEntry[str], source: object) -> os.stat_result:
    try:
        return entry.stat()
    except OSError as error:
        raise _unreadable(source, entry.path, error) from None


def _unreadable(source: object, path: object, error: OSError) -> InvalidRequest:
    text = _("{path} cannot be read: {why}")
    return refusal(source, text.format(path=path, why=error.strerror or error))


def _wrong_link(root: Path, real_root: str, path: str) -> str:
    """What is wrong with a link, as a sentence on its `path` and `target`; "" when nothing is."""
    link = root / path
    real = os.path.realpath(link)
    if os.path.commonpath([real, real_root]) != real_root:
        return _("{path} is a link that leads outside, to {target}")
    if not os.path.exists(real):
        return _("{path} is a link to {target}, which does not exist")
    above = [root.joinpath(*link.relative_to(root).parts[:i]) for i in range(len(path.split("/")))]
    if any(os.path.commonpath([os.path.realpath(folder), real]) == real for folder in above):
        return _("{path} is a link to {target}, a folder that it lies in")
    return ""
