"""Programs that nobody has read before a task starts: where it finds them, and what it refuses."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.task_process import RUNTIME, Run, TaskProcess, new_run
from support.web_site import Site, site

from tfcluster_magic.spec import TaskExit

__all__ = ["site"]
HELLO = "import os, sys; print('hello from', os.getcwd(), *sys.argv[1:])\n"
LISTING = (
    "find -L . -mindepth 1 \\( -name '.*' -o -name __pycache__ \\) -prune -o -type f "
    "-printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
)
"""What the documentation says about the checksum of a folder."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run whose processes are gone afterwards."""
    with new_run(tmp_path) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A workspace."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def started(run: Run, **program: Any) -> TaskProcess:
    """A task of a program that is written by hand in this way."""
    given = {"dir": "", "entrypoint": "", "arguments": [], "flags": [], "serves": False}
    run.config["program"] = {**given, "workingDir": None, "byHand": True, **program}
    return run.task().start({"TFCLUSTER_PATIENCE": "0.5"})


def refused(task: TaskProcess) -> tuple[str, dict[str, Any]]:
    """The code and the values with which a task was not started."""
    told = msgspec.convert(task.wait(), TaskExit)
    assert (told.cause.value, told.exit_code) == ("NotStarted", None)
    assert told.detail_message is not None
    return told.detail_message.code, dict(told.detail_message.params)


def sha256(content: bytes) -> str:
    """As sha256sum prints it."""
    return hashlib.sha256(content).hexdigest()


def test_a_file_runs_from_its_own_folder(run: Run, home: Path) -> None:
    """A file of the workspace runs where it lies, with and without its checksum."""
    (home / "train.py").write_text(HELLO)
    for checksum in ("", sha256(HELLO.encode())):
        task = started(run, path=str(home / "train.py"), sha256=checksum, arguments=["--x"])
        assert task.wait()["cause"] == "Completed", task.output
        assert f"hello from {home} --x" in task.output


def test_a_folder_runs_by_what_starts_it(run: Run, home: Path) -> None:
    """A folder is started by run.sh, main.py or its only program, else by the entrypoint."""
    (home / "first.py").write_text("print('first')")
    assert started(run, path=str(home)).wait()["cause"] == "Completed"
    (home / "second.py").write_text("print('second')")
    undecided = started(run, path=str(home))
    assert undecided.wait()["cause"] == "NotStarted"
    assert "says what to start" in undecided.output
    chosen = started(run, path=str(home), entrypoint="second.py")
    assert chosen.wait()["cause"] == "Completed"
    assert chosen.output.endswith("second\n")


def test_the_checksum_of_a_folder_is_what_a_shell_finds(run: Run, home: Path) -> None:
    """The documented command gives the checksum by which a folder runs; hidden files and bytecode
    do not count, links do.
    """
    (home / "lib" / "__pycache__").mkdir(parents=True)
    (home / ".git").mkdir()
    (home / "main.py").write_text(HELLO)
    (home / "lib" / "a b.py").write_text("A = 1\n")
    (home / "Zebra.txt").write_text("z")
    (home / "link.txt").symlink_to("Zebra.txt")
    shell = ["bash", "-c", LISTING]
    found = subprocess.run(shell, cwd=home, capture_output=True, text=True, check=True)
    checksum = found.stdout.split()[0]
    (home / "lib" / "__pycache__" / "a.pyc").write_bytes(b"\0")
    (home / ".git" / "HEAD").write_text("x")
    task = started(run, path=str(home), sha256=checksum)
    assert task.wait()["cause"] == "Completed", task.output
    (home / "lib" / "a b.py").write_text("A = 2\n")
    code, values = refused(started(run, path=str(home), sha256=checksum))
    assert (code, values["expected"]) == ("ChecksumDiffers", checksum)


@pytest.mark.parametrize("kind", ["path", "url"])
def test_a_wrong_checksum_is_refused_with_the_right_one(
    run: Run, home: Path, site: Site, kind: str
) -> None:
    """A program with another checksum than was asked for is never started, and both are told."""
    (home / "train.py").write_text(HELLO)
    where = {"path": str(home / "train.py"), "url": site.add("/train.py", HELLO.encode())}[kind]
    code, values = refused(started(run, **{kind: where, "sha256": "0" * 64}))
    assert code == "ChecksumDiffers"
    assert values == {"source": where, "expected": "0" * 64, "found": sha256(HELLO.encode())}


def test_a_path_that_is_not_there(run: Run, home: Path) -> None:
    """A path that leads nowhere is told as such."""
    path = str(home / "train.py")
    assert refused(started(run, path=path)) == ("ProgramNotThere", {"path": path})


def test_a_url_is_fetched_by_the_task(run: Run, site: Site, home: Path) -> None:
    """A task fetches a file and runs it in the run's own folder, with its checksum or without."""
    url = site.add("/raw/train.py", HELLO.encode())
    task = started(run, url=f"{url}?raw=1", sha256=sha256(HELLO.encode()), dir=str(home))
    assert task.wait()["cause"] == "Completed", task.output
    assert f"hello from {run.output}" in task.output


@pytest.mark.parametrize("end", [".zip", ".tar.gz"])
def test_an_archive_is_unpacked(run: Run, site: Site, home: Path, end: str) -> None:
    """An archive runs as the folder that it holds, and its checksum is that of the archive."""
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


def test_an_archive_that_leads_outside_is_refused(run: Run, site: Site, home: Path) -> None:
    """An entry that would be written outside of the archive's folder stops the task."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../outside.py", b"")
    task = started(run, url=site.add("/a.zip", packed.getvalue()), dir=str(home))
    assert task.wait()["cause"] == "NotStarted"
    assert "'../outside.py', which is not unpacked" in task.output
    assert not (home / "outside.py").exists()


def test_what_cannot_be_fetched_says_why(run: Run, site: Site) -> None:
    """A missing page is told at once, a server that does not answer when patience is over; a page
    for people and an address without a known end are no programs.
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
    """A command of the image starts in the folder of the pod's first process, with the task's own
    environment.
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
    """A command that the image does not have is named."""
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
    """The text says whether a task has to wait for an open port; of a module that a command names
    nobody knows.
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
