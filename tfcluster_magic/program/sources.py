"""The four sources of a program: a file, a cell, a folder and a URL. Each is read into a tree of
files with an entry point.

Only the program itself is copied. For a file or a cell, this includes the files of its folder that
it imports or reads. This module has the rules for accepted sources, and for which file is run if
the program is a folder. It stores nothing.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..i18n import _, mark
from ..spec import ProgramKind
from ..spec.record_size import file_bytes
from .checks import broken_modules, check_cell, check_entry, missing_modules, undefined_names
from .data_files import files_beside
from .inspection import ImportClosure, InTree, OnDisk, import_closure
from .snapshots import INLINE_BYTES
from .tree import File, Tree, check_limits, check_paths, list_files, program_refusal, read_files

ENTRIES = ("run.sh", "main.py", "__main__.py")
"""Names of the file that is run if the program is a folder: the first that exists is run. If none
of them exists, the only `.py` file is run.
"""
CELL = "cell.py"
ARCHIVES = (".zip", ".tar.gz", ".tgz")
TIMEOUT = 120.0
"""Timeout in seconds of a download."""
_ALLOWED = mark("a program is a .py or .sh file, a folder, or a URL")
_ARCHIVE = mark("an archive can only come from a URL: unpack it and name the folder")
_NOTEBOOK = mark(
    "a notebook cannot be run by a task: put the code into a .py file, or into one cell "
    "that starts with %%tfcluster launch"
)
_HINTS = {".ipynb": _NOTEBOOK, ".zip": _ARCHIVE, ".gz": _ARCHIVE, ".tgz": _ARCHIVE}


@dataclass(frozen=True)
class LoadedProgram:
    """A program that was read: a snapshot that is not stored yet."""

    kind: ProgramKind
    source: str
    entrypoint: str
    tree: Tree
    warnings: tuple[str, ...] = ()


def is_url(source: str) -> bool:
    """Return whether `source` is written as a URL of any scheme, not as a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source) is not None


def read(
    source: str,
    cwd: Path,
    sha256: str | None,
    limit_bytes: int,
    timeout: float,
    beside_bytes: int | None = None,
    python: str | None = None,
    entry: str | None = None,
) -> LoadedProgram:
    """Read the program that the user named; `entry` is the file that starts the program if it is a
    folder.

    `python` is the interpreter for the program, if not this process's own. `beside_bytes` is the
    maximum size of a single-file program together with the small files of its folder (`limit_bytes`
    if None). The modules that the file imports are copied even if the program then exceeds this
    size.

    Raises:
        InvalidRequest: the program is refused; the error says what is wrong and what is allowed.
    """
    if not source.strip():
        raise program_refusal(source, _("name a program: {rule}").format(rule=_(_ALLOWED)))
    if is_url(source):
        return read_url(source, cwd, sha256, limit_bytes, timeout, python)
    if sha256 is not None:
        raise program_refusal(source, _("only a URL can have a checksum (sha256); leave it out"))
    path = cwd / os.path.expanduser(source)
    hint = _HINTS.get(path.suffix.lower())
    try:
        if path.is_dir():
            return read_folder(path, source, cwd, limit_bytes, python, entry)
        if path.is_file():
            if path.suffix.lower() not in (".py", ".sh"):
                text = (
                    _(hint)
                    if hint
                    else _("{rule}; if this file is a program, rename it to end in .py or .sh")
                )
                raise program_refusal(source, text.format(rule=_(_ALLOWED)))
            return read_script(path, source, cwd, limit_bytes, beside_bytes, python)
        if os.path.lexists(path):
            text = _("it is not a regular file; {rule}")
            raise program_refusal(source, text.format(rule=_(_ALLOWED)))
    except (OSError, ValueError) as error:  # a folder without access, a name with a zero byte
        why = getattr(error, "strerror", None) or error
        raise program_refusal(source, _("it cannot be read: {why}").format(why=why)) from None
    text = _("there is no such file or folder in {folder}{close}; {rule}")
    raise program_refusal(
        source, text.format(folder=cwd, close=_close_names(path, cwd), rule=_(_ALLOWED))
    )


def read_script(
    path: Path,
    source: str,
    cwd: Path,
    limit_bytes: int,
    beside_bytes: int | None = None,
    python: str | None = None,
) -> LoadedProgram:
    """Read a file, the modules and packages of its folder that it imports, and small files of the
    folder.
    """
    real = Path(
        os.path.realpath(path)
    )  # Python looks for modules in the folder of the file, not of a link to it
    check_paths(source, [real.name])
    beside = OnDisk(real.parent, source, limit_bytes)
    needed = import_closure(beside, real.name)
    check_entry(real.name, needed.files[real.name], source=source)
    tree, skipped = _with_packages(needed, beside, needed.files)
    more, left_out = _with_data(beside, needed.files, tree, beside_bytes)
    warnings = (*_skipped(skipped), *_warnings(needed, tree, real.name, cwd, python), *left_out)
    return LoadedProgram(ProgramKind.FILE, source, real.name, {**tree, **more}, warnings)


def read_cell(
    text: str,
    cwd: Path,
    limit_bytes: int,
    first_line: int,
    beside_bytes: int | None = None,
    python: str | None = None,
) -> LoadedProgram:
    """Read the body of a cell, with modules and packages that it imports from the notebook's
    folder.

    Small files of that folder are read, too. `first_line` is the number of the body's first line in
    the cell as the notebook shows it. Comment lines replace the lines above the body, so that
    tracebacks have the cell's line numbers.
    """
    text = text.replace("\r\n", "\n")
    above = "# %%tfcluster\n" * max(first_line - 1, 0)
    file = File((above + text.rstrip("\n") + "\n").encode("utf-8", "surrogateescape"))
    check_limits("cell", {CELL: len(file.content)}, limit_bytes)
    check_cell(text, file, first_line)
    beside = OnDisk(cwd, "cell", limit_bytes)
    needed = import_closure(beside, CELL, file)
    tree, skipped = _with_packages(needed, beside, needed.files)
    more, left_out = _with_data(beside, needed.files, tree, beside_bytes, INLINE_BYTES)
    warnings = (*_skipped(skipped), *_warnings(needed, tree, CELL, cwd, python), *left_out)
    return LoadedProgram(ProgramKind.CELL, "cell", CELL, {**tree, **more}, warnings)


def read_folder(
    path: Path,
    source: str,
    cwd: Path,
    limit_bytes: int,
    python: str | None = None,
    entry: str | None = None,
) -> LoadedProgram:
    """Read a folder with everything in it; `entry` is the file to run, if the user named one."""
    real = Path(os.path.realpath(path))
    home = Path(os.path.realpath(os.path.expanduser("~")))
    if real == home or real in home.parents:
        raise program_refusal(
            source,
            _(
                "this is your home folder or one above it, and all of it would be copied: put the "
                "program into a folder of its own, or name its .py file"
            ),
        )
    skipped: list[str] = []
    sizes = list_files(real, source=source, skipped=skipped)
    if entry is None:
        entry = find_entry(sizes, source)
    elif entry not in sizes:
        raise program_refusal(source, _("it has no file {entry}").format(entry=entry))
    tree = read_files(real, sizes, limit_bytes, source=source)
    warnings = (*_skipped(skipped), *_check_tree(tree, entry, source, cwd, python))
    return LoadedProgram(ProgramKind.FOLDER, source, entry, tree, warnings)


def read_url(
    source: str,
    cwd: Path,
    sha256: str | None,
    limit_bytes: int,
    timeout: float,
    python: str | None = None,
) -> LoadedProgram:
    """Read a download: a .py or .sh file, or a folder as .zip or .tar.gz."""
    from . import download  # imports http and ssl (60 ms), which only this source needs

    url, expected = download.split_checksum(source, sha256)
    got = download.fetch(url, sha256=expected, limit_bytes=limit_bytes, timeout=timeout)
    name = next((n for n in map(_last_part, (url, got.url)) if _is_known(n)), _last_part(url))
    if re.match(rb"\s*<(!doctype|html|head)", got.content[:200], re.IGNORECASE):
        raise program_refusal(
            url, _("the server sent a web page, not a program: use the address of the raw file")
        )
    if name.lower().endswith(ARCHIVES):
        tree: Tree = download.unpack_archive(got.content, source=url, limit_bytes=limit_bytes)
        entry = find_entry(tree, url)
    elif name.lower().endswith((".py", ".sh")):
        plain = re.fullmatch(r"\w[\w.-]*", name) is not None
        entry = name if plain else f"program{posixpath.splitext(name)[1]}"
        tree = {entry: File(got.content)}
    else:
        raise program_refusal(
            url,
            _("a URL must end in .py, .sh or {archives}, but this one ends in {name!r}").format(
                archives=", ".join(ARCHIVES), name=name
            ),
        )
    warnings = _check_tree(tree, entry, url, cwd, python)
    return LoadedProgram(ProgramKind.URL, url, entry, tree, warnings)


def find_entry(paths: Iterable[str], source: str) -> str:
    """Return the file to run in a folder that is a program; `paths` are the folder's files.

    Raises:
        InvalidRequest: there is no such file, or several files are possible.
    """
    here = sorted(path for path in paths if "/" not in path)
    for name in ENTRIES:
        if name in here:
            return name
    programs = [path for path in here if path.endswith(".py")]
    if len(programs) == 1:
        return programs[0]
    if programs:
        text = _(
            "it is not clear which file to start: the folder has {programs}. By default, {entries} "
            "or the only .py file is started; otherwise name one of the files, {example}"
        )
    else:
        text = _(
            "it is not clear which file to start. By default, {entries} or the only .py file is "
            "started"
        )
    words = {
        "programs": ", ".join(programs[:4]) + ", ..." * (len(programs) > 4),
        "entries": ", ".join(ENTRIES),
        "example": f"{source.rstrip('/')}/{''.join(programs[:1])}",
    }
    raise program_refusal(source, text.format(**words))


def source_name(source: str, cwd: Path) -> str:
    """Return a name for a program: a file's stem, a folder's name, the URL's last part."""
    if is_url(source):
        name = _last_part(source.partition("#")[0])
    else:
        path = Path(os.path.abspath(cwd / os.path.expanduser(source)))
        name = path.name
        if path.is_dir():
            return name
    return re.sub(r"\.(tar\.gz|tgz|zip|py|sh)$", "", name, flags=re.IGNORECASE)


def _with_packages(needed: ImportClosure, beside: OnDisk, files: Tree) -> tuple[Tree, list[str]]:
    """Return `files` together with all files of the packages that the program needs, and a list of
    the paths in these packages that were skipped. Raise InvalidRequest if these files are more than
    the limit of a program.
    """
    sizes = {path: len(file.content) for path, file in files.items()}
    skipped: list[str] = []
    for package in sorted(needed.packages):
        sizes.update(list_files(beside.root, package, source=beside.source, skipped=skipped))
    check_limits(beside.source, sizes, beside.limit_bytes)
    rest = {path: size for path, size in sizes.items() if path not in files}
    inside = read_files(beside.root, rest, beside.limit_bytes, source=beside.source)
    return {**files, **inside}, skipped


def _with_data(
    beside: OnDisk,
    code: Tree,
    tree: Tree,
    beside_bytes: int | None,
    unnamed_bytes: int | None = None,
) -> tuple[dict[str, File], list[str]]:
    """Return the small files in the folder of a program that are copied with it, and warnings about
    files that the program names but that are not copied. A file that the program does not name is
    copied only if the whole copy then has at most `unnamed_bytes`.
    """
    most = beside.limit_bytes if beside_bytes is None else min(beside_bytes, beside.limit_bytes)
    used = sum(file_bytes(path, len(file.content)) for path, file in tree.items())
    unnamed = None if unnamed_bytes is None else max(unnamed_bytes - used, 0)
    return files_beside(beside.root, code, tree, max(most - used, 0), beside.source, unnamed)


def _check_tree(
    tree: Tree, entry: str, source: str, cwd: Path, python: str | None
) -> tuple[str, ...]:
    check_entry(entry, tree[entry], source=source)
    return _warnings(import_closure(InTree(tree), entry), tree, entry, cwd, python)


def _warnings(
    needed: ImportClosure, tree: Tree, entry: str, cwd: Path, python: str | None
) -> tuple[str, ...]:
    undefined = undefined_names(entry, tree[entry]) if entry.endswith(".py") else None
    return (
        *([undefined] if undefined else []),
        *broken_modules(needed, entry),
        *missing_modules(needed, tree, cwd, python),
    )


def _skipped(paths: list[str]) -> list[str]:
    return [
        _("{path} is neither a file nor a folder, and is not copied").format(path=path)
        for path in sorted(paths)
    ]


def _close_names(path: Path, cwd: Path) -> str:
    """Return the question whether the user meant another file; "" if there is no likely one. `path`
    does not exist, so the question offers similar names from the folder of `path`. If `cwd` has a
    file with the last part of the name, the question offers only this file, because a user in
    `examples/` may have typed `examples/train.py`.
    """
    try:
        there = os.listdir(path.parent)
    except OSError:
        there = []
    known = [n for n in there if _is_known(n) or (path.parent / n).is_dir()]
    close = difflib.get_close_matches(path.name, known, 3, cutoff=0.6)
    if path.parent != cwd and (cwd / path.name).is_file():
        close = [path.name]
    if not close:
        return ""
    return _(" (did you mean {close}?)").format(close=_(" or ").join(close))


def _last_part(url: str) -> str:
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    return path.rstrip("/").rpartition("/")[2]


def _is_known(name: str) -> bool:
    return name.lower().endswith((".py", ".sh", *ARCHIVES))
