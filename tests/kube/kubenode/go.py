"""Run the Go command with fixed settings, and explain its failures to the user.

The user's registry (GOPROXY) and Go's own caches are used unchanged. Every setting that would make
builds differ between machines is fixed here. No other Go version is ever downloaded.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import paths
from .commands import run as run_command
from .errors import NodeError
from .modules import Module

SETTINGS = {
    "CGO_ENABLED": "0",  # static programs run in any Debian tree and image
    "GO111MODULE": "on",
    "GOFLAGS": "-mod=readonly",  # a build must fail if go.mod or go.sum would change
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
NEEDED = "all modules together need about 12 GB in Go's caches and 1.5 GB in ours"

FULL = ("no space left on device", "disk quota exceeded")
NO_REGISTRY = ("dial tcp", "i/o timeout", "TLS handshake", "tls: ", ": reading http", "GOPROXY=off")
NO_MEMORY = ("signal: killed", "cannot allocate memory", "out of memory")


def run(arguments: Sequence[str], module: Module) -> str:
    """Run `go` in the module's folder.

    Raises:
        NodeError: Go failed; the message names the module and says what to do.
    """
    try:
        return run_command(["go", *arguments], cwd=module.folder, env={**os.environ, **SETTINGS})
    except NodeError as error:
        raise NodeError(explained(module, str(error))) from error


def explained(module: Module, said: str) -> str:
    """Return the cause of a failed build of `module` from Go's output, and what to do."""
    if _any(FULL, said.lower()):
        return disk_full(module, said)
    if _any(NO_REGISTRY, said):
        proxy = run_command(["go", "env", "GOPROXY"]).strip()
        todo = (
            f"Its sources cannot be fetched: GOPROXY is {proxy}.\n"
            "Do: set GOPROXY to a module registry that this machine reaches, and try again."
        )
    elif _any(NO_MEMORY, said):
        todo = "Too little memory is free: one compiler of traefik takes 3 GB. Do: stop other work."
    else:
        todo = f"What is built is said by go.mod and tools.go in {module.folder}."
    return f"The build of {module} failed.\n{said}\n{todo}"


def disk_full(module: Module, said: str) -> str:
    """Return a message with the free space of each folder, which says how to use another folder."""
    lines = [f"The disk is full: the build of {module} stopped. Free space:"]
    for setting, folder in folders().items():
        there = next(path for path in [folder, *folder.parents] if path.exists())
        lines.append(f"  {shutil.disk_usage(there).free / 1e6:8.0f} MB  {folder}  ({setting})")
    lines.append(f"{NEEDED[0].upper()}{NEEDED[1:]}.")
    lines.append("Do: free space there, or set the variable beside the folder to another disk.")
    failed = [line for line in said.splitlines() if _any(FULL, line.lower())]
    return "\n".join([*lines, "What failed:", *failed[:1]])


def folders() -> dict[str, Path]:
    """Return the folders to which a build writes, each by the environment variable that sets it."""
    names = ["GOCACHE", "GOMODCACHE"]
    found = dict(zip(names, run_command(["go", "env", *names]).splitlines(), strict=True))
    found["GOTMPDIR"] = run_command(["go", "env", "GOTMPDIR"]).strip() or tempfile.gettempdir()
    return {"TFCLUSTER_KUBE_CACHE": paths.cache()} | {k: Path(v) for k, v in found.items()}


def is_full(error: OSError) -> bool:
    """Return whether a write failed because the disk is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def check(modules: Iterable[Module]) -> str:
    """Return Go's version, after checking that it is new enough for all modules.

    Raises:
        NodeError: Go is missing or too old.
    """
    newest = max(modules, key=lambda module: module.needs_go)
    needed = "{}.{}".format(*newest.needs_go)
    todo = f"Do: install Go {needed} or newer and put its `go` on PATH (often /usr/local/go/bin)."
    where = shutil.which("go")
    if not where:
        raise NodeError(f"Go is not installed, or not on PATH; {newest} needs it. {todo}")
    version = run_command(["go", "env", "GOVERSION"], env={**os.environ, **SETTINGS}).strip()
    found = re.match(r"(?:devel )?go(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < newest.needs_go:
        raise NodeError(f"{newest} needs Go {needed}; {where} is {version}. {todo}")
    return version


def _any(signs: Iterable[str], said: str) -> bool:
    return any(sign in said for sign in signs)
