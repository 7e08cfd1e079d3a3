"""An In-Graph cluster of 1 parameter server and 2 workers, compared with three TensorFlow servers
that are started by hand.
"""

from __future__ import annotations

import time

from . import by_hand
from .processes import pss_mib
from .product import Workbench, workbench
from .rows import Row, compared, interleaved

LAUNCH = ("launch", "--mode", "in-graph", "--workers", "2", "--ps", "1", "--name", "bench")


def start(quick: bool) -> list[Row]:
    """Measure the time from the launch, by a command and in a cell, until all tasks accept
    connections.
    """
    rounds = 1 if quick else 5
    with workbench() as bench:
        ours, theirs = interleaved(rounds, lambda: _command(bench), _servers)
        cell = [_cell(bench) for _ in range(rounds)]
    return [
        compared("in_graph_start", "s", ours, theirs, at_most=0.4),
        compared("in_graph_start_cell", "s", cell, theirs, at_most=0.4),
    ]


def memory(quick: bool) -> list[Row]:
    """Measure the memory (PSS) of an idle cluster and its supervisor, compared with the same
    servers without a supervisor.
    """
    with workbench() as bench:
        ours, theirs = interleaved(1 if quick else 3, lambda: _idle(bench), _idle_servers)
    return [compared("in_graph_memory", "MiB", ours, theirs, at_most=0.5)]


def _command(bench: Workbench) -> float:
    began = time.monotonic()
    bench.tfcluster(*LAUNCH)
    bench.wait_listening("bench")
    took = time.monotonic() - began
    bench.end("bench")
    return took


def _cell(bench: Workbench) -> float:
    began = time.monotonic()
    bench.manager.launch(mode="in-graph", workers=2, ps=1, name="bench")
    bench.wait_listening("bench")
    took = time.monotonic() - began
    bench.end("bench")
    return took


def _servers() -> float:
    began = time.monotonic()
    addresses = by_hand.free_addresses(ps=1, worker=2)
    with by_hand.tasks("server.py", addresses):
        by_hand.wait_listening(addresses)
        return time.monotonic() - began


def _idle(bench: Workbench) -> float:
    bench.tfcluster(*LAUNCH, "--wait")
    used = pss_mib(bench.pids("bench"))
    bench.end("bench")
    return used


def _idle_servers() -> float:
    addresses = by_hand.free_addresses(ps=1, worker=2)
    with by_hand.tasks("server.py", addresses) as processes:
        by_hand.wait_listening(addresses)
        return pss_mib(process.pid for process in processes)
