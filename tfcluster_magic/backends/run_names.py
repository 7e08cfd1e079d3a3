"""Names and numbers of runs, and references to runs in user input. All functions except
`run_numbers` are pure.

The rules and messages are the same for every backend. A name that the user chose is used as it is
or refused. A name that is derived from the program gets the next free letter if it is taken. A
number is never used twice, even after its run was deleted.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import Conflict, NameTaken, NotFound
from ..i18n import _
from ..lifecycle.messages import shorten
from ..spec import Message, TFCluster, names

MOST_RUNS = 999_999_999
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
"""Pattern of the run numbers that `names.parse_ref` accepts; `01` is not a run number."""


def choose_name(
    wanted: str, given: bool, active: Mapping[str, TFCluster]
) -> tuple[str, tuple[Message, ...]]:
    """Return `wanted` if no active run has this name. Otherwise, if the user did not choose the
    name (`given` is false), return the first of the names `wanted-b`, `wanted-c`, … that no active
    run has, with the message that says so.

    Raises:
        NameTaken: the user chose the name (`given`), and its newest run (in `active`) has not
            ended.
    """
    if wanted not in active:
        return wanted, ()
    run = active[wanted]
    if given:
        raise NameTaken(
            _(
                "{name} is still {phase}: "
                "choose another name, or end it first with `tfcluster stop {wanted}`"
            ).format(name=run.metadata.name, phase=run.status.phase.value.lower(), wanted=wanted)
        )
    name = next(name for name in _variants(wanted) if name not in active)
    return name, (Message("NameInUse", {"run": run.metadata.name, "name": name}),)


def run_numbers(folder: Path) -> list[int]:
    """Return the numbers of the run folders in a cluster's folder; none if unreadable."""
    try:
        return [int(entry) for entry in os.listdir(folder) if _NUMBER.fullmatch(entry)]
    except OSError:
        return []


def next_number(used: Collection[int]) -> int:
    """Return the number of a cluster's next run; `used` are all numbers ever used."""
    number = max(used, default=0) + 1
    if number > MOST_RUNS:  # another program made a folder with this number
        number = next(free for free in itertools.count(1) if free not in used)
    return number


def unknown_run_error(
    ref: str,
    runs: Sequence[tuple[str, int]],
    clusters: Callable[[], Iterable[TFCluster]] = tuple,
) -> NotFound:
    """Return the error for a reference `ref` to a run that does not exist. The error suggests
    similar names of `runs`. If there are none, it suggests the runs of `clusters` whose display
    name is `ref`.
    """
    cluster, run = names.parse_ref(ref)
    # Names are compared without their numbers, because numbers make any two runs look alike.
    close = difflib.get_close_matches(cluster, dict.fromkeys(name for name, _number in runs), 3)
    if run is not None:
        known = [names.run_name(name, number) for name, number in runs if name in close]
        close = difflib.get_close_matches(ref, known, 3)
    if not close:
        named = [c for c in clusters() if c.metadata.display_name == ref]
        close = [c.metadata.name for c in newest_first(named)][:3]
    if close:
        return NotFound(
            _("there is no run {ref}; did you mean {close}?").format(
                ref=ref, close=_(" or ").join(close)
            )
        )
    return NotFound(
        _("there is no run {ref}; `tfcluster list --all` shows all runs").format(ref=ref)
    )


def tasks_of(cluster: TFCluster, wanted: Sequence[str]) -> list[str]:
    """Return the `wanted` tasks of a run; all tasks if `wanted` is empty. Raises NotFound for
    unknown tasks.
    """
    counts = cluster.spec.replicas.counts
    known = [names.task_name(t, i) for t in counts for i in range(counts[t])]
    if strange := [task for task in wanted if task not in known]:
        raise NotFound(
            _("{name} has no task {unknown}; it has {have}").format(
                name=cluster.metadata.name,
                unknown=", ".join(strange),
                have=shorten(known, most=20),
            )
        )
    return [task for task in known if task in wanted or not wanted]


def still_has_tasks(cluster: TFCluster) -> Conflict:
    """Return the error that is raised if the user deletes a run that still has tasks."""
    left = [t for t, c in cluster.status.counts.items() if c.running or c.starting]
    return Conflict(
        _("{name} still has tasks ({left}): end it first with `tfcluster stop {name}`").format(
            name=cluster.metadata.name, left=", ".join(left) or _("starting")
        )
    )


def is_record_expired(cluster: TFCluster, now: float) -> bool:
    """Return whether the record of a run can be removed, because the run ended longer ago than its
    `keepFor` says. If the release time is damaged and lies before the launch, the time of the
    launch counts.
    """
    released = cluster.status.released_at
    if released is None:
        return False
    return now > max(released, cluster.metadata.created_at) + cluster.spec.lifecycle.keep_for


def newest_first(clusters: Sequence[TFCluster]) -> list[TFCluster]:
    """Return the runs, newest first."""
    return sorted(clusters, key=lambda c: (c.metadata.created_at, c.metadata.run), reverse=True)


def newest(clusters: Sequence[TFCluster]) -> list[TFCluster]:
    """Return the newest run of each name and all active runs, in the order of `clusters`."""
    last: dict[str, int] = {}
    for c in clusters:
        last[c.metadata.cluster] = max(c.metadata.run, last.get(c.metadata.cluster, 0))
    return [c for c in clusters if c.active or c.metadata.run == last[c.metadata.cluster]]


def _variants(name: str) -> Iterator[str]:
    """Yield `name-b` to `name-z`, then `name-bb` and so on; never longer than a name may be."""
    for length in range(1, 4):
        for letters in itertools.product("bcdefghijklmnopqrstuvwxyz", repeat=length):
            stem = name[: names.MAX_NAME - length - 1].rstrip("-")
            yield f"{stem}-{''.join(letters)}"
