"""Programs: immutable snapshots of the file, folder, cell or URL that the user named.

Two snapshots of the same files have the same checksum. A program that could not run is refused
before any task starts. Programs are read, checked, stored and written here, but never imported or
run. TensorFlow is never imported.

    program, warnings = snapshot("train.py", workspace=home, cwd=here)
    materialise(program, run_folder / "program", home)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..i18n import _
from ..spec import Program, ProgramKind, names
from ..spec.record_size import text_bytes
from . import inspection, snapshots, sources
from .cluster_needs import Evidence, Findings, inspect_program
from .command_line import Flag
from .snapshots import INLINE_BYTES, keep_written, materialise
from .sources import is_url
from .tree import LIMIT_BYTES, MAX_FILES, Tree, checksum

__all__ = [
    "INLINE_BYTES",
    "LIMIT_BYTES",
    "MAX_FILES",
    "OWN_FOLDER",
    "Evidence",
    "Findings",
    "Flag",
    "check_url",
    "default_name",
    "find_out",
    "is_url",
    "keep_written",
    "materialise",
    "snapshot",
    "snapshot_cell",
]

OWN_FOLDER = "."
"""The value of a snapshot's working directory with which a task runs in the folder that holds its
own copy of the program's files.
"""


def snapshot(
    source: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    workspace: Path,
    cwd: Path,
    sha256: str | None = None,
    limit_bytes: int = LIMIT_BYTES,
    beside_bytes: int | None = None,
    timeout: float = sources.TIMEOUT,
    python: str | None = None,
    taken_bytes: int = 0,
    entry: str | None = None,
) -> tuple[Program, tuple[str, ...]]:
    """Take a snapshot of a file, a folder or a URL.

    Args:
        source: the source as the user wrote it, relative to `cwd`.
        arguments: arguments of the program.
        workspace: folder in which a snapshot is stored if it is too large for the record; tasks see
            this folder, too.
        cwd: the user's current folder, in which a `.py` file runs.
        sha256: checksum of the file behind a URL.
        limit_bytes: maximum bytes of all files together.
        beside_bytes: maximum bytes of a single file together with the small files in its folder;
            `limit_bytes` if None.
        timeout: seconds for a download.
        python: path of the interpreter for the program, if not this process's own.
        taken_bytes: bytes of the environment variables, for which the record has to have space
            besides the program.
        entry: the file that is run if the source is a folder; by default the first of
            `sources.ENTRIES` that exists.

    Returns:
        The snapshot, and warnings for the user.

    Raises:
        InvalidRequest: the program is refused; the error says what is wrong and what is allowed.
    """
    beside_bytes = _room_beside(beside_bytes, arguments, taken_bytes)
    read = sources.read(
        os.fspath(source), cwd, sha256, limit_bytes, timeout, beside_bytes, python, entry
    )
    return _take_snapshot(read, arguments, workspace, cwd, taken_bytes)


def snapshot_cell(
    text: str,
    *,
    arguments: Sequence[str] = (),
    workspace: Path,
    cwd: Path,
    limit_bytes: int = LIMIT_BYTES,
    beside_bytes: int | None = None,
    first_line: int = 2,
    python: str | None = None,
    taken_bytes: int = 0,
) -> tuple[Program, tuple[str, ...]]:
    """Take a snapshot of a cell's body, which runs as `cell.py`.

    Args:
        text: the cell without the line of the magic.
        arguments: arguments of the program.
        workspace: as for `snapshot`.
        cwd: folder of the notebook, in which imports are looked up and the program runs.
        limit_bytes: maximum bytes of all files together.
        beside_bytes: as for `snapshot`.
        first_line: number of the body's first line in the cell, counted from 1.
        python: as for `snapshot`.
        taken_bytes: as for `snapshot`.

    Returns:
        The snapshot, and warnings for the user.

    Raises:
        InvalidRequest: the cell is refused; the error says what is wrong and what is allowed.
    """
    beside_bytes = _room_beside(beside_bytes, arguments, taken_bytes)
    read = sources.read_cell(text, cwd, limit_bytes, first_line, beside_bytes, python)
    return _take_snapshot(read, arguments, workspace, cwd, taken_bytes)


def default_name(source: str | os.PathLike[str], cwd: Path | None = None) -> str:
    """Return the default cluster name for a program: `train.py` gives `train`, a cell `cell`."""
    return names.derive(sources.source_name(os.fspath(source), cwd or Path.cwd()))


def check_url(url: str, sha256: str | None = None) -> None:
    """Raise InvalidRequest if the URL of a program, or its checksum, is not acceptable. Sends no
    request.
    """
    from . import download

    download.split_checksum(url, sha256)


def find_out(program: Program, workspace: Path) -> Findings:
    """Return what the text of a snapshot shows: flags, task types, TF_CONFIG.

    Raises:
        TFClusterError: the snapshot is gone or altered.
    """
    key = (program.sha256, program.entrypoint)
    if key not in _found:
        _keep(key, inspect_program(snapshots.load(program, workspace), program.entrypoint))
    return _found[key]


_found: dict[tuple[str, str], Findings] = {}
"""Cached findings by checksum and entry, because the launch form inspects the same program at each
keystroke.
"""
_MOST_FOUND = 16


def _keep(key: tuple[str, str], findings: Findings) -> None:
    if len(_found) >= _MOST_FOUND:
        _found.clear()
    _found[key] = findings


def _take_snapshot(
    read: sources.LoadedProgram,
    arguments: Sequence[str],
    workspace: Path,
    cwd: Path,
    taken_bytes: int,
) -> tuple[Program, tuple[str, ...]]:
    """Return the snapshot of a program that was read, and the warnings about it."""
    sha256 = checksum(read.tree)
    key = (sha256, read.entrypoint)
    findings = _found.get(key) or inspect_program(read.tree, read.entrypoint)
    _keep(key, findings)
    words = tuple(str(argument) for argument in arguments)
    executables = tuple(sorted(path for path, file in read.tree.items() if file.executable))
    flags = tuple(flag.name for flag in findings.flags if not flag.left_out)
    alone = read.kind in (ProgramKind.FILE, ProgramKind.CELL)
    # A shell script runs in the folder with the program's files, because it expects them there. A
    # Python file runs in the current folder, as if the user had started it, so that its relative
    # paths find data.
    working_dir = os.path.abspath(cwd) if alone and read.entrypoint.endswith(".py") else OWN_FOLDER
    texts = (*words, *executables, *flags, read.source, read.entrypoint, working_dir)
    taken_bytes += sum(map(text_bytes, texts))
    files = snapshots.inline_files(read.tree, INLINE_BYTES - taken_bytes)
    if files is None:
        snapshots.store(read.tree, sha256, workspace, source=read.source)
    program = Program(
        kind=read.kind,
        source=read.source,
        entrypoint=read.entrypoint,
        sha256=sha256,
        files=files,
        executables=executables,
        arguments=words,
        flags=flags,
        imports_tensorflow=_imports_tensorflow(read.tree, read.entrypoint),
        serves=inspection.uses_distributed_runtime(read.tree),
        working_dir=working_dir,
    )
    return program, (*read.warnings, *_tf_config_warning(findings))


_NAMES_BYTES = 4 * 1024
"""Maximum bytes that names, flags and base64 padding add to a program in the record."""


def _room_beside(most: int | None, arguments: Sequence[str], taken_bytes: int) -> int | None:
    """Return how many bytes a file and the small files in its folder may have together. The record
    has `most` bytes for the program, of which arguments, environment variables and names also take
    some.
    """
    if most is None:
        return None
    taken_bytes += sum(text_bytes(str(each)) for each in arguments)
    return max(0, most - taken_bytes - _NAMES_BYTES)


def _imports_tensorflow(tree: Tree, entry: str) -> bool:
    """Return whether the program certainly fails without TensorFlow; False for a shell script,
    which may handle this itself.
    """
    if not entry.endswith(".py"):
        return False
    needed = inspection.import_closure(inspection.InTree(tree), entry)
    return "tensorflow" in needed.missing and not needed.moves_path


def _tf_config_warning(findings: Findings) -> list[str]:
    if findings.replaces_tf_config is None:
        return []
    path, line = findings.replaces_tf_config
    text = _(
        "line {line} of {file} replaces TF_CONFIG: every task then gets the same cluster, index "
        "and ports instead of its own. Remove that line"
    )
    return [text.format(line=line, file=path)]
