"""Every sentence a person reads about a run's state: one function for each reason, and hints for
known errors.

Pure: facts in, text out. A sentence says what happened, to whom, and what to do next. Nothing here
decides.
"""

from __future__ import annotations

import re
import signal as signals
import time
from collections.abc import Sequence

from .models import Cause, Reason, Spec, TaskExit, TaskFailure
from .names import parse_task
from .quantity import format_bytes, format_duration, parse_memory

_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"ModuleNotFoundError: No module named '?([\w.]+)",
        "Install it for the Python that `tfcluster options` names: `python -m pip install {0}`",
    ),
    (
        r"(?:Could not start gRPC server|Address already in use|Failed to add port|errno: ?98)",
        "The program asked for a port that is taken: use its address in TF_CONFIG or --*_hosts",
    ),
    (
        r"File \"(?:[^\"]*/)?([^\"/]+)\", line (\d+)\n(?:.*\n){0,2}(?:Syntax|Indentation|Tab)Error",
        "It is in line {1} of {0}",
    ),
    (
        r"(?:exec|line \d+): ([\w./+-]+): (?:command )?not found",
        "There is no command {0} where the tasks run",
    ),
    (r"No space left on device", "The disk is full: free space, or write somewhere else"),
    (
        r"create_per_worker_dataset|Attempt to convert a value \(PerReplica",
        "Keras 3 cannot fit() under this strategy: use tf_keras (--env TF_USE_LEGACY_KERAS=1)",
    ),
    (
        r"py_function|PyFunc|EagerPyFunc",
        "py_function runs only in the process that defined it: place it there",
    ),
    (
        r"Permission denied: '?([^']+)",
        "The task may not touch {0}: write to $TFCLUSTER_OUTPUT_DIR instead",
    ),
    (
        r"error: unrecognized arguments?: (.+)",
        "The program does not know {0}: check what follows `--`",
    ),
)
_NOISE = re.compile(
    r"^\s*$|^[IWE]\d{4} |^\d{4}-\d\d-\d\d .*: [IWE] |^\*\*\*|^\s+(File |@|\^|~)|^Traceback "
)


def shorten(names: Sequence[str], most: int = 5) -> str:
    """`worker-0, worker-1 and 7 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def last_words(task_exit: TaskExit) -> str:
    """The line that says best why a task failed: its last one that is not log noise."""
    for line in reversed(task_exit.last_lines):
        if not _NOISE.match(line):
            return line.strip()[:300]
    return ""


def hint(task_exit: TaskExit) -> str:
    """What to do about a known error, or nothing."""
    text = "\n".join(task_exit.last_lines)
    for pattern, advice in _HINTS:
        if match := re.search(pattern, text):
            return advice.format(*(g.strip() for g in match.groups()))
    return ""


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _times(number: int) -> str:
    return "1 time" if number == 1 else f"{number} times"


def _named_signal(detail: str) -> str:
    """The signal of which only a detail tells: a shell hides what ended its child."""
    found = re.search(r"\bSIG[A-Z0-9]+", detail)
    return found.group() if found else "a signal"


def _beside(detail: str, said: str | None = None) -> str:
    """A detail in brackets, unless it only repeats what was `said`."""
    return f" ({detail})" if detail and not (said and said in detail) else ""


def how_it_ended(failure: TaskFailure, spec: Spec) -> str:
    """`worker-1 failed with exit code 1: ValueError: …`, without a full stop."""
    task, task_exit = failure.task, failure.exit
    words = last_words(task_exit)
    said = f": {words}" if words else ""
    more = task_exit.detail
    if task_exit.cause is Cause.OOM:
        limit = spec.replicas.of(parse_task(task)[0]).resources.memory
        where = f" at its limit of {limit}" if limit else " of this machine"
        return f"{task} ran out of memory{where}{_beside(more.removeprefix(f'limit {limit}, '))}"
    if task_exit.cause is Cause.KILLED:
        by = _signal_name(task_exit.signal) if task_exit.signal else _named_signal(more)
        return f"{task} was killed from outside ({by}){_beside(more, by)}"
    if task_exit.cause is Cause.NOT_STARTED:
        return f"{task} could not be started: {task_exit.detail or words or 'no reason was given'}"
    if task_exit.cause in (Cause.EVICTED, Cause.LOST):
        return f"{task} was {task_exit.cause.value.lower()}{_beside(more)}"
    if task_exit.signal:
        by = _signal_name(task_exit.signal)
        return f"{task} crashed ({by}){_beside(more, by)}{said}"
    verb = "exited" if task_exit.exit_code == 0 else "failed"
    return f"{task} {verb} with exit code {task_exit.exit_code}{said}"


def failed(
    reason: Reason, blamed: TaskFailure, followers: Sequence[str], spec: Spec, name: str
) -> str:
    """Why the run failed, and what to do."""
    parts = [how_it_ended(blamed, spec)]
    if reason is Reason.PS_EXITED:
        parts.append(
            "The workers cannot go on without it: a parameter server must call server.join()"
        )
    if reason is Reason.DISRUPTED:
        parts.append(
            f"It had been restarted {_times(spec.lifecycle.heals)} already; raise that with --heals"
        )
    if reason is Reason.OOM_KILLED:
        parts.append(_raise_memory(blamed.task, spec, name))
    elif advice := hint(blamed.exit):
        parts.append(advice)
    if followers:
        verb = "ended after it" if len(followers) == 1 else "ended after it, too"
        parts.append(f"{shorten(sorted(followers))} {verb}")
    parts.append(f"Its output: `tfcluster logs {name} {blamed.task}`")
    return ". ".join(parts) + "."


def _raise_memory(task: str, spec: Spec, name: str) -> str:
    task_type = parse_task(task)[0]
    limit = spec.replicas.of(task_type).resources.memory
    if limit is None:
        return "Use fewer tasks or smaller batches, or set a limit for each task"
    doubled = format_bytes(2 * parse_memory(limit))
    return f"Raise the limit with `tfcluster rerun {name} --{task_type.value}-memory {doubled}`"


def healing(
    failure: TaskFailure, together: bool, heals: int, checkpoint: str | None, spec: Spec
) -> str:
    """What was disrupted and what is done about it."""
    what = "All workers restart together" if together else "It is restarted"
    if spec.mode.value == "in-graph":
        after = (
            "its variables are gone: initialise or restore them in the notebook"
            if failure.task.startswith("ps-")
            else "the client goes on, or opens a new session"
        )
    elif not (together or _carries_training(failure.task, spec)):
        after = "the others go on meanwhile"
    elif checkpoint is None:
        after = "no checkpoint was found, so what was not saved starts again"
    else:
        after = f"training resumes from {_place_of(checkpoint)}"
    return (
        f"{how_it_ended(failure, spec)}. {what} "
        f"({heals} of {_times(spec.lifecycle.heals)}); {after}."
    )


def _carries_training(task: str, spec: Spec) -> bool:
    """Whether training cannot go on without this task: it holds the variables, or leads."""
    leader = "chief-0" if spec.replicas.chief.count else "worker-0"
    return task.startswith("ps-") or task == leader


def _place_of(checkpoint: str) -> str:
    """TensorFlow 1 ends a checkpoint's name with the step; TensorFlow 2 may only count them."""
    step = re.fullmatch(r"model\.ckpt-(\d+)", checkpoint)
    return f"the checkpoint at step {step.group(1)}" if step else f"its checkpoint {checkpoint}"


def collateral(task: str, checkpoint: str | None) -> str:
    """Why the workers restart together after a disruption elsewhere."""
    where = "the beginning" if checkpoint is None else _place_of(checkpoint)
    return f"{task} ended after the disruption, so the workers restart together from {where}."


def investigating(failure: TaskFailure, seconds: float, spec: Spec) -> str:
    """A failure whose cause is not settled yet."""
    wait = f"looking up to {format_duration(seconds)} whether another task was the cause"
    return f"{how_it_ended(failure, spec)}; {wait}."


def backing_off(failure: TaskFailure, seconds: float, number: int, spec: Spec) -> str:
    """A failure that will be retried."""
    retry = f"Retry {number} of {spec.lifecycle.restarts} in {format_duration(seconds)}"
    return f"{how_it_ended(failure, spec)}. {retry}."


def queued(waiting_for: str) -> str:
    """Why it is not started yet."""
    return f"Waiting for {waiting_for or 'room'}."


def starting(missing: Sequence[str], total: int) -> str:
    """Who is still missing."""
    if not missing:
        return f"All {total} tasks are up."
    return f"Waiting for {shorten(missing)} to start ({total - len(missing)} of {total} ready)."


def running(spec: Spec, unfinished: Sequence[str], finished: Sequence[str], name: str) -> str:
    """What is going on."""
    if spec.mode.value == "in-graph":
        return (
            f"All {len(unfinished)} servers accept connections; "
            f"connect a notebook with `%tfcluster connect {name}`."
        )
    tail = f"; {shorten(finished)} finished" if finished else ""
    are = "task is" if len(unfinished) == 1 else "tasks are"
    return f"{len(unfinished)} {are} running{tail}."


def start_timeout(missing: Sequence[str], spec: Spec, name: str) -> str:
    """Who never came up."""
    advice = (
        "its TensorFlow server did not open its port"
        if spec.mode.value == "in-graph" or (spec.program and spec.program.serves)
        else "its program was not started"
    )
    return (
        f"{shorten(missing)} did not come up within "
        f"{format_duration(spec.lifecycle.start_timeout)}: {advice}. "
        f"Its output: `tfcluster logs {name} {missing[0] if missing else ''}`. "
        "If it only needs longer: --start-timeout 30m."
    )


def queue_timeout(waiting_for: str, limit: float) -> str:
    """It never got room."""
    return (
        f"No room within {format_duration(limit)}: it waited for {waiting_for or 'room'}. "
        "Ask for less, or raise --queue-timeout."
    )


def max_duration(limit: float, unfinished: Sequence[str]) -> str:
    """It ran out of its time."""
    return (
        f"Not finished after {format_duration(limit)} (--max-duration): "
        f"{shorten(unfinished)} still ran. "
        "Raise the limit, or look with `tfcluster logs` whether it hung."
    )


def idle_timeout(limit: float, since: float) -> str:
    """Nobody used the servers."""
    return (
        f"No notebook used it for {format_duration(limit)} (--idle-timeout), since "
        f"{time.strftime('%H:%M', time.localtime(since))}; its tasks were stopped."
    )


def stopping(reason: str, by: str, left: Sequence[str]) -> str:
    """A stop under way."""
    waits = f"; waiting for {shorten(left)} to end" if left else ""
    return f"A stop was requested by {_asked(reason, by)}{waits}."


def stopped(reason: str, by: str) -> str:
    """A stop that was carried out."""
    return f"Ended by {_asked(reason, by)}."


def _asked(reason: str, by: str) -> str:
    return f"{by or 'its owner'}{f': {reason}' if reason else ''}"


def succeeded(finished: Sequence[str], reclaim_after: float, holding: Sequence[str]) -> str:
    """It worked."""
    text = f"{shorten(finished)} finished successfully"
    if holding:
        text += f"; {shorten(holding)} will be reclaimed {format_duration(reclaim_after)} later"
    return text + "."
