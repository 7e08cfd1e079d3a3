"""Launches of 600 tasks: by TFCluster, by a bare Job, by the same objects made by hand, and by one
object for each task.
"""

from __future__ import annotations

from collections import defaultdict

from kubenode.commands import say

from benchmarks.rows import Row, bounded, compared

from .site import Site
from .variants import BARE, BY_HAND, PER_TASK, PS, TFCLUSTER, WAYS, WORKERS, in_turn, measure

Values = dict[str, dict[str, list[float]]]


def launches(site: Site, rounds: int) -> list[Row]:
    """Measure every way in turn, `rounds` times."""
    values: Values = defaultdict(lambda: defaultdict(list))
    for number in range(1, rounds + 1):
        for way in in_turn(WAYS, number):
            for what, value in measure(site, way).items():
                values[way.name][what].append(value)
            told = {what: round(each[-1], 2) for what, each in values[way.name].items()}
            say(f"round {number}: {way.name}: {told}")
    return [*_running(values), *_costs(values), *_ends(values)]


def _running(values: Values) -> list[Row]:
    """Return the rows with the seconds from the first call until all tasks are running."""
    bare, hand, each, ours = (
        values[way.name]["running"] for way in (BARE, BY_HAND, PER_TASK, TFCLUSTER)
    )
    note = f"{PS} ps and {WORKERS} workers; seconds until all run"
    return [
        compared("scale_by_hand", "s", hand, bare, note="the same objects; beside a bare Job"),
        compared("scale_per_task", "s", each, bare, note=_size(values, PER_TASK.name)),
        compared("scale_to_bare", "s", ours, bare, at_most=1.5, note=note),
        compared("scale_to_by_hand", "s", ours, hand, at_most=1.1),
        compared("scale_to_per_task", "s", ours, each),
    ]


def _size(values: Values, name: str) -> str:
    calls, objects = (values[name][what][-1] for what in ("calls", "objects"))
    return f"{calls:.0f} calls, {objects:.0f} objects"


def _costs(values: Values) -> list[Row]:
    ours = values[TFCLUSTER.name]
    late = [told - there for told, there in zip(ours["told"], ours["running"], strict=True)]
    spread = ", ".join(f"{each:.2f}" for each in ours["cpu"])
    return [
        bounded("scale_calls", "calls", ours["calls"], at_most=1),
        bounded(
            "scale_objects",
            "objects",
            ours["beside"],
            at_most=9,
            note="beside pods, slices and events",
        ),
        bounded("scale_writes", "patches", ours["writes"], at_most=60, note="until Running"),
        bounded("scale_cpu", "s", ours["cpu"], at_most=1.0, note=f"the operator's: {spread}"),
        bounded("scale_told", "s", late, at_most=1.0, note="from the last pod to the status"),
    ]


def _ends(values: Values) -> list[Row]:
    bare, ours = (values[way.name]["ended"] for way in (BARE, TFCLUSTER))
    note = "stop, then delete, until nothing is left; beside deleting the bare Job"
    return [
        compared("scale_end", "s", ours, bare, at_most=1.3, note=note),
        compared("scale_end_by_hand", "s", values[BY_HAND.name]["ended"], bare),
    ]
