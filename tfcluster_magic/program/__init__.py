"""Programs: what the user named, as one snapshot that never changes.

A snapshot taken twice of the same files has the same checksum, and whatever could not run is
refused before any task starts. Owns reading, checking, storing and writing out of programs. Never
imports or runs them, and never imports TensorFlow.

    program, warnings = snapshot("train.py", workspace=home, cwd=here)
    materialise(program, run_folder / "program", home)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..spec import Program, ProgramKind, names
from . import inspection, snapshots, sources
from .inspection import ADDRESS_FLAGS
from .snapshots import INLINE_BYTES, keep_written, materialise
from .sources import is_url
from .tree import LIMIT_BYTES, MAX_FILES, checksum

__all__ = [
    "ADDRESS_FLAGS",
    "INLINE_BYTES",
    "LIMIT_BYTES",
    "MAX_FILES",
    "OWN_FOLDER",
    "check_url",
    "default_name",
    "is_url",
    "keep_written",
    "materialise",
    "snapshot",
    "snapshot_cell",
    "uses_parameter_servers",
]

OWN_FOLDER = "."
"""As working directory: the folder in which a task finds the program's files."""


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
) -> tuple[Program, tuple[str, ...]]:
    """Take a snapshot of a file, a folder or a URL.

    Args:
        source: as the user wrote it; relative to `cwd`.
        arguments: what the program is started with.
        workspace: folder that tasks see too, in which a large snapshot is stored.
        cwd: folder the user works in, in which a `.py` file runs.
        sha256: checksum of what a URL gives.
        limit_bytes: most bytes of all files together.
        beside_bytes: most bytes of a file and the small files beside it; `limit_bytes` when None.
        timeout: seconds for a download.

    Returns:
        The snapshot, and warnings for the user.

    Raises:
        InvalidRequest: with what is wrong, and what is allowed.
    """
    read = sources.read(os.fspath(source), cwd, sha256, limit_bytes, timeout, beside_bytes)
    return _take_snapshot(read, arguments, workspace, cwd), read.warnings


def snapshot_cell(
    text: str,
    *,
    arguments: Sequence[str] = (),
    workspace: Path,
    cwd: Path,
    limit_bytes: int = LIMIT_BYTES,
    beside_bytes: int | None = None,
    first_line: int = 2,
) -> tuple[Program, tuple[str, ...]]:
    """Take a snapshot of a cell's body, which runs as `cell.py`.

    Args:
        text: the cell without the line of the magic.
        arguments: what the program is started with.
        workspace: as for `snapshot`.
        cwd: folder of the notebook, in which modules are found and the program runs.
        limit_bytes: most bytes of all files together.
        beside_bytes: as for `snapshot`.
        first_line: number of the body's first line in the cell, as a person counts.

    Returns:
        The snapshot, and warnings for the user.

    Raises:
        InvalidRequest: with what is wrong, and what is allowed.
    """
    read = sources.read_cell(text, cwd, limit_bytes, first_line, beside_bytes)
    return _take_snapshot(read, arguments, workspace, cwd), read.warnings


def default_name(source: str | os.PathLike[str], cwd: Path | None = None) -> str:
    """A cluster's name for a program: `train.py` gives `train`, a cell (`"cell"`) `cell`."""
    return names.derive(sources.source_name(os.fspath(source), cwd or Path.cwd()))


def check_url(url: str, sha256: str | None = None) -> None:
    """Raise InvalidRequest for an address that would not even be asked. Asks nobody."""
    from . import download

    download.split_checksum(url, sha256)


def uses_parameter_servers(program: Program, workspace: Path) -> bool:
    """Whether a snapshot is written for parameter servers: `--ps_hosts`, or their strategy.

    Raises:
        TFClusterError: the snapshot is gone or altered.
    """
    return inspection.uses_parameter_servers(snapshots.load(program, workspace))


def _take_snapshot(
    read: sources.LoadedProgram, arguments: Sequence[str], workspace: Path, cwd: Path
) -> Program:
    sha256 = checksum(read.tree)
    files = snapshots.inline_files(read.tree)
    if files is None:
        snapshots.store(read.tree, sha256, workspace, source=read.source)
    # A shell script expects its files around it; a Python file runs as a person would run it: from
    # here, where its relative paths lead to data.
    alone = read.kind in (ProgramKind.FILE, ProgramKind.CELL)
    runs_here = alone and read.entrypoint.endswith(".py")
    return Program(
        kind=read.kind,
        source=read.source,
        entrypoint=read.entrypoint,
        sha256=sha256,
        files=files,
        executables=tuple(sorted(path for path, file in read.tree.items() if file.executable)),
        arguments=tuple(str(argument) for argument in arguments),
        flags=inspection.address_flags(read.tree),
        serves=inspection.uses_distributed_runtime(read.tree),
        working_dir=os.path.abspath(cwd) if runs_here else OWN_FOLDER,
    )
