"""The checks of a launch on this machine. Pure.

The checks cover options that only Kubernetes has, a missing Python or library, folders, capacity,
and the hub's limits. `preflight` combines the checks. The checks use only facts that the backend
has gathered. An option without an effect on this machine is reported, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path

from msgspec.structs import replace

from ..errors import Problem
from ..i18n import ENGLISH, _, language, mark, ngettext
from ..quota import budgets, ledger, limits, storage
from ..quota.ledger import HoursAccount
from ..quota.limits import Limits, ResourceTotals
from ..quota.preflight import (
    FLAGS,
    AvailableResources,
    Limit,
    Preflight,
    cpu_of,
    gpu_of,
    memory_of,
    too_many_replicas,
    too_many_tasks,
    total_request,
)
from ..quota.storage import FolderUsage
from ..spec import Message, Mode, Resources, Spec
from ..spec.quantities import format_bytes, format_gpus, parse_memory


@dataclass(frozen=True)
class TaskPython:
    """The facts about the Python of the tasks. `named` is true if the launch names a Python other
    than the one of this process; `trouble` is a sentence that says why the Python does not run.
    """

    path: str
    named: bool = False
    trouble: str = ""
    has_tensorflow: bool = True


@dataclass(frozen=True)
class WrittenFolder:
    """A folder that a launch writes to; `trouble` is a sentence that says why the folder is not
    writable.
    """

    path: Path
    trouble: str = ""


@dataclass(frozen=True)
class RoomFacts:
    """The facts that decide whether a run fits now.

    Attributes:
        now: the time, in seconds since 1970.
        room: the capacity of this machine.
        free_gpus: the GPU devices that the run may get; None if there is no driver.
        held: the runs that still use resources, each with the amounts that it uses.
        limits: the hub's limits; None if there are none.
        account: the user's budget and the hours used until now; empty without a budget.
    """

    now: float
    room: AvailableResources
    free_gpus: Sequence[str] | None
    held: Sequence[ResourceTotals]
    limits: Limits | None
    account: HoursAccount


def emptied(facts: RoomFacts) -> RoomFacts:
    """Return a copy of the facts in which no run uses any resources, so that the whole machine is
    free.
    """
    room = facts.room
    cpu, memory, gpu = (
        replace(each, free=each.total) for each in (room.cpu, room.memory, room.gpu)
    )
    whole = changed(room, cpu=cpu, memory=memory, gpu=gpu, held={})
    return changed(facts, room=whole, held=())


@dataclass(frozen=True)
class LocalFacts(RoomFacts):
    """The facts for the checks of one launch on this machine, gathered once.

    Attributes:
        volumes: the usage of the folders that the hub limits.
        python: the Python of the tasks.
        guarded: false if tasks need the library that keeps TensorFlow on loopback, and the library
            is missing.
        log_dir: the folder of the runs' output.
        state_dir: the folder of the records.
        lost_output: the output folder of the run whose training is resumed, if this folder no
            longer exists; else None.
        lost_program: the path of the program, if the launch names the program by a path at which
            no file or folder exists; else None.
        warnings: problems of this machine that do not prevent a launch.
    """

    volumes: Sequence[FolderUsage]
    python: TaskPython
    guarded: bool
    log_dir: WrittenFolder
    state_dir: WrittenFolder
    lost_output: Path | None
    lost_program: Path | None
    warnings: Sequence[str]


def preflight(spec: Spec, facts: LocalFacts) -> Preflight:
    """Return the problems that prevent a launch of `spec`, and warnings."""
    most, spent, now = facts.account.budget, ledger.daily_sums(facts.account.days), facts.now
    over = budgets.problems(spec, budgets.total_cores(spec, ledger.DEFAULT_CORES), most, spent, now)
    unsupported, fit = tuple(unsupported_options(spec)), check_fit(spec, facts.room)
    setup = tuple(_setup_problems(spec, facts))
    problems = (
        *over,
        *unsupported,
        *setup,
        *fit.problems,
        *_limit_problems(spec, facts),
        *storage.problems(facts.volumes),
    )
    warnings = (
        *(() if over else budgets.warnings(most, spent, now)),
        *facts.warnings,
        *storage.warnings(facts.volumes),
        *fit.warnings,
    )
    told = budgets.remaining_text(most, spent, now)
    return Preflight(
        problems, warnings, (told,) if told else (), unsupported, setup, cautions=fit.cautions
    )


def lack_of_room(spec: Spec, facts: RoomFacts) -> Message | None:
    """Return a message that says what a queued run waits for; None if the run fits now.

    CPU is shared, so no run waits for it.
    """
    room, parts = facts.room, list[Message]()
    memory = total_request(spec, memory_of) - room.memory.free
    if memory > 0:
        parts.append(Message("MoreMemoryHere", {"more": format_bytes(memory)}))
    gpus = total_request(spec, gpu_of) - room.gpu.free
    if gpus > 0:
        parts.append(Message("MoreGpusHere", {"count": int(gpus)}))
    if parts:
        held = [run for run, amount in room.held.items() if amount]
        by = Message("HeldBy", {"holders": held}) if held else ""
        return Message("Missing", {"parts": parts, "held": by})
    spent = ledger.daily_sums(facts.account.days)
    cores = budgets.total_cores(spec, ledger.DEFAULT_CORES)
    with language(ENGLISH):
        problems = [
            *budgets.problems(spec, cores, facts.account.budget, spent, facts.now),
            *_limit_problems(spec, facts),
        ]
        if problems:
            return Message("RoomInLimits", {"why": str(problems[0].allowed)})
    return None


def _limit_problems(spec: Spec, facts: RoomFacts) -> Sequence[Problem]:
    """Return a problem for each of the user's limits that would be exceeded if this run ran
    together with the active runs.
    """
    if facts.limits is None:
        return ()
    fits = limits.workers_that_fit(spec, facts.held, facts.limits)
    return limits.problems(limits.resource_totals("", spec), facts.held, facts.limits, fits)


def _setup_problems(spec: Spec, facts: LocalFacts) -> Iterator[Problem]:
    """Yield a problem for each requirement that this machine does not meet, such as TensorFlow or a
    writable folder. Other functions check CPU, memory and GPUs.
    """
    if missing := _python_problem(spec, facts.python):
        yield missing
    if not facts.guarded:
        allowed = _(
            "the library is missing, and without it TensorFlow would be open to the whole network: "
            "reinstall tfcluster_magic, with a C compiler (cc) where there is no wheel"
        )
        yield Problem(_("loopback guard"), None, allowed)
    for what, folder, variable in (
        (_("log folder"), facts.log_dir, "TFCLUSTER_LOG_DIR"),
        (_("state folder"), facts.state_dir, "TFCLUSTER_STATE_DIR"),
    ):
        if folder.trouble:
            allowed = _("{why}: make it writable, or name another folder in {variable}").format(
                why=folder.trouble, variable=variable
            )
            yield Problem(what, str(folder.path), allowed)
    if facts.lost_output is not None:
        allowed = _("its folder {resume_from} is gone: launch without it").format(
            resume_from=facts.lost_output
        )
        yield Problem("resumeFrom", spec.resume_from, allowed)
    if facts.lost_program is not None:
        allowed = _("there is no {file}, from which tasks would read the program")
        path = spec.program.path if spec.program else None
        yield Problem("program.path", path, allowed.format(file=facts.lost_program))


def _python_problem(spec: Spec, python: TaskPython) -> Problem | None:
    """Return the problem that prevents tasks from running with this Python."""
    if python.trouble:
        return Problem("--python", python.path, python.trouble)
    wants_tensorflow = spec.program is None or (
        not spec.program.by_hand
        and spec.program.entrypoint.endswith(".py")
        and spec.program.imports_tensorflow
    )
    if not wants_tensorflow or python.has_tensorflow:
        return None
    allowed = _(
        "this Python, which runs the tasks, has no TensorFlow: "
        "install TensorFlow with `{python} -m pip install tensorflow-cpu`"
    ).format(python=python.path)
    return Problem("--python" if python.named else "tensorflow", python.path, allowed)


# -- options that only Kubernetes has --------------------------------------------------------------

_ALTERNATIVES = {
    "image": mark("tasks run with a Python of this machine, see --python"),
    "image_pull_secret": mark("nothing is pulled on this machine"),
    "volume": mark("tasks see the folders of this machine as you do"),
    "secret": mark("give the tasks variables with --env"),
    "data_claim": mark("tasks find data in TFCLUSTER_DATA_DIR"),
}
_NO_ALTERNATIVE = mark("there are no pods on this machine")


def unsupported_options(spec: Spec) -> list[Problem]:
    """Return a problem, with the name of the option, for each part of `spec` that only Kubernetes
    has.
    """
    # loads the program parser, which only launches need
    from ..launch.launch_as_command import field_at, option_texts
    from ..launch.options import OPTIONS

    found = []
    for option in OPTIONS:
        if not option.only_kubernetes or not (value := field_at(spec, option.path)):
            continue
        instead = _ALTERNATIVES.get(option.key, _NO_ALTERNATIVE)
        allowed = _("only on Kubernetes: {instead}").format(instead=_(instead))
        found.append(Problem(option.flag, " ".join(option_texts(option, value)), allowed))
    return found


# -- fit on this machine ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _ScarceResource:
    """A resource that tasks do not share, with functions to display amounts of it.

    `whole` rounds an amount down to one that can be requested, `least` returns the smallest amount
    that can be requested, and `say` formats an amount as an option value.
    """

    name: str
    of: Callable[[Resources], float]
    show: Callable[[float], str]
    less: str
    whole: Callable[[float], float]
    least: Callable[[], float]
    say: Callable[[float], str]


def _least_memory() -> float:
    from ..launch.validation import SMALLEST_MEMORY  # slow to import

    return float(parse_memory(SMALLEST_MEMORY))


_MIB = 2**20
_MEMORY = _ScarceResource(
    "memory",
    memory_of,
    format_bytes,
    mark("less memory for each"),
    lambda amount: amount // _MIB * _MIB,
    _least_memory,
    lambda amount: f"{amount / _MIB:.0f}Mi",
)
_GPU = _ScarceResource(
    "gpu",
    gpu_of,
    format_gpus,
    mark("fewer GPUs for each"),
    lambda amount: float(int(amount)),
    lambda: 1.0,
    lambda amount: f"{amount:.0f}",
)


def check_fit(spec: Spec, room: AvailableResources) -> Preflight:
    """Compare the resources that `spec` requests with those of this machine (`room`), and return
    the problems and warnings.

    A request for more memory or GPUs than are free is refused; the problem says how many tasks
    would fit. A request for more CPU than is free causes only a warning, because tasks share CPU.
    """
    problems = list(room.obstacles)
    if spec.replicas.total > room.max_tasks:
        problems.append(too_many_tasks(spec.replicas.counts, room.max_tasks))
    problems += _shortage(spec, _MEMORY, room.memory, room.held)
    problems += _shortage(spec, _GPU, room.gpu, {})
    cautions = tuple(_fit_cautions(spec, room))
    warnings = (*room.warnings, *(str(caution.allowed) for caution in cautions))
    return Preflight(tuple(problems), warnings, cautions=cautions)


def _shortage(
    spec: Spec, scarce: _ScarceResource, limit: Limit, held: Mapping[str, float]
) -> list[Problem]:
    """Return a problem if more of a scarce resource is requested than is free. The problem names
    the task type that requests most, and proposes fewer tasks of this type or a smaller request.
    """
    total = total_request(spec, scarce.of)
    if total <= limit.free:
        return []
    counts, show = spec.replicas.counts, scarce.show
    task_type = max(counts, key=lambda t: counts[t] * scarce.of(spec.replicas.of(t).resources))
    each, count = scarce.of(spec.replicas.of(task_type).resources), counts[task_type]
    fits = int((limit.free - (total - each * count)) // each)
    where = f"replicas.{task_type.value}"
    free = _("{free} of {total} is free").format(free=show(limit.free), total=show(limit.total))
    if holders := ", ".join(f"{run} {show(amount)}" for run, amount in held.items() if amount):
        free += _(" (taken by {holders})").format(holders=holders)
    if scarce is _GPU and not limit.total:
        allowed = _("this machine has no GPU (nvidia-smi lists none): request none")
        return [Problem(f"{where}.resources.gpu", int(each), allowed)]
    if fits >= 1 and task_type in FLAGS:
        return [too_many_replicas(task_type, fits, count, show(each), _(scarce.less), free)]
    most = scarce.whole((limit.free - (total - each * count)) / count)
    if most >= scarce.least():
        allowed = _("{total} are requested, but {free}: use {option} {most}").format(
            total=show(total),
            free=free,
            option=f"--{task_type.value}-{scarce.name}",
            most=scarce.say(most),
        )
    else:
        allowed = _(
            "{total} are requested in total, but {free}: use fewer tasks, or {less}"
        ).format(total=show(total), free=free, less=_(scarce.less))
    return [Problem(f"{where}.resources.{scarce.name}", show(each), allowed)]


def _fit_cautions(spec: Spec, room: AvailableResources) -> Iterator[Problem]:
    """Yield warnings that the run may be slow or run out of memory. A warning about CPU names the
    task type that requests most.
    """
    replicas = spec.replicas
    counts = replicas.counts
    cpu = total_request(spec, cpu_of)
    if cpu > room.cpu.free:
        taken = room.cpu.total - room.cpu.free
        others = _(", and other runs have requested {cores:g} of them").format(cores=taken)
        slower = _(
            "{cpu:g} CPU cores are requested, but this machine has {total:g}{others}: the tasks "
            "share them and run slower"
        ).format(cpu=cpu, total=room.cpu.total, others=others if taken > 0 else "")
        largest = max(counts, key=lambda t: counts[t] * cpu_of(replicas.of(t).resources))
        asked = cpu_of(replicas.of(largest).resources)
        yield Problem(f"replicas.{largest.value}.resources.cpu", asked, slower)
    without = {t: n for t, n in counts.items() if not replicas.of(t).resources.memory}
    unlimited = sum(without.values())
    need = unlimited * _TYPICAL[spec.mode]
    if need > room.memory.free:
        holds = int(room.memory.free // _TYPICAL[spec.mode])
        crowded = _(
            "{count} tasks without a memory limit need about {need} for "
            "TensorFlow alone, and {free} is free: {fits} of them fit"
        ).format(
            count=unlimited,
            need=format_bytes(need),
            free=format_bytes(room.memory.free),
            fits=holds,
        )
        most = max(without, key=lambda t: without[t])
        fits = counts[most] - (unlimited - holds)
        fits_here = fits if most in FLAGS and fits >= 1 else None
        yield Problem(f"replicas.{most.value}.count", counts[most], crowded, fits_here)
    workers, cores = replicas.worker.count, int(room.cpu.total)
    if not cpu and workers > MOST_WORKERS_A_CORE * cores:
        crowded = ngettext(
            "{count} workers share {cores} CPU core and are together no faster than {cores} "
            "worker: use --workers {cores}",
            "{count} workers share {cores} CPU cores and are together no faster than {cores} "
            "workers: use --workers {cores}",
            cores,
        ).format(count=workers, cores=cores)
        yield Problem("replicas.worker.count", workers, crowded, cores)


MOST_WORKERS_A_CORE = 2
"""A launch with more workers per core than this causes a warning, because each worker would spend
more time waiting for a core than computing.
"""


_TYPICAL = {Mode.BETWEEN_GRAPH: 400 * 2**20, Mode.IN_GRAPH: 180 * 2**20}
"""Bytes of memory (PSS) of an idle TensorFlow 2.21 task on CPU, as measured."""
