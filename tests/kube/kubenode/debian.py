"""Debian trees made by debootstrap and cached: the root of every node, and the base of the images.

containerd, GlusterFS and iptables are installed into a node's tree, never on the machine. A tree
gets its final name only when it is complete, so that a partial one is never used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import uuid
from pathlib import Path

from . import paths
from .commands import LAST_LINES, locked, run, say
from .errors import NodeError

SUITE = "bookworm"
LISTS = paths.KUBE / "debian"  # the packages of each tree, each with its reason
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def tree(name: str) -> Path:
    """Return the Debian tree of `debian/<name>.txt`; make it, in about 90 seconds, unless it is
    cached.

    Raises:
        NodeError: debootstrap is missing or failed.
    """
    lines = (LISTS / f"{name}.txt").read_text().splitlines()
    packages = [word for line in lines if (word := line.partition("#")[0].strip())]
    digest = hashlib.sha256(json.dumps([SUITE, packages]).encode()).hexdigest()[:12]
    target = paths.cache() / "debian" / f"{name}-{digest}"
    if target.exists():
        return target
    with locked(target.with_suffix(".lock"), waiting_for=f"the Debian tree of {name}"):
        if not target.exists():
            say(f"making the Debian tree of {name}: about 90 s, once")
            make(target, packages)
    return target


def make(target: Path, packages: list[str]) -> None:
    """Unpack and configure Debian with `packages`. `target` appears only when it is complete."""
    program = debootstrap()
    for old in target.parent.glob(f"{target.name.rsplit('-', 1)[0]}-*.making-*"):
        shutil.rmtree(old, ignore_errors=True)
    making = target.with_name(f"{target.name}.making-{uuid.uuid4().hex[:8]}")
    downloads = paths.cache() / "debian" / "packages"
    downloads.mkdir(parents=True, exist_ok=True)
    keyring = [f"--keyring={KEYRING}"] if KEYRING.exists() else []
    options = [f"--cache-dir={downloads}", f"--include={','.join(packages)}", *keyring]
    try:
        try:
            run([*program, "--variant=minbase", *options, SUITE, making, *mirror()])
        except NodeError as error:
            log = making / "debootstrap" / "debootstrap.log"
            said = (
                log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []
            )
            raise NodeError("\n".join([str(error), "Its log ends:", *said])) from error
        slim(making)
        making.rename(target)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def debootstrap() -> list[str]:
    """Return the command of debootstrap: the machine's own, or one unpacked into the cache.

    Raises:
        NodeError: debootstrap is missing, and so is a tool that fetches it (apt, dpkg) or that it
            needs (wget).
    """
    if shutil.which("debootstrap"):
        return ["debootstrap"]
    missing = [tool for tool in ("apt-get", "dpkg-deb", "wget") if not shutil.which(tool)]
    if missing:
        raise NodeError(f"{', '.join(missing)} is missing. Do: apt-get install debootstrap wget")
    folder = paths.cache() / "debian" / "debootstrap"
    with locked(folder.with_suffix(".lock"), waiting_for="debootstrap"):
        if not folder.exists():
            unpack("debootstrap", folder)
    data = f"DEBOOTSTRAP_DIR={folder}/usr/share/debootstrap"
    return ["env", data, "sh", f"{folder}/usr/sbin/debootstrap"]


def unpack(package: str, folder: Path) -> None:
    """Download a Debian package with apt and unpack it, without installing it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        here = Path(name)
        here.chmod(0o755)  # so that the account under which apt downloads can enter
        try:
            run(["apt-get", "download", package], cwd=here)
        except NodeError:  # a fresh machine has no package lists yet
            run(["apt-get", "update", "--quiet"])
            run(["apt-get", "download", package], cwd=here)
        run(["dpkg-deb", "--extract", next(here.glob("*.deb")), here / "files"])
        (here / "files").rename(folder)


def mirror() -> list[str]:
    """Return the Debian mirror of this machine's apt; an empty list leaves the choice to
    debootstrap.
    """
    if not shutil.which("apt-get"):
        return []
    wanted = ["Created-By: Packages", "Origin: Debian", f"Codename: {SUITE}"]
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]
    uris = run(ask).split()
    if not uris:  # a fresh machine has no package lists yet
        run(["apt-get", "update", "--quiet"])
        uris = run(ask).split()
    return uris[:1]


def slim(root: Path) -> None:
    """Delete files that no server and no image reads: package files, manuals, translations."""
    for pattern in ("var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "usr/share/doc/*"):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for folder in ("usr/share/man", "usr/share/locale", "usr/share/info"):
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir()
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
