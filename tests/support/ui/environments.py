"""Environments with other versions of Jupyter than the tests', made by pip and kept in
build/jupyter.

An environment has the product from the checkout and exactly the named version of Jupyter. Each
version has an environment of its own.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "jupyter"
JUPYTERS = {
    "oldest": ["jupyterlab==4.2.7", "notebook==7.2.3"],
    "newest": ["jupyterlab>=4.6,<5", "notebook>=7.5,<8"],
}
KERNEL = ["ipykernel>=6.29", "ipywidgets>=8.1,<9"]


def python_of(name: str) -> Path:
    """Return the interpreter of the environment `name`, which is created if missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*JUPYTERS[name], *KERNEL, *project["dependencies"]]
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()
    folder = FOLDER / name
    python, stamp = folder / "bin" / "python", folder / "made-of.txt"
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", *wanted)
        stamp.write_text(digest)
    # Install the checkout itself, like an editable install.
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "tfcluster.pth").write_text(f"{ROOT}\n")
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
