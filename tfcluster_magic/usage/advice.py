"""Advice on how to size a run, from what its tasks used. Pure.

`advise` considers only the time in which all workers were at work. The first seconds of each worker
do not count. Each piece of advice names a problem and its task, the figures that show the problem,
and the launch options that solve it. If the figures show nothing, there is no advice; if there are
too few figures, the result says so.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from ..i18n import _
from ..launch.options import BY_KEY, Option
from ..lifecycle.messages import sentences
from ..spec import Message, Mode, Model, Phase, Spec, TaskType, TFCluster
from ..spec.names import parse_task, task_name
from ..spec.quantities import format_bytes, parse_memory
from .samples import Attempt, Interval
from .stacks import Standstill

START = 10.0
"""The first seconds of a task that do not count, because the task imports modules and loads data in
them.
"""
LEAST = 20.0
"""Minimum seconds with all workers at work; with fewer there is no advice."""
NEWEST = 300.0
"""For an active run, only samples from the last `NEWEST` seconds count."""
LONG = 600.0
"""If a task is at least this many seconds old, its memory peak so far is assumed to be all the
memory that it needs. In a run that has succeeded, this holds for tasks of any age.
"""

BUSY, WAITING = 0.7, 0.5
"""Thresholds as fractions of a core: a task counts as busy if it uses at least the first fraction,
and as waiting if it uses at most the second.
"""
NETWORK = 40 << 20
"""Bytes per second from which the network may be what limits a parameter server."""
INPUT = 256 << 10
"""Threshold in bytes per second from which a waiting worker counts as waiting for input."""
OUTSIDE = 0.2
"""Threshold: tasks read data from outside if more than this fraction of all received bytes was not
sent by another task.
"""
SLOW, APART = 0.7, 2.5
"""Thresholds: a worker is slow if its step rate is at most the fraction SLOW of the others' rate;
tasks are unequal if they differ at least by the factor APART.
"""
FEWER, AS_FAST = 0.67, 0.85
"""Thresholds: an earlier run was about as fast if it had at most the first fraction of the workers,
and at least the second fraction of their step rate.
"""
THROTTLED = 0.1
"""More CPU is advised if a task is throttled for at least this fraction of the time."""
NEARLY_OUT, FAR_TOO_HIGH = 0.9, 0.3
"""Thresholds as fractions of the requested memory: more is advised if the peak is at or above the
first, less if it is at or below the second.
"""
MOST_FACTOR = 2.0
"""Maximum factor by which advice raises a number."""
GPU_IDLE = 0.1
STILL, STILL_NETWORK, STILL_DISK = 0.02, 16 << 10, 64 << 10
"""Thresholds: a task counts as idle if it uses at most the fraction STILL of a core and of a GPU,
receives and sends at most STILL_NETWORK bytes per second, and reads at most STILL_DISK bytes per
second from disk. STILL_DISK is not 0, because even an idle task may read pages of its memory from
disk.
"""
ENDING = 10.0
"""Maximum seconds of last work that are ignored. If a program stands still, then works for at most
this long and ends, neither the standstill nor this last work counts.
"""
HANGS = 60.0
"""Seconds after which a task that does nothing counts as hanging."""
_TRAINERS = (TaskType.CHIEF, TaskType.WORKER)
_GIB = 1 << 30
Value = str | int | float | Sequence[str | Message] | Message


class Advice(Model, frozen=True, omit_defaults=False):
    """One thing to change about a run.

    `task` is a task, or a task type if the advice concerns all tasks of the type. `message` is a
    sentence with the evidence, `code` the code of the message. `options` are the launch options to
    change, by key, and `command` is the rerun with these options. Both are empty if only the
    program can be changed.
    """

    code: str
    task: str
    message: str
    command: str
    options: Mapping[str, int | float | str]


class Advised(Model, frozen=True, omit_defaults=False):
    """The advice on a run, the most important first; or the reason why no advice can be given."""

    advice: tuple[Advice, ...] = ()
    no_advice: str = ""


@dataclass(frozen=True)
class EarlierRun:
    """An earlier run of the same program with the same arguments: its number of workers, its steps
    a second, and the CPUs and GPUs that its workers used together.
    """

    name: str
    workers: int
    steps_per_second: float
    cpu: float
    gpu: float


def mean_step_rates(
    cluster: TFCluster, samples: Mapping[str, Sequence[Attempt]], counts: Mapping[str, int]
) -> dict[str, float]:
    """Return the mean steps a second of each task until its work was done: its last step, divided
    by the time. A task that was started again or resumed is left out, because it did not begin at
    step 0.
    """
    if cluster.spec.resume_from is not None:
        return {}
    ended = cluster.status.phase.is_final
    found = {}
    for task, count in counts.items():
        attempts = samples.get(task, ())
        seconds = sum(each.seconds for attempt in attempts for each in _worked(attempt, ended))
        if len(attempts) == 1 and attempts[0].number == 1 and seconds > 0:
            found[task] = count / seconds
    return found


def repeats_smaller(old: TFCluster, cluster: TFCluster) -> bool:
    """Return whether `old` ran the same program with the same arguments and tasks, but with fewer
    workers, and has succeeded.
    """
    program, before = cluster.spec.program, old.spec.program
    if program is None or before is None or not program.sha256:
        return False
    workers = cluster.spec.replicas.worker
    return (
        old.status.phase is Phase.SUCCEEDED
        and old.spec.replicas.worker.count < workers.count
        and (before.sha256, before.entrypoint, before.arguments)
        == (program.sha256, program.entrypoint, program.arguments)
        and (old.spec.mode, old.spec.env) == (cluster.spec.mode, cluster.spec.env)
        and replace(old.spec.replicas, worker=workers) == cluster.spec.replicas
        and replace(old.spec.replicas.worker, count=workers.count) == workers
    )


def earlier_run(
    old: TFCluster, samples: Mapping[str, Sequence[Attempt]], counts: Mapping[str, int]
) -> EarlierRun | None:
    """Return the figures of an earlier run with which a later run is compared; None if its samples
    or steps are unknown.
    """
    rates = mean_step_rates(old, samples, counts)
    window = _common_window(old, samples)
    if window is None or window[1] - window[0] < LEAST or not rates:
        return None
    workers = [t for t in _tasks(old, samples, rates, window) if t.type in _TRAINERS]
    return EarlierRun(
        name=old.metadata.name,
        workers=old.spec.replicas.worker.count,
        steps_per_second=median(rates.values()),
        cpu=sum(task.cpu for task in workers),
        gpu=sum(task.gpu for task in workers),
    )


@dataclass(frozen=True)
class _Task:
    """The mean usage of one task per second, in the time that `advise` considers.

    `core` is one core, or the CPU limit if that is less; `works` and `waits` compare `cpu` with it.
    `stepped` is the number of seconds between the first and the last step that the task reported.
    """

    name: str
    type: TaskType
    cpu: float
    core: float
    limit: float | None
    throttled: float
    received: float
    sent: float
    read: float
    gpu: float
    gpus: int
    steps: float | None
    stepped: float

    @property
    def network(self) -> float:
        return self.received + self.sent

    @property
    def waits(self) -> bool:
        return self.cpu <= WAITING * self.core and self.gpu <= WAITING * max(1, self.gpus)

    @property
    def works(self) -> bool:
        return self.cpu >= BUSY * self.core


@dataclass(frozen=True)
class Finding:
    """A piece of advice before its sentence is made: the code and values of the message, and the
    launch options to change, by key.
    """

    task: str
    code: str
    params: Mapping[str, Value]
    options: Mapping[str, int | float | str]


def advise(
    cluster: TFCluster,
    samples: Mapping[str, Sequence[Attempt]],
    steps: Mapping[str, float],
    earlier: Sequence[EarlierRun] = (),
    cores: float | None = None,
    standstills: Mapping[str, Standstill] | None = None,
) -> Advised:
    """Return the advice on a run. If tasks of the run hang, there is advice only about that and
    about memory.

    Args:
        cluster: the run.
        samples: the samples of its tasks.
        steps: the steps a second of its tasks, as far as they are known.
        earlier: runs of the same program with other numbers of workers.
        cores: the number of cores of the machine, if all tasks run on one machine.
        standstills: for tasks that hang, the place in the program at which they hang, if known.
    """
    found, why = findings(cluster, samples, steps, earlier, cores, standstills)
    no_advice = "" if why is None else sentences([why])
    return Advised(advice=tuple(_told(cluster, each) for each in found), no_advice=no_advice)


def findings(
    cluster: TFCluster,
    samples: Mapping[str, Sequence[Attempt]],
    steps: Mapping[str, float],
    earlier: Sequence[EarlierRun] = (),
    cores: float | None = None,
    standstills: Mapping[str, Standstill] | None = None,
) -> tuple[list[Finding], Message | None]:
    """Return the advice on a run as codes and values, and a message about what cannot be advised
    yet: tasks that do nothing, but not long enough to count as hanging, or, without any advice, why
    there is none. The arguments are those of `advise`.
    """
    if hung := hanging(cluster, samples):
        since = {t: samples[t][-1].intervals[-1].at - seconds for t, seconds in hung.items()}
        known = {t: p for t, p in (standstills or {}).items() if p.at >= since.get(t, p.at)}
        return [_hung(cluster, hung, known), *_on_memory(cluster, samples)], None
    window, found = _common_window(cluster, samples), [*_on_memory(cluster, samples)]
    if window is None:
        return found, None if found else Message("AdviceNotSampled")
    if window[1] - window[0] < LEAST:
        if idle := {} if cluster.status.phase.is_final else hanging(cluster, samples, LEAST):
            return found, _idle(cluster, idle)
        seconds = max(0, math.floor(window[1] - window[0]))
        params = {"seconds": seconds, "least": LEAST, "start": START}
        return found, None if found else Message("AdviceTooShort", params)
    tasks = _tasks(cluster, samples, steps, window)
    return [*_on_time(cluster, tasks, earlier, cores), *found], None


def _told(cluster: TFCluster, found: Finding) -> Advice:
    # Imported late, because it loads the program parser.
    from ..launch.launch_as_command import option_texts

    words = ["tfcluster", "rerun", cluster.metadata.name]
    for key, value in found.options.items():
        for text in option_texts(BY_KEY[key], value):
            words += [BY_KEY[key].flag, text]
    return Advice(
        code=found.code,
        task=found.task,
        message=sentences([Message(found.code, found.params)]),
        command=shlex.join(words) if found.options else "",
        options=found.options,
    )


def advised_options(advice: Sequence[Advice]) -> dict[str, int | float | str]:
    """Return the launch options, by key, of all of this advice. If two pieces of advice set one
    option, the more important one counts.
    """
    found: dict[str, int | float | str] = {}
    for each in advice:
        for key, value in each.options.items():
            found.setdefault(key, value)
    return found


def why_no_options(advised: Advised) -> str:
    """Return why advice changes no option: the sentences of the advice, or the reason why there is
    none.
    """
    told = " ".join(each.message for each in advised.advice)
    return advised.no_advice or told or _("The usage of its tasks suggests no change.")


def change_lines(spec: Spec, options: Mapping[str, object]) -> list[str]:
    """Return a line for each of these options, with its value in `spec` and its new value, such as
    `--workers: 6 → 3`.
    """
    from ..launch.launch_as_command import field_at, option_texts

    def texts(option: Option, value: object) -> str:
        return "" if value is None else " ".join(option_texts(option, value))

    return [
        f"{option.flag}: {before or _('not set')} → {now}"
        for option in (BY_KEY[key] for key in options)
        for before in (texts(option, field_at(spec, option.path)),)
        for now in (texts(option, options[option.key]),)
    ]


# ---- the time that counts ----


def _trainers(cluster: TFCluster) -> list[str]:
    counts = cluster.spec.replicas.counts
    return [task_name(kind, i) for kind in _TRAINERS for i in range(counts.get(kind, 0))]


def _common_window(
    cluster: TFCluster, samples: Mapping[str, Sequence[Attempt]]
) -> tuple[float, float] | None:
    """Return begin and end of the time in which all workers were at work; None if a worker was not
    sampled.
    """
    lives = []
    for name in _trainers(cluster):
        life = _life(samples.get(name, ()), cluster.status.phase.is_final)
        if life is None:
            return None
        lives.append(life)
    if not lives:
        return None
    begin, end = max(b for b, _e in lives), min(e for _b, e in lives)
    if not cluster.status.phase.is_final:
        begin = max(begin, end - NEWEST)
    return begin, end


def _life(attempts: Sequence[Attempt], ended: bool) -> tuple[float, float] | None:
    """Return begin and end of the time in which a task was at work in its last attempt."""
    if not attempts or not any(each.memory for each in attempts[-1].intervals):
        return None
    first = attempts[-1].began + START
    worked = _worked(attempts[-1], ended)
    stepped = next((each.at for each in worked if each.step), first)
    if worked and stepped > first:
        # the start took longer; a program that first reports a step near its end worked before
        first = max(first, min(stepped, (attempts[-1].began + worked[-1].at) / 2))
    after = [each for each in worked if each.at - each.seconds >= first - 1e-6]
    return (after[0].at - after[0].seconds, after[-1].at) if after else (first, first)


def _worked(attempt: Attempt, ended: bool) -> list[Interval]:
    """Return the intervals of a task without its standstill at the end, if there is one. A program
    that has trained may wait for others for a long time, and then work for a moment before it ends;
    this last work is left out, too. `ended` says whether the run has ended.
    """
    lived = [each for each in attempt.intervals if each.memory]
    ended = ended or not attempt.intervals[-1].memory
    last, left = len(lived), ENDING if ended else 0.0
    while last and not _is_still(lived[last - 1]) and lived[last - 1].seconds <= left:
        last -= 1
        left -= lived[last].seconds
    first = last
    while first and _is_still(lived[first - 1]):
        first -= 1
    stood_still = sum(each.seconds for each in lived[first:last])
    return lived[:first] if stood_still >= LEAST else lived


def _tasks(
    cluster: TFCluster,
    samples: Mapping[str, Sequence[Attempt]],
    steps: Mapping[str, float],
    window: tuple[float, float],
) -> list[_Task]:
    made = []
    for task_type, count in cluster.spec.replicas.counts.items():
        asked = cluster.spec.replicas.of(task_type).resources
        for name in (task_name(task_type, index) for index in range(count)):
            attempts = samples.get(name, ())
            rows = _within(attempts[-1].intervals, window) if attempts else []
            seconds = sum(each.seconds for each in rows)
            if not seconds:
                continue
            limit = attempts[-1].cpu_limit or asked.cpu
            cpu = sum(each.cpu for each in rows) / seconds
            made.append(
                _Task(
                    name=name,
                    type=task_type,
                    cpu=cpu,
                    core=min(1.0, limit or 1.0),
                    limit=limit,
                    throttled=min(1.0, sum(each.throttled for each in rows) / seconds),
                    received=sum(each.received for each in rows) / seconds,
                    sent=sum(each.sent for each in rows) / seconds,
                    read=_read(rows),
                    gpu=sum(each.gpu for each in rows) / seconds,
                    gpus=asked.gpu,
                    steps=steps.get(name),
                    stepped=_stepped(attempts[-1].intervals),
                )
            )
    return made


def _read(intervals: Sequence[Interval]) -> float:
    """Return the bytes read per second, without the largest sample: it may be a late import."""
    most = max(range(len(intervals)), key=lambda n: intervals[n].read)
    rows = [*intervals[:most], *intervals[most + 1 :]] or intervals
    return sum(each.read for each in rows) / sum(each.seconds for each in rows)


def _stepped(intervals: Sequence[Interval]) -> float:
    times = [each.at for each in intervals if each.step]
    return times[-1] - times[0] if times else 0.0


def _within(intervals: Sequence[Interval], window: tuple[float, float]) -> list[Interval]:
    begin, end = window
    return [
        each
        for each in intervals
        if each.memory and each.at > begin and each.at - each.seconds < end
    ]


# ---- tasks that hang ----


def hanging(
    cluster: TFCluster, samples: Mapping[str, Sequence[Attempt]], least: float = HANGS
) -> dict[str, float]:
    """Return the workers that have done nothing for at least `least` seconds, with the seconds of
    each. If some workers still work, idle workers count only in a run with parameter servers.
    Without parameter servers, they may wait for a worker that saves or evaluates.
    """
    counts = cluster.spec.replicas.counts
    ended = cluster.status.phase.is_final
    if cluster.spec.mode is Mode.IN_GRAPH or cluster.status.phase is Phase.SUCCEEDED:
        return {}
    still = {}
    for name in _trainers(cluster):
        attempts = samples.get(name, ())
        if attempts and (ended or attempts[-1].intervals[-1].memory):
            lived = [each for each in attempts[-1].intervals if each.memory]
            still[name] = sum(each.seconds for each in lived[len(_worked(attempts[-1], ended)) :])
    hung = {name: seconds for name, seconds in still.items() if seconds >= least}
    if len(hung) == len(still):
        return hung
    works = {parse_task(name)[0] for name in still.keys() - hung.keys()}
    served = counts.get(TaskType.PS)
    return {t: s for t, s in hung.items() if served and parse_task(t)[0] in works}


def _idle(cluster: TFCluster, idle: Mapping[str, float]) -> Message:
    """Return the message about tasks that do nothing, but do not count as hanging yet."""
    params: dict[str, Value] = {
        "tasks": [*idle],
        "count": len(idle),
        "task": next(iter(idle)),
        "time": min(idle.values()),
        "most": HANGS,
        "run": cluster.metadata.name,
    }
    return Message("AdviceIdle", params)


def _is_still(each: Interval) -> bool:
    return (
        max(each.cpu, each.gpu) <= STILL * each.seconds
        and each.received + each.sent <= STILL_NETWORK * each.seconds
        and each.read <= STILL_DISK * each.seconds
    )


def _hung(
    cluster: TFCluster, hung: Mapping[str, float], standstills: Mapping[str, Standstill]
) -> Finding:
    """Return the finding about tasks that hang. Tasks that wait inside TensorFlow are not named if
    another task hangs in other code, because they may wait for that task.
    """
    waiting = {task for task, place in standstills.items() if place.in_tensorflow}
    tasks = [task for task in hung if task not in waiting] or [*hung]
    first = next((task for task in tasks if task in standstills), tasks[0])
    params: dict[str, Value] = {
        "tasks": tasks,
        "count": len(tasks),
        "task": first,
        "time": hung[first],
        "run": cluster.metadata.name,
    }
    if first not in standstills:
        return Finding(first, "AdviceHangs", params, {})
    place = standstills[first]
    params |= {"file": place.file, "line": place.line, "function": place.function}
    return Finding(first, "AdviceHangsAt", params, {})


# ---- CPU, network, input, steps, GPUs ----


def _on_time(
    cluster: TFCluster, tasks: Sequence[_Task], earlier: Sequence[EarlierRun], cores: float | None
) -> Iterator[Finding]:
    servers = [task for task in tasks if task.type is TaskType.PS]
    workers = [task for task in tasks if task.type in _TRAINERS]
    throttled = [*_throttled(tasks)]
    yield from throttled
    types = {parse_task(each.task)[0] for each in throttled}
    gain = [*_too_many(cluster, workers, earlier)]
    yield from gain
    if not types & {*_TRAINERS}:
        slow = [*_straggler(cluster, workers)]
        yield from slow
        full = cores is not None and sum(task.cpu for task in tasks) >= BUSY * cores
        waiting = bool(workers) and all(task.waits for task in workers)
        if TaskType.PS not in types and waiting and not slow:
            saturated = [*_saturated(cluster, servers, workers, on_one_machine=cores is not None)]
            yield from saturated
            if not saturated and not full and not gain:
                yield from _input(cluster, workers, servers)
    yield from _idle_gpus(cluster, tasks)


def _throttled(tasks: Sequence[_Task]) -> Iterator[Finding]:
    for task_type in dict.fromkeys(task.type for task in tasks):
        mine = [task for task in tasks if task.type is task_type and task.throttled >= THROTTLED]
        worst = max(mine, key=lambda task: task.throttled, default=None)
        if worst is None or worst.limit is None:
            continue
        needed = worst.limit / max(0.01, 1 - worst.throttled)
        more = min(math.ceil(needed * 10) / 10, round(MOST_FACTOR * worst.limit, 3))
        yield Finding(
            worst.name,
            "AdviceThrottled",
            {
                "task": worst.name,
                "percent": round(100 * worst.throttled),
                "limit": round(worst.limit, 2),
                "cpu": _cpu(worst.cpu),
            },
            {f"{task_type.value}_cpu": more},
        )


def _saturated(
    cluster: TFCluster, servers: Sequence[_Task], workers: Sequence[_Task], on_one_machine: bool
) -> Iterator[Finding]:
    """Yield advice about the parameter servers for which the workers wait. On one machine, the
    network is not a limit.
    """
    hot = [task for task in servers if task.works]
    by_network = not hot
    if by_network and not on_one_machine:
        hot = [task for task in servers if task.network >= NETWORK]
    if not hot:
        return
    first = max(hot, key=lambda task: task.network if by_network else task.cpu)
    others = [task for task in servers if task not in hot]

    def used(task: _Task) -> float:
        return task.network if by_network else task.cpu

    alone = bool(others) and used(first) >= APART * median(map(used, others))
    names = [task.name for task in hot]
    params: dict[str, Value] = {
        "tasks": names,
        "count": len(names),
        "cpu": _cpu(first.cpu),
        "workers": _cpu(median(task.cpu for task in workers)),
        "speed": format_bytes(first.network),
    }
    code = "AdviceServerNetwork" if by_network else "AdviceServerCpu"
    options: dict[str, int | float | str] = {}
    if alone:
        code = "AdviceServerNetworkAlone" if by_network else "AdviceServerCpuAlone"
        idle = median(map(used, others))
        params["others"] = format_bytes(idle) if by_network else _cpu(idle)
        if first.limit is not None and not by_network and first.cpu >= BUSY * first.limit:
            options["ps_cpu"] = first.limit * MOST_FACTOR
    else:
        count = cluster.spec.replicas.counts.get(TaskType.PS, 0)
        options["ps"] = count + max(1, math.ceil(count / 2))
    yield Finding(first.name, code, params, options)


def _input(
    cluster: TFCluster, workers: Sequence[_Task], servers: Sequence[_Task]
) -> Iterator[Finding]:
    """Yield advice for workers that wait for their input, although no parameter server is busy."""
    if cluster.spec.mode is Mode.IN_GRAPH or any(not task.waits for task in servers):
        return
    # Data that tasks send to each other is not input of the training.
    every = (*servers, *workers)
    received = sum(task.received for task in every)
    outside = received - sum(task.sent for task in every)
    outside = outside / len(workers) if outside >= OUTSIDE * received else 0.0
    read = median(task.read for task in workers)
    params: dict[str, Value] = {
        "count": len(workers),
        "cpu": _cpu(median(task.cpu for task in workers)),
        "speed": format_bytes(max(read, outside)),
    }
    where = workers[0].name if len(workers) == 1 else TaskType.WORKER.value
    if max(read, outside) >= INPUT:
        code = "AdviceInputDisk" if read >= outside else "AdviceInputNetwork"
        yield Finding(where, code, params, {})


def _straggler(cluster: TFCluster, workers: Sequence[_Task]) -> Iterator[Finding]:
    """Yield advice about a worker that is slower than the others. Without parameter servers, all
    workers make each step together, so the advice is about a worker for which the others wait.
    """
    if cluster.spec.mode is Mode.IN_GRAPH:
        return
    params: dict[str, Value]
    # Over a shorter time, the rates show how far apart the printed lines are: a worker that prints
    # every 100th step may be up to 99 steps further than its last line.
    stepping = [(task.steps, task) for task in workers if task.steps and task.stepped >= LEAST]
    if len(stepping) == len(workers) >= 2:
        rate, slowest = min(stepping, key=lambda pair: pair[0])
        others = median(r for r, task in stepping if task is not slowest)
        if rate <= SLOW * others:
            params = {"task": slowest.name, "rate": _rate(rate), "others": _rate(others)}
            yield Finding(slowest.name, "AdviceSlowWorker", params, {})
            return
    if len(workers) >= 2 and not cluster.spec.replicas.counts.get(TaskType.PS):
        busiest = max(workers, key=lambda task: task.cpu)
        rest = [task for task in workers if task is not busiest]
        others = median(task.cpu for task in rest)
        if busiest.works and all(task.waits for task in rest) and busiest.cpu >= APART * others:
            params = {"task": busiest.name, "cpu": _cpu(busiest.cpu), "others": _cpu(others)}
            yield Finding(busiest.name, "AdviceAwaitedWorker", params, {})


def _too_many(
    cluster: TFCluster, workers: Sequence[_Task], earlier: Sequence[EarlierRun]
) -> Iterator[Finding]:
    """Yield advice to use fewer workers, if an earlier run with fewer was about as fast. If the
    workers of this run use more CPU or GPU in total, they may make larger steps, and there is no
    advice.
    """
    rates = [task.steps for task in workers if task.steps]
    count = cluster.spec.replicas.counts.get(TaskType.WORKER, 0)
    if not rates or count < 2:
        return
    rate = median(rates)
    cpu, gpu = sum(task.cpu for task in workers), sum(task.gpu for task in workers)
    for run in sorted(earlier, key=lambda run: run.workers):
        as_fast = run.workers <= FEWER * count and run.steps_per_second >= AS_FAST * rate
        if as_fast and cpu <= 1.25 * run.cpu and gpu <= 1.25 * run.gpu + GPU_IDLE:
            params: dict[str, Value] = {
                "count": run.workers,
                "workers": count,
                "rate": _rate(rate),
                "run": run.name,
                "earlier": _rate(run.steps_per_second),
            }
            options = {"workers": run.workers}
            yield Finding(TaskType.WORKER.value, "AdviceTooManyWorkers", params, options)
            return


def _idle_gpus(cluster: TFCluster, tasks: Sequence[_Task]) -> Iterator[Finding]:
    for task_type in dict.fromkeys(task.type for task in tasks):
        asked = cluster.spec.replicas.of(task_type).resources.gpu
        mine = [task for task in tasks if task.type is task_type]
        busiest = max(task.gpu for task in mine)
        if asked and busiest < GPU_IDLE:
            params: dict[str, Value] = {
                "type": task_type.value,
                "gpus": asked,
                "used": _cpu(busiest),
            }
            yield Finding(task_type.value, "AdviceGpuIdle", params, {f"{task_type.value}_gpu": 0})


# ---- memory ----


def _on_memory(cluster: TFCluster, samples: Mapping[str, Sequence[Attempt]]) -> Iterator[Finding]:
    for task_type, count in cluster.spec.replicas.counts.items():
        asked = cluster.spec.replicas.of(task_type).resources.memory
        key = f"{task_type.value}_memory"
        known = []
        for name in (task_name(task_type, index) for index in range(count)):
            if attempts := samples.get(name):
                rows = [each for attempt in attempts for each in attempt.intervals]
                peak = max(max(each.memory, each.peak) for each in rows)
                if not peak:
                    continue  # the task ended before the first sample
                limit = parse_memory(asked) if asked else attempts[-1].memory_limit
                known.append((peak / limit if limit else 0.0, peak, limit, name, attempts))
        if not known:
            continue
        part, peak, limit, name, attempts = max(known, key=lambda each: (each[0], each[1]))
        if not limit:
            continue
        params: dict[str, Value] = {
            "task": name,
            "peak": format_bytes(_rounded(peak)),
            "limit": format_bytes(limit),
            "percent": math.floor(100 * part),
        }
        speed = _growth(attempts[-1], limit, cluster.status.phase.is_final)
        if part >= WAITING and speed:
            params["speed"] = format_bytes(_rounded(speed * 60))
            yield Finding(name, "AdviceMemoryGrows", params, {key: more_memory(limit)})
        elif part >= NEARLY_OUT:
            yield Finding(name, "AdviceMemoryNearlyOut", params, {key: more_memory(limit)})
        elif (
            part <= FAR_TOO_HIGH
            and asked
            and limit >= _GIB
            and len(known) == count
            and _knows_its_memory(cluster, known)
        ):
            less = max(2 * peak, _GIB // 2)
            less = math.ceil(less / (_GIB // 4)) * (_GIB // 4)
            if less <= 0.6 * limit:
                params["type"] = task_type.value
                yield Finding(
                    task_type.value, "AdviceMemoryTooHigh", params, {key: format_bytes(less)}
                )


def _knows_its_memory(
    cluster: TFCluster,
    known: Sequence[tuple[float, int, int | None, str, Sequence[Attempt]]],
) -> bool:
    """Return whether it is safe to assume that the tasks will not need more memory than they have
    used so far.
    """
    if cluster.status.phase is Phase.SUCCEEDED:
        return True
    every = [attempts[-1] for *_figures, attempts in known]
    return all(each.intervals[-1].at - each.began >= LONG for each in every)


def _growth(attempt: Attempt, limit: float, ended: bool) -> float:
    """Return the growth of a task's memory in bytes per second, if it grows steadily and was still
    growing at the end. Return 0 if the memory does not grow steadily, or grows only a little.
    """
    rows = [r for r in _worked(attempt, ended) if r.at - attempt.began >= START]
    if len(rows) < 8 or rows[-1].at - rows[0].at < LEAST:
        return 0.0
    middle = (rows[0].at + rows[-1].at) / 2
    halves = [r for r in rows if r.at <= middle], [r for r in rows if r.at > middle]
    if min(map(len, halves)) < 4:
        return 0.0
    early, late = map(_slope, halves)
    whole = _slope(rows)
    grown = whole * (rows[-1].at - rows[0].at)
    steady = early > 0 and late >= 0.5 * whole
    return whole if steady and grown >= 0.1 * limit else 0.0


def _slope(rows: Sequence[Interval]) -> float:
    """Return the slope of memory over time: the median slope between samples that are half of the
    time apart. A single sample, such as the last one of processes that end, has no effect on the
    median.
    """
    half = len(rows) // 2
    pairs = zip(rows, rows[half:], strict=False)
    slopes = [(b.memory - a.memory) / (b.at - a.at) for a, b in pairs if b.at > a.at]
    return median(slopes) if slopes else 0.0


def more_memory(limit: float) -> str:
    """Return one and a half times an amount of memory."""
    return format_bytes(math.ceil(1.5 * limit / (1 << 20)) << 20)


def _rounded(count: float) -> int:
    """Return a number of bytes rounded to whole MiB, at least one MiB."""
    return max(1, round(count / (1 << 20))) << 20


def _cpu(cores: float) -> float:
    return round(cores, 2)


def _rate(rate: float) -> float:
    return float(f"{rate:.3g}")
