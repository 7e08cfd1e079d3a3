"""Facts from a program's text: the flags that it takes, and the tasks that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.program_texts import COORDINATOR, PROGRAMS, ProgramText
from support.programs import write

from tfcluster_magic.program import Findings, find_out, snapshot
from tfcluster_magic.spec import TaskType

OWN_ADDRESSES = """
import argparse, os
p = argparse.ArgumentParser()
p.add_argument("--worker_hosts")
"""


def findings(program: ProgramText, here: Path, workspace: Path) -> tuple[tuple[str, ...], Findings]:
    """Return the flags that a program gets, and all facts that are found in its text."""
    write(here / "job", {program.entry: program.text, **program.files})
    source = "job" if program.entry in ("run.sh", "main.py") else f"job/{program.entry}"
    made, _warnings = snapshot(source, workspace=workspace, cwd=here)
    return made.flags, find_out(made, workspace)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_is_given_what_it_takes(
    program: ProgramText, here: Path, workspace: Path
) -> None:
    """Only flags of the program's own command line are passed, and a flag for which the author has
    set a default is not passed.
    """
    passed, found = findings(program, here, workspace)
    assert passed == program.passed
    assert {f.name: f.left_out for f in found.flags if f.left_out} == program.left_out


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_gets_the_task_types_that_it_asks_for(
    program: ProgramText, here: Path, workspace: Path
) -> None:
    """Parameter servers, chief and evaluator follow from what the running code does."""
    found = findings(program, here, workspace)[1]
    assert sorted(found.wanted) == sorted(TaskType(name) for name in program.types)


def test_a_reason_names_the_line(here: Path, workspace: Path) -> None:
    """The reason for a parameter server names the line of the program that uses a parameter
    server.
    """
    text = "import tensorflow as tf\n\nprint(tf.train.replica_device_setter())\n"
    found = findings(ProgramText("", text), here, workspace)[1].wanted[TaskType.PS]
    assert (found.path, found.line, found.name) == ("train.py", 3, "replica_device_setter")


def test_a_program_that_is_nested_deeply_is_launched(here: Path, workspace: Path) -> None:
    """A program that is nested too deeply to be analysed is launched without inferred flags or
    tasks.
    """
    deep = "if job == 'ps' + " + " + ".join(["'x'"] * 600) + ":\n    print(1)\n"
    chain = "if n == 0:\n    n = 1\n" + "elif n == 1:\n    n = 2\n" * 300
    for text in (f"job = 'ps'\n{deep}", f"n = 3\n{chain}"):
        assert findings(ProgramText("", text), here, workspace) == ((), Findings())


@pytest.mark.parametrize(
    "more",
    [
        "s = tf.distribute.MultiWorkerMirroredStrategy()\n",
        "import os\nif 'TF_CONFIG' in os.environ: print(os.environ['TF_CONFIG'])\n",
        "server = tf.distribute.Server(spec)\n",
        "if task_type == 'ps': ...\n",
    ],
)
def test_plain_keras_trains_alone(more: str, here: Path, workspace: Path) -> None:
    """The call of `fit` is found in a program that only trains a model, but not if the program
    concerns a cluster.
    """
    text = "import tensorflow as tf\nm = tf.keras.Sequential()\nm.fit(x, y)\n"
    found = findings(ProgramText("", text), here, workspace)[1].trains_alone
    assert found is not None and found.line == 3
    assert findings(ProgramText("", text + more), here, workspace)[1].trains_alone is None


def test_workers_that_mirror_each_other_have_no_servers(here: Path, workspace: Path) -> None:
    """A program with MultiWorkerMirroredStrategy is recognized as training without parameter
    servers, and the line with the strategy is found. This does not apply if the program has code
    for parameter servers.
    """
    text = "import tensorflow as tf\ns = tf.distribute.MultiWorkerMirroredStrategy()\n"
    found = findings(ProgramText("", text), here, workspace)[1].collective
    assert found is not None and found.line == 2
    text += "import json, os\nif json.loads(os.environ['TF_CONFIG'])['task']['type'] == 'ps': ...\n"
    assert findings(ProgramText("", text), here, workspace)[1].collective is None


def test_several_strategies_are_no_reason(here: Path, workspace: Path) -> None:
    """A program that may train with or without parameter servers gets no parameter server, and the
    line with its strategies is reported as unclear.
    """
    text = (
        "import sys\nimport tensorflow as tf\nif len(sys.argv) > 1:\n"
        "    s = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "else:\n    s = tf.distribute.ParameterServerStrategy(None)\n"
    )
    found = findings(ProgramText("", text), here, workspace)[1]
    assert found.wanted == {}
    assert found.unclear is not None and found.unclear.line == 6


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import os, json\n\nos.environ['TF_CONFIG'] = json.dumps({})\n", 3),
        ("import os\nos.environ.update({'TF_CONFIG': '{}'})\n", 2),
        ("import os\nos.putenv('TF_CONFIG', '{}')\n", 2),
        ("import os\nos.environ.setdefault('TF_CONFIG', '{}')\n", None),
        ("import os\nif 'TF_CONFIG' not in os.environ:\n    os.environ['TF_CONFIG'] = ''\n", None),
        ("import os\nold = os.environ['TF_CONFIG']\nos.environ['TF_CONFIG'] = old * 2\n", None),
        ("import os\ndef never():\n    os.environ['TF_CONFIG'] = ''\nprint(1)\n", None),
        (f"{OWN_ADDRESSES}os.environ['TF_CONFIG'] = str(p.parse_args())\n", None),
    ],
)
def test_tf_config_that_the_program_replaces_is_a_warning(
    text: str, line: int | None, here: Path, workspace: Path
) -> None:
    """A launch warns of the line that replaces TF_CONFIG, unless the new value is made from the old
    value.
    """
    write(here, {"a.py": text})
    program, warnings = snapshot("a.py", workspace=workspace, cwd=here)
    assert find_out(program, workspace).replaces_tf_config == (line and ("a.py", line))
    assert [f"line {line} of a.py replaces TF_CONFIG" in w for w in warnings] == [True] * bool(line)


def test_a_cluster_of_its_own_asks_for_nothing(here: Path, workspace: Path) -> None:
    """If a program replaces TF_CONFIG, it gets no additional tasks, because its own value would not
    contain them.
    """
    text = "import os\nos.environ['TF_CONFIG'] = '{}'\n" + COORDINATOR + "serve()\ntrain()\n"
    assert findings(ProgramText("", text), here, workspace)[1].wanted == {}


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("import tensorflow as tf\n", True),
        ("def main():\n    from tensorflow import keras\nmain()\n", True),
        ("try:\n    import tensorflow\nexcept ImportError:\n    tensorflow = None\n", False),
        ("import sys\nsys.path.insert(0, '/opt/tf')\nimport tensorflow\n", False),
        ("print('tensorflow')\n", False),
    ],
)
def test_tensorflow_is_needed_where_it_is_imported(
    text: str, needed: bool, here: Path, workspace: Path
) -> None:
    """A program that can start without TensorFlow does not require it."""
    write(here, {"a.py": text})
    assert snapshot("a.py", workspace=workspace, cwd=here)[0].imports_tensorflow is needed
