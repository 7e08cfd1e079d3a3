"""Run the named benchmarks (default: all), print their rows and write build/bench/*.json. The exit
code is 1 if a goal is not met, so a nightly job fails.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from . import (
    between_graph,
    console,
    housekeeping,
    hub,
    in_graph,
    lab,
    latency,
    limits,
    logs,
    page,
    tensorboard,
)
from .rows import Row, save, table

Bench = Callable[[bool], list[Row]]
BENCHES: dict[str, Bench] = {
    "in_graph_start": in_graph.start,
    "in_graph_memory": in_graph.memory,
    "between_graph": between_graph.training,
    "one_cpu_limit": limits.one_cpu,
    "supervisor": housekeeping.supervisor,
    "sampling_cpu": housekeeping.sampling,
    "list_50": housekeeping.list_of_50,
    "load_ext": housekeeping.load_ext,
    "ps_reclaim": latency.ps_reclaim,
    "exit_visible": latency.exit_visible,
    "log_line": latency.log_line,
    "step_shown": latency.step_shown,
    "lab_push": lab.push,
    "lab_load": lab.load,
    "lab_idle_requests": lab.idle,
    "logs_scroll": logs.scroll,
    "page_busy": page.busy,
    "page_start": page.start,
    "tensorboard_tab": tensorboard.tab,
    "hub": hub.sign_ins,
    "console": console.pages,
}
COVERS = {
    "hub": ("hub_p95", "hub_memory", "hub_errors"),
    "console": (
        "console_clusters",
        "console_clusters_filter",
        "console_clusters_asks",
        "console_users",
        "console_users_filter",
        "console_users_asks",
        "console_cold",
    ),
    "between_graph": ("between_first_step", "workers_spread", "steps_per_second"),
    "lab_load": ("lab_still", "lab_busy"),
}
"""The rows that a benchmark measures, for each benchmark that measures several at once. The command
line accepts the name of such a row, too, and then runs the whole benchmark.
"""
OUTPUT = Path("build", "bench")


def main() -> int:
    """Run benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    rows_of = {row: bench for bench, rows in COVERS.items() for row in rows}
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of: {', '.join([*BENCHES, *rows_of])}"
    )
    parser.add_argument("--quick", action="store_true", help="one round instead of three or more")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in {*BENCHES, *rows_of}]:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join([*BENCHES, *rows_of])}")
    # Let Python store the compiled modules of this clone, so that each process need not compile
    # them again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    chosen = dict.fromkeys(rows_of.get(name, name) for name in options.names or BENCHES)
    results: list[Row] = []
    for name in chosen:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows = BENCHES[name](options.quick)
        save(rows, OUTPUT / f"{name}.json")
        results += rows
    print(table(results))
    return 1 if any(row.met is False for row in results) else 0


if __name__ == "__main__":
    sys.exit(main())
