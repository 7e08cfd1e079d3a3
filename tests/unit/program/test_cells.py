"""The body of a cell as the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import write

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.program import materialise, snapshot_cell
from tfcluster_magic.spec import ProgramKind


def cell_refusal(text: str, here: Path, workspace: Path) -> str:
    """Return the message with which a cell is refused."""
    with pytest.raises(InvalidRequest) as caught:
        snapshot_cell(text, workspace=workspace, cwd=here)
    assert [problem.field for problem in caught.value.problems] == ["program"]
    return str(caught.value)


def test_cell_runs_with_the_modules_beside_the_notebook(
    here: Path, workspace: Path, tmp_path: Path
) -> None:
    """A cell becomes the file cell.py, and is copied with the modules of the notebook's folder that
    it imports.
    """
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
    """Line numbers in a task's traceback are line numbers of the cell in the notebook."""
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
    """An empty cell, a cell with a syntax error and a cell with a line for IPython are refused, and
    the refusal has the number of the line.
    """
    assert says in cell_refusal(text, here, workspace)


def test_percent_in_text_is_no_magic(here: Path, workspace: Path) -> None:
    """Lines that begin with % or end with ? inside strings and brackets are plain Python."""
    text = 'x = """\n%d\n!ls\nreally?\n"""\ny = (x\n  % 3)\n'
    _, warnings = snapshot_cell(text, workspace=workspace, cwd=here)
    assert warnings == ()


def test_cell_that_uses_the_notebooks_names_is_warned_of(here: Path, workspace: Path) -> None:
    """Names that the cell does not define cause a warning with their lines."""
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


def test_names_of_a_notebook_are_none_of_a_task(
    here: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`display` is a built-in name of a kernel, not of a task, and causes a warning."""
    from pyflakes import checker

    known = checker.builtin_vars | {"display", "get_ipython"}
    monkeypatch.setattr(checker, "builtin_vars", known)
    _, warnings = snapshot_cell("display(get_ipython())\n", workspace=workspace, cwd=here)
    assert "display (line 2), get_ipython (line 2)" in warnings[0]
