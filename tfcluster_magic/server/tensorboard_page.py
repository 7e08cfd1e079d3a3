"""TensorBoard's page out of its package, for a tab whose board is still starting.

Promises what the board itself would answer: the same bytes, type, caching and policy. A browser
takes as long to read the page's script as a board takes to start; so both happen at once. None
where the package is not laid out as is known here: the board is asked then, once it runs. Never
imports TensorBoard, and never unpacks what the browser can.
"""

from __future__ import annotations

import mimetypes
import struct
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

INDEX = "index.html"
_HEAD = b'<!doctype html><meta name="tb-relative-root" content="./">'
_POLICY = (
    "default-src 'self';font-src 'self' data:;frame-src 'self' https://ui.perfetto.dev;"
    "img-src 'self' data: blob:;object-src 'none';"
    "style-src 'self' https://www.gstatic.com data: 'unsafe-inline';connect-src 'self';"
    "script-src 'self' 'unsafe-eval'"
)
_SCRIPT = "text/javascript"
_HELD = 86400
"""Seconds that a browser keeps a script whose address names its contents."""
_LOCAL_HEADER = 30
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


@dataclass(frozen=True)
class Packed:
    """A file as it is sent."""

    body: bytes
    headers: dict[str, str]


def packed(path: str, *, hashed: bool, gzip: bool) -> Packed | None:
    """The file at `path` below the page ("" is the page), if the package has it.

    Args:
        path: as the browser asks for it, without what follows a `?`.
        hashed: whether the query names the contents.
        gzip: whether the browser takes gzip.
    """
    name = path or INDEX
    try:
        with zipfile.ZipFile(_archive()) as archive:
            entry = archive.getinfo(name)
            if entry.is_dir() or not {INDEX, "index.js"} <= set(archive.namelist()):
                return None
            if name == INDEX:
                return Packed(_HEAD + archive.read(entry), _headers(name, hashed))
            if gzip and entry.compress_type == zipfile.ZIP_DEFLATED:
                told = _headers(name, hashed) | {"Content-Encoding": "gzip"}
                return Packed(_gzipped(archive, entry), told)
            return Packed(archive.read(entry), _headers(name, hashed))
    except (OSError, KeyError, ValueError, struct.error, zipfile.BadZipFile):
        return None


def _archive() -> Path:
    spec = find_spec("tensorboard")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("tensorboard")
    return Path(spec.submodule_search_locations[0], "webfiles.zip")


def _gzipped(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The entry as gzip has it: both are deflated, with another frame."""
    assert archive.fp is not None
    archive.fp.seek(entry.header_offset)
    name_length, extra_length = struct.unpack("<26xHH", archive.fp.read(_LOCAL_HEADER))
    archive.fp.seek(name_length + extra_length, 1)
    deflated = archive.fp.read(entry.compress_size)
    return _GZIP_HEADER + deflated + struct.pack("<II", entry.CRC, entry.file_size & 0xFFFFFFFF)


def _headers(name: str, hashed: bool) -> dict[str, str]:
    kind = _SCRIPT if name.endswith(".js") else mimetypes.guess_type(name)[0]
    kind = kind or "application/octet-stream"
    is_text = kind.startswith("text/") or kind == "image/svg+xml"
    headers = {"Content-Type": f"{kind}; charset=utf-8" if is_text else kind}
    if hashed and kind == _SCRIPT:
        return headers | {"Cache-Control": f"private, max-age={_HELD}"}
    headers |= {"Cache-Control": "no-cache, must-revalidate", "Expires": "0"}
    if kind == "text/html":
        headers["Content-Security-Policy"] = _POLICY
    return headers
