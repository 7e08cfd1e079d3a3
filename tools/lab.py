"""The script behind `make run HUB=0`: starts JupyterLab on this machine only, with the examples.

The script prints one address with a token, never overwrites an example that the user changed, and
ends cleanly on Ctrl-C; running clusters keep running. The script owns its JupyterLab process and
`<workspace>/examples`. It runs in .venv.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from tfcluster_magic.hub import notebook
from tfcluster_magic.paths import home_dir

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
EXAMPLES = ROOT / "examples"
GO_ON = "Running clusters, if any, go on: .venv/bin/tfcluster list"
START_TIMEOUT = 60.0  # maximum seconds until JupyterLab listens, even on a slow disk


def main() -> int:
    """Start JupyterLab and wait until it ends."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--port", type=int, default=8888, help="the first port to try")
    options = parser.parse_args()
    workspace = options.workspace.expanduser().absolute()
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        kept = copy_examples(workspace)
    except OSError as problem:
        sys.exit(
            f"make run: cannot write the workspace {workspace}: {problem.strerror}.\n"
            "      Choose another: make run WORKSPACE=/a/folder"
        )
    if kept:
        print(f"kept your changed copies of: {', '.join(kept)}")
    return serve(workspace, free_port(options.port))


def copy_examples(workspace: Path) -> list[str]:
    """Copy new and updated examples into the workspace; return the names of examples that the user
    changed, which are kept.
    """
    return notebook.copy_examples(EXAMPLES, workspace)


def free_port(first: int) -> int:
    """Return the first free port from `first` on; JupyterLab must then use exactly this one."""
    for port in range(first, min(first + 50, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    sys.exit(f"make run: no free port from {first} on. Choose another: make run PORT=9000")


def serve(workspace: Path, port: int) -> int:
    """Run JupyterLab until it ends; Ctrl-C and SIGTERM end it cleanly."""
    command = [sys.executable, "-m", "jupyterlab", *arguments(workspace, port)]
    # Terminals of JupyterLab must find `tfcluster`.
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    env = {
        **os.environ,
        "PATH": path,
        "VIRTUAL_ENV": str(BIN.parent),
        "TFCLUSTER_HOME": str(workspace),
    }
    # Its own session, so that Ctrl-C reaches JupyterLab only once, through us, and not its
    # children.
    with subprocess.Popen(
        command, cwd=workspace, env=env, stdin=subprocess.DEVNULL, start_new_session=True
    ) as lab:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: lab.terminate())
        if address := wait_for_address(
            lab, Path(jupyter_runtime_dir(), f"jpserver-{lab.pid}.json")
        ):
            print(welcome(workspace, address), flush=True)
        code = lab.wait()
    print(f"JupyterLab has ended. {GO_ON}", flush=True)
    return 0 if code in (0, -signal.SIGTERM, -signal.SIGINT) else code


def arguments(workspace: Path, port: int) -> list[str]:
    """Return JupyterLab's options: loopback only, no questions, quiet, and the first example
    open.
    """
    first = workspace / "examples" / notebook.FIRST_EXAMPLE
    page = f"/lab/tree/examples/{notebook.FIRST_EXAMPLE}" if first.exists() else "/lab"
    options = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={workspace}",
        f"--LabApp.default_url={page}",
        "--ServerApp.answer_yes=True",
        "--Application.log_level=WARN",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
    ]
    if os.getuid() == 0:
        options.append("--allow-root")
    if not (
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        options.append("--no-browser")
    return options


def wait_for_address(lab: subprocess.Popen[bytes], note: Path) -> str | None:
    """Wait until JupyterLab's port answers; return the address, with its token, from its runtime
    file. Return None if JupyterLab ended first; it has then printed the reason on stderr.
    """
    deadline = time.monotonic() + START_TIMEOUT
    while lab.poll() is None and time.monotonic() < deadline:
        try:
            server = json.loads(note.read_text())
            socket.create_connection(("127.0.0.1", server["port"]), timeout=5).close()
        except (OSError, ValueError):
            time.sleep(0.1)  # another program writes the file and does not signal it
            continue
        token = f"?token={server['token']}" if server["token"] else ""
        return f"{server['url']}{token}"
    return None


def welcome(workspace: Path, address: str) -> str:
    """Return what to open, and what to click first."""
    first = (
        f"examples/{notebook.FIRST_EXAMPLE}"
        if (workspace / "examples" / notebook.FIRST_EXAMPLE).exists()
        else "a new notebook"
    )
    home = "" if workspace == home_dir() else f"TFCLUSTER_HOME={shlex.quote(str(workspace))} "
    return f"""
  TFCluster is ready. Open this address in a browser on this machine:

      {address}

  It opens {first}: run its cells with Shift+Enter; the second one launches a real cluster.
  Your files: {workspace}    Shell: {home}.venv/bin/tfcluster --help    End: Ctrl-C
"""


if __name__ == "__main__":
    sys.exit(main())
