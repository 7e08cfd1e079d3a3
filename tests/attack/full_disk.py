"""An attack that fills the disk of running runs, in a mount namespace of its own.

`python -m attack.full_disk SEED` runs inside that namespace, on a small file system.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from support.polling import wait_until
from support.task_process import carrying

from .cases import Attempt, NotTried
from .state_files import launch, tfcluster
from .target import Target

INSIDE = """
mount -t tmpfs -o size=6m,mode=755 none "$1" && exec "$2" -m attack.full_disk "$3"
"""
UNTIL_TOLD = """
import os, time
print("up", flush=True)
while not os.path.exists({go!r}):
    time.sleep(0.05)
"""
WITHIN = 60.0
"""Maximum seconds until `status` shows a task's end. This must work although the disk is full,
because the report of an end writes nothing to it.
"""


def full(target: Target, drawn: random.Random) -> None:
    """On a full disk, `status` shows a task's end and names the disk; `stop` and `delete` work."""
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        raise NotTried("this user may make no mount namespace (unshare)")
    with target.state() as folder:
        small = folder / "small"
        small.mkdir()
        own = {
            "TFCLUSTER_HOME": str(small / "tfcluster"),
            "TFCLUSTER_STATE_DIR": str(small / "state"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        words = [str(small), sys.executable, str(drawn.getrandbits(32))]
        done = subprocess.run(
            [*alone, "sh", "-c", INSIDE, "sh", *words],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr).strip()[-1500:]


def inside(seed: str) -> None:
    """Run the attack on the small file system."""
    drawn = random.Random(seed)
    small = Path(os.environ["TFCLUSTER_STATE_DIR"]).parent
    go = small.parent / "go"  # on another disk, where it can still be created
    ends = launch("ends", UNTIL_TOLD.format(go=str(go)))
    stays = launch("stays")
    fill(small, drawn)
    steps = ["end", "stop"]
    drawn.shuffle(steps)
    for step in steps:
        if step == "end":
            go.touch()
            wait_until(
                lambda: "Succeeded" in tfcluster("status", "ends-1"), "the end is told", WITHIN
            )
        else:
            tfcluster("stop", "stays-1")
            wait_until(
                lambda: "Stopped" in tfcluster("status", "stays-1"), "the stop is told", WITHIN
            )
    said = tfcluster("status", "stays-1") + tfcluster("status", "ends-1")
    assert "disk" in said.lower(), f"no status names the disk: {said}"
    for run in (ends, stays):
        tfcluster("delete", run.metadata.name)
        assert not carrying(f"TFCLUSTER_RUN_UID={run.metadata.uid}"), "a task goes on"
        fill(small, drawn)
    listed = tfcluster("list", "--all")
    assert "ends" not in listed and "stays" not in listed, listed


def fill(folder: Path, drawn: random.Random) -> None:
    """Fill the disk: with a file that grows, and with many small files."""
    name = folder / f"full-{drawn.getrandbits(40):x}"
    with name.open("ab", buffering=0) as file:
        for block in (1 << 16, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * block)


CASES: Mapping[str, Attempt] = {"full-disk": full}

if __name__ == "__main__":
    try:
        inside(sys.argv[1])
    except AssertionError as failed:
        sys.exit(str(failed))
