"""Snapshots of programs: where their files are stored, and the copy of them that a run gets.

The files that `materialise` writes have the snapshot's checksum, and a stored folder appears whole
or not at all. A refused launch leaves no snapshot behind. Large snapshots are stored in
`<workspace>/.tfcluster/code/`; a valid snapshot that belongs to another launch is never removed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import InvalidRequest, Problem, TFClusterError
from ..i18n import _
from ..paths import home_dir
from ..spec import Message, Program, ProgramKind
from ..spec.record_size import file_bytes, text_bytes
from ..spec.spec import MOST_FILES, PAYLOAD_BYTES
from .tree import (
    File,
    Tree,
    check_paths,
    checksum,
    format_size,
    is_ignored,
    list_files,
    program_refusal,
    read_file,
)

INLINE_BYTES = PAYLOAD_BYTES
"""Maximum bytes of a program, with the names of its files, that is stored in the record. A larger
program is stored in the workspace, and so is a smaller one if the environment and the arguments
leave too little space in the record.
"""


def inline_files(tree: Tree, room: int = INLINE_BYTES) -> dict[str, str] | None:
    """Return the files for the record in base64; None if they are more than `room` bytes."""
    size = sum(file_bytes(path, len(file.content)) for path, file in tree.items())
    if size > room or len(tree) > MOST_FILES:
        return None
    return {path: base64.b64encode(tree[path].content).decode() for path in sorted(tree)}


def stored_folder(workspace: Path, sha256: str) -> Path:
    """Return the folder of a large snapshot's files."""
    return workspace / ".tfcluster" / "code" / sha256


def store(tree: Tree, sha256: str, workspace: Path, *, source: object) -> Path:
    """Store a large snapshot in the workspace if it is not there yet; return its folder.

    Raises:
        InvalidRequest: the workspace is not writable.
    """
    final = stored_folder(workspace, sha256)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        ignore = final.parent.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="ascii")
        while not _has_content(final, tree) and not _write_folder(tree, final, 0o755):
            if not _has_content(final, tree):
                _put_aside(final)
    except OSError as error:
        size = format_size(sum(len(file.content) for file in tree.values()))
        raise program_refusal(
            source,
            _(
                "its {size} cannot be stored in {folder}: {why}. Make that "
                "folder writable, or keep the program below {limit}"
            ).format(
                size=size,
                folder=final.parent,
                why=error.strerror or error,
                limit=format_size(INLINE_BYTES),
            ),
        ) from None
    return final


def load(program: Program, workspace: Path) -> dict[str, File]:
    """Return the files of a snapshot after verifying their checksum.

    Raises:
        InvalidRequest: the files in the record do not match its checksum.
        TFClusterError: the stored folder is gone or altered.
    """
    if not program.is_stored:
        tree = _decode(program.files or {}, program.executables)
        _compare(program, tree)
        return tree
    folder = stored_folder(workspace, program.sha256)
    if not folder.is_dir():
        raise TFClusterError(
            _(
                "the snapshot of {source} is gone: {folder} does not exist. Launch the "
                "program again instead of rerunning this run"
            ).format(source=program.source, folder=folder)
        )
    tree = _read_folder(folder, program.executables)
    if checksum(tree) != program.sha256:
        raise TFClusterError(
            _(
                "the snapshot of {source} was altered: the files in {where} do not have the "
                "checksum {sha256}. Launch the program again instead of rerunning this run"
            ).format(source=program.source, where=folder, sha256=program.sha256)
        )
    return tree


def _compare(program: Program, tree: Tree) -> None:
    """Raise InvalidRequest if files in the record do not match its checksum."""
    found = _checksum_of(program.kind, tree)
    if found != program.sha256:
        rule = Message("RecordAltered", {"found": found})
        raise InvalidRequest([Problem("spec.program.sha256", program.sha256, rule)])


def checksum_problems(program: Program | None) -> list[Problem]:
    """Return the problems of a program whose files are in the record: a checksum that does not
    match, or invalid base64. Return none for any other program.
    """
    if program is None or program.files is None:
        return []
    try:
        load(program, Path())
    except InvalidRequest as error:
        return list(error.problems)
    return []


def _checksum_of(kind: ProgramKind | None, tree: Tree) -> str:
    """Return the checksum of a program's files. For a single text in the record, this is the
    SHA-256 of the text, which users can compute with `sha256sum`.
    """
    if kind is ProgramKind.INLINE and len(tree) == 1:
        (file,) = tree.values()
        return hashlib.sha256(file.content).hexdigest()
    return checksum(tree)


INLINE_ENTRY = "program.py"
"""The file name that is used for a program text in the record if the user gave no file name."""


def completed(program: Program | None) -> Program | None:
    """Return a program of a hand-written TFCluster with the fields that a snapshot has: `kind` and
    `source`, and for a program text also its file and checksum. A checksum that the user wrote is
    kept here, and `load` compares it with the program.
    """
    if program is None:
        return None
    if program.inline is not None:
        entry = program.entrypoint or INLINE_ENTRY
        content = program.inline.encode("utf-8", "surrogatepass")
        return replace(
            program,
            inline=None,
            kind=ProgramKind.INLINE,
            source=program.source or "inline",
            entrypoint=entry,
            files={entry: base64.b64encode(content).decode()},
            sha256=program.sha256 or _checksum_of(ProgramKind.INLINE, {entry: File(content)}),
        )
    if program.command:
        told = program.source or shlex.join(program.command)[:MOST_SOURCE]
        return replace(program, kind=ProgramKind.COMMAND, source=told)
    if program.path:
        return replace(program, kind=ProgramKind.PATH, source=program.source or program.path)
    if program.url:
        return replace(program, kind=ProgramKind.LINK, source=program.source or program.url)
    kind, source = program.kind or ProgramKind.FILE, program.source or program.entrypoint
    if program.files is None or program.sha256:
        return replace(program, kind=kind, source=source)
    try:
        sha256 = _checksum_of(kind, _decode(program.files, program.executables))
    except InvalidRequest:  # invalid base64, which `load` reports
        sha256 = ""
    return replace(program, kind=kind, source=source, sha256=sha256)


MOST_SOURCE = 4096


def written_program(program: Program) -> dict[str, Any]:
    """Return the fields that the author of a hand-written program writes. This is the reverse of
    `completed`, which adds the other fields.
    """
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(program))
    for own in ("kind", "source"):
        written.pop(own, None)
    if program.kind is ProgramKind.INLINE and program.files:
        (file,) = _decode(program.files, program.executables).values()
        text = file.content.decode("utf-8", "surrogatepass")
        del written["files"], written["sha256"]
        if program.entrypoint == INLINE_ENTRY:
            del written["entrypoint"]
        return {"inline": text, **written}
    return written


def readable_program(program: Program) -> dict[str, Any]:
    """Return a program as a person would write it. A single text file is shown as text, without the
    fields that can be derived from it, such as the checksum.
    """
    if program.by_hand:
        return written_program(program)
    files = program.files or {}
    text = _text_of(next(iter(files.values()))) if len(files) == 1 else None
    if text is None or program.kind is ProgramKind.FOLDER or program.executables:
        written: dict[str, Any] = msgspec.to_builtins(program)
        return written
    entry = {} if program.entrypoint == INLINE_ENTRY else {"entrypoint": program.entrypoint}
    given = {"arguments": list(program.arguments), "flags": list(program.flags)}
    given = {key: words for key, words in given.items() if words}
    folder = {"workingDir": program.working_dir} if program.working_dir else {}
    return {"inline": text, **entry, **given, **folder}


def _text_of(content: str) -> str | None:
    """Return a base64 file of the record as text. Return None if the file is empty, too large, or
    binary: a TFCluster cannot contain such a file as text.
    """
    try:
        text = base64.b64decode(content).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if text and "\0" not in text and text_bytes(text) <= PAYLOAD_BYTES else None


def unpinned_messages(program: Program | None) -> tuple[Message, ...]:
    """Return a message for a run's status if its program is not a snapshot. It says that tasks that
    start later may run something else. For a snapshot, return no message.
    """
    if program is None or program.is_pinned:
        return ()
    return (Message("ProgramNotPinned", {"source": program.path or program.url or ""}),)


def materialise(
    program: Program, target: Path, workspace: Path, *, folder_mode: int = 0o555
) -> None:
    """Write a run's own copy of a snapshot as the folder `target`, its files read-only.

    The folder appears whole or not at all. `target` may exist before the call if it is empty or
    already has the files of this snapshot. With a `folder_mode` of 0o755 the program may write new
    files into the folder.

    Raises:
        TFClusterError: the snapshot is gone or altered, or `target` is not writable.
    """
    tree = load(program, workspace)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not _has_content(target, tree) and not _write_folder(tree, target, folder_mode):
            raise TFClusterError(
                _("{target} holds files that are not the program's; name a new folder").format(
                    target=target
                )
            )
    except OSError as error:
        raise TFClusterError(
            _("the program cannot be written to {target}: {why}").format(
                target=target, why=error.strerror or error
            )
        ) from None


def keep_written(program: Path, target: Path) -> None:
    """Move files from the folder `program`, which holds a run's copy of its program, to the folder
    `target`. Only files that the program itself wrote are moved: unlike the files of the snapshot,
    they are not read-only. Files that cannot be moved stay.
    """
    for below, folders, files in os.walk(program):
        folders[:] = [name for name in folders if not is_ignored(name)]
        for name in files:
            source = Path(below, name)
            with suppress(OSError):
                written = source.lstat()
                if not written.st_mode & stat.S_IWUSR or not stat.S_ISREG(written.st_mode):
                    continue
                if is_ignored(name):
                    continue
                place = target / source.relative_to(program)
                place.parent.mkdir(parents=True, exist_ok=True)
                if not place.exists():
                    shutil.move(source, place)


def _read_folder(folder: Path, executables: Iterable[str]) -> dict[str, File]:
    """Return a folder's files. `executables` are the paths of executable files in the record; the
    folder does not show them, because not every volume keeps the executable bit.
    """
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
    check_paths(Message("TheRecord"), files)
    try:
        return {
            path: File(base64.b64decode(text, validate=True), path in executables)
            for path, text in files.items()
        }
    except (binascii.Error, ValueError):
        raise program_refusal(Message("TheRecord"), Message("RecordNotBase64")) from None


def _has_content(folder: Path, tree: Tree) -> bool:
    """Return whether `folder` has exactly these files."""
    with contextlib.suppress(TFClusterError):
        executables = [path for path, file in tree.items() if file.executable]
        return checksum(_read_folder(folder, executables)) == checksum(tree)
    return False


def _write_folder(tree: Tree, final: Path, folder_mode: int) -> bool:
    """Write `tree` next to `final` and rename it to `final`; return False if `final` already has
    files.
    """
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=final.parent))
    try:
        for path, file in tree.items():
            at = new / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(file.content)
            at.chmod(0o555 if file.executable else 0o444)
        # tasks may have another user id on the volume, so other users must be able to read the
        # folder
        _set_modes(new, folder_mode)
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
    """Remove the folder of a stored snapshot whose content does not match its name, a checksum."""
    aside = Path(tempfile.mkdtemp(prefix=".old-", dir=folder.parent))
    with contextlib.suppress(FileNotFoundError):  # another process has removed the folder already
        folder.rename(aside / folder.name)
    shutil.rmtree(aside, ignore_errors=True)


# The places of snapshots that are too large for a record, before and after a launch is accepted.


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for the snapshot of a launch in progress, and remove it afterwards.

    Raises:
        TFClusterError: no temporary folder can be created.
    """
    import tempfile

    try:
        folder = tempfile.mkdtemp(prefix="tfcluster-")
    except OSError as error:
        raise TFClusterError(
            _("no temporary folder can be made: {why}; free space, or set TMPDIR").format(
                why=error.strerror
            )
        ) from None
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def keep_snapshot(
    program: Program | None, taken_in: Path, workspace: Callable[[], Path] = home_dir
) -> Iterator[None]:
    """Store the snapshot in the user's workspace; remove it if the code in the `with` block fails.

    A snapshot that another launch uses, or may be about to use, always stays.

    Raises:
        TFClusterError: the workspace is not writable, or `workspace()` raised the error.
    """
    if program is None or not program.is_stored:
        yield
        return

    home = workspace()
    final = stored_folder(home, program.sha256)
    with _shared_lock(final.parent) as we_are_alone:
        was_there = final.exists()
        store(load(program, taken_in), program.sha256, home, source=program.source)
        stored_at = final.stat().st_mtime_ns
        try:
            yield
        except BaseException:
            if not was_there and we_are_alone() and final.stat().st_mtime_ns == stored_at:
                shutil.rmtree(final, ignore_errors=True)
            raise
        with suppress(OSError):
            # Another launch may have stored this snapshot before us. If that launch is refused, it
            # removes the snapshot unless the folder's modification time has changed. So we change
            # the time.
            os.utime(final)


@contextmanager
def _shared_lock(folder: Path) -> Iterator[Callable[[], bool]]:
    """Mark `folder` as used by this launch during the `with` block. Yield a function that returns
    whether no other launch uses the folder.
    """
    fd = -1
    with suppress(OSError):  # `store` will report why the folder is not writable
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)

    def alone() -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, ValueError):  # another launch has the lock, or the volume has no locks
            return False
        return True

    try:
        yield alone
    finally:
        if fd >= 0:
            os.close(fd)
