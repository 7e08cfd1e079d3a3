"""The cost of TFCluster at 600 tasks, compared with Jobs, CronJobs, hand-written objects and TFJob.

`make bench-kube WITH=kwok` runs it on the project's own node with fake nodes (kwok). Pods run
nothing there, so it measures only the control plane and the operator. Rows go to
build/bench/scale.json. A missed goal is marked in its row, and is not a failure.

PYTHONPATH=tests:tests/kube .venv/bin/python -m bench_scale --quick launches
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from kubenode.commands import say
from kubenode.errors import NodeError
from kubenode.paths import ROOT
from scale.follow_latency import following
from scale.launches import launches
from scale.limits import limits
from scale.names import names
from scale.parts import parts
from scale.records import records
from scale.schedules import schedules
from scale.site import Site, ready
from scale.tfjob import tfjob
from scale.top import top
from scale.users import users

from benchmarks.rows import Row, save, table

OUTPUT = ROOT / "build" / "bench" / "scale.json"
ROUNDS = 5
BENCHES: dict[str, Callable[[Site, int], list[Row]]] = {
    "launches": launches,
    "users": users,
    "following": following,
    "records": records,
    "limits": limits,
    "names": names,
    "parts": parts,
    "schedules": schedules,
    "top": top,
    "tfjob": tfjob,
}


def main() -> int:
    """Run benchmarks; write the rows of each benchmark when it has ended."""
    parser = argparse.ArgumentParser(prog="bench_scale", description=__doc__.partition("\n")[0])
    parser.add_argument("benches", nargs="*", help=f"of {', '.join(BENCHES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which the median is taken")
    asked = parser.parse_args()
    if unknown := set(asked.benches) - BENCHES.keys():
        parser.error(f"there is no bench {', '.join(sorted(unknown))}: {', '.join(BENCHES)}")
    rows: list[Row] = []
    try:
        with ready() as site:
            for name in asked.benches or BENCHES:
                say(f"-- {name}")
                rows += BENCHES[name](site, 1 if asked.quick else asked.rounds)
                save(rows, OUTPUT)
    except NodeError as error:
        say(f"bench_scale: {error}")
        return 1
    finally:
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
