"""Files that are copied together with a program that is a single file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import contents, take, write

from tfcluster_magic.program import INLINE_BYTES, materialise, snapshot, snapshot_cell

MIB = 1 << 20


def test_small_files_beside_a_program_come_along(
    here: Path, workspace: Path, tmp_path: Path
) -> None:
    """In a task, a program can still read the small files that it finds by `__file__` or in folders
    that it names.
    """
    write(
        here,
        {
            "train.py": (
                "import json, os\n"
                "here = os.path.dirname(os.path.abspath(__file__))\n"
                "read = lambda *p: open(os.path.join(here, *p)).read()\n"
                "print(json.loads(read('params.json')), read('conf', 'a.yaml'), read('x.txt'))\n"
            ),
            "params.json": '{"lr": 0.1}',
            "x.txt": "x",
            "conf/a.yaml": "a: 1",
            "conf/deep/b.yaml": "b: 1",
            "other/c.yaml": "c: 1",
            "notes.ipynb": "{}",
            "run.log": "old",
            "events.out.tfevents.1.host": "old",
            "model.ckpt-5.index": "old",
            "helper.py": "--ps_hosts",
            ".secret": "key",
            "__pycache__/train.pyc": "old",
        },
    )
    program = take("train.py", here, workspace)
    assert set(contents(program)) == {
        "train.py",
        "params.json",
        "x.txt",
        "conf/a.yaml",
        "conf/deep/b.yaml",
    }
    assert program.flags == ()
    materialise(program, tmp_path / "program", workspace)
    command = [sys.executable, str(tmp_path / "program" / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "{'lr': 0.1} a: 1 x\n"


def test_what_a_program_names_comes_whatever_it_is(here: Path, workspace: Path) -> None:
    """A hidden file, a notebook, a script or an old log is copied if the program names it."""
    named = {"tool.py": "x = 1\n", ".env": "A=1", "last.log": "l", "n.ipynb": "{}"}
    write(here, {"train.py": f"files = {sorted(named)}\n", **named})
    assert set(contents(take("train.py", here, workspace))) == {"train.py", *named}


def test_a_cell_and_a_script_bring_their_files(here: Path, workspace: Path) -> None:
    """A cell gets the small files of the notebook's folder; a script gets the small files of its
    own folder.
    """
    write(here, {"go.sh": "cat conf/a.txt\n", "conf/a.txt": "a", "b.txt": "b", "n.ipynb": "{}"})
    assert set(contents(take("go.sh", here, workspace))) == {"go.sh", "conf/a.txt", "b.txt"}
    cell, warnings = snapshot_cell("print(open('b.txt').read())", workspace=workspace, cwd=here)
    assert (set(contents(cell)), warnings) == ({"cell.py", "b.txt"}, ())


def test_large_files_stay_and_are_named_if_the_program_names_them(
    here: Path, workspace: Path
) -> None:
    """Files above 1 MiB are not copied; a warning lists the large files that the program names,
    with the line of the program.
    """
    write(
        here,
        {
            "train.py": "a = 1\nopen('big.bin')\nopen('./data/train.csv')\n",
            "big.bin": b"x" * (MIB + 1),
            "unnamed.bin": b"x" * (MIB + 1),
            "data/train.csv": b"x" * (2 * MIB),
            "small.txt": "s",
        },
    )
    program, warnings = snapshot("train.py", workspace=workspace, cwd=here)
    assert set(contents(program)) == {"train.py", "small.txt"}
    assert [each.partition(",")[0] for each in warnings] == [
        "train.py names big.bin (line 2)",
        "train.py names data/train.csv (line 3)",
    ]
    assert "(2 MiB)" in warnings[1] and "TFCLUSTER_DATA_DIR" in warnings[1]


def test_links_that_lead_outside_stay(here: Path, workspace: Path, tmp_path: Path) -> None:
    """A link that leads out of the folder is not followed; it is reported if the program names
    it.
    """
    (tmp_path / "outside.txt").write_text("secret")
    write(here, {"train.py": "open('link.txt')\n"})
    (here / "link.txt").symlink_to(tmp_path / "outside.txt")
    (here / "other.txt").symlink_to(tmp_path / "outside.txt")
    program, warnings = snapshot("train.py", workspace=workspace, cwd=here)
    assert set(contents(program)) == {"train.py"}
    assert len(warnings) == 1 and "link.txt" in warnings[0]
    assert "a link in its path leads out of the program's folder" in warnings[0]


@pytest.mark.parametrize("why", ["home", "sticky"])
def test_a_folder_of_everybody_gives_only_what_is_named(
    here: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """From a home or a temporary folder, only files that the program names are copied."""
    write(here, {"train.py": "open('a.txt')\n", "a.txt": "a", "taxes.txt": "t"})
    if why == "home":
        monkeypatch.setenv("HOME", str(here))
    else:
        here.chmod(0o1777)
    assert set(contents(take("train.py", here, workspace))) == {"train.py", "a.txt"}


def test_neighbours_never_make_a_program_too_large_for_a_record(
    here: Path, workspace: Path
) -> None:
    """If a program must fit in a record, the files that it names are copied first; other files are
    copied up to the limit.
    """
    write(here, {"train.py": "open('named.txt')\n", "named.txt": b"n" * 40_000})
    write(here, {f"{n}.txt": b"u" * 20_000 for n in range(9)})
    program, warnings = snapshot(
        "train.py", workspace=workspace, cwd=here, beside_bytes=INLINE_BYTES
    )
    assert set(contents(program)) == {"train.py", "named.txt", "0.txt"}
    assert warnings == ()


def test_many_small_neighbours_stay_in_the_record(here: Path, workspace: Path) -> None:
    """If a record has many files, the overhead of each file counts for the limit, too."""
    write(here, {"train.py": "x = 1\n", **{f"{n:03}.txt": b"u" * 60 for n in range(950)}})
    program, _told = snapshot("train.py", workspace=workspace, cwd=here, beside_bytes=INLINE_BYTES)
    assert program.files is not None
    assert len(program.files) > 800


def test_a_cell_stays_in_its_record(here: Path, workspace: Path) -> None:
    """Files that a cell does not name are copied only if the cell's text still fits in the
    record.
    """
    write(here, {f"{n}.txt": b"u" * 20_000 for n in range(9)})
    write(here, {"named.txt": b"n" * 10_000})
    cell, warnings = snapshot_cell("open('named.txt')", workspace=workspace, cwd=here)
    names = {"cell.py", "named.txt", "0.txt", "1.txt"}
    assert (set(contents(cell)), warnings) == (names, ())


def test_many_bytes_beside_a_program_stay_within_the_limit(here: Path, workspace: Path) -> None:
    """If the files next to a program exceed the limit together, the smallest are copied, and the
    launch is not refused because of the others.
    """
    write(here, {"train.py": "x = 1\n", "a.txt": b"a" * 600_000, "b.txt": b"b" * 500_000})
    program, _warnings = snapshot("train.py", workspace=workspace, cwd=here, limit_bytes=1_000_000)
    materialise(program, here / "out", workspace)
    assert sorted(path.name for path in (here / "out").iterdir()) == ["b.txt", "train.py"]
