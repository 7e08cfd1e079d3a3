"""`python -m tfcluster_magic.hub.notebook`: begins a notebook of the hub.

It promises a workspace with the examples in it before JupyterLab looks, made by the account that
the notebook runs as and for it alone, never overwrites an example that was changed, and has the
first one opened. It then becomes `jupyterhub-singleuser`, with the same process number.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from ..errors import TFClusterError
from ..paths import private
from . import examples


def main() -> None:
    """Prepare the workspace, and become the notebook."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workspace", required=True)
    parser.add_argument("--examples", default="")
    options, others = parser.parse_known_args()  # what else `Spawner.args` says is JupyterLab's
    workspace = Path(options.workspace).expanduser().absolute()
    try:
        private(workspace)  # whatever others on this machine may see of its owner's home
        if options.examples:
            examples.bring(Path(options.examples), workspace)
    except (OSError, TFClusterError) as problem:
        print(f"the examples could not be copied: {problem}", file=sys.stderr, flush=True)
    first = workspace / "examples" / examples.FIRST
    page = f"/lab/tree/examples/{first.name}" if first.is_file() else "/lab"
    os.environ["JUPYTERHUB_DEFAULT_URL"] = page  # what JupyterHub's own command opens
    os.chdir(workspace if workspace.is_dir() else "/")
    # A shell that starts the hub in its background has it, and so the notebook, ignore Ctrl-C:
    # then no kernel could be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own = ["--ServerApp.answer_yes=True", "--LabApp.news_url=None"]
    own.append("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate")
    own.append("--ServerApp.identity_provider_class=tfcluster_magic.hub.auth.visitors.Visitors")
    if os.geteuid() == 0:
        own.append("--allow-root")
    command = [sys.executable, "-m", "jupyterhub.singleuser", *own, *others]
    os.execv(sys.executable, command)  # noqa: S606  no shell


if __name__ == "__main__":
    main()
