"""Build the node's servers from their Go modules. The cache holds a folder for each digest.

A folder gets its final name only when it is complete, with a stamp of its files' sizes. So no
partial or damaged folder is used. An interrupted build resumes from Go's own cache. A build in the
background and the start of a node share a lock for each module, so that nothing is built twice.

    PYTHONPATH=tests/kube python3 -m kubenode.build [module ...]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from . import go, modules, paths
from .commands import locked, say
from .errors import NodeError
from .modules import Module

STAMP = "built.json"
UNUSED = 24 * 3600.0  # seconds after which an unused older version may be deleted


def build(
    names: Sequence[str] | None = None, *, quiet: bool = False, folder: Path = paths.MODULES
) -> dict[str, Path]:
    """Build the named modules, or all that every node needs.

    Return the path of each of their programs, by the program's name.

    Raises:
        NodeError: there is no such module, Go is missing or too old, or a module cannot be built;
            the first failure is reported.
    """
    known = modules.known(folder)
    chosen = [_named(name, known) for name in (modules.DEFAULT if names is None else names)]
    missing = [module for module in chosen if not is_built(module)]
    if missing:
        go.check(missing)  # before the first build, because the last module may need the newest Go
    elif not quiet:
        say(f"Go servers: {', '.join(module.name for module in chosen)}: in the cache")
    for module in missing:
        make(module, quiet=quiet)
    for module in chosen:
        with suppress(OSError):  # a cache of another user is read-only
            # A new time stamp tells `remove_older` that the build is in use.
            os.utime(module.entry / STAMP)
    return {name: module.entry / name for module in chosen for name in module.programs.values()}


def binary(name: str, *, folder: Path = paths.MODULES) -> Path:
    """Return the path of the program called `name`, which must be built.

    Raises:
        NodeError: there is no such program, or it is not built.
    """
    for module in modules.known(folder).values():
        if name in module.programs.values():
            return entry(module.name, folder=folder) / name
    raise NodeError(f"No module in {folder} builds a program called {name}.")


def resources(module: str, kind: str, *, folder: Path = paths.MODULES) -> list[Path]:
    """Return the files of a module's resource `kind`, such as `resources("traefik",
    "gateway-api")`.

    Raises:
        NodeError: the module is not built, or has no such files.
    """
    found = sorted((entry(module, folder=folder) / kind).glob("*"))
    if not found:
        raise NodeError(f"{module} comes with no {kind}; modules.py names what is copied.")
    return found


def entry(name: str, *, folder: Path = paths.MODULES) -> Path:
    """Return the cache folder of the module's programs.

    Raises:
        NodeError: it is not built.
    """
    module = _named(name, modules.known(folder))
    if not is_built(module):
        raise NodeError(
            f"{module} is not built. Do: PYTHONPATH=tests/kube python3 -m kubenode.build {name}"
        )
    return module.entry


def is_built(module: Module) -> bool:
    """Return whether the cache holds the whole module: its stamp, and each file in the size that
    the stamp records.
    """
    try:
        stamp = json.loads((module.entry / STAMP).read_text())
        return all((module.entry / k).stat().st_size == v for k, v in stamp["sizes"].items())
    except (OSError, ValueError, LookupError):
        return False


def make(module: Module, *, quiet: bool = False) -> None:
    """Build one module into the cache, unless another process just did.

    Raises:
        NodeError: it cannot be built; the cache is as before.
    """
    target = module.entry
    try:
        with locked(paths.binaries() / f"{module.name}.lock", waiting_for=f"it builds {module}"):
            if is_built(module):
                return
            for killed in paths.binaries().glob(f"{module.name}-*.making-*"):
                # no other process builds there, because this process holds the lock
                shutil.rmtree(killed, ignore_errors=True)
            making = target.with_name(f"{target.name}.making-{uuid.uuid4().hex[:8]}")
            try:
                _fill(making, module, quiet)
                if target.exists():  # this folder is damaged, because `is_built` was false
                    shutil.rmtree(target)
                making.rename(target)
            finally:
                shutil.rmtree(making, ignore_errors=True)
            remove_older(module)
    except OSError as error:
        if go.is_full(error):
            raise NodeError(go.disk_full(module, str(error))) from error
        raise NodeError(
            f"The cache cannot be written: {error}.\n"
            f"Do: make {paths.binaries()} writable, or set TFCLUSTER_KUBE_CACHE to another folder."
        ) from error


def _fill(making: Path, module: Module, quiet: bool) -> None:
    """Write the programs, the resources and, last, the stamp."""
    began = time.monotonic()
    if not quiet:
        say(f"building {module}")
    making.mkdir(parents=True)
    # One call for all packages lets Go compile on every core; Go names the programs by their paths.
    go.run(["build", *module.flags, "-o", f"{making}/", *module.programs], module)
    for package, name in module.programs.items():
        (making / (name if package == "." else _named_by_go(package))).rename(making / name)
    for kind, (path, patterns) in module.resources.items():
        (making / kind).mkdir()
        sources = module_dir(module, path)
        for file in [file for pattern in patterns for file in sources.glob(pattern)]:
            # the mode is not copied, because files of Go's module cache are read-only
            shutil.copyfile(file, making / kind / file.name)
    files = [file for file in making.rglob("*") if file.is_file()]
    sizes = {str(file.relative_to(making)): file.stat().st_size for file in files}
    seconds = round(time.monotonic() - began, 1)
    stamp = {"module": str(module), "go": go.check([module]), "seconds": seconds, "sizes": sizes}
    (making / STAMP).write_text(json.dumps(stamp, indent=1))
    if not quiet:
        what = ", ".join(module.programs.values())
        say(f"built {module}: {what}: {sum(sizes.values()) / 1e6:.0f} MB, {seconds:.0f} s")


def _named_by_go(package: str) -> str:
    """Return the name that `go build` gives: the last path element, without a version such as
    `/v3`.
    """
    *_, before, last = f"/{package}".split("/")
    return before if last[:1] == "v" and last[1:].isdigit() else last


def module_dir(module: Module, path: str) -> Path:
    """Return the folder with the sources of a dependency, which the build has fetched.

    Raises:
        NodeError: the module does not depend on it.
    """
    return Path(go.run(["list", "-m", "-f", "{{.Dir}}", path], module).strip())


def remove_older(module: Module) -> None:
    """Delete the unused builds of a module, except the current one.

    A build stays while a process runs from it (a running cluster of this or another clone). It also
    stays for a day after `build` returned it, because its programs may be about to start.
    """
    for older in paths.binaries().glob(f"{module.name}-{'[0-9a-f]' * 12}"):
        if older != module.entry and not _is_young(older) and not _is_running(older):
            shutil.rmtree(older, ignore_errors=True)


def _is_young(older: Path) -> bool:
    try:
        return time.time() - (older / STAMP).stat().st_mtime < UNUSED
    except FileNotFoundError:
        return False


def _is_running(older: Path) -> bool:
    """Return whether a process runs a program of this folder, in any mount namespace."""
    files = {(s.st_dev, s.st_ino) for s in (file.stat() for file in older.rglob("*"))}
    for executable in Path("/proc").glob("[0-9]*/exe"):
        # the process has ended, is a kernel thread, or belongs to another user
        with suppress(OSError):
            found = executable.stat()
            if (found.st_dev, found.st_ino) in files:
                return True
    return False


def _named(name: str, known: dict[str, Module]) -> Module:
    if name not in known:
        raise NodeError(f"There is no Go module called {name}. There are: {', '.join(known)}.")
    return known[name]


def main(argv: Sequence[str] | None = None) -> int:
    """Build the modules of the command line; print the programs' paths to stdout."""
    parser = argparse.ArgumentParser(prog="kubenode.build", description="Build the node's servers.")
    options = f"of {', '.join(modules.known())}; without: {', '.join(modules.DEFAULT)}"
    parser.add_argument("modules", nargs="*", help=options)
    try:
        for name, path in build(parser.parse_args(argv).modules or None).items():
            print(f"{name} {path}")
    except NodeError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
