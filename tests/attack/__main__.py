"""Attack a hub and runs that are started for this, and print what held: `make attack`.

Attacks reach no other machine, and leave nothing on this one. The exit status is 1 if something did
not hold. Some cases need root, a second account or a Kubernetes node; where this is missing, they
are reported as not tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from .cases import attack, rows, say, table
from .kinds import KINDS
from .target import Target

DROPPED = ("TFCLUSTER_", "JUPYTER", "JPY_")


def main() -> int:
    """Run the requested attacks."""
    names = [f"{kind}: {', '.join(cases)}" for kind, cases in KINDS.items()]
    parser = argparse.ArgumentParser(
        prog="make attack",
        description=__doc__,
        epilog="\n".join(names),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first try (default: 1)")
    parser.add_argument("--tries", type=int, default=10, help="of each case, at most (default: 10)")
    parser.add_argument(
        "--minutes", type=float, default=5, help="after which no new try begins (default: 5)"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a kind or a case; repeatable"
    )
    asked = parser.parse_args()
    try:
        chosen = rows(KINDS, asked.only)
    except KeyError as unknown:
        parser.error(f"there is no kind or case {unknown.args[0]}; there are:\n" + "\n".join(names))
    for name in [*os.environ]:
        if name.startswith(DROPPED) and not name.startswith("TFCLUSTER_KUBE_"):
            del os.environ[name]
    os.environ["TFCLUSTER_LANGUAGE"] = "en"
    folder = Path(tempfile.mkdtemp(prefix="tfcluster-attack-"))
    # Other accounts, as which some cases run, must be able to enter this folder.
    folder.chmod(0o755)
    target = Target(folder)
    try:
        held = attack(target, chosen, asked.seed, asked.tries, asked.minutes * 60, say)
    finally:
        left = _end(target)
        shutil.rmtree(folder, ignore_errors=True)
    print(table(chosen))
    if left:
        print(f"\nDID NOT HOLD: the end: {left}")
    return 0 if held and not left else 1


def _end(target: Target) -> str:
    """End what was started, and return the leftovers."""
    try:
        target.close()
    except AssertionError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
