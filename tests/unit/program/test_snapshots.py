"""Snapshots: where they are stored, and that their copies are equal to the program."""

from __future__ import annotations

import base64
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.programs import on_disk, take, write

from tfcluster_magic.errors import InvalidRequest, TFClusterError
from tfcluster_magic.program import INLINE_BYTES, keep_written, materialise, snapshot
from tfcluster_magic.spec import Program, ProgramKind, to_json

NAMES = st.text(string.ascii_letters + string.digits + "_-. é", min_size=1, max_size=12).filter(
    lambda name: (
        name.strip(". ") == name and not name.startswith((".", "__pycache__", "node_modules"))
        and not name.endswith(".pyc") and name != "pyvenv.cfg"
    )
)  # fmt: skip
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "d/" * (len(parts) - 1) + parts[-1]),
    st.tuples(st.binary(max_size=300), st.booleans()),
    max_size=8,
).map(lambda files: {path: f for path, f in files.items() if path not in {"d", "d/d", "run.sh"}})


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=FILES, padding=st.sampled_from([0, INLINE_BYTES]))
def test_snapshot_and_copy_are_faithful(
    files: dict[str, tuple[bytes, bool]], padding: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any folder, whether its snapshot is in the record or in the workspace, the copy is equal
    to the folder, and the checksum depends only on the content.
    """
    folder = tmp_path_factory.mktemp("case")
    wanted = {**files, "run.sh": (b"true\n#" + b"x" * padding, True)}
    for place in ("one", "two"):
        names = reversed(wanted) if place == "two" else wanted
        write(folder / place, {p + "*" * wanted[p][1]: wanted[p][0] for p in names})
    program = take("one", folder, folder / "ws")
    again = take(str(folder / "two"), folder, folder / "other ws")
    assert program.sha256 == again.sha256
    assert (program.files, program.executables) == (again.files, again.executables)
    assert (program.files is None) == (padding > 0)
    materialise(program, folder / "copy", folder / "ws")
    assert on_disk(folder / "copy") == wanted
    materialise(program, folder / "copy", folder / "ws")  # a second copy changes nothing
    assert on_disk(folder / "copy") == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"main.py": "x = 2\n"},
        {"main.py*": "x = 1\n"},
        {"other.py": "x = 1\n"},
        {"main.p": "y", "x": ""},
    ],
)
def test_any_change_gives_another_checksum(
    change: dict[str, str], here: Path, workspace: Path
) -> None:
    """Content, executable bits and names all count for the checksum."""
    before = {"main.py": "x = 1\n", "main.p": "", "x": "y"}
    first = take(str(write(here / "job", before)), here, workspace)
    second = take(str(write(here / "job", change)), here, workspace)
    assert first.sha256 != second.sha256


def large(here: Path, workspace: Path) -> Program:
    """Return a snapshot that is too large for its record."""
    write(here / "job", {"main.py": "x = 1\n", "data.bin": os.urandom(INLINE_BYTES), "go*": "y"})
    program = take("job", here, workspace)
    assert program.files is None
    return program


def test_large_program_is_stored_once(here: Path, workspace: Path) -> None:
    """A program above 64 KiB is stored once in the workspace, read-only, in a folder that git
    ignores.
    """
    program = large(here, workspace)
    code = workspace / ".tfcluster" / "code"
    stored = code / program.sha256
    assert (workspace / ".tfcluster" / ".gitignore").read_text() == "*\n"
    assert {p.stat().st_mode & 0o777 for p in stored.iterdir()} == {0o444, 0o555}
    before = stored.stat().st_ino
    assert take("job", here, workspace) == program
    assert stored.stat().st_ino == before
    assert [p.name for p in code.iterdir()] == [program.sha256], "no temporary folder is left"
    assert len(to_json(program)) < 1000


def test_altered_store_is_noticed_and_repaired_by_the_next_launch(
    here: Path, workspace: Path, tmp_path: Path
) -> None:
    """A stored program that was altered or removed is never run; launching again restores it."""
    program = large(here, workspace)
    stored = workspace / ".tfcluster" / "code" / program.sha256
    (stored / "main.py").chmod(0o644)
    (stored / "main.py").write_text("x = 2\n")
    with pytest.raises(TFClusterError, match=r"was altered.*Launch the program again"):
        materialise(program, tmp_path / "program", workspace)
    assert take("job", here, workspace) == program
    materialise(program, tmp_path / "program", workspace)
    assert [p.name for p in stored.parent.iterdir()] == [program.sha256]
    subprocess.run(["rm", "-r", workspace], check=True, stdin=subprocess.DEVNULL)
    with pytest.raises(TFClusterError, match=r"is gone: .* does not exist"):
        materialise(program, tmp_path / "again", workspace)
    assert not (tmp_path / "again").exists()


def test_launches_at_once_store_one_program(here: Path, workspace: Path) -> None:
    """Processes that store the same program at the same time leave one correct copy."""
    write(here / "job", {"main.py": "x = 1\n", "data.bin": os.urandom(INLINE_BYTES)})
    code = (
        "import sys; from pathlib import Path; from tfcluster_magic.program import snapshot;"
        "sys.stdin.read(); ws, cwd = map(Path, sys.argv[1:]);"
        "print(snapshot('job', workspace=ws, cwd=cwd)[0].sha256)"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, workspace, here],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    sums = {racer.communicate("")[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0] * 4
    assert {p.name for p in (workspace / ".tfcluster" / "code").iterdir()} == sums
    assert len(sums) == 1


def test_workspace_that_cannot_be_written_is_told(here: Path, tmp_path: Path) -> None:
    """If the workspace is not writable, a large program is refused; the refusal has the folder and
    the reason.
    """
    (tmp_path / "file").write_text("")
    write(here / "job", {"main.py": "x = 1\n", "data.bin": os.urandom(INLINE_BYTES)})
    with pytest.raises(InvalidRequest, match=r"64 KiB cannot be stored in .*file.*Not a directory"):
        snapshot("job", workspace=tmp_path / "file", cwd=here)


def test_what_a_program_writes_beside_itself_is_kept(
    here: Path, workspace: Path, tmp_path: Path
) -> None:
    """New files next to a copy are moved into the folder where results stay; files of the snapshot
    are not.
    """
    write(here, {"train.py": "import a\n", "a.py": "", "vocabulary.txt": "v"})
    copy, kept = tmp_path / "copy", tmp_path / "output" / "beside-program"
    materialise(take("train.py", here, workspace), copy, workspace, folder_mode=0o755)
    write(copy, {"model.bin": b"weights", "out/curve.csv": "1", "__pycache__/a.pyc": "x"})
    keep_written(copy, kept)
    assert set(on_disk(kept)) == {"model.bin", "out/curve.csv"}
    assert (copy / "vocabulary.txt").exists()
    keep_written(tmp_path / "gone", kept)


def test_copy_is_read_only_and_never_mixed(here: Path, workspace: Path, tmp_path: Path) -> None:
    """A run's copy is read-only, and is not written into a folder that holds something else."""
    write(here, {"a.py": "import b\n", "b.py": "x = 1\n"})
    program = take("a.py", here, workspace)
    (tmp_path / "empty").mkdir()
    materialise(program, tmp_path / "empty", workspace)
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "empty" / "b.py").stat().st_mode & 0o777 == 0o444
    write(tmp_path / "other", {"x.txt": "mine"})
    with pytest.raises(TFClusterError, match="files that are not the program"):
        materialise(program, tmp_path / "other", workspace)
    assert on_disk(tmp_path / "other") == {"x.txt": (b"mine", False)}


@pytest.mark.parametrize("path", ["../evil.py", "/tmp/evil.py", "a/../../evil.py", "a//b", "a\nb"])
def test_record_cannot_write_outside(path: str, tmp_path: Path, workspace: Path) -> None:
    """A record that names files outside its folder is refused, whatever its checksum says."""
    program = Program(
        kind=ProgramKind.FILE, source="x", entrypoint="x.py", sha256="0" * 64, files={path: ""}
    )
    with pytest.raises(TFClusterError, match="a file name may not contain"):
        materialise(program, tmp_path / "run" / "program", workspace)
    assert not (tmp_path / "run").exists()


def test_altered_record_is_noticed(here: Path, workspace: Path, tmp_path: Path) -> None:
    """If the files in a record do not match its checksum, they are not run."""
    write(here, {"a.py": "x = 1\n"})
    program = take("a.py", here, workspace)
    assert program.files is not None
    for text in (base64.b64encode(b"x = 2\n").decode(), "no base64!"):
        program.files["a.py"] = text
        with pytest.raises(TFClusterError, match="altered"):
            materialise(program, tmp_path / "program", workspace)


def test_a_program_travels_in_the_record_as_far_as_there_is_room(
    here: Path, workspace: Path
) -> None:
    """After environment and arguments, the program gets the rest of the 64 KiB in the record; a
    larger program is stored in the workspace.
    """
    write(here, {"main.py": "x = 1\n#" + "x" * 40_000})
    arguments = ("y" * 10_000,)
    small = take("main.py", here, workspace, arguments=arguments)
    assert small.files is not None
    assert not (workspace / ".tfcluster").exists()
    large = take("main.py", here, workspace, arguments=arguments, taken_bytes=20_000)
    assert large.files is None
    assert (workspace / ".tfcluster" / "code" / large.sha256 / "main.py").exists()
    assert large.sha256 == small.sha256
