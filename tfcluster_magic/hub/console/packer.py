"""Packs a user's data as a tar.gz on standard output: `python -I -m …console.packer`.

It runs under the user's own account, so that it can pack only what the user may read. It follows no
links, and writes only to its output. The last file of the archive, `MANIFEST.json`, lists the size
and sha256 of every other file, and the files that could not be packed.

    workspace/…   the workspace: programs, notebooks, data and logs below it
    data/… log/…  data and logs outside the workspace
    runs/…        the records of runs

On Kubernetes, `pod_packer` packs the mounted claims, and the console sends it the records.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ... import paths

MANIFEST = "MANIFEST.json"


class _Hashed(io.RawIOBase):
    """A file of which exactly `size` bytes are read, even if it changes meanwhile, and the sha256
    of these bytes.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        block = self._file.read(wanted)
        block += bytes(wanted - len(block))  # the file has become shorter; pad it
        self._left -= len(block)
        self.sha256.update(block)
        return block


def pack(
    folders: dict[str, Path],
    out: BinaryIO,
    records: Mapping[str, str] | None = None,
    beside: Mapping[str, str] | None = None,
) -> None:
    """Write an archive to `out`. Raises OSError if that fails.

    Args:
        folders: the folders to pack, by their name in the archive.
        out: where to write.
        records: texts to pack, by path in the archive.
        beside: reasons why other data cannot be packed, by path, for the manifest.
    """
    files: list[dict[str, Any]] = []
    missed = [{"path": name, "why": why} for name, why in (beside or {}).items()]
    with tarfile.open(fileobj=out, mode="w|gz", format=tarfile.PAX_FORMAT) as tar:
        for name, path in _every(folders, missed):
            if why := _add(tar, name, path, files):
                missed.append({"path": name, "why": why})
        for name, text in sorted((records or {}).items()):
            _write(tar, name, text.encode())
            digest = hashlib.sha256(text.encode()).hexdigest()
            files.append({"path": name, "size": len(text.encode()), "sha256": digest})
        told = {"packed": time.time(), "files": files, "missed": missed}
        _write(tar, MANIFEST, json.dumps(told, indent=1).encode())


def _write(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    made = tarfile.TarInfo(name)
    made.size, made.mode, made.mtime = len(content), 0o600, int(time.time())
    tar.addfile(made, io.BytesIO(content))


def _add(tar: tarfile.TarFile, name: str, path: Path, files: list[dict[str, Any]]) -> str:
    """Add a file or folder; return why it cannot be packed, or an empty text."""
    tar.inodes = {}  # type: ignore[attr-defined]  # a hard link gets its own copy of the content
    try:
        info = tar.gettarinfo(str(path), name)
        if not info.isreg():
            tar.addfile(info)
            return ""
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return "it was gone"
    except PermissionError as error:
        return error.strerror or str(error)
    with os.fdopen(number, "rb") as file:
        info.size = os.fstat(number).st_size
        hashed = _Hashed(file, info.size)
        tar.addfile(info, hashed)
    digest = hashed.sha256.hexdigest()
    files.append({"path": info.name, "size": info.size, "sha256": digest})
    return ""


def _every(folders: dict[str, Path], missed: list[dict[str, str]]) -> Iterator[tuple[str, Path]]:
    for name, top in folders.items():
        if not top.is_dir():
            continue
        yield name, top
        for place, below, inside in os.walk(top, onerror=lambda e: _note(missed, e)):
            for each in sorted([*below, *inside]):
                path = Path(place, each)
                shown = f"{name}/{path.relative_to(top)}"
                try:
                    mode = path.lstat().st_mode
                except OSError as error:
                    missed.append({"path": shown, "why": str(error.strerror)})
                    continue
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
                    yield shown, path
                else:
                    missed.append({"path": shown, "why": "not a file, folder or link"})


def _note(missed: list[dict[str, str]], error: OSError) -> None:
    missed.append({"path": str(error.filename), "why": str(error.strerror)})


def main() -> None:
    """Pack the user's data."""
    workspace = paths.home_dir()
    elsewhere = {"data": paths.data_dir(), "log": paths.log_dir()}
    apart = {n: p for n, p in elsewhere.items() if not p.is_relative_to(workspace)}
    folders = {"workspace": workspace, **apart, "runs": paths.state_dir() / "runs"}
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # keep stray prints out of the archive
        pack(folders, out)
        out.flush()
        os.fsync(out.fileno())


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
