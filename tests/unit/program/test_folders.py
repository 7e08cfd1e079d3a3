"""A folder that a user names as the program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.programs import contents, on_disk, refusal, take, write

from tfcluster_magic.program import materialise, snapshot


@pytest.mark.parametrize(
    ("files", "entry"),
    [
        (["run.sh", "main.py", "__main__.py", "a.py"], "run.sh"),
        (["main.py", "__main__.py", "a.py"], "main.py"),
        (["__main__.py", "a.py"], "__main__.py"),
        (["a.py", "pkg/b.py", "notes.txt"], "a.py"),
    ],
)
def test_folder_is_started_by(files: list[str], entry: str, here: Path, workspace: Path) -> None:
    """A folder is started by run.sh, else main.py, else __main__.py, else its only .py file."""
    write(here / "job", dict.fromkeys(files, "x=1\n"))
    program = take("job", here, workspace)
    assert program.entrypoint == entry
    assert set(contents(program)) == set(files)
    assert program.working_dir == "."


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["a.py", "b.py"], "the folder has a.py, b.py. By default, run.sh"),
        (["a.py", "b.py"], "otherwise name one of the files, job/a.py"),
        (["notes.txt", "pkg/main.py"], "or the only .py file is started"),
        ([".git/main.py"], "it is not clear which file to start"),
    ],
)
def test_folder_without_entry_is_refused(
    files: list[str], says: str, here: Path, workspace: Path
) -> None:
    """A folder without a clear entry point is refused; the refusal has the folder's files and the
    allowed names.
    """
    write(here / "job", dict.fromkeys(files, "x=1\n"))
    assert says in refusal("job", here, workspace)


def test_folder_leaves_out_what_is_no_program(here: Path, workspace: Path) -> None:
    """Version history, caches, virtual environments and TFCluster's own snapshots are not
    copied.
    """
    write(
        here / "job",
        {
            "main.py": "x = 1\n",
            "conf/a.json": "{}",
            ".git/config": "x",
            ".tfcluster/code/0/main.py": "x",
            "__pycache__/main.pyc": "x",
            "conf/.ipynb_checkpoints/a-checkpoint.json": "x",
            "node_modules/x/index.js": "x",
            "env/pyvenv.cfg": "x",
            "env/lib/big.so": "x",
        },
    )
    (here / "job" / ".#main.py").symlink_to("user@host.1:2")
    assert set(contents(take("job", here, workspace))) == {"main.py", "conf/a.json"}


def test_links_inside_a_folder_are_copied_as_files(
    here: Path, workspace: Path, tmp_path: Path
) -> None:
    """A link to a file or folder inside the folder becomes a copy of the link's target."""
    write(here / "job", {"main.py": "x = 1\n", "v2/net.py": "y = 2\n"})
    (here / "job" / "net.py").symlink_to("v2/net.py")
    (here / "job" / "current").symlink_to("v2")
    materialise(take("job", here, workspace), tmp_path / "program", workspace)
    assert on_disk(tmp_path / "program") == {
        "main.py": (b"x = 1\n", False),
        "net.py": (b"y = 2\n", False),
        "v2/net.py": (b"y = 2\n", False),
        "current/net.py": (b"y = 2\n", False),
    }


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("../outside.csv", "leads outside, to ../outside.csv"),
        ("/etc", "leads outside, to /etc"),
        ("gone.csv", "which does not exist"),
        (".", "a folder that contains it"),
        ("../link", "which does not exist"),
    ],
)
def test_wrong_link_is_refused_by_name(target: str, says: str, here: Path, workspace: Path) -> None:
    """A link that leads out of the folder, nowhere or in a circle is refused, and the message names
    it.
    """
    write(here, {"job/main.py": "x = 1\n", "outside.csv": "secret"})
    (here / "job" / "sub").mkdir()
    (here / "job" / "sub" / "link").symlink_to(target if target != "../link" else "../sub/link")
    if target == "../outside.csv":
        (here / "job" / "sub" / "link").unlink()
        (here / "job" / "link").symlink_to(target)
    message = refusal("job", here, workspace)
    assert "link is a link" in message
    assert says in message


def test_circle_of_two_links_is_refused(here: Path, workspace: Path) -> None:
    """Two folders that link to each other are refused; the search in them ends."""
    write(here / "job", {"main.py": "x = 1\n", "a/x.txt": "", "b/x.txt": ""})
    (here / "job" / "a" / "to_b").symlink_to("../b")
    (here / "job" / "b" / "to_a").symlink_to("../a")
    assert "a folder that contains it" in refusal("job", here, workspace)


def test_socket_in_a_folder_is_a_warning(here: Path, workspace: Path) -> None:
    """An entry that is neither a file nor a folder is left out and reported."""
    write(here / "job", {"main.py": "x = 1\n"})
    os.mkfifo(here / "job" / "pipe")
    program, warnings = snapshot("job", workspace=workspace, cwd=here)
    assert set(contents(program)) == {"main.py"}
    assert warnings == ("pipe is neither a file nor a folder, and is not copied",)


def test_file_name_that_json_cannot_hold_is_refused(here: Path, workspace: Path) -> None:
    """A file whose name is not valid text is refused, and the refusal shows the name in a readable
    form.
    """
    write(here / "job", {"main.py": "x = 1\n"})
    (here / "job" / os.fsdecode(b"\xff.txt")).write_bytes(b"")
    assert r"'\udcff.txt'" in refusal("job", here, workspace)
