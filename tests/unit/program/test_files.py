"""A file that a user names as the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import contents, refusal, take, write

from tfcluster_magic.program import materialise, snapshot
from tfcluster_magic.spec import ProgramKind


def test_file_brings_what_it_imports_and_no_other_code(here: Path, workspace: Path) -> None:
    """A file is copied with the modules and packages that it imports, directly or not."""
    write(
        here,
        {
            "train.py": "import os\nimport model\nfrom nets import deep\nfrom lib.io import load\n",
            "model.py": "def build():\n    import layers\n",
            "layers.py": "x = 1\n",
            "nets/__init__.py": "",
            "nets/deep.py": "from . import shared\nimport extra\n",
            "nets/shared.py": "import nets.data\n",
            "nets/weights.bin": b"\0\1",
            "nets/__pycache__/deep.cpython-311.pyc": b"old",
            "lib/io.py": "load = 1\n",
            "lib/unused.py": "x = 1\n",
            "extra.py": "x = 1\n",
            "unused.py": "x = 1\n",
        },
    )
    program = take("train.py", here, workspace)
    assert set(contents(program)) == {
        "train.py",
        "model.py",
        "layers.py",
        "nets/__init__.py",
        "nets/deep.py",
        "nets/shared.py",
        "nets/weights.bin",
        "lib/io.py",
        "extra.py",
    }
    assert (program.kind, program.entrypoint) == (ProgramKind.FILE, "train.py")
    assert program.working_dir == str(here)
    assert not workspace.exists(), "a small program needs no store"


def test_copy_of_a_file_runs_as_the_original(here: Path, workspace: Path, tmp_path: Path) -> None:
    """The snapshot of a program prints what the program prints, also after the original changed."""
    write(
        here,
        {
            "train.py": "import sys, pkg.a as a\nprint(a.value, sys.argv[1:])\n",
            "pkg/__init__.py": "from helper import base\n",
            "pkg/a.py": "from pkg import base\nvalue = base + 1\n",
            "helper.py": "base = 41\n",
        },
    )
    program = take("train.py", here, workspace, arguments=["--x", "a b"])
    (here / "helper.py").write_text("base = 0\n")
    materialise(program, tmp_path / "program", workspace)
    result = subprocess.run(
        [sys.executable, tmp_path / "program" / program.entrypoint, *program.arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "42 ['--x', 'a b']\n"


def test_script_brings_the_programs_that_it_names(here: Path, workspace: Path) -> None:
    """A .sh file is copied with the .py and .sh files that it names, and with the modules that
    these files import.
    """
    write(
        here,
        {
            "go.sh*": "#!/bin/sh\n. ./env.sh\n# old.py\npython src/train.py\npython -m tools.end\n",
            "env.sh": "export X=1\n",
            "src/train.py": "import model\n",
            "src/model.py": "x = 1\n",
            "tools/end.py": "print('end')\n",
            "old.py": "x = 1\n",
        },
    )
    program = take("go.sh", here, workspace)
    wanted = {"go.sh", "env.sh", "src/train.py", "src/model.py", "tools/end.py"}
    assert set(contents(program)) == wanted
    assert program.executables == ("go.sh",)
    assert program.working_dir == ".", "a script finds its files where it lies"


def test_link_to_a_file_is_followed_as_python_does(here: Path, workspace: Path) -> None:
    """A link to a program is copied with the modules next to its target."""
    write(here, {"real/train.py": "import model\n", "real/model.py": "x = 1\n"})
    (here / "go.py").symlink_to("real/train.py")
    assert set(contents(take("go.py", here, workspace))) == {"train.py", "model.py"}


def test_missing_module_is_a_warning(here: Path, workspace: Path) -> None:
    """A module that is neither next to the program nor installed causes a warning with its line."""
    write(here, {"train.py": "import json\n\nimport nowhere_to_be_found.sub\n"})
    _, warnings = snapshot("train.py", workspace=workspace, cwd=here)
    assert len(warnings) == 1
    assert "train.py imports nowhere_to_be_found (line 3)" in warnings[0]
    assert sys.executable in warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import nowhere_a\nexcept ImportError:\n    import nowhere_b\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nowhere_a\n",
        "import sys\nsys.path.append('/opt/libs')\nimport nowhere_a\n",
        "import msgspec, yaml.nodes, os.path, _thread, __future__\n",
    ],
)
def test_optional_or_installed_module_is_no_warning(text: str, here: Path, workspace: Path) -> None:
    """A module that is optional, installed, or looked up elsewhere causes no warning."""
    write(here, {"train.py": text})
    take("train.py", here, workspace)


def test_module_of_the_working_folder_alone_is_missing(
    here: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that only this process finds, because of its working folder, causes a warning."""
    write(here, {"job/train.py": "import besides_the_notebook\n", "besides_the_notebook.py": ""})
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend("")
    _, warnings = snapshot("job/train.py", workspace=workspace, cwd=here)
    assert "imports besides_the_notebook (line 1)" in "".join(warnings)


def test_broken_module_is_a_warning(here: Path, workspace: Path) -> None:
    """A syntax error in an imported module is reported before any task starts."""
    write(here, {"train.py": "import model\n", "model.py": "x = 1\nx = = 2\n"})
    _, warnings = snapshot("train.py", workspace=workspace, cwd=here)
    assert warnings == ("model.py has a syntax error in line 2: invalid syntax",)


def test_missing_file_names_what_is_close(here: Path, workspace: Path) -> None:
    """If a file does not exist, the refusal suggests existing files with similar names."""
    write(here, {"train.py": "x = 1\n", "eval.py": "x = 1\n"})
    message = refusal("trian.py", here, workspace)
    assert "'trian.py'" in message
    assert "did you mean train.py?" in message
    assert "eval.py" not in message
    # The user may have written a path that is relative to another folder, because a terminal starts
    # in the folder that the file browser shows. So files are also suggested by their last name.
    assert "did you mean eval.py?" in refusal("examples/eval.py", here, workspace)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.py", "", "a.py is empty"),
        ("a.py", "# only words\n\n", "a.py is empty"),
        ("a.sh", "#!/bin/sh\n\n", "a.sh is empty"),
        ("a.py", "x = 1\nif x\n    y = 2\n", "line 2, `if x`"),
        ("a.py", "x = 1\n  y = 2\n", "line 2, `y = 2`"),
        ("a.py", "x = (1\n", "line 1, `x = (1`"),
        ("a.py", b"x = 1\0\n", "syntax error in line 1"),
        ("a.py", b"x = '\xff'\n", "syntax error in line 1"),
        ("a.py", "await x\n", "line 1, `await x`"),
        ("a.ipynb", "{}", "%%tfcluster launch"),
        ("a.txt", "x = 1\n", "a .py or .sh file"),
        ("a.zip", "PK", "unpack it"),
    ],
)
def test_file_that_cannot_run_is_refused(
    name: str, content: str | bytes, says: str, here: Path, workspace: Path
) -> None:
    """An empty program, a program with a syntax error, and a file that is no program are
    refused.
    """
    write(here, {name: content})
    assert says in refusal(name, here, workspace)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "name a program"),
        ("  ", "name a program"),
        ("pipe.py", "not a regular file"),
        ("broken.py", "not a regular file"),
        ("a\0.py", "a .py or .sh file"),
        ("~", "home folder"),
        ("/", "home folder"),
    ],
)
def test_strange_source_is_refused(source: str, says: str, here: Path, workspace: Path) -> None:
    """An empty path, a pipe, a broken link and the home folder are refused."""
    os.mkfifo(here / "pipe.py")
    (here / "broken.py").symlink_to("nowhere.py")
    assert says in refusal(source, here, workspace)


@pytest.mark.parametrize("name", ["a\nb.py", "a\x1b[31m.py", os.fsdecode(b"a\xff.py")])
def test_strange_name_is_refused(name: str, here: Path, workspace: Path) -> None:
    """A file with a name that no record can store, or with control characters, is refused."""
    (here / name).write_text("print(1)\n")
    says = refusal(name, here, workspace)
    assert "rename that file" in says
    assert says.isprintable()


def test_program_above_the_limit_is_refused(here: Path, workspace: Path) -> None:
    """A program above the size limit is refused; the refusal has the program's size, the limit and
    the largest files.
    """
    write(
        here / "job",
        {"main.py": "x = 1\n", "data/big.csv": b"x" * 3000, "data/less.csv": b"x" * 2000},
    )
    message = refusal("job", here, workspace, limit_bytes=4096)
    assert "4.89 KiB" in message
    assert "4 KiB" in message
    assert "data/big.csv (2.93 KiB), data/less.csv (1.95 KiB)" in message


def test_one_file_above_the_limit_is_refused(here: Path, workspace: Path) -> None:
    """A single file above the limit is refused before it is read whole."""
    write(here, {"a.py": "x = 1\n" * 1000})
    assert "above the limit of 4 KiB" in refusal("a.py", here, workspace, limit_bytes=4096)


def test_folder_of_very_many_files_is_refused(
    here: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with too many files is refused without reading them."""
    monkeypatch.setattr("tfcluster_magic.program.tree.MAX_FILES", 5)
    monkeypatch.setattr("tfcluster_magic.program.tree.MAX_FILES", 5)
    write(here / "job", {"main.py": "x = 1\n", **{f"{i}.txt": "" for i in range(9)}})
    assert "it has 10 files or more" in refusal("job", here, workspace)


def test_checksum_is_for_urls(here: Path, workspace: Path) -> None:
    """A checksum with a local program is refused instead of ignored."""
    write(here, {"a.py": "x = 1\n"})
    assert "only a URL can have a checksum" in refusal("a.py", here, workspace, sha256="0" * 64)


def test_unreadable_file_is_refused(here: Path, workspace: Path, tmp_path: Path) -> None:
    """An unreadable file is refused, and the message names it."""
    write(here / "job", {"main.py": "x = 1\n", "key.pem": "secret"})
    (here / "job" / "key.pem").chmod(0)
    for folder in (here, *here.parents):
        if "pytest-" in str(folder):
            folder.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path\n"
        "from tfcluster_magic.program import snapshot\n"
        "os.geteuid() == 0 and os.seteuid(65534)  # root may read everything\n"
        "here, workspace = map(Path, sys.argv[1:])\n"
        "try: snapshot('job', workspace=workspace, cwd=here)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, here, workspace], stdout=subprocess.PIPE, text=True, check=True
    )
    assert result.stdout.startswith("InvalidRequest")
    assert "key.pem cannot be read: Permission denied" in result.stdout
