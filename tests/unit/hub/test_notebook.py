"""The start of a notebook server in a folder of the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jupyterhub

from tfcluster_magic.hub import notebook

OWN_MODULES = ("json.py", "secrets.py", "queue.py", "jupyterhub.py", "tfcluster_magic.py")


def test_files_of_the_user_replace_no_module_of_the_server(tmp_path: Path) -> None:
    """A notebook server starts although the home and the workspace have files with the names of
    modules of Python and of this package.
    """
    home, workspace = tmp_path / "home", tmp_path / "home" / "tfcluster"
    workspace.mkdir(parents=True)
    for folder in (home, workspace):
        for name in OWN_MODULES:
            (folder / name).write_text(f"raise SystemExit('the user\\'s {name} was imported')\n")

    started = subprocess.run(
        [*notebook.command(), f"--workspace={workspace}", "--version"],
        cwd=home,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert started.returncode == 0, started.stderr
    assert started.stdout.strip() == jupyterhub.__version__


def test_the_image_of_the_hub_makes_the_command_without_jupyter_server() -> None:
    """The hub's pod determines the command that a notebook's pod runs, without importing the
    notebook server.
    """
    without = (
        "import sys; sys.modules['jupyter_core'] = None; import tfcluster_magic.hub.on_kubernetes"
    )
    subprocess.run([sys.executable, "-c", without], check=True)
