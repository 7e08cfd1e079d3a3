"""A .zip or .tar.gz as a tree, unpacked in memory.

Promises that nothing in an archive reaches beyond its own folder and that it is never unpacked
beyond the limit, whatever its headers say. Owns which entries are refused. Never writes a file.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from ..i18n import _
from .tree import MAX_FILES, File, check_limits, check_paths, is_ignored, is_safe, refusal

Entry = tuple[str, int, bool, IO[bytes]]
"""Path, size as the archive states it, executable, and the content."""


def unpack(archive: bytes, *, source: object, limit_bytes: int) -> dict[str, File]:
    """The files of an archive; a single folder that holds everything is taken as the root.

    Raises:
        InvalidRequest: it is no archive, damaged or encrypted, unpacks to more than `limit_bytes`,
            or has an entry that is a link or leads outside.
    """
    is_zip = zipfile.is_zipfile(io.BytesIO(archive))
    entries = (
        _zip_entries(archive, source) if is_zip else _tar_entries(archive, source, limit_bytes)
    )
    tree: dict[str, File] = {}
    sizes: dict[str, int] = {}
    left = limit_bytes
    try:
        for path, size, executable, stream in entries:
            sizes[path] = size
            if size > left or len(sizes) > MAX_FILES:
                check_limits(source, sizes, limit_bytes)
            content = stream.read(left + 1)  # a header may understate the size
            left -= len(content)
            sizes[path] = len(content)
            if left < 0:
                check_limits(source, sizes, limit_bytes)
            tree[path] = File(content, executable)
    except (
        tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError,
        RuntimeError, NotImplementedError,  # zipfile: encrypted, unknown compression
    ) as error:  # fmt: skip
        raise refusal(
            source, _("the archive cannot be unpacked: {why}").format(why=error)
        ) from None
    check_paths(source, tree)
    return _without_common_folder(tree)


def _zip_entries(content: bytes, source: object) -> Iterator[Entry]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            path = info.filename.removeprefix("./").rstrip("/")
            kind = _("a link") if stat.S_ISLNK(mode) else ""
            if _is_wanted(path, kind, source) and not info.is_dir():
                with archive.open(info) as stream:
                    yield path, info.file_size, bool(mode & stat.S_IXUSR), stream


def _tar_entries(content: bytes, source: object, limit_bytes: int) -> Iterator[Entry]:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as plain:
        # Headers and padding come on top of the files; unbounded, a header could ask for it all.
        bounded = _Bounded(plain, limit_bytes + 4096 * MAX_FILES)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for info in archive:
                path = info.name.removeprefix("./").rstrip("/")
                kind = _("a link") if info.islnk() or info.issym() else _("a device")
                plain_kind = "" if info.isreg() or info.isdir() else kind
                if _is_wanted(path, plain_kind, source) and (stream := archive.extractfile(info)):
                    yield path, info.size, bool(info.mode & stat.S_IXUSR), stream


class _Bounded(io.RawIOBase):
    """A stream that fails after `limit_bytes`, so that a small archive cannot unpack for ever."""

    def __init__(self, stream: gzip.GzipFile, limit_bytes: int) -> None:
        self._stream, self._left = stream, limit_bytes

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        block = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(block)
        if self._left < 0:
            raise ValueError(_("it unpacks to far more than the limit"))
        return block


def _is_wanted(path: str, kind: str, source: object) -> bool:
    """Whether an entry is to be copied; `kind` says what else it is than a file or folder."""
    if path in ("", "."):
        return False
    if not is_safe(path):
        raise refusal(
            source,
            _(
                "the archive has the entry {path!a}, which leads outside its folder or is no plain "
                "name; pack the program's folder with relative names"
            ).format(path=path),
        )
    if is_ignored(path):
        return False
    if kind:
        raise refusal(
            source,
            _("{path} in the archive is {kind}; pack plain files").format(path=path, kind=kind),
        )
    return True


def _without_common_folder(tree: dict[str, File]) -> dict[str, File]:
    tops = {path.partition("/")[0] for path in tree}
    if len(tops) != 1 or any("/" not in path for path in tree):
        return tree
    top = len(tops.pop()) + 1
    return {path[top:]: file for path, file in tree.items()}
