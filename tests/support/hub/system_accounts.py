"""Commands that see more system accounts than this machine has, such as ada and bob, or a class.

This machine stays unchanged: the accounts, their homes and their access to the Python under test
exist only in a mount namespace, which ends with its last process.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tfcluster_magic.hub.embedded import node

ROOT = Path(__file__).parents[3]
UIDS = {"ada": 60_101, "bob": 60_102}
ENTER = """
set -e
umask 022
mount -t tmpfs -o mode=755 none /home
for person in "$1"/homes/*; do cp -a "$person" /home; done
for file in passwd group; do mount --bind "$1/$file" /etc/$file; done
shift
while [ "$1" != -- ]; do
    hidden=$1 inner=$2; shift 2
    kept=$(mktemp -d)
    mount --rbind "$hidden" "$kept"
    mount -t tmpfs -o mode=755 none "$hidden"
    for path in $inner; do
        mkdir -p "$hidden/$path"
        mount --rbind "$kept/$path" "$hidden/$path"
    done
    umount -l "$kept"
    rmdir "$kept"
done
shift
exec "$@"
"""


def students(count: int, first: int = 60_201) -> dict[str, int]:
    """Return the uids of the accounts student01, student02 and so on; the first is `first`."""
    return {f"student{number + 1:02}": first + number for number in range(count)}


@contextmanager
def open_folder(uids: Collection[int]) -> Iterator[Path]:
    """Yield a folder that every account may enter, unlike pytest's; end all its processes
    afterwards.
    """
    folder = Path(tempfile.mkdtemp(prefix="tfcluster-accounts-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        found = [one for one in psutil.process_iter(["uids"]) if _is_of(one, uids)]
        # Wait, because some processes are still ending.
        _ended, left = psutil.wait_procs(found, timeout=90)
        for one in left:
            one.kill()
        shutil.rmtree(folder)
    assert not left, f"accounts of the test still run: {left}"


def _is_of(process: psutil.Process, uids: Collection[int]) -> bool:
    found = process.info["uids"]  # None: the process has ended since it was listed
    return found is not None and found.real in uids


def entered(
    folder: Path, needed: Sequence[Path] = (), accounts: Mapping[str, int] = UIDS
) -> list[str]:
    """Return the prefix of a command that sees these accounts besides the machine's own. The prefix
    is replaced by the command (exec), so the process id stays.

    The account files and the homes are created in `folder`. A folder that other accounts cannot
    enter, such as /root, is replaced by one that they can enter; it contains only the folders that
    Python and the tests need, and those in `needed`.
    """
    homes = folder / "homes"
    homes.mkdir()
    for file in ("passwd", "group"):
        text = Path("/etc", file).read_text()
        (folder / file).write_text(text + "".join(_line(file, *each) for each in accounts.items()))
    for name, uid in accounts.items():
        (homes / name).mkdir(mode=0o755)  # useradd's default mode for homes
        os.chown(homes / name, uid, uid)
    python = [ROOT, Path(sys.prefix), Path(sys.base_prefix), Path(node()).resolve().parents[1]]
    hidden = [word for each in _hidden([*python, folder, *needed]) for word in each]
    return ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(folder), *hidden, "--"]


def becoming(name: str) -> list[str]:
    """Return the prefix of a command that runs as one of the accounts."""
    number = UIDS[name]
    return ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--"]


def _line(file: str, name: str, number: int) -> str:
    if file == "group":
        return f"{name}:x:{number}:\n"
    return f"{name}:x:{number}:{number}::/home/{name}:/bin/sh\n"


def _hidden(needed: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Return folders that other accounts cannot enter, such as /root, with the needed folders below
    each.
    """
    below: dict[Path, set[str]] = {}
    for path in needed:
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & 0o001:
                below.setdefault(parent, set()).add(str(path.relative_to(parent)))
                break
    for folder, inner in below.items():
        yield str(folder), " ".join(sorted(inner))
