"""The installation of the hub's proxy, configurable-http-proxy, in .venv/share/tfcluster/proxy.

The script installs exactly the packages of hub_config/proxy/package-lock.json from the user's npm
registry, and installs them again only if that file changes. It uses the Node and npm of the
machine, or installs them into .venv if they are missing or too old. It does not use the Python
package configurable-http-proxy, which is a different program and breaks connections to kernels.
Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import labextension

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "hub_config" / "proxy"
FILES = ("package.json", "package-lock.json")
PLACE = Path("share", "tfcluster", "proxy")  # the proxy's folder, relative to the environment
STAMP = "installed-from.txt"  # the digest of FILES, written last


class ProxyError(RuntimeError):
    """The proxy could not be installed; the message says what to do."""


def digest() -> str:
    """Return a checksum of the files that define the packages."""
    return hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in FILES)).hexdigest()


def current(environment: Path) -> bool:
    """Return whether the proxy and a Node to run it are installed."""
    try:
        stamp = (environment / PLACE / STAMP).read_text("ascii").strip()
    except OSError:
        return False
    return stamp == digest() and labextension.has_node(search_path(environment))


def bring(environment: Path) -> None:
    """Install the proxy. Notebooks work without it, so a failure is only reported."""
    try:
        install(environment)
    except ProxyError as problem:
        labextension.say(f"NOT INSTALLED: {problem}")
        labextension.say("make run HUB=0 opens JupyterLab without a hub; make run tries again.")


def install(environment: Path) -> None:
    """Install the proxy in an environment.

    Raises:
        ProxyError: no registry answered.
    """
    if current(environment):
        return
    began, place = time.monotonic(), environment / PLACE
    path = search_path(environment)
    try:
        if not labextension.has_node(path) or shutil.which("npm", path=path) is None:
            labextension.say(
                "the hub's proxy: no Node 20.19, 22.12 or newer here: fetching one, 61 MB"
            )
            labextension.pip(environment / "bin", labextension.NODE)
    except labextension.BuildError as problem:
        raise ProxyError(str(problem)) from None
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in FILES:
        shutil.copy(SOURCES / name, place)
    words = ["--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
    try:
        done = subprocess.run(
            [shutil.which("npm", path=path) or "npm", "ci", *words],
            cwd=place,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as problem:
        raise ProxyError(f"npm could not be started: {problem.strerror}.") from None
    if done.returncode:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
        raise ProxyError(
            "The packages of hub_config/proxy/package-lock.json could not be fetched: check the "
            "network, or name a mirror with npm_config_registry=https://... npm's words are above."
        )
    (place / STAMP).write_text(digest() + "\n", "ascii")
    labextension.say(
        f"the hub's proxy: {labextension.size_mb(place):.0f} MB, {labextension.since(began)}"
    )


def search_path(environment: Path) -> str:
    """Return the PATH for Node and npm, with the environment's programs first."""
    return f"{environment / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
