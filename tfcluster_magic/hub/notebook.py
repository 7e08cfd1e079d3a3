"""`python -m tfcluster_magic.hub.notebook`: prepares the workspace and becomes the notebook server.

It runs under the notebook's account. It makes a private workspace, copies the examples into
`examples/`, keeps examples that the user changed, and makes JupyterLab open the first example. Then
it becomes `jupyterhub-singleuser` by exec, so the pid stays the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from ..errors import TFClusterError
from ..paths import private

FIRST_EXAMPLE = "01-between-graph.ipynb"
"""The example that opens first."""
COPIED = ".tfcluster/examples.json"
"""File with the checksum of each copied example, to recognise examples that the user changed."""
_ITSELF = "tfcluster_magic.hub.notebook"
_BOOT = """\
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def command(
    module: str = "tfcluster_magic.hub.notebook", python: str = sys.executable
) -> list[str]:
    """Return the command that runs a module as `python -m` does, but imports nothing from the
    current folder.

    The current folder is the user's: a `secrets.py` or `json.py` in it would replace Python's own.
    `-P` has this effect, but only from Python 3.11 on. `-I` would also hide the user's own
    packages.
    """
    return [python, "-c", _BOOT, module]


def copy_examples(source: Path, workspace: Path) -> list[str]:
    """Copy new and updated examples into the workspace. Examples that the user changed are kept;
    return their names.

    Raises:
        OSError: the workspace cannot be written.
    """
    note = workspace / COPIED
    copied = json.loads(note.read_text()) if note.exists() else {}
    kept = []
    for example in sorted(source.rglob("*")):
        name = example.relative_to(source).as_posix()
        if not example.is_file() or "__pycache__" in name or ".ipynb_checkpoints" in name:
            continue
        content = _as_this_kernel_saves(example)
        target, fresh = workspace / "examples" / name, hashlib.sha256(content).hexdigest()
        present = checksum(target) if target.exists() else None
        if present not in (None, fresh, copied.get(name)):
            kept.append(name)
            continue
        if present != fresh:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(example.stat().st_mode | 0o200)
        copied[name] = fresh
    note.parent.mkdir(exist_ok=True)
    note.write_text(json.dumps(copied, indent=1))
    return kept


def _as_this_kernel_saves(example: Path) -> bytes:
    """Return the content to write when an example file is copied.

    For a notebook, the metadata in the returned content describe this Python and its kernel.
    JupyterLab writes these metadata when it opens a notebook. If they were missing from the copy, a
    notebook that was only viewed would count as changed.
    """
    from jupyter_core.paths import (
        jupyter_path,  # missing in the hub's image, which only calls `command`
    )

    content = example.read_bytes()
    if example.suffix != ".ipynb":
        return content
    notebook = json.loads(content)
    notebook["metadata"]["language_info"] = {
        "codemirror_mode": {"name": "ipython", "version": sys.version_info[0]},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": f"ipython{sys.version_info[0]}",
        "version": sys.version.split()[0],
    }
    for file in jupyter_path("kernels", "python3", "kernel.json"):
        with suppress(OSError, ValueError, KeyError):  # JupyterLab skips an invalid kernel too
            name = json.loads(Path(file).read_text())["display_name"]
            notebook["metadata"]["kernelspec"]["display_name"] = name
            break
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def checksum(file: Path) -> str:
    """Return the sha256 of a file, in hex."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


# -- start


def main() -> None:
    """Prepare the workspace, then become the notebook server."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workspace", required=True)
    parser.add_argument("--examples", default="")
    options, others = parser.parse_known_args()  # the rest of `Spawner.args` is for JupyterLab
    workspace = Path(options.workspace).expanduser().absolute()
    try:
        private(workspace)  # even if others can read the user's home
        if options.examples:
            copy_examples(Path(options.examples), workspace)
    except (OSError, TFClusterError) as problem:
        print(f"the examples could not be copied: {problem}", file=sys.stderr, flush=True)
    first = workspace / "examples" / FIRST_EXAMPLE
    page = f"/lab/tree/examples/{first.name}" if first.is_file() else "/lab"
    os.environ["JUPYTERHUB_DEFAULT_URL"] = page  # JupyterHub's single-user server opens this page
    os.chdir(workspace if workspace.is_dir() else "/")
    # A shell that starts the hub in the background makes the hub ignore SIGINT. A notebook that
    # inherits this could not interrupt its kernels.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own = ["--ServerApp.answer_yes=True", "--LabApp.news_url=None"]
    own.append("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate")
    own.append("--ServerApp.identity_provider_class=tfcluster_magic.hub.auth.visitors.Visitors")
    if os.geteuid() == 0:
        own.append("--allow-root")
    words = [*command("jupyterhub.singleuser"), *own, *others]
    os.execv(sys.executable, words)  # noqa: S606  no shell


if __name__ == "__main__":
    main()
