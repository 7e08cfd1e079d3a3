"""Hostile archives, downloads and folders, launched as programs."""

from __future__ import annotations

import gzip
import io
import os
import random
import resource
import stat
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from support.web_site import TRAIN, Site, tarred, zipped

from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.program import snapshot

from .cases import Attempt
from .target import Target

LIMIT = 200_000
"""Maximum size in bytes of a program in these attacks."""
MOST = 64 << 20
"""Maximum bytes of memory that the refusal of a program may take."""


def _refused(target: Target, source: Callable[[Site, Path], str]) -> None:
    """Check that a launch refuses a program with an error for the user, and writes no file."""
    with target.state() as folder:
        here, outside = folder / "here", folder / "outside"
        here.mkdir()
        outside.mkdir()
        (outside / "secret.py").write_text("print('secret')\n")
        site = Site()
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            named = source(site, here)
            made = {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.exists()}
            try:
                program, _ = snapshot(named, workspace=folder / "ws", cwd=here, limit_bytes=LIMIT)
            except TFClusterError as refused:
                shown = "".join(refused._render_traceback_())  # the refusal as a notebook shows it
                assert "\x1b" not in shown and "\x07" not in shown, "ESC in the refusal"
            else:
                raise AssertionError(f"it was taken: {program.entrypoint}")
        finally:
            site.close()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) << 10
        assert grown < MOST, f"{grown >> 20} MiB of memory were taken"
        after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.exists()}
        new = {path for path in after if path not in before and path not in made}
        assert not new, f"it wrote {sorted(str(path.relative_to(folder)) for path in new)}"
        assert (outside / "secret.py").read_text() == "print('secret')\n"


def _served(body: bytes, ending: str) -> Callable[[Site, Path], str]:
    return lambda site, _here: site.add(f"/job{ending}", body)


def _packed(drawn: random.Random, files: dict[str, bytes]) -> tuple[bytes, str]:
    if drawn.random() < 0.5:
        with warnings.catch_warnings():
            # zipfile warns if two names become the same
            warnings.simplefilter("ignore", UserWarning)
            return zipped(files), ".zip"
    return tarred(files), drawn.choice((".tgz", ".tar.gz"))


def outside(target: Target, drawn: random.Random) -> None:
    """An archive is refused if a name in it leads out of its folder."""
    names = (
        *(
            "../main.py",
            "/tmp/tfcluster-attack.py",
            "a/../../main.py",
            "..\\main.py",
            "a\\..\\main.py",
        ),
        *(
            "./../main.py",
            "a/./../../main.py",
            "....//../main.py",
            "..",
            "../",
            "a/..",
            "//main.py",
        ),
    )
    body, ending = _packed(drawn, {"main.py": TRAIN, drawn.choice(names): TRAIN})
    _refused(target, _served(body, ending))


def links(target: Target, drawn: random.Random) -> None:
    """An archive is refused if it contains a link or a device."""
    linked = drawn.choice(("/etc/passwd", "../outside/secret.py", "main.py", "/dev/zero"))
    kind = drawn.choice(
        (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    )
    if drawn.random() < 0.3:
        body = zipped({"main.py": linked.encode()}, {"main.py": stat.S_IFLNK | 0o777})
        _refused(target, _served(body, ".zip"))
    else:
        _refused(target, _served(tarred({"main.py": b""}, type=kind, linkname=linked), ".tgz"))


def bombs(target: Target, drawn: random.Random) -> None:
    """A small archive with huge content is refused at the limit, in little memory."""
    size = drawn.choice((10, 40)) << 20
    name = drawn.choice(("data.bin", "a/data.bin", "main2.py"))
    forms: tuple[Callable[[], tuple[bytes, str]], ...] = (
        lambda: (zipped({"main.py": TRAIN, name: bytes(size)}), ".zip"),
        lambda: (tarred({"main.py": TRAIN, name: bytes(size)}), ".tgz"),
        lambda: (tarred({"main.py": TRAIN, "node_modules/x": bytes(10 * size)}), ".tgz"),
        lambda: (_understated(zipped({"main.py": b"#" * size})), ".zip"),
        lambda: (zipped({f"f{n}.py": b"" for n in range(30_000)} | {"main.py": TRAIN}), ".zip"),
        lambda: (gzip.compress(gzip.compress(bytes(size))), ".tgz"),
        lambda: (_overlapping(size), ".zip"),
    )
    body, ending = drawn.choice(forms)()
    _refused(target, _served(body, ending))


def _understated(body: bytes) -> bytes:
    """Return a zip whose central directory claims that each file has one byte."""
    at = body.index(b"PK\1\2") + 24
    return body[:at] + (1).to_bytes(4, "little") + body[at + 4 :]


def _overlapping(size: int) -> bytes:
    """Return a zip in which many names share the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("main.py", b"#" * (size // 64))
        (first,) = archive.filelist
        for number in range(64):
            more = zipfile.ZipInfo(f"f{number}.py")
            for name in ("compress_type", "CRC", "compress_size", "file_size", "header_offset"):
                setattr(more, name, getattr(first, name))
            archive.filelist.append(more)
    return stream.getvalue()


def damaged(target: Target, drawn: random.Random) -> None:
    """A cut or altered archive is refused, unless the damage has left its files intact."""
    body, ending = _packed(drawn, {"main.py": TRAIN, "a/b.py": os.urandom(300).hex().encode()})
    raw = bytearray(body)
    if drawn.random() < 0.5:
        raw = raw[: drawn.randrange(len(raw) * 9 // 10)]
    else:
        for _ in range(drawn.randint(20, 60)):
            raw[drawn.randrange(len(raw))] = drawn.randrange(256)
    try:
        _refused(target, _served(bytes(raw), ending))
    except AssertionError as error:
        if "it was taken: main.py" not in str(error):  # some altered archives are still valid
            raise


def names(target: Target, drawn: random.Random) -> None:
    """Names are refused that no file can have, or that are both a file and a folder."""
    sets: tuple[dict[str, bytes], ...] = (
        {"main.py": TRAIN, "a": b"", "a/b.py": TRAIN},
        {"main.py": TRAIN, "a\x00b.py": TRAIN, "a": TRAIN, "a/b": TRAIN},
        {"main.py": TRAIN, "x" * 300 + "/../../y.py": TRAIN},
        {"a/" * 200 + "main.py": TRAIN, "../b.py": TRAIN},
        {"main.py": TRAIN, "\x1b]0;x\x07/../../b.py": TRAIN},
    )
    body, ending = _packed(drawn, drawn.choice(sets))
    _refused(target, _served(body, ending))


def downloads(target: Target, drawn: random.Random) -> None:
    """A download is refused if it misstates its size, redirects elsewhere or sends control
    characters.
    """

    def lies(site: Site, _here: Path) -> str:
        headers = {"Content-Length": drawn.choice(("99999999999999999999", "5000"))}
        return site.add("/main.py", TRAIN, headers)

    def leads(site: Site, _here: Path) -> str:
        targets = (
            "file:///etc/passwd",
            "ftp://127.0.0.1/x",
            "data:,x",
            "gopher://127.0.0.1:1/x",
            "//[",
        )
        return site.redirect("/main.py", drawn.choice(targets))

    def escapes(site: Site, _here: Path) -> str:
        def answer(handler: object) -> None:
            handler.wfile.write(b"HTTP/1.0 404 \x1b]0;owned\x07\x1b[2J\r\n\r\n")  # type: ignore[attr-defined]

        site.pages["/main.py"] = answer
        return f"{site.url}/main.py"

    def page(site: Site, _here: Path) -> str:
        return site.add("/main.py", b"<html>\x1b[31m" + bytes(range(256)))

    _refused(target, drawn.choice((lies, leads, escapes, page)))


def folders(target: Target, drawn: random.Random) -> None:
    """A folder is refused if it leads outside or contains special files."""

    def made(_site: Site, here: Path) -> str:
        folder = here / "job"
        folder.mkdir()
        (folder / "main.py").write_bytes(TRAIN)
        drawn.choice(
            (
                lambda: (folder / "x.py").symlink_to("../../outside/secret.py"),
                lambda: (folder / "x.py").symlink_to("/etc/passwd"),
                lambda: (folder / "x").symlink_to(".."),
                lambda: (folder / "x.py").symlink_to("/dev/zero"),
                lambda: (folder / "x.py").symlink_to("x.py"),
            )
        )()
        return str(folder)

    _refused(target, made)


def pipes(target: Target, drawn: random.Random) -> None:
    """A pipe in place of a program, or in the program's folder, never blocks a launch."""
    with target.state() as folder:
        named = folder / "job" / drawn.choice(("main.py", "x.py", "data"))
        named.parent.mkdir()
        (named.parent / "run.sh").write_text("exec python main.py\n")
        os.mkfifo(named)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                snapshot(str(named.parent), workspace=Path(scratch), cwd=folder)
            except TFClusterError as refused:
                assert str(refused)


CASES: Mapping[str, Attempt] = {
    "leading-outside": outside,
    "links": links,
    "bombs": bombs,
    "damaged-archives": damaged,
    "file-names": names,
    "downloads": downloads,
    "folders": folders,
    "pipes": pipes,
}
