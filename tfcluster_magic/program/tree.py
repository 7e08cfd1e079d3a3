"""A program as a tree of files: paths, limits, the checksum, and reading a tree from a folder.

Equal programs have equal checksums on every machine, and a checked path is safe to write below any
folder. Nothing outside of a folder is read. A link that leads out of it is refused, and the message
names the link. No content is read before the total size is known to be within the limit. Nothing is
written.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidRequest, Problem
from ..i18n import _
from ..spec import Clause, Message

LIMIT_BYTES = 50 * 1024 * 1024
"""Maximum bytes of all files of a program together."""
MAX_FILES = 10_000
"""Maximum files of a program; a folder with more is surely not a program."""

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
"""Names of files and folders that are never copied: version control, caches, virtual environments,
and the folder of large snapshots.
"""


@dataclass(frozen=True)
class File:
    """One file of a program; only the owner's executable bit of its mode is kept."""

    content: bytes
    executable: bool = False


Tree = Mapping[str, File]
"""A program's files by their path below its folder, with `/` between the parts."""


def program_refusal(source: object, rule: Clause) -> InvalidRequest:
    """Return the error for a refused program: `source` is the program, and `rule` says what is
    wrong or what is allowed.
    """
    value = source if isinstance(source, Message) else str(source)
    return InvalidRequest([Problem("program", value, rule)])


def is_ignored(path: str) -> bool:
    """Return whether a part of `path` is a name that is never copied."""
    return any(fnmatch.fnmatchcase(part, name) for part in path.split("/") for name in IGNORED)


def is_safe(path: str) -> bool:
    """Return whether `path` stays below every folder that it is joined to, and can be written as
    JSON.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path:
        return False
    return path.isprintable() and len(path.encode()) < 1024


def checksum(tree: Tree) -> str:
    """Return the SHA-256 over paths, executable bits and contents, in the order of the paths."""
    digest = hashlib.sha256(b"tfcluster program 1\n")
    for path, file in sorted(tree.items(), key=lambda item: item[0].encode()):
        name = path.encode()
        head = f"{len(name)} {len(file.content)} {'x' if file.executable else '-'}\n"
        digest.update(head.encode() + name + file.content)
    return digest.hexdigest()


def check_limits(source: object, sizes: Mapping[str, int], limit_bytes: int) -> None:
    """Refuse too many files, or files that are too large together; `sizes` are bytes by path."""
    total = sum(sizes.values())
    if len(sizes) <= MAX_FILES and total <= limit_bytes:
        return
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:3]
    named = ", ".join(f"{path} ({format_size(sizes[path])})" for path in largest)
    what = (
        _("it has {count} files or more, {size} in total")
        if len(sizes) > MAX_FILES
        else _("it has {count} files, {size} in total")
    )
    text = _(
        "{what}; a program may have at most {most} files and {limit}. The largest: "
        "{named}. Keep data out of the program's folder: tasks read it from the data folder "
        "(TFCLUSTER_DATA_DIR)"
    )
    words = {
        "what": what.format(count=len(sizes), size=format_size(total)),
        "most": MAX_FILES,
        "limit": format_size(limit_bytes),
        "named": named,
    }
    raise program_refusal(source, text.format(**words))


def check_paths(source: object, paths: Iterable[str]) -> None:
    """Refuse paths that are not safe, or that are a file and a folder at once."""
    known = set(paths)
    if strange := sorted(path for path in known if not is_safe(path)):
        rule = Message("StrangeFileName", {"name": ascii(strange[0])})
        raise program_refusal(source, rule)
    for path in sorted(known):
        parts = path.split("/")
        for i in range(1, len(parts)):
            if (above := "/".join(parts[:i])) in known:
                raise program_refusal(source, Message("FileAndFolder", {"path": above}))


def format_size(size: int) -> str:
    """Return bytes for people: `512 bytes`, `70 KiB`, `48.2 MiB`."""
    if size < 1024:
        return _("{count} bytes").format(count=size)
    if size < 1024 * 1024:
        return f"{size / 1024:.3g} KiB" if size < 1000 * 1024 else "1 MiB"
    mib = size / (1024 * 1024)
    return f"{mib:.1f}".removesuffix(".0") + " MiB"


# Reading a folder from disk into a tree.


def list_files(
    root: Path, below: str = "", *, source: object, skipped: list[str]
) -> dict[str, int]:
    """Return the files in the folder `below` of `root` and its subfolders: their sizes in bytes, by
    their path relative to `root`.

    The search stops when there are more than `MAX_FILES`. Everything that is neither a file nor a
    folder (sockets, pipes) is added to `skipped`.

    Raises:
        InvalidRequest: a link leads out of `root`, is broken, or leads to a folder above itself; or
            a folder is not readable.
    """
    real_root = os.path.realpath(root)
    sizes: dict[str, int] = {}
    links: list[str] = []
    pending, folders = [below], 0
    while pending and len(sizes) <= MAX_FILES and folders <= MAX_FILES:
        folders += 1
        for path, entry in _scan_folder(root, pending.pop(), source):
            if entry.is_symlink() and (wrong := _wrong_link(root, real_root, path)):
                links.append(wrong.format(path=path, target=os.readlink(root / path)))
                continue
            state = _stat_entry(entry, source)
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
        raise program_refusal(source, text.format(links=named))
    return sizes


def read_files(
    root: Path, sizes: Mapping[str, int], limit_bytes: int, *, source: object
) -> dict[str, File]:
    """Return the files named in `sizes`, read from `root` after checking sizes and names."""
    check_limits(source, sizes, limit_bytes)
    check_paths(source, sizes)
    tree: dict[str, File] = {}
    left = limit_bytes
    for path in sorted(sizes):
        tree[path] = read_file(root / path, left, source=source)
        left -= len(tree[path].content)
    return tree


def read_file(path: Path, limit_bytes: int, *, source: object) -> File:
    """Return one file; refuse it if it is unreadable or has grown above `limit_bytes`."""
    try:
        with path.open("rb") as stream:
            executable = bool(os.fstat(stream.fileno()).st_mode & stat.S_IXUSR)
            content = stream.read(limit_bytes + 1)
    except OSError as error:
        raise _unreadable(source, path, error) from None
    if len(content) > limit_bytes:
        text = _("{name} is above the limit of {size}; keep data out of it")
        raise program_refusal(source, text.format(name=path.name, size=format_size(limit_bytes)))
    return File(content, executable)


def _scan_folder(root: Path, below: str, source: object) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(root / below) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(source, root / below, error) from None
    for entry in listed:
        if not is_ignored(entry.name):
            yield (f"{below}/{entry.name}" if below else entry.name), entry


def _stat_entry(entry: os.DirEntry[str], source: object) -> os.stat_result:
    try:
        return entry.stat()
    except OSError as error:
        raise _unreadable(source, entry.path, error) from None


def _unreadable(source: object, path: object, error: OSError) -> InvalidRequest:
    text = _("{path} cannot be read: {why}")
    return program_refusal(source, text.format(path=path, why=error.strerror or error))


def _wrong_link(root: Path, real_root: str, path: str) -> str:
    """Return the template of a sentence that says what is wrong with a link; "" if nothing is
    wrong. The template has the fields `path` and `target`.
    """
    link = root / path
    real = os.path.realpath(link)
    if os.path.commonpath([real, real_root]) != real_root:
        return _("{path} is a link that leads outside, to {target}")
    if not os.path.exists(real):
        return _("{path} is a link to {target}, which does not exist")
    above = [root.joinpath(*link.relative_to(root).parts[:i]) for i in range(len(path.split("/")))]
    if any(os.path.commonpath([os.path.realpath(folder), real]) == real for folder in above):
        return _("{path} is a link to {target}, a folder that contains it")
    return ""
