"""What becomes of a file, a folder or a cell that a user names as the program."""

from __future__ import annotations

import base64
import json
import os
import stat
import string
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfcluster_magic.errors import InvalidRequest, TFClusterError
from tfcluster_magic.models import Program, ProgramKind, to_json
from tfcluster_magic.program import (
    INLINE_BYTES,
    default_name,
    materialise,
    snapshot,
    snapshot_cell,
    speaks_of_ps,
)


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by path, executable ones with a trailing `*` in their name."""
    for name, content in files.items():
        path = folder / name.rstrip("*")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755 if name.endswith("*") else 0o644)
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder the user works in."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The folder that tasks see too; it need not exist before."""
    return tmp_path / "workspace"


def contents(program: Program) -> dict[str, bytes]:
    """What a record holds, by path."""
    assert program.files is not None
    return {path: base64.b64decode(text) for path, text in program.files.items()}


def on_disk(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Contents and executable bits below a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
        for path in folder.rglob("*")
        if path.is_file()
    }


def take(source: str, here: Path, workspace: Path, **more: object) -> Program:
    """A snapshot without warnings."""
    program, warnings = snapshot(source, workspace=workspace, cwd=here, **more)  # type: ignore[arg-type]
    assert warnings == ()
    return program


def refusal(source: str, here: Path, workspace: Path, **more: object) -> str:
    """The message with which a program is refused."""
    with pytest.raises(InvalidRequest) as caught:
        snapshot(source, workspace=workspace, cwd=here, **more)  # type: ignore[arg-type]
    assert [problem.field for problem in caught.value.problems] == ["program"]
    assert not workspace.exists(), "a refusal leaves nothing behind"
    return str(caught.value)


def cell_refusal(text: str, here: Path, workspace: Path) -> str:
    """The message with which a cell is refused."""
    with pytest.raises(InvalidRequest) as caught:
        snapshot_cell(text, workspace=workspace, cwd=here)
    assert [problem.field for problem in caught.value.problems] == ["program"]
    return str(caught.value)


# --- a file and what it imports ---------------------------------------------------------------


def test_file_brings_what_it_imports_and_nothing_else(here: Path, workspace: Path) -> None:
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
            "private.csv": "secret\n",
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
    """A .sh file is copied with the .py and .sh files it names and what those import."""
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
    """A link to a program is taken with the modules beside the file that it leads to."""
    write(here, {"real/train.py": "import model\n", "real/model.py": "x = 1\n"})
    (here / "go.py").symlink_to("real/train.py")
    assert set(contents(take("go.py", here, workspace))) == {"train.py", "model.py"}


def test_missing_module_is_a_warning(here: Path, workspace: Path) -> None:
    """A module that is neither beside the program nor installed is warned of, with its line."""
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
    """Nobody is warned of a module that is optional, installed, or looked up elsewhere."""
    write(here, {"train.py": text})
    take("train.py", here, workspace)


def test_module_of_the_working_folder_alone_is_missing(
    here: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that only this process finds, because of the folder it works in, is warned of."""
    write(here, {"job/train.py": "import besides_the_notebook\n", "besides_the_notebook.py": ""})
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend("")
    _, warnings = snapshot("job/train.py", workspace=workspace, cwd=here)
    assert "imports besides_the_notebook (line 1)" in "".join(warnings)


def test_broken_module_is_a_warning(here: Path, workspace: Path) -> None:
    """A syntax error in an imported module is told before any task meets it."""
    write(here, {"train.py": "import model\n", "model.py": "x = 1\nx = = 2\n"})
    _, warnings = snapshot("train.py", workspace=workspace, cwd=here)
    assert warnings == ("model.py has a syntax error in line 2: invalid syntax",)


# --- refusals ---------------------------------------------------------------------------------


def test_missing_file_names_what_is_close(here: Path, workspace: Path) -> None:
    """A misspelt file is refused with the names that it may have meant."""
    write(here, {"train.py": "x = 1\n", "eval.py": "x = 1\n"})
    message = refusal("trian.py", here, workspace)
    assert "'trian.py'" in message
    assert "did you mean train.py?" in message
    assert "eval.py" not in message


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
    """An empty program, one with a syntax error, and what is no program are refused."""
    write(here, {name: content})
    assert says in refusal(name, here, workspace)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "name a program"),
        ("  ", "name a program"),
        ("pipe.py", "no regular file"),
        ("broken.py", "no regular file"),
        ("a\0.py", "a .py or .sh file"),
        ("~", "home folder"),
        ("/", "home folder"),
    ],
)
def test_strange_source_is_refused(source: str, says: str, here: Path, workspace: Path) -> None:
    """Nothing, a pipe, a broken link and the home folder are no programs."""
    os.mkfifo(here / "pipe.py")
    (here / "broken.py").symlink_to("nowhere.py")
    assert says in refusal(source, here, workspace)


def test_program_above_the_limit_is_refused(here: Path, workspace: Path) -> None:
    """A program above the size limit is refused with both sizes and its largest files."""
    write(
        here / "job",
        {"main.py": "x = 1\n", "data/big.csv": b"x" * 3000, "data/less.csv": b"x" * 2000},
    )
    message = refusal("job", here, workspace, limit_bytes=4096)
    assert "4.89 KiB" in message
    assert "4 KiB" in message
    assert "data/big.csv (2.93 KiB), data/less.csv (1.95 KiB)" in message


def test_one_file_above_the_limit_is_refused(here: Path, workspace: Path) -> None:
    """A single file above the limit is refused too, before it is read whole."""
    write(here, {"a.py": "x = 1\n" * 1000})
    assert "above the limit of 4 KiB" in refusal("a.py", here, workspace, limit_bytes=4096)


def test_folder_of_very_many_files_is_refused(
    here: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with more files than a program has is refused without reading them."""
    monkeypatch.setattr("tfcluster_magic.program.tree.MAX_FILES", 5)
    monkeypatch.setattr("tfcluster_magic.program.folder.MAX_FILES", 5)
    write(here / "job", {"main.py": "x = 1\n", **{f"{i}.txt": "" for i in range(9)}})
    assert "it has 10 files or more" in refusal("job", here, workspace)


def test_checksum_is_for_urls(here: Path, workspace: Path) -> None:
    """A checksum with a local program is refused instead of ignored."""
    write(here, {"a.py": "x = 1\n"})
    assert "goes with a URL" in refusal("a.py", here, workspace, sha256="0" * 64)


def test_unreadable_file_is_refused(here: Path, workspace: Path, tmp_path: Path) -> None:
    """A file that may not be read is refused by its name."""
    write(here / "job", {"main.py": "x = 1\n", "key.pem": "secret"})
    (here / "job" / "key.pem").chmod(0)
    for folder in (here, *here.parents[:3]):
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


# --- a folder ---------------------------------------------------------------------------------


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
        (["a.py", "b.py"], "it has a.py, b.py. A folder is started by run.sh, main.py"),
        (["a.py", "b.py"], "or name one of them, job/a.py"),
        (["notes.txt", "pkg/main.py"], "A folder is started by run.sh, main.py"),
        ([".git/main.py"], "no file in it says what to start"),
    ],
)
def test_folder_without_entry_is_refused(
    files: list[str], says: str, here: Path, workspace: Path
) -> None:
    """A folder that does not say what to start is refused with what it has and what is allowed."""
    write(here / "job", dict.fromkeys(files, "x=1\n"))
    assert says in refusal("job", here, workspace)


def test_folder_leaves_out_what_is_no_program(here: Path, workspace: Path) -> None:
    """History, caches, environments and our own store are not copied."""
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
    """A link to a file or folder inside the folder becomes a copy of it."""
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
        (".", "a folder that it lies in"),
        ("../link", "which does not exist"),
    ],
)
def test_wrong_link_is_refused_by_name(target: str, says: str, here: Path, workspace: Path) -> None:
    """A link that leads out of the folder, nowhere or in a circle is refused by its name."""
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
    """Two folders that link to each other are refused instead of walked for ever."""
    write(here / "job", {"main.py": "x = 1\n", "a/x.txt": "", "b/x.txt": ""})
    (here / "job" / "a" / "to_b").symlink_to("../b")
    (here / "job" / "b" / "to_a").symlink_to("../a")
    assert "a folder that it lies in" in refusal("job", here, workspace)


def test_socket_in_a_folder_is_a_warning(here: Path, workspace: Path) -> None:
    """What is neither a file nor a folder is left out and told."""
    write(here / "job", {"main.py": "x = 1\n"})
    os.mkfifo(here / "job" / "pipe")
    program, warnings = snapshot("job", workspace=workspace, cwd=here)
    assert set(contents(program)) == {"main.py"}
    assert warnings == ("pipe is neither a file nor a folder, and is not copied",)


def test_file_name_that_json_cannot_hold_is_refused(here: Path, workspace: Path) -> None:
    """A file name that is no text is refused, with how it reads."""
    write(here / "job", {"main.py": "x = 1\n"})
    (here / "job" / os.fsdecode(b"\xff.txt")).write_bytes(b"")
    assert r"'\udcff.txt'" in refusal("job", here, workspace)


# --- a cell -----------------------------------------------------------------------------------


def test_cell_runs_with_the_modules_beside_the_notebook(
    here: Path, workspace: Path, tmp_path: Path
) -> None:
    """A cell becomes cell.py, with the modules of the notebook's folder that it imports."""
    write(here, {"model.py": "value = 7\n", "notes.ipynb": "{}"})
    program, warnings = snapshot_cell(
        "import model\nprint(model.value)\n", workspace=workspace, cwd=here
    )
    assert warnings == ()
    assert (program.kind, program.source, program.entrypoint) == (
        ProgramKind.CELL,
        "cell",
        "cell.py",
    )
    assert program.working_dir == str(here)
    materialise(program, tmp_path / "program", workspace)
    result = subprocess.run(
        [sys.executable, tmp_path / "program" / "cell.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "7\n"


def test_traceback_of_a_cell_has_the_line_of_the_cell(
    here: Path, workspace: Path, tmp_path: Path
) -> None:
    """Line numbers in a task's traceback are those that the notebook shows for the cell."""
    text = "from __future__ import annotations\n1 / 0\n"
    program, _ = snapshot_cell(text, workspace=workspace, cwd=here)
    materialise(program, tmp_path / "program", workspace)
    result = subprocess.run(
        [sys.executable, tmp_path / "program" / "cell.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'cell.py", line 3, in <module>' in result.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the cell is empty"),
        ("\n# nothing\n", "the cell is empty"),
        ("x = 1\nif x\n  y = 2\n", "the cell has a syntax error in line 3, `if x`"),
        ("%matplotlib inline\nx = 1\n", "line 2, `%matplotlib inline`: a task runs plain Python"),
        ("x = 1\n!ls -la 'a\n", "line 3, `!ls -la 'a`"),
        ("x = 1\nif x:\n    !pip install y\n", "line 4, `!pip install y`"),
        ("%%time\nx = 1\n", "line 2, `%%time`"),
        ("x = 1\nx?\n", "line 3, `x?`"),
        ("?print\n", "line 2, `?print`"),
        ("files = !ls\n", "line 2, `files = !ls`"),
        ("%cd /\nx = 1\n!ls\n", "line 2, `%cd /`, line 4, `!ls`"),
        ("x = (1 +\n", "the cell has a syntax error in line 2"),
    ],
)
def test_cell_that_no_task_can_run_is_refused(
    text: str, says: str, here: Path, workspace: Path
) -> None:
    """An empty cell, a syntax error and lines only IPython understands are refused by line."""
    assert says in cell_refusal(text, here, workspace)


def test_percent_in_text_is_no_magic(here: Path, workspace: Path) -> None:
    """Lines that begin with % or end with ? inside strings and brackets are plain Python."""
    text = 'x = """\n%d\n!ls\nreally?\n"""\ny = (x\n  % 3)\n'
    _, warnings = snapshot_cell(text, workspace=workspace, cwd=here)
    assert warnings == ()


def test_cell_that_uses_the_notebooks_names_is_warned_of(here: Path, workspace: Path) -> None:
    """Names that the cell does not define are told with the lines that use them."""
    _, warnings = snapshot_cell("x = 1\nprint(x, data)\n", workspace=workspace, cwd=here)
    assert " | ".join(warnings) == (
        "the cell uses data (line 3) which it does not define: "
        "a task runs only this cell, not the notebook"
    )
    text = "display(model)\nget_ipython()\nmodel\nprint(__file__, __name__)\n"
    _, warnings = snapshot_cell(text, workspace=workspace, cwd=here)
    assert warnings[0].startswith(
        "the cell uses display (line 2), model (line 2), get_ipython (line 3) which it"
    )


# --- what the text mentions -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (
            "tf.app.flags.DEFINE_string('ps_hosts', '', ''); print(FLAGS.job_name)\n"  # noqa: ISC004
            "tf.app.flags.DEFINE_integer(name='task_index', default=0)\n",
            ("ps_hosts", "job_name", "task_index"),
        ),
        ("p.add_argument('--data_dir')\np.add_argument('--log_path')\n", ("data_dir", "log_path")),
        ('"""Usage: train.py --worker_hosts=HOSTS"""\n', ("worker_hosts",)),
        ("getopt.getopt(a, '', ['job_name=', 'data_dir='])\n", ("job_name", "data_dir")),
        ("data_dir = os.environ['TFCLUSTER_DATA_DIR']\nc['log_path']\n# --ps_hosts\n", ()),
        ("p.add_argument('--data_directory')\nx = '--log_path_2'\n", ()),
    ],
)
def test_flags_are_those_that_the_program_takes(
    text: str, flags: tuple[str, ...], here: Path, workspace: Path
) -> None:
    """A program gets the address flags that it defines, and none for a mere variable or comment."""
    write(here / "job", {"main.py": f"if 0:\n    pass\n{text}", "README.md": "`--task_index`"})
    program, _ = snapshot("job", workspace=workspace, cwd=here)
    assert program.flags == flags


def test_flags_of_a_script(here: Path, workspace: Path) -> None:
    """A shell script takes the flags it names outside comments."""
    write(here, {"a.sh": "# --data_dir\ncase $1 in --job_name=*) echo yes;; esac\n"})
    assert take("a.sh", here, workspace).flags == ("job_name",)


@pytest.mark.parametrize(
    ("text", "serves", "ps"),
    [
        ("server = tf.train.Server(spec)", True, False),
        ("server = tf.compat.v1.train.Server(spec)", True, False),
        ("server = tf.distribute.Server(spec)", True, False),
        ("from tensorflow.distribute import Server", True, False),
        ("s = tf.distribute.ParameterServerStrategy(r)", True, True),
        ("s = tf.distribute.experimental.ParameterServerStrategy(r)", True, True),
        ("from tensorflow.distribute import MultiWorkerMirroredStrategy", True, False),
        ("tf.estimator.train_and_evaluate(e, t, v)", True, False),
        ("p.add_argument('--ps_hosts')", False, True),
        ("s = tf.distribute.MirroredStrategy()", False, False),
        ("# MultiWorkerMirroredStrategy\ns = http.Server()", False, False),
        ("r = tf.distribute.cluster_resolver.TFConfigClusterResolver()", False, False),
        ("print('use tf.distribute.Server')", False, False),
    ],
)
def test_serving_is_what_opens_the_tasks_port(
    text: str, serves: bool, ps: bool, here: Path, workspace: Path
) -> None:
    """Only TensorFlow's servers and its two multi-machine strategies make a program serve."""
    write(here, {"a.py": text + "\n"})
    program, _ = snapshot("a.py", workspace=workspace, cwd=here)
    assert (program.serves, speaks_of_ps(program, workspace)) == (serves, ps)


# --- in a task ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "folder"), [("job", "program"), ("job/run.sh", "program"), ("job/a.py", "here")]
)
def test_task_runs_a_program_where_it_belongs(
    source: str, folder: str, here: Path, workspace: Path, tmp_path: Path
) -> None:
    """A folder or script runs among its files with the task's Python, a file where the user is."""
    write(
        here / "job",
        {"run.sh": 'python a.py "$@"\n', "a.py": "import os, sys\nprint(os.getcwd(), *sys.argv)\n"},
    )
    program = take(source, here, workspace, arguments=["--x", "1 2"])
    materialise(program, tmp_path / "program", workspace)
    description = {
        "version": 1, "cluster": "job", "run": 1, "name": "job-1", "uid": "u", "grace": 5,
        "mode": "between-graph", "counts": {"worker": 1}, "addresses": {"worker": ["127.0.0.1:9"]},
        "env": {}, "threads": {}, "dataDir": str(tmp_path), "outputDir": str(tmp_path / "out"),
        "program": {
            "dir": str(tmp_path / "program"),
            "entrypoint": program.entrypoint,
            "arguments": program.arguments,
            "flags": program.flags,
            "serves": program.serves,
            "workingDir": program.working_dir,
        },
    }  # fmt: skip
    (tmp_path / "task.json").write_text(json.dumps(description))
    task = Path(__file__).parent.parent / "tfcluster_magic" / "runtime" / "task.py"
    result = subprocess.run(
        [sys.executable, "-S", "-E", task, tmp_path / "task.json", "worker-0"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    script = "a.py" if folder == "program" and source != "job/a.py" else tmp_path / "program/a.py"
    assert f"{tmp_path / folder} {script} --x 1 2\n" in result.stdout, result.stderr
    assert result.returncode == 0


# --- storing and writing out ------------------------------------------------------------------

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
).map(lambda files: {path: f for path, f in files.items() if path not in {"d", "run.sh"}})


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=FILES, padding=st.sampled_from([0, INLINE_BYTES]))
def test_snapshot_and_copy_are_faithful(
    files: dict[str, tuple[bytes, bool]], padding: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a folder holds, inline or stored, its copy is equal and its checksum is the same."""
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
    materialise(program, folder / "copy", folder / "ws")  # a second time changes nothing
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
    """A snapshot that is too large for its record."""
    write(here / "job", {"main.py": "x = 1\n", "data.bin": os.urandom(INLINE_BYTES), "go*": "y"})
    program = take("job", here, workspace)
    assert program.files is None
    return program


def test_large_program_is_stored_once(here: Path, workspace: Path) -> None:
    """A program above 64 KiB lies once, read-only, in the workspace, out of sight of git."""
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
    """Processes that store the same program at the same time leave one right copy."""
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
    """A large program with nowhere to be stored is refused with the folder and the reason."""
    (tmp_path / "file").write_text("")
    write(here / "job", {"main.py": "x = 1\n", "data.bin": os.urandom(INLINE_BYTES)})
    with pytest.raises(InvalidRequest, match=r"64 KiB cannot be stored in .*file.*Not a directory"):
        snapshot("job", workspace=tmp_path / "file", cwd=here)


def test_copy_is_read_only_and_never_mixed(here: Path, workspace: Path, tmp_path: Path) -> None:
    """A run's copy is read-only, and is not written into a folder that holds something else."""
    write(here, {"a.py": "import b\n", "b.py": "x = 1\n"})
    program = take("a.py", here, workspace)
    (tmp_path / "empty").mkdir()
    materialise(program, tmp_path / "empty", workspace)
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "empty" / "b.py").stat().st_mode & 0o777 == 0o444
    write(tmp_path / "other", {"x.txt": "mine"})
    with pytest.raises(TFClusterError, match="holds other files"):
        materialise(program, tmp_path / "other", workspace)
    assert on_disk(tmp_path / "other") == {"x.txt": (b"mine", False)}


@pytest.mark.parametrize("path", ["../evil.py", "/tmp/evil.py", "a/../../evil.py", "a//b", "a\nb"])
def test_record_cannot_write_outside(path: str, tmp_path: Path, workspace: Path) -> None:
    """A record that names files outside its folder is refused, whatever its checksum says."""
    program = Program(
        kind=ProgramKind.FILE, source="x", entrypoint="x.py", sha256="0" * 64, files={path: ""}
    )
    with pytest.raises(TFClusterError, match="file names may not hold"):
        materialise(program, tmp_path / "run" / "program", workspace)
    assert not (tmp_path / "run").exists()


def test_altered_record_is_noticed(here: Path, workspace: Path, tmp_path: Path) -> None:
    """Files inside a record that do not have its checksum are not run."""
    write(here, {"a.py": "x = 1\n"})
    program = take("a.py", here, workspace)
    assert program.files is not None
    for text in (base64.b64encode(b"x = 2\n").decode(), "no base64!"):
        program.files["a.py"] = text
        with pytest.raises(TFClusterError, match="altered"):
            materialise(program, tmp_path / "program", workspace)


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("train.py", "train"),
        ("sub/My_Train 2.py", "my-train2"),
        ("jobs/digits", "digits"),
        ("v1.2/", "v12"),
        (".", "here"),
        ("cell", "cell"),
        ("run.sh", "run"),
        ("https://example.org/a/mnist_v2.py#sha256=00", "mnist-v2"),
        ("https://example.org/code/project.tar.gz?x=1", "project"),
        ("https://example.org/", "cluster"),
    ],
)
def test_cluster_is_named_after_its_program(source: str, name: str, here: Path) -> None:
    """A cluster is called after the file, the folder or the last part of the URL."""
    (here / "v1.2").mkdir()
    assert default_name(source, here) == name


def test_no_tensorflow_is_imported() -> None:
    """Taking a snapshot imports neither TensorFlow nor anything of the program."""
    code = (
        "import sys, tempfile; from pathlib import Path\n"
        "from tfcluster_magic.program import snapshot_cell\n"
        "here = Path(tempfile.gettempdir())\n"
        "snapshot_cell('import tensorflow as tf, sklearn', workspace=here, cwd=here)\n"
        "print([m for m in ('tensorflow', 'sklearn', 'numpy') if m in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")
