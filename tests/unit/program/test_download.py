"""Downloads of a URL that a user names as the program, from a real server."""

from __future__ import annotations

import base64
import hashlib
import stat
from pathlib import Path

import pytest
from support.web_site import TRAIN, Site, site, tarred, zipped

from tfcluster_magic.program import materialise, snapshot
from tfcluster_magic.spec import Program, ProgramKind

__all__ = ["site"]  # a fixture of another module


def take(url: str, folder: Path, **more: object) -> Program:
    """Take a snapshot, and check that it has no warnings."""
    program, warnings = snapshot(url, workspace=folder / "ws", cwd=folder, **more)  # type: ignore[arg-type]
    assert warnings == ()
    return program


def test_file_of_a_url(site: Site, tmp_path: Path) -> None:
    """A .py file that is downloaded by http is the program; it is started under its own name."""
    url = site.add("/code/train.py", TRAIN)
    program = take(f"{url}?version=2", tmp_path, arguments=["--x"])
    assert program.kind is ProgramKind.URL
    assert (program.source, program.entrypoint) == (f"{url}?version=2", "train.py")
    assert program.files == {"train.py": base64.b64encode(TRAIN).decode()}
    assert (program.arguments, program.working_dir) == (("--x",), ".")


@pytest.mark.parametrize("as_fragment", [True, False])
def test_right_checksum_is_accepted(site: Site, tmp_path: Path, as_fragment: bool) -> None:
    """A download with the given checksum is accepted, in any form of the checksum."""
    url = site.add("/train.py", TRAIN)
    checksum = hashlib.sha256(TRAIN).hexdigest().upper()
    if as_fragment:
        program = take(f"{url}#sha256={checksum}", tmp_path)
    else:
        program = take(url, tmp_path, sha256=checksum)
    assert program.source == url


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirect_is_followed(site: Site, tmp_path: Path, code: int) -> None:
    """Redirects to http URLs are followed, and the file's suffix may come from the target URL."""
    site.add("/v2/train.py", TRAIN)
    assert take(site.redirect("/latest", "/v2/train.py", code), tmp_path).entrypoint == "train.py"


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tgz"])
def test_archive_is_a_folder(site: Site, tmp_path: Path, kind: str) -> None:
    """An archive is treated like a folder: a single outer folder is removed, and executable bits
    are kept.
    """
    files = {
        "job-main/run.sh": b"python train.py\n",
        "job-main/train.py": TRAIN,
        "job-main/.git/config": b"x",
        "job-main/__pycache__/x.pyc": b"x",
    }
    if kind == "zip":
        modes = dict.fromkeys(files, stat.S_IFREG | 0o755)
        body = zipped({"job-main/": b"", **files}, {**modes, "job-main/": stat.S_IFDIR | 0o755})
    else:
        body = tarred(files, mode=0o755)
    program = take(site.add(f"/job.{kind}", body), tmp_path)
    assert (program.entrypoint, program.executables) == ("run.sh", ("run.sh", "train.py"))
    materialise(program, tmp_path / "program", tmp_path / "ws")
    assert (tmp_path / "program" / "train.py").read_bytes() == TRAIN
    assert (tmp_path / "program" / "run.sh").stat().st_mode & 0o777 == 0o555


def test_archive_of_loose_files(site: Site, tmp_path: Path) -> None:
    """An archive without an outer folder is unpacked as it is, whether or not its names begin with
    `./`.
    """
    body = tarred({"./main.py": TRAIN, "pkg/__init__.py": b""})
    assert set(take(site.add("/job.tar.gz", body), tmp_path).files or ()) == {
        "main.py",
        "pkg/__init__.py",
    }
