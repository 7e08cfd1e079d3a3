"""The runtime's hook, by which TensorFlow 1 workers look for their chief every second, not every
thirty seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.task_process import RUNTIME

MANAGER = """
class SessionManager:
    def __init__(self, local_init_op=None, graph=None, recovery_wait_secs=30, limit=None):
        self.waits = recovery_wait_secs
"""


def python(path: Path | None, script: str) -> subprocess.CompletedProcess[str]:
    """Run a Python that finds the runtime's hook first, then the modules in `path`."""
    paths = [str(RUNTIME / "site"), *([str(path)] if path else [])]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def fake_tensorflow(folder: Path, manager: str) -> Path:
    """Create a package `tensorflow` with only the module that the hook changes."""
    training = folder / "tensorflow" / "python" / "training"
    training.mkdir(parents=True)
    for package in (training, training.parent, training.parent.parent):
        (package / "__init__.py").touch()
    (training / "session_manager.py").write_text(manager)
    return folder


def test_default_is_short_and_a_given_value_stays(tmp_path: Path) -> None:
    """Only the default of the wait is shortened; an explicit value stays."""
    done = python(
        fake_tensorflow(tmp_path, MANAGER),
        """
        from tensorflow.python.training import session_manager
        make = session_manager.SessionManager
        print(make().waits, make(recovery_wait_secs=30).waits, make(None, None, 7).waits)
        """,
    )
    assert (done.stdout, done.stderr) == ("1 30 7\n", "")


@pytest.mark.parametrize(
    "manager",
    ["", "class SessionManager: pass", MANAGER.replace("=30", ""), "SessionManager = None"],
)
def test_unknown_tensorflow_runs_as_it_is(tmp_path: Path, manager: str) -> None:
    """A TensorFlow with another structure is not changed."""
    text = manager.replace("local_init_op=None, graph=None, ", "").replace(", limit=None", "")
    script = "import tensorflow.python.training.session_manager; print('runs')"
    done = python(fake_tensorflow(tmp_path, text), script)
    assert (done.stdout, done.stderr) == ("runs\n", "")


def test_no_tensorflow_no_import(tmp_path: Path) -> None:
    """In a program without TensorFlow, the hook imports no further modules."""
    script = "import sys; print([m for m in sys.modules if 'tensorflow' in m or m == 'inspect'])"
    done = python(None, script)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_next_sitecustomize_runs(tmp_path: Path) -> None:
    """An existing sitecustomize still runs, once, under its own name."""
    (tmp_path / "sitecustomize.py").write_text("print('mine', __name__, __file__)\n")
    done = python(tmp_path, "import sitecustomize; print(sitecustomize.__file__)")
    own = str(tmp_path / "sitecustomize.py")
    assert done.stdout.splitlines() == [f"mine sitecustomize {own}", own]


@pytest.mark.cluster
def test_real_tensorflow() -> None:
    """TensorFlow's own SessionManager and Supervisor wait 1 s by default."""
    done = python(
        None,
        """
        import inspect
        import tensorflow.compat.v1 as tf
        for kind in (tf.train.SessionManager, tf.train.Supervisor):
            init = inspect.unwrap(kind.__init__)
            names = inspect.getfullargspec(init).args
            print(dict(zip(names[::-1], init.__defaults__[::-1]))["recovery_wait_secs"])
        """,
    )
    assert done.stdout == "1\n1\n", done.stderr
