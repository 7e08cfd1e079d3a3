"""Programs that are read only when a task starts: where they may be, and refusals."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.polling import wait_until
from support.task_process import RUNTIME, Run, TaskProcess, new_run
from support.web_site import Handler, Site, site, tarred, zipped

from tfcluster_magic.spec import TaskExit

__all__ = ["site"]
HELLO = "import os, sys; print('hello from', os.getcwd(), *sys.argv[1:])\n"
LISTING = (
    "find -L . -mindepth 1 \\( -name '.*' -o -name __pycache__ \\) -prune -o -type f "
    "-printf '%P\\0' | LC_ALL=C sort -z | xargs -0r sha256sum -- | sha256sum"
)
"""The command for the checksum of a folder, as in the documentation."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Create a workspace."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def started(run: Run, prefix: Sequence[str] = (), **program: Any) -> TaskProcess:
    """Return a task whose spec has the fields `program`; the command `prefix` starts the task."""
    given = {"dir": "", "entrypoint": "", "arguments": [], "flags": [], "serves": False}
    run.config["program"] = {**given, "workingDir": None, "byHand": True, **program}
    env = {"TFCLUSTER_PATIENCE": "0.5", "no_proxy": "", "NO_PROXY": ""}
    return run.task().start(env, prefix=[*prefix])


def refused(task: TaskProcess) -> tuple[str, dict[str, Any]]:
    """Return the code and the values of the message with which the task refused to start its
    program.
    """
    told = msgspec.convert(task.wait(), TaskExit)
    assert (told.cause.value, told.exit_code) == ("NotStarted", None)
    assert told.detail_message is not None
    return told.detail_message.code, dict(told.detail_message.params)


def listed(folder: Path) -> str:
    """Return the checksum of a folder by the documented command."""
    shell = ["bash", "-c", LISTING]
    found = subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=True)
    return found.stdout.split()[0]


def sha256(content: bytes) -> str:
    """Return the checksum that sha256sum prints for this content."""
    return hashlib.sha256(content).hexdigest()


def test_a_file_runs_from_its_own_folder(run: Run, home: Path) -> None:
    """A file of the workspace runs in its own folder, whether or not its checksum is stated."""
    (home / "train.py").write_text(HELLO)
    for checksum in ("", sha256(HELLO.encode())):
        task = started(run, path=str(home / "train.py"), sha256=checksum, arguments=["--x"])
        assert task.wait()["cause"] == "Completed", task.output
        assert f"hello from {home} --x" in task.output


def test_a_folder_runs_by_what_starts_it(run: Run, home: Path) -> None:
    """A folder is started by run.sh, main.py or its only program. Otherwise, the spec must name the
    entrypoint.
    """
    (home / "first.py").write_text("print('first')")
    assert started(run, path=str(home)).wait()["cause"] == "Completed"
    (home / "second.py").write_text("print('second')")
    undecided = started(run, path=str(home))
    assert undecided.wait()["cause"] == "NotStarted"
    assert "it is not clear which file of" in undecided.output
    chosen = started(run, path=str(home), entrypoint="second.py")
    assert chosen.wait()["cause"] == "Completed"
    assert chosen.output.endswith("second\n")


def test_the_checksum_of_a_folder_is_what_a_shell_finds(run: Run, home: Path) -> None:
    """The documented command gives a folder's checksum; hidden files and bytecode do not count, but
    links count.
    """
    (home / "lib" / "__pycache__").mkdir(parents=True)
    (home / ".git").mkdir()
    (home / "main.py").write_text(HELLO)
    (home / "lib" / "a b.py").write_text("A = 1\n")
    (home / "Zebra.txt").write_text("z")
    (home / "link.txt").symlink_to("Zebra.txt")
    checksum = listed(home)
    (home / "lib" / "__pycache__" / "a.pyc").write_bytes(b"\0")
    (home / ".git" / "HEAD").write_text("x")
    task = started(run, path=str(home), sha256=checksum)
    assert task.wait()["cause"] == "Completed", task.output
    (home / "lib" / "a b.py").write_text("A = 2\n")
    code, values = refused(started(run, path=str(home), sha256=checksum))
    assert (code, values["expected"]) == ("ChecksumDiffers", checksum)


def test_the_checksum_of_a_folder_with_links_and_odd_names(run: Run, home: Path) -> None:
    """A link to a parent folder does not count; a link to another folder counts as the files in it.
    Pipes, broken links and names that begin with a dash count as in the documented command.
    """
    (home / "lib" / "deep").mkdir(parents=True)
    (home / "main.py").write_text(HELLO)
    (home / "lib" / "deep" / "a.py").write_text("A = 1\n")
    (home / "-n.py").write_text("N = 1\n")
    (home / "here").symlink_to(".")
    (home / "lib" / "deep" / "up").symlink_to("..")
    (home / "again").symlink_to("lib")
    (home / "nowhere").symlink_to("gone.py")
    (home / "round").symlink_to("round")
    os.mkfifo(home / "pipe")
    task = started(run, path=str(home), sha256=listed(home))
    assert task.wait()["cause"] == "Completed", task.output


@pytest.mark.parametrize("name", ["a\\b.py", "a\nb.py", "a\rb.py", "-"])
def test_a_name_that_sha256sum_writes_differently(run: Run, home: Path, name: str) -> None:
    """If sha256sum escapes a file's name, the checksums cannot be compared, and the task says
    so.
    """
    (home / "main.py").write_text(HELLO)
    (home / name).write_text("")
    assert started(run, path=str(home)).wait()["cause"] == "Completed"
    told = refused(started(run, path=str(home), sha256="0" * 64))
    assert told == ("NameWithoutChecksum", {"folder": str(home), "name": ascii(name)})


@pytest.mark.parametrize("kind", ["path", "url"])
def test_a_wrong_checksum_is_refused_with_the_right_one(
    run: Run, home: Path, site: Site, kind: str
) -> None:
    """A program whose checksum differs from the requested checksum is never started, and both
    checksums are reported.
    """
    (home / "train.py").write_text(HELLO)
    where = {"path": str(home / "train.py"), "url": site.add("/train.py", HELLO.encode())}[kind]
    code, values = refused(started(run, **{kind: where, "sha256": "0" * 64}))
    assert code == "ChecksumDiffers"
    assert values == {"source": where, "expected": "0" * 64, "found": sha256(HELLO.encode())}


def test_a_path_that_is_not_there(run: Run, home: Path) -> None:
    """If the path does not exist, the message says so."""
    path = str(home / "train.py")
    assert refused(started(run, path=path)) == ("ProgramNotThere", {"path": path})


def test_a_path_that_a_volume_shows_later(run: Run, home: Path) -> None:
    """A task reports that it waits for a file, and runs it once it exists."""
    path = home / "train.py"
    given = {"dir": "", "entrypoint": "", "arguments": [], "flags": [], "serves": False}
    run.config["program"] = {**given, "workingDir": None, "byHand": True, "path": str(path)}
    task = run.task().start()
    wait_until(lambda: f"waiting for {path}: No such file" in task.output, "what it waits for")
    path.with_name("new").write_text(HELLO)
    path.with_name("new").rename(path)
    assert task.wait()["cause"] == "Completed", task.output


def test_a_path_that_a_task_may_not_read(run: Run, home: Path) -> None:
    """The message about a file without read permission differs from the message about a missing
    file.
    """
    locked = home / "locked"
    locked.mkdir()
    path = str(locked / "train.py")
    Path(path).write_text(HELLO)
    rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    given = {"dir": "", "entrypoint": "", "arguments": [], "flags": [], "serves": False}
    run.config["program"] = {**given, "workingDir": None, "byHand": True, "path": path}
    locked.chmod(0)
    try:
        task = run.task().start(prefix=rights if os.geteuid() == 0 else [])
        assert refused(task) == ("ProgramForbidden", {"path": path})
    finally:
        locked.chmod(0o700)


def test_a_url_is_fetched_by_the_task(run: Run, site: Site, home: Path) -> None:
    """A task downloads a file and runs it in the run's own folder, whether or not its checksum is
    stated.
    """
    url = site.add("/raw/train.py", HELLO.encode())
    task = started(run, url=f"{url}?raw=1", sha256=sha256(HELLO.encode()), dir=str(home))
    assert task.wait()["cause"] == "Completed", task.output
    assert f"hello from {run.output}" in task.output


@pytest.mark.parametrize("end", [".zip", ".tar.gz"])
def test_an_archive_is_unpacked(run: Run, site: Site, home: Path, end: str) -> None:
    """The program of an archive runs in the unpacked folder; its checksum is the checksum of the
    archive.
    """
    files = {"project-1/main.py": b"import lib; print(lib.A)", "project-1/lib.py": b"A = 'packed'"}
    packed = io.BytesIO()
    if end == ".zip":
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as made:
            for name, content in files.items():
                head = tarfile.TarInfo(name)
                head.size = len(content)
                made.addfile(head, io.BytesIO(content))
    url = site.add(f"/project{end}", packed.getvalue())
    task = started(run, url=url, sha256=sha256(packed.getvalue()), dir=str(home))
    assert task.wait()["cause"] == "Completed", task.output
    assert "packed" in task.output


@pytest.mark.parametrize("end", [".zip", ".tar.gz"])
def test_an_archive_with_what_others_take_is_unpacked(
    run: Run, site: Site, home: Path, end: str
) -> None:
    """An archive within the archive counts as one file, even if it has very many entries. Bytes
    after a .tar.gz are ignored, as tar does.
    """
    if end == ".zip":
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("main.py", HELLO)
            archive.writestr("data.zip", large("zip"))
        packed = stream.getvalue()
    else:
        packed = tarred({"main.py": HELLO.encode()}) + b"a signature"
    task = started(run, url=site.add(f"/a{end}", packed), dir=str(home))
    assert task.wait()["cause"] == "Completed", task.output
    assert "hello from" in task.output


def test_an_archive_that_leads_outside_is_refused(run: Run, site: Site, home: Path) -> None:
    """An entry with a path outside of the archive's folder stops the task."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../outside.py", b"")
    task = started(run, url=site.add("/a.zip", packed.getvalue()), dir=str(home))
    assert task.wait()["cause"] == "NotStarted"
    assert "'../outside.py', which is not unpacked" in task.output
    assert not (home / "outside.py").exists()


def linked(kind: bytes) -> bytes:
    """Return an archive with a program and an entry of this kind."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        head = tarfile.TarInfo("main.py")
        head.size = len(HELLO)
        made.addfile(head, io.BytesIO(HELLO.encode()))
        link = tarfile.TarInfo("data.csv")
        link.type, link.linkname = kind, "main.py"
        made.addfile(link)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.tgz", linked(tarfile.SYMTYPE)),
        ("a.tgz", linked(tarfile.LNKTYPE)),
        ("a.tgz", linked(tarfile.FIFOTYPE)),
        (
            "a.zip",
            zipped(
                {"main.py": HELLO.encode(), "data.csv": b"main.py"},
                {"data.csv": stat.S_IFLNK | 0o777},
            ),
        ),
    ],
    ids=["link", "hard link", "pipe", "zip"],
)
def test_an_archive_with_a_link_is_refused(
    run: Run, site: Site, home: Path, name: str, packed: bytes
) -> None:
    """An entry that is neither a file nor a folder stops the task, as it stops a launch; the
    message names the entry.
    """
    told = refused(started(run, url=site.add(f"/{name}", packed), dir=str(home)))
    assert told == ("ArchiveHoldsLink", {"archive": name, "entry": "data.csv"})


NOISE = {"main.py": HELLO.encode(), "data": bytes(range(256)) * 40}


def packed_by(method: int) -> bytes:
    """Return a zip that is compressed by `method`, with damaged data."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("data", b"".join(b"%d," % n**3 for n in range(500)))
    content = bytearray(stream.getvalue())
    content[40:240] = b"\xff" * 200
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "packed", "why"),
    [
        ("a.tgz", tarred(NOISE)[:3], "it ends too early"),
        ("a.tgz", tarred(NOISE)[:11], ""),
        ("a.tgz", tarred(NOISE)[:-30], ""),
        ("a.tgz", b"\x1f\x8b\x08\x04\x00", "it ends too early"),
        ("a.tgz", b"", ""),
        ("a.tgz", b"no archive", "not a gzip file"),
        ("a.tgz", tarred(NOISE)[:-8] + bytes(8), "CRC check failed"),
        ("a.zip", b"no archive", "File is not a zip file"),
        ("a.zip", zipped(NOISE)[:-30], "File is not a zip file"),
        ("a.zip", packed_by(zipfile.ZIP_DEFLATED), "damaged or incomplete"),
        ("a.zip", packed_by(zipfile.ZIP_LZMA), "damaged or incomplete"),
        ("a.zip", packed_by(zipfile.ZIP_BZIP2), "damaged or incomplete"),
        ("a.zip", packed_by(zipfile.ZIP_STORED), "Bad CRC-32"),
    ],
    ids=[
        *("gzip-3", "gzip-11", "gzip-cut", "gzip-head", "gzip-empty", "gzip-none", "gzip-crc"),
        *("zip-none", "zip-cut", "deflate", "lzma", "bzip2", "stored"),
    ],
)
def test_a_damaged_archive_is_told_in_words(
    run: Run, site: Site, home: Path, name: str, packed: bytes, why: str
) -> None:
    """Python's modules for archives raise many different errors for a damaged archive; the task's
    report always names the archive and the problem.
    """
    code, values = refused(started(run, url=site.add(f"/{name}", packed), dir=str(home)))
    assert (code, values["archive"]) == ("ArchiveDamaged", name)
    assert values["why"] and why in values["why"]


def test_a_name_that_no_file_can_have_is_refused(run: Run, site: Site, home: Path) -> None:
    """An entry with a NUL in its name is refused, and the message names it."""
    packed = tarred({"main.py": b""}, pax_headers={"path": "a\0b.py"})
    task = started(run, url=site.add("/a.tgz", packed), dir=str(home))
    assert task.wait()["cause"] == "NotStarted"
    assert "holds 'a\\x00b.py', which is not unpacked" in task.output


def test_a_server_that_sends_too_slowly_is_given_up(run: Run, site: Site) -> None:
    """A download that arrives in single bytes ends at the timeout. A download that breaks off in
    the middle is reported, too.
    """

    def trickle(request: Handler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "60000")
        request.end_headers()
        while not site.over.wait(0.05):
            request.wfile.write(b"#")

    site.pages["/slow.py"] = trickle
    code, values = refused(started(run, url=f"{site.url}/slow.py"))
    assert (code, values["why"]) == ("ProgramNotFetched", "the server sends too slowly")
    cut = site.add("/cut.py", HELLO.encode(), {"Content-Length": "60000"})
    code, values = refused(started(run, url=cut))
    assert (code, values["why"]) == ("ProgramNotFetched", "the connection ended early")


def zeros_behind(start: bytes, mebibytes: int) -> bytes:
    """Return a .tar.gz that contains `start` and then `mebibytes` MiB of zeros; the end of the file
    is missing.
    """
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    packed = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return packed + block * (mebibytes // 16)


def head(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    """Return the header of an entry in a tar archive."""
    made = tarfile.TarInfo(name)
    made.type, made.size = kind, size
    return made.tobuf(tarfile.USTAR_FORMAT)


GIB = 1 << 30


def large(what: str) -> bytes:
    """Return a small archive that would take much time or memory."""
    if what == "zip":
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for number in range(10_001):
                archive.writestr(zipfile.ZipInfo(f"{number}/"), b"")
        return stream.getvalue()
    if what == "zip that says less":  # both fields with the number of entries are set to 1
        packed = large("zip")
        end = packed.rindex(b"PK\5\6") + 8
        return packed[:end] + b"\1\0\1\0" + packed[end + 4 :]
    if what == "folders":
        return zeros_behind(head("more", tarfile.DIRTYPE) * 10_001, 0)
    kinds = {"pax": tarfile.XHDTYPE, "name": tarfile.GNUTYPE_LONGNAME, "skipped": tarfile.DIRTYPE}
    return zeros_behind(head("main.py", kinds.get(what, tarfile.REGTYPE), GIB), 1024)


@pytest.mark.parametrize(
    ("what", "code", "values"),
    [
        ("pax", "ArchiveDamaged", {"why": f"an entry has a header of {GIB} bytes"}),
        ("name", "ArchiveDamaged", {"why": f"an entry has a header of {GIB} bytes"}),
        ("file", "ArchiveTooLarge", {"most": "50"}),
        ("skipped", "ArchiveTooLarge", {"most": "50"}),
        ("folders", "ArchiveHoldsTooMany", {"most": "10000"}),
        ("zip", "ArchiveHoldsTooMany", {"most": "10000"}),
        ("zip that says less", "ArchiveHoldsTooMany", {"most": "10000"}),
    ],
)
def test_a_small_archive_fills_neither_memory_nor_disk(
    run: Run, site: Site, home: Path, what: str, code: str, values: dict[str, str]
) -> None:
    """Headers, skipped entries and many empty entries count for the same limits as files, and the
    task reports the limit. A task with 200 MiB of memory can handle such archives.
    """
    name = "a.zip" if what.startswith("zip") else "a.tgz"
    url = site.add(f"/{name}", large(what))
    told = refused(started(run, ["prlimit", f"--data={200 << 20}"], url=url, dir=str(home)))
    assert told == (code, {"archive": name, **values})
    assert sum(each.stat().st_size for each in home.rglob("*")) < 60 << 20


@pytest.mark.parametrize("target", ["ftp://127.0.0.1:1/train.py", "file:///etc/hostname"])
def test_a_redirect_leads_nowhere_but_to_the_web(run: Run, site: Site, target: str) -> None:
    """A redirect to a file or to FTP is not followed, and its target is named."""
    url = site.redirect("/train.py", target)
    assert refused(started(run, url=url)) == ("ProgramRedirected", {"url": url, "target": target})
    moved = site.redirect("/moved.py", site.add("/there.py", HELLO.encode()), code=308)
    assert started(run, url=moved).wait()["cause"] == "Completed"


def test_headers_that_never_end_are_given_up(run: Run, site: Site) -> None:
    """A download whose server sends the header byte by byte ends at the timeout."""

    def trickle(request: Handler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not site.over.wait(0.05):
            request.wfile.write(b"#")

    site.pages["/slow.py"] = trickle
    code, values = refused(started(run, url=f"{site.url}/slow.py"))
    assert (code, values["why"]) == ("ProgramNotFetched", "the server sends too slowly")


def test_a_download_goes_by_the_proxies_of_the_program(run: Run, site: Site) -> None:
    """A proxy in the environment is used, except for the hosts in `no_proxy`."""
    url = site.add("/train.py", HELLO.encode())
    run.config["env"] = {"http_proxy": "http://127.0.0.1:1"}
    code, values = refused(started(run, url=url))
    assert (code, values["why"]) == ("ProgramNotFetched", "Connection refused")
    run.config["env"]["no_proxy"] = "example.com,127.0.0.1"
    task = started(run, url=url)
    assert task.wait()["cause"] == "Completed", task.output


def test_what_cannot_be_fetched_says_why(run: Run, site: Site) -> None:
    """A missing page is reported at once; a server that does not answer is reported after the
    timeout. An HTML page and an endless download are refused.
    """
    missing = f"{site.url}/missing.py"
    values = {"url": missing, "why": "404 Not Found"}
    assert refused(started(run, url=missing)) == ("ProgramNotFetched", values)
    code, said = refused(started(run, url="http://127.0.0.1:1/train.py"))
    assert (code, said["why"]) == ("ProgramNotFetched", "Connection refused")
    page = site.add("/page.py", b"<!DOCTYPE html><title>404</title>")
    assert refused(started(run, url=page)) == ("ProgramIsWebPage", {"url": page})
    odd = site.add("/program.exe", b"x")
    assert refused(started(run, url=odd)) == ("ProgramOfNoKind", {"url": odd})


def test_a_command_runs_where_its_image_says(run: Run, home: Path) -> None:
    """A command of the image starts in the working folder of the pod's first process, with the
    environment of the task.
    """
    run.config["ownFolder"] = True
    says = "import os; print(os.getcwd(), os.environ['TFCLUSTER_TASK'], 'TF_CONFIG' in os.environ)"
    given = {"dir": "", "entrypoint": "", "arguments": [], "flags": [], "workingDir": None}
    command = ["python3", "-c", says]
    run.config["program"] = {**given, "serves": False, "byHand": True, "command": command}
    task = run.task().start(cwd=home)
    assert task.wait()["cause"] == "Completed", task.output
    assert f"{home} worker-0 True" in task.output


def test_a_command_that_is_not_there(run: Run) -> None:
    """If the image lacks the command, the message names it."""
    code, values = refused(started(run, command=["no-such-command"]))
    assert (code, values) == ("CommandNotThere", {"command": "no-such-command"})


MIRRORED = "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"


@pytest.mark.parametrize(
    ("files", "start", "serves", "may"),
    [
        ({"train.py": "print(1)"}, "train.py", False, False),
        ({"train.py": MIRRORED}, "train.py", True, False),
        ({"train.py": "# ParameterServerStrategy\n"}, "train.py", False, False),
        ({"train.py": "from lib import model", "lib.py": MIRRORED}, "train.py", True, False),
        ({"run.sh": "exec python train.py", "train.py": MIRRORED}, "run.sh", True, False),
        ({"train.py": "s = tf.train.Server(c)"}, "train.py", True, False),
        ({"train.py": "s = http.Server(c)"}, "train.py", False, False),
        ({}, None, False, True),
    ],
)
def test_a_task_finds_out_whether_its_program_serves(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
    files: dict[str, str],
    start: str | None,
    serves: bool,
    may: bool,
) -> None:
    """From the program's text, a task finds out whether to wait for an open port. For a module that
    a command names, this is unknown.
    """
    monkeypatch.syspath_prepend(str(RUNTIME))
    from program_source import find_program
    from task_config import TaskConfig

    for name, text in files.items():
        (home / name).write_text(text)
    program = {"path": str(home / start)} if start else {"command": ["python", "-m", "train"]}
    run.config["program"] = {"byHand": True, "workingDir": None, **program}
    config = TaskConfig({**run.config, "beacon": 2224}, "worker-0")
    find_program(config, 1.0, print)
    assert (config.program["serves"], config.program["mayServe"]) == (serves, may)
    assert (config.opens_port, config.started_beacon) == (serves, 2224)
