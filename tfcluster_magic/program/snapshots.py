"""Where a snapshot's files lie, and how a run gets its own copy of them.

Promises that what `materialise` writes has the snapshot's checksum, and that a stored folder
appears whole or not at all. Owns `<workspace>/.tfcluster/code/` and the rule of 64 KiB. Never
removes a stored folder that has the right content.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import TFClusterError
from ..i18n import _
from ..spec import Program
from ..spec.spec import MOST_FILES
from .folder import list_files, read_file
from .tree import File, Tree, check_paths, checksum, refusal, size_text

INLINE_BYTES = 64 * 1024
"""Programs up to this size, names included, travel inside the record."""


def inline(tree: Tree) -> dict[str, str] | None:
    """The files for the record, in base64; None when they are too large for it."""
    size = sum(len(path) + len(file.content) for path, file in tree.items())
    if size > INLINE_BYTES or len(tree) > MOST_FILES:
        return None
    return {path: base64.b64encode(tree[path].content).decode() for path in sorted(tree)}


def stored_folder(workspace: Path, sha256: str) -> Path:
    """Where the files of a large snapshot lie."""
    return workspace / ".tfcluster" / "code" / sha256


def store(tree: Tree, sha256: str, workspace: Path, *, source: object) -> Path:
    """Put a large snapshot into the workspace, unless it is there; return its folder.

    Raises:
        InvalidRequest: the workspace cannot be written.
    """
    final = stored_folder(workspace, sha256)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        ignore = final.parent.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="ascii")
        while not _holds(final, tree) and not _appears(tree, final, 0o755):
            if not _holds(final, tree):
                _put_aside(final)
    except OSError as error:
        size = size_text(sum(len(file.content) for file in tree.values()))
        raise refusal(
            source,
            _(
                "its {size} cannot be stored in {folder}: {why}. Make that "
                "folder writable, or keep the program below {limit}"
            ).format(
                size=size,
                folder=final.parent,
                why=error.strerror or error,
                limit=size_text(INLINE_BYTES),
            ),
        ) from None
    return final


def load(program: Program, workspace: Path) -> dict[str, File]:
    """The files of a snapshot, with their checksum verified.

    Raises:
        TFClusterError: the stored folder is gone or altered, or the record is.
    """
    if program.files is None:
        folder = stored_folder(workspace, program.sha256)
        if not folder.is_dir():
            raise TFClusterError(
                _(
                    "the snapshot of {source} is gone: {folder} does not exist. Launch the "
                    "program again instead of rerunning this run"
                ).format(source=program.source, folder=folder)
            )
        tree = _read(folder, program.executables)
        where = str(folder)
    else:
        tree = _decode(program.files, program.executables)
        where = _("the record")
    if checksum(tree) != program.sha256:
        raise TFClusterError(
            _(
                "the snapshot of {source} was altered: the files in {where} do not have the "
                "checksum {sha256}. Launch the program again instead of rerunning this run"
            ).format(source=program.source, where=where, sha256=program.sha256)
        )
    return tree


def materialise(program: Program, target: Path, workspace: Path) -> None:
    """Write a run's own copy of a snapshot as the folder `target`, read-only.

    The folder appears whole or not at all. It may exist when it is empty or holds this snapshot.

    Raises:
        TFClusterError: the snapshot is gone or altered, or `target` cannot be written.
    """
    tree = load(program, workspace)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not _holds(target, tree) and not _appears(tree, target, 0o555):
            raise TFClusterError(
                _("{target} holds other files than the program; name a new folder").format(
                    target=target
                )
            )
    except OSError as error:
        raise TFClusterError(
            _("the program cannot be written to {target}: {why}").format(
                target=target, why=error.strerror or error
            )
        ) from None


def _read(folder: Path, executables: Iterable[str]) -> dict[str, File]:
    """A folder's files; executable is what the record says, as not every volume keeps the bit."""
    names = set(executables)
    if not folder.is_dir():
        return {}
    sizes = list_files(folder, source=folder, skipped=[])
    limit = sum(sizes.values())
    return {
        path: File(read_file(folder / path, limit, source=folder).content, path in names)
        for path in sizes
    }


def _decode(files: Mapping[str, str], executables: tuple[str, ...]) -> dict[str, File]:
    check_paths(_("the record"), files)
    try:
        return {
            path: File(base64.b64decode(text, validate=True), path in executables)
            for path, text in files.items()
        }
    except (binascii.Error, ValueError):
        raise refusal(
            _("the record"), _("its files are not base64: the record was altered")
        ) from None


def _holds(folder: Path, tree: Tree) -> bool:
    """Whether `folder` has exactly these files."""
    with contextlib.suppress(TFClusterError):
        executables = [path for path, file in tree.items() if file.executable]
        return checksum(_read(folder, executables)) == checksum(tree)
    return False


def _appears(tree: Tree, final: Path, folder_mode: int) -> bool:
    """Write `tree` beside `final` and rename it there; False when `final` has files already."""
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=final.parent))
    try:
        for path, file in tree.items():
            at = new / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(file.content)
            at.chmod(0o555 if file.executable else 0o444)
        _set_modes(new, folder_mode)  # a task may be another user of the volume
        new.rename(final)
    except OSError as error:
        _set_modes(new, 0o700)
        shutil.rmtree(new, ignore_errors=True)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _set_modes(folder: Path, mode: int) -> None:
    for below, _folders, _files in os.walk(folder):
        os.chmod(below, mode)


def _put_aside(folder: Path) -> None:
    """Take away a folder that does not hold what its name says."""
    aside = Path(tempfile.mkdtemp(prefix=".old-", dir=folder.parent))
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        folder.rename(aside / folder.name)
    shutil.rmtree(aside, ignore_errors=True)
