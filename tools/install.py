"""The script behind `make install`: makes .venv with the pinned packages, tfcluster and its
extension.

The script announces every step with its size. A second call takes a fraction of a second. An
environment from an interrupted call is rebuilt. The script owns .venv; tools/labextension.py owns
the extension, tools/proxy.py the hub's proxy. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import proxy

import labextension
from labextension import since, size_mb

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "tfcluster-installed.json"  # the digest of each installed kind
BUSY = VENV / "tfcluster-installing"  # this file exists while packages are being unpacked
PACKAGE = "tfcluster_magic"
GUARD = ROOT / PACKAGE / "runtime" / "libloopback_guard.so"
SOURCES = [
    "pyproject.toml",
    "setup.py",
    "tools/build_backend.py",
    "tools/install.py",
    f"{PACKAGE}/runtime/loopback_guard.c",
    f"{PACKAGE}/runtime/loopback_peer.h",
]
NEEDED_MB = {"run": 2900, "dev": 3400}  # size of the environment in MB while pip unpacks packages
DOWNLOAD_MB = {"run": 500, "dev": 600}  # measured on Linux x86_64 with Python 3.12
DOWNLOAD = re.compile(
    r"^\s*(Downloading|Using cached) (\S+?)-(\d\S*?)-\S*\.whl \(([\d.]+) (kB|MB|GB)\)"
)
# pinned, but removed after the installation; tools/lock.sh says why
SLOW = ("rfc3987-syntax", "lark")
LAB_SETTINGS = {  # otherwise JupyterLab's question about news covers part of the first page
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}
}
UNITS = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}
PACKAGES = Path("lib", "python{}.{}".format(*sys.version_info[:2]), "site-packages")
# The folders of .venv in which packages have files.
PARTS = (PACKAGES, Path("bin"), Path("etc"), Path("share"))
LEFT = {  # files that are not shared: each environment has its own
    "bin": ("python*", "pip*", "activate*", "Activate*", "tfcluster"),
    "site-packages": ("*tfcluster_magic*",),
}
# A file beside kept packages, with the path of the environment that their scripts name.
MADE_IN = "made-in.txt"
KEPT = 2
LONGEST_MAKING = 3600  # seconds; a partial folder older than this was left by a killed process
LONGEST_SCRIPT = 120  # longest interpreter path that pip writes into a script's first line


def main() -> int:
    """Install what `kind` needs unless it is installed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "kind", choices=sorted(NEEDED_MB), help="run: to use it; dev: to work on it"
    )
    parser.add_argument("--keep", action="store_true", help="keep its packages for another clone")
    asked = parser.parse_args()
    kind = asked.kind
    with one_at_a_time():
        if asked.keep:
            keep_packages(kept(kind))
            return 0
        if up_to_date(kind):
            if not labextension.current():
                build_extension(kind)
            proxy.bring(VENV)
            return 0
        began = time.monotonic()
        # Only CI shares packages between clones: elsewhere, a user may edit an installed file in
        # place, which would change it in all clones.
        folder = kept(kind) if os.environ.get("CI") == "true" else None
        is_new = make_environment(kind)
        BUSY.touch()
        if not (is_new and folder and bring_packages(folder)):
            install_packages(kind)
        with warm_up():
            install_ourselves()
            prepare_jupyter()
        write_stamp(kind)
        BUSY.unlink()
        build_extension(kind)
        say("[6/6] the hub's proxy")
        proxy.bring(VENV)
    say(f"ready: .venv is {size_mb(VENV):.0f} MB, {time.monotonic() - began:.0f} s in all")
    return 0


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lock the clone's folder, so that two calls of make never write into one environment."""
    folder = os.open(str(ROOT), os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another make is installing into .venv: waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def digest(kind: str) -> str:
    """Return a checksum of all files from which the environment is made."""
    total = hashlib.sha256(str(ROOT).encode())
    for name in [f"requirements/{kind}.txt", *SOURCES]:
        path = ROOT / name
        total.update(name.encode() + (path.read_bytes() if path.exists() else b"-"))
    return total.hexdigest()


def stamps() -> dict[str, str]:
    """Return the digest of each installed kind."""
    try:
        return dict(json.loads(STAMP.read_text()))
    except (OSError, ValueError):
        return {}


def write_stamp(kind: str) -> None:
    """Record that `kind` is installed; the kind "dev" includes all packages of "run"."""
    kinds = ["run", "dev"] if kind == "dev" else ["run"]
    STAMP.write_text(json.dumps({**stamps(), **{each: digest(each) for each in kinds}}))


def works() -> bool:
    """Return whether .venv's Python finds its packages; an upgrade of Python breaks this."""
    probe = [str(PYTHON), "-c", "import click, msgspec"]
    try:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def up_to_date(kind: str) -> bool:
    """Return whether everything that `kind` needs is installed."""
    guard = GUARD.exists() or sys.platform != "linux"
    return not BUSY.exists() and stamps().get(kind) == digest(kind) and guard and works()


def make_environment(kind: str) -> bool:
    """Step 1: make a virtual environment, or keep one that works. Return whether it is new."""
    version = ".".join(map(str, sys.version_info[:3]))
    if not BUSY.exists() and VENV.exists() and starts(PYTHON):
        say(f"[1/6] .venv is there, {size_mb(VENV):.0f} MB: bringing it up to date")
        return False
    if importlib.util.find_spec("ensurepip") is None:
        short = "{}.{}".format(*sys.version_info[:2])
        fail(
            f"{sys.executable} ({version}) cannot make a virtual environment: no ensurepip.",
            f"Debian/Ubuntu: apt install python{short}-venv. Or: make install PYTHON=/a/python",
        )
    free = shutil.disk_usage(str(ROOT)).free / 1e6
    if free < NEEDED_MB[kind]:
        fail(
            f".venv needs {NEEDED_MB[kind]} MB; {ROOT} has {free:.0f} MB free.", "Free some space."
        )
    state = "making .venv anew, it was left half made" if VENV.exists() else "new .venv"
    say(f"[1/6] Python {version} ({sys.executable}): {state}")
    call([sys.executable, "-m", "venv", "--clear", str(VENV)], "the environment could not be made")
    return True


def starts(python: Path) -> bool:
    """Return whether this Python runs and has pip."""
    try:
        return (
            subprocess.run(
                [str(python), "-m", "pip", "--version"], capture_output=True, check=False
            ).returncode
            == 0
        )
    except OSError:
        return False


def install_packages(kind: str) -> None:
    """Step 2: install the pinned packages without dependency resolution."""
    began, before = time.monotonic(), size_mb(VENV)
    say(f"[2/6] packages of requirements/{kind}.txt: up to {DOWNLOAD_MB[kind]} MB to fetch, once")
    fetched = pip_install("--no-deps", "--no-compile", "-r", f"requirements/{kind}.txt")
    remove = [str(PYTHON), "-m", "pip", "uninstall", "--quiet", "--yes", *SLOW]
    subprocess.run(remove, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    grown, took = size_mb(VENV) - before, time.monotonic() - began
    say(f"      fetched {fetched:.0f} MB, .venv grew by {grown:.0f} MB, {took:.0f} s")


def kept(kind: str) -> Path:
    """Return the folder where a build machine keeps the packages of `kind` for this Python."""
    pins = (ROOT / "requirements" / f"{kind}.txt").read_bytes()
    made_of = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()} {SLOW}".encode() + pins)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "tfcluster" / "packages" / f"{kind}-{made_of.hexdigest()[:24]}"


def bring_packages(folder: Path, environment: Path = VENV) -> bool:
    """Step 2, if another clone has kept the packages: copy them. Return False if there are none."""
    if not folder.exists() or len(str(environment / "bin" / "python")) > LONGEST_SCRIPT:
        return False
    began = time.monotonic()
    shutil.rmtree(environment / PACKAGES)  # removes pip; the kept packages include it
    for part in PARTS:
        copy_tree(folder / part, environment / part)
    before, now = (folder / MADE_IN).read_bytes(), os.fsencode(environment)
    for script in (environment / "bin").iterdir():
        content = b"" if script.is_symlink() else script.read_bytes()
        if content.startswith(b"#!") and before in content:
            script.write_bytes(content.replace(before, now))
    say(f"[2/6] packages of {folder}: {since(began)}")
    return True


def keep_packages(folder: Path, environment: Path = VENV) -> None:
    """Keep the packages of an environment, including compiled files, for other clones on this
    machine. Module files are hard links that all clones share, so an edit must replace the file and
    not write into it.
    """
    if folder.exists():
        return
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        making.mkdir(parents=True)
        for part in PARTS:
            copy_tree(environment / part, making / part)
        (making / MADE_IN).write_bytes(os.fsencode(environment))
        making.rename(folder)
        prune(folder.parent)
    except OSError as problem:
        shutil.rmtree(making, ignore_errors=True)
        say(f"packages: not kept in {folder.parent}: {problem}")


def prune(home: Path) -> None:
    """Remove old sets of packages, except the newest `KEPT`, and leftovers of killed processes."""
    found = sorted(home.iterdir(), key=lambda each: each.stat().st_mtime)
    half = [each for each in found if each.name.startswith(".")]
    for old in [each for each in found if each not in half][:-KEPT]:
        going = old.with_name(f".{old.name}.{os.getpid()}")
        old.rename(going)  # so that no clone uses a partly removed folder
        shutil.rmtree(going, ignore_errors=True)
    for left in half:
        if time.time() - left.stat().st_mtime > LONGEST_MAKING:
            shutil.rmtree(left, ignore_errors=True)


def copy_tree(source: Path, target: Path) -> None:
    """Copy installed packages; their 2 GB of modules are hard-linked."""

    def copy(file: str, to: str) -> None:
        if source.name == PACKAGES.name:
            with suppress(OSError):  # on another disk, copy instead
                os.link(file, to)
                return
        shutil.copy2(file, to)

    leave = shutil.ignore_patterns(*LEFT.get(source.name, ()))
    shutil.copytree(
        source, target, symlinks=True, ignore=leave, copy_function=copy, dirs_exist_ok=True
    )


def warm_up() -> subprocess.Popen[bytes]:
    """Start a process that compiles our modules and those that a notebook server imports; to
    compile all modules would take 40 s longer. PYTHONDONTWRITEBYTECODE, which many containers set,
    is ignored: otherwise, every import of TensorFlow would take 10 s.
    """
    modules = "tensorflow, tf_keras, sklearn.datasets, ipykernel.kernelapp"
    modules += ", jupyterlab.labapp, jupyterhub.app, jupyterhub.singleuser.app"
    ours = f"import compileall; compileall.compile_dir({PACKAGE!r}, quiet=2)"
    quiet = subprocess.DEVNULL
    command = [str(PYTHON), "-c", f"{ours}; import {modules}"]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdin=quiet, stdout=quiet, stderr=quiet)


def install_ourselves() -> None:
    """Step 3: install this clone as an editable package, and compile its guard."""
    say("[3/6] tfcluster and its loopback guard (a C compiler is fetched if there is none, 100 MB)")
    pip_install("--no-deps", "--editable", ".")
    if sys.platform == "linux":
        say(f"      .venv/bin/tfcluster, {GUARD.name} {GUARD.stat().st_size / 1e3:.0f} kB")


def prepare_jupyter() -> None:
    """Step 4: load %tfcluster in every IPython of .venv; make notebooks listen on loopback only."""
    say("[4/6] Jupyter: %tfcluster is loaded in every notebook")
    config = VENV / "etc" / "ipython" / "ipython_config.py"
    config.parent.mkdir(parents=True, exist_ok=True)
    # The extension is named by its module, so that IPython does not take a notebook's `%load_ext
    # tfcluster_magic` for a second load, and warn.
    name = f"{PACKAGE}.notebook.magic"
    config.write_text(f'c = get_config()\nc.InteractiveShellApp.extensions.append("{name}")\n')
    overrides = VENV / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    overrides.parent.mkdir(parents=True, exist_ok=True)
    overrides.write_text(json.dumps(LAB_SETTINGS, indent=1))
    spec = VENV / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel = json.loads(spec.read_text())
    kernel["argv"][0] = str(PYTHON)
    kernel["display_name"] = "Python 3 (TFCluster)"
    if sys.platform == "linux":
        kernel["env"] = {**kernel.get("env", {}), "LD_PRELOAD": str(GUARD)}
    spec.write_text(json.dumps(kernel, indent=1))
    labextension.link(VENV)


def build_extension(kind: str) -> None:
    """Step 5: build the JupyterLab extension. Notebooks work without it, so a failure is only
    reported, unless `kind` is dev.
    """
    say("[5/6] JupyterLab extension")
    try:
        labextension.build(keep_packages=kind == "dev")
    except labextension.BuildError as problem:
        if kind == "dev":
            fail(str(problem), "Run make again.")
        say(f"      NOT BUILT: {problem}")
        say("      %tfcluster and the tfcluster command work; JupyterLab has no TFCluster sidebar.")


def pip_install(*arguments: str) -> float:
    """Run pip, report each large file, and return the megabytes downloaded."""
    command = [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off", *arguments]
    env = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    env.pop("PIP_USER", None)
    fetched, lines = 0.0, []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as pip:
        for line in pip.stdout or ():
            lines.append(line)
            if found := DOWNLOAD.match(line):
                how, name, version, amount, unit = found.groups()
                size = float(amount) * UNITS[unit]
                fetched += size if how == "Downloading" else 0
                if size >= 5:
                    note = "" if how == "Downloading" else " (cached)"
                    say(f"      {name} {version}: {size:.0f} MB{note}")
            elif line.startswith("Installing collected packages"):
                say("      unpacking")
    if pip.returncode:
        sys.stderr.writelines(lines[-25:])
        fail(
            "pip failed: the end of what it said is above.",
            "Check the network and the registry, then run make again.",
        )
    return fetched


def call(command: list[str], failure: str) -> None:
    """Run a command without output; show its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout[-3000:] + done.stderr[-3000:])
        fail(failure + ".", "What it said is above.")


def say(text: str) -> None:
    """Print a step immediately, even into a pipe."""
    print(text, flush=True)


def fail(what: str, cure: str) -> None:
    """Exit with what is wrong and what to do."""
    sys.exit(f"make: {what}\n      {cure}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: the next make install starts this step again")
