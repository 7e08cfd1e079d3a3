"""Refusals of a URL that a user names as the program, from a real server."""

from __future__ import annotations

import hashlib
import stat
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.web_site import TRAIN, Handler, Site, site, tarred, zipped

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.program import snapshot

__all__ = ["site"]  # a fixture of another module


def refusal(url: str, folder: Path, **more: object) -> str:
    """Return the message with which a URL is refused; check that it names the URL."""
    with pytest.raises(InvalidRequest) as caught:
        snapshot(url, workspace=folder / "ws", cwd=folder, **more)  # type: ignore[arg-type]
    (problem,) = caught.value.problems
    assert problem.field == "program"
    assert str(problem.value) in url
    assert not (folder / "ws").exists(), "a refusal leaves nothing behind"
    return str(caught.value)


def in_short(value: object) -> str | None:
    """Return the id of a parameter for a test's name; None for bytes, which would be too long."""
    return "body" if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://example.org/train.py", "ftp:// is not supported; a URL starts with http://"),
        ("file:///etc/passwd", "file:// is not supported"),
        ("http:///train.py", "it names no host"),
        ("http://[::1/train.py", "not a valid URL"),
        ("http://127.0.0.1:port/train.py", "not a valid URL"),
        ("http://example.org/train.py#sha256=abc", "sha256=abc is no checksum"),
    ],
)
def test_wrong_url_is_refused(url: str, says: str, tmp_path: Path) -> None:
    """A URL with a scheme other than http or https, an invalid URL and an invalid checksum are
    refused before any connection.
    """
    assert says in refusal(url, tmp_path)


def test_password_is_kept_out_of_the_message(tmp_path: Path) -> None:
    """A URL with a password is refused, and the message does not repeat the password."""
    with pytest.raises(InvalidRequest) as caught:
        snapshot("https://me:hunter2@example.org/a.py", workspace=tmp_path, cwd=tmp_path)
    assert "would be kept in the record" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_two_checksums_are_refused(tmp_path: Path) -> None:
    """Two different checksums are refused; none of them is chosen."""
    url = f"http://127.0.0.1:1/a.py#sha256={'0' * 64}"
    assert "two checksums" in refusal(url, tmp_path, sha256="1" * 64)


def test_wrong_checksum_is_refused(site: Site, tmp_path: Path) -> None:
    """A download whose checksum differs from the requested checksum is refused, and the refusal has
    both checksums.
    """
    message = refusal(site.add("/train.py", TRAIN) + f"#sha256={'0' * 64}", tmp_path)
    assert hashlib.sha256(TRAIN).hexdigest() in message
    assert "0" * 64 in message


def test_404_is_told(site: Site, tmp_path: Path) -> None:
    """The refusal of a missing page has the URL and the status."""
    message = refusal(f"{site.url}/gone.py", tmp_path)
    assert f"got '{site.url}/gone.py'; the server answered 404 (Not Found)" in message


def test_nobody_listens_is_told(tmp_path: Path) -> None:
    """The message about a server that is not running is one sentence."""
    assert "could not be reached: Connection refused" in refusal(
        "http://127.0.0.1:1/train.py", tmp_path
    )


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/train.py", "data:,x"])
def test_redirect_to_another_scheme_is_refused(site: Site, tmp_path: Path, target: str) -> None:
    """A redirect to a scheme other than http or https is not followed, and the refusal names its
    target.
    """
    message = refusal(site.redirect("/train.py", target), tmp_path)
    assert f"it redirects to {target}; only http and https are followed" in message


def test_endless_redirect_is_refused(site: Site, tmp_path: Path) -> None:
    """A circle of redirects is refused with one message."""
    site.redirect("/b.py", "/a.py")
    assert "the server answered 302" in refusal(site.redirect("/a.py", "/b.py"), tmp_path)


def test_too_large_by_its_own_word(site: Site, tmp_path: Path) -> None:
    """A file whose Content-Length is above the limit is refused before it is downloaded."""
    url = site.add("/train.py", b"", {"Content-Length": str(3 * 1024**3)})
    assert "it has 3072 MiB, and the limit is 50 MiB" in refusal(url, tmp_path)


@pytest.mark.parametrize("chunked", [True, False])
def test_too_large_without_a_word(site: Site, tmp_path: Path, chunked: bool) -> None:
    """A file without Content-Length is cut off at the limit, however much the server sends."""
    sent = 0

    def endless(request: Handler) -> None:
        nonlocal sent
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Transfer-Encoding" if chunked else "X", "chunked")
        request.end_headers()
        block = b"#" * 8192
        while not site.over.is_set():
            request.wfile.write(b"2000\r\n" + block + b"\r\n" if chunked else block)
            sent += len(block)

    site.pages["/train.py"] = endless
    message = refusal(f"{site.url}/train.py", tmp_path, limit_bytes=100_000)
    assert "it is too large, the limit is 97.7 KiB" in message
    assert sent < 50 * 1024 * 1024


def drip_body(request: Handler, over: threading.Event) -> None:
    """Send a byte now and then, forever."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    while not over.wait(0.05):
        request.wfile.write(b"#")


def drip_headers(request: Handler, over: threading.Event) -> None:
    """Send a byte of a header now and then, forever."""
    request.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
    while not over.wait(0.05):
        request.wfile.write(b"x")


def send_nothing(request: Handler, over: threading.Event) -> None:
    """Never answer."""
    over.wait()


@pytest.mark.parametrize("slowness", [drip_body, drip_headers, send_nothing])
def test_slow_server_is_given_up(
    site: Site, tmp_path: Path, slowness: Callable[[Handler, threading.Event], None]
) -> None:
    """A download ends at its time limit even if the server answers very slowly."""
    site.pages["/train.py"] = lambda request: slowness(request, site.over)
    message = refusal(f"{site.url}/train.py", tmp_path, timeout=0.5)
    assert "the download took longer than 0.5 seconds" in message


def test_broken_download_is_refused(site: Site, tmp_path: Path) -> None:
    """A download that ends before its length is refused, and never partly run."""
    url = site.add("/train.py", TRAIN, {"Content-Length": "1000"})
    assert "broke off after 15 bytes" in refusal(url, tmp_path)


def test_answer_that_is_not_http(site: Site, tmp_path: Path) -> None:
    """The message about a server with another protocol is one sentence."""
    site.pages["/train.py"] = lambda request: request.wfile.write(b"220 ready\r\n") and None
    assert "the server's answer is not HTTP" in refusal(f"{site.url}/train.py", tmp_path)


def test_web_page_is_no_program(site: Site, tmp_path: Path) -> None:
    """A web page that shows a file is refused, and the refusal says what the URL of the file itself
    looks like.
    """
    url = site.add("/blob/main/train.py", b"\n<!DOCTYPE html>\n<html>")
    assert "use the address of the raw file" in refusal(url, tmp_path)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    ids=in_short,
    argvalues=[
        ("/train.py", b"x = = 1\n", "train.py has a syntax error in line 1, `x = = 1`"),
        ("/train.py", b"", "train.py is empty"),
        ("/data.csv", b"1,2", "a URL must end in .py, .sh or .zip, .tar.gz, .tgz"),
        ("/job.zip", b"no zip", "the archive cannot be unpacked"),
        ("/job.tar.gz", b"no tar", "the archive cannot be unpacked"),
        ("/job.tar.gz", tarred({"main.py": TRAIN})[:-20], "the archive cannot be unpacked"),
        (
            "/job.zip",
            zipped({"a.txt": b"x"}),
            "it is not clear which file to start. By default, run.sh, main.py",
        ),
        ("/job.zip", zipped({"../main.py": TRAIN}), "'../main.py', which leads outside"),
        ("/job.zip", zipped({"a/../../main.py": TRAIN}), "which leads outside"),
        ("/job.zip", zipped({"/tmp/main.py": TRAIN}), "'/tmp/main.py', which leads outside"),
        ("/job.zip", zipped({"a\\main.py": TRAIN}), "which leads outside"),
        (
            "/job.zip",
            zipped({"main.py": b"/etc/passwd"}, {"main.py": stat.S_IFLNK | 0o777}),
            "main.py in the archive is a link",
        ),
        (
            "/job.zip",
            zipped({"a": TRAIN, "a/b": TRAIN, "main.py": TRAIN}),
            "a is both a file and a",
        ),
        ("/job.tgz", tarred({"../main.py": TRAIN}), "which leads outside"),
        ("/job.tgz", tarred({"/main.py": TRAIN}), "which leads outside"),
        ("/job.tgz", tarred({"main.py": b""}, type=tarfile.SYMTYPE, linkname="/x"), "is a link"),
        ("/job.tgz", tarred({"main.py": b""}, type=tarfile.LNKTYPE, linkname="/x"), "is a link"),
        ("/job.tgz", tarred({"main.py": b""}, type=tarfile.CHRTYPE), "is a device"),
    ],
)
def test_download_that_cannot_run_is_refused(
    site: Site, tmp_path: Path, path: str, body: bytes, says: str
) -> None:
    """Damaged, misleading and dangerous downloads are refused, and nothing is written."""
    (tmp_path / "here").mkdir()
    assert says in refusal(site.add(path, body), tmp_path / "here")
    assert list(tmp_path.rglob("*.py")) + list((tmp_path / "here").iterdir()) == []


def understated(body: bytes) -> bytes:
    """Return the zip `body` with a central directory that states a size of one byte for each
    file.
    """
    at = body.index(b"PK\1\2") + 24
    return body[:at] + (1).to_bytes(4, "little") + body[at + 4 :]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    ids=in_short,
    argvalues=[
        ("/job.zip", zipped({"main.py": b"#" * 10**7}), "main.py (9.5 MiB)"),
        ("/job.tgz", tarred({"main.py": b"#" * 10**7}), "main.py (9.5 MiB)"),
        ("/job.tgz", tarred({"node_modules/x": b"\0" * 5 * 10**7}), "far more than the limit"),
        ("/job.zip", understated(zipped({"main.py": b"#" * 10**7})), "cannot be unpacked"),
    ],
)
def test_archive_that_unpacks_to_too_much_is_refused(
    site: Site, tmp_path: Path, path: str, body: bytes, says: str
) -> None:
    """A small archive with huge contents is refused at the limit, whatever its headers say."""
    assert len(body) < 100_000
    assert says in refusal(site.add(path, body), tmp_path, limit_bytes=100_000)
