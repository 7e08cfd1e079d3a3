"""Every sentence a person reads about a run's state: how a task ended, what to do about a known
error, and one function for each reason.

Pure: facts in, text out. A sentence says what happened, to whom, and what to do next. Nothing here
decides. Owns the table of errors that people meet, in order of precedence.
"""

from __future__ import annotations

import re
import signal as signals
import time
from collections.abc import Sequence

from ..i18n import _, mark, ngettext
from ..spec import MEMORY_PATTERN, Cause, Reason, Spec, TaskExit, TaskFailure
from ..spec.names import parse_task
from ..spec.quantities import format_bytes, format_duration, parse_memory

_ERROR_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"ModuleNotFoundError: No module named '?tensorflow\b",
        mark(
            "TensorFlow is missing where the tasks run: `python -m pip install tensorflow-cpu`, "
            "or on Kubernetes an image that has it (--image)"
        ),
    ),
    (
        r"ModuleNotFoundError: No module named '?([\w.]+)",
        mark(
            "Install it for the Python that `tfcluster options` names: `python -m pip install {0}`"
        ),
    ),
    (
        r"(?:Could not start gRPC server|Address already in use|Failed to add port|errno: ?98)",
        mark(
            "The program asked for a port that is taken: use its address in TF_CONFIG or --*_hosts"
        ),
    ),
    (
        r"File \"(?:[^\"]*/)?([^\"/]+)\", line (\d+)\n(?:.*\n){0,2}(?:Syntax|Indentation|Tab)Error",
        mark("It is in line {1} of {0}"),
    ),
    (
        r"(?:exec|line \d+): ([\w./+-]+): (?:command )?not found",
        mark("There is no command {0} where the tasks run"),
    ),
    (r"No space left on device", mark("The disk is full: free space, or write somewhere else")),
    (
        r"create_per_worker_dataset|Attempt to convert a value \(PerReplica",
        mark(
            "Keras 3 cannot fit() under this strategy: use tf_keras (--env TF_USE_LEGACY_KERAS=1)"
        ),
    ),
    (
        r"py_function|PyFunc|EagerPyFunc",
        mark("py_function runs only in the process that defined it: place it there"),
    ),
    (
        r"Permission denied: '?([^']+)",
        mark("The task may not touch {0}: write to $TFCLUSTER_OUTPUT_DIR instead"),
    ),
    (
        r"error: unrecognized arguments?: (.+)",
        mark("The program does not know {0}: check what follows `--`"),
    ),
)
_LOG_NOISE = re.compile(
    r"^\s*$|^[IWE]\d{4} |^\d{4}-\d\d-\d\d .*: [IWE] |^\*\*\*|^\s+(File |@|\^|~)|^Traceback "
)


def last_error_line(task_exit: TaskExit) -> str:
    """The line that says best why a task failed: its last one that is not log noise."""
    for line in reversed(task_exit.last_lines):
        if not _LOG_NOISE.match(line):
            return line.strip()[:300]
    return ""


def error_hint(task_exit: TaskExit) -> str:
    """What to do about a known error, or nothing."""
    text = "\n".join(task_exit.last_lines)
    for pattern, advice in _ERROR_HINTS:
        if match := re.search(pattern, text):
            return _(advice).format(*(g.strip() for g in match.groups()))
    return ""


# ---- how a task ended ----


def _signal_name(number: int) -> str:
    known = {each.value: each.name for each in signals.Signals}
    return known.get(number) or _("signal {number}").format(number=number)


def _signal_in_detail(detail: str) -> str:
    """The signal of which only a detail tells: a shell hides what ended its child."""
    found = re.search(r"\bSIG[A-Z0-9]+", detail)
    return found.group() if found else _("a signal")


def _in_brackets(detail: str, said: str | None = None) -> str:
    """A detail in brackets, unless it only repeats what was `said`."""
    return f" ({detail})" if detail and not (said and said in detail) else ""


def exit_message(failure: TaskFailure, spec: Spec) -> str:
    """`worker-1 failed with exit code 1: ValueError: …`, without a full stop."""
    task, task_exit = failure.task, failure.exit
    words = last_error_line(task_exit)
    said = _(": {words}").format(words=words) if words else ""
    more = task_exit.detail
    if task_exit.cause is Cause.OOM:
        limit = memory_limit(failure, spec)
        text = (
            _("{task} ran out of memory at its limit of {limit}")
            if limit
            else _("{task} ran out of memory of this machine")
        )
        known = _("limit {limit}").format(limit=limit)
        return text.format(task=task, limit=limit) + _in_brackets(
            more.removeprefix(known).lstrip(", ")
        )
    if task_exit.cause is Cause.KILLED:
        by = _signal_name(task_exit.signal) if task_exit.signal else _signal_in_detail(more)
        text = _("{task} was killed from outside ({by})").format(task=task, by=by)
        return text + _in_brackets(more, by)
    if task_exit.cause is Cause.NOT_STARTED:
        why = task_exit.detail or words or _("no reason was given")
        return _("{task} could not be started: {why}").format(task=task, why=why)
    if task_exit.cause in (Cause.EVICTED, Cause.LOST):
        gone = _("{task} was lost") if task_exit.cause is Cause.LOST else _("{task} was evicted")
        return gone.format(task=task) + _in_brackets(more)
    if task_exit.signal:
        by = _signal_name(task_exit.signal)
        return _("{task} crashed ({by})").format(task=task, by=by) + _in_brackets(more, by) + said
    if task_exit.exit_code == 0:
        return _("{task} exited with exit code 0").format(task=task) + said
    return (
        _("{task} failed with exit code {code}").format(task=task, code=task_exit.exit_code) + said
    )


def memory_limit(failure: TaskFailure, spec: Spec) -> str | None:
    """What was asked for, else what a detail tells that it got (`limit 1Gi, …`)."""
    given = re.match(rf"limit ({MEMORY_PATTERN[1:-1]})(?=$|,)", failure.exit.detail)
    asked = spec.replicas.of(parse_task(failure.task)[0]).resources.memory
    return asked or (given and given.group(1))


def failed_alike(failure: TaskFailure, other: TaskFailure) -> bool:
    """Whether two tasks failed by themselves with the same last words: neither broke the other."""
    first, second = failure.exit, other.exit
    return (
        bool(last_error_line(first))
        and not (first.follows or second.follows)
        and (first.cause, first.exit_code, last_error_line(first))
        == (second.cause, second.exit_code, last_error_line(second))
    )


# ---- why a run is where it is ----


def shorten(names: Sequence[str], most: int = 5) -> str:
    """`worker-0, worker-1 and 7 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return _("{names} and {count} more").format(
        names=", ".join(names[:most]), count=len(names) - most
    )


def _times(number: int) -> str:
    return ngettext("{count} time", "{count} times", number).format(count=number)


def _sentences(parts: Sequence[str]) -> str:
    """Parts without their full stops as sentences, one after the other."""
    return _(". ").join(parts) + _(".")


def failed(
    reason: Reason, culprit: TaskFailure, others: Sequence[TaskFailure], spec: Spec, name: str
) -> str:
    """Why the run failed, and what to do."""
    parts = [exit_message(culprit, spec)]
    if reason is Reason.PS_EXITED:
        parts.append(
            _("The workers cannot go on without it: a parameter server must call server.join()")
        )
    if reason is Reason.DISRUPTED:
        parts.append(
            _("It had been restarted {times} already; raise that with --heals").format(
                times=_times(spec.lifecycle.heals)
            )
        )
    if reason is Reason.OOM_KILLED:
        parts.append(_raise_memory(culprit, spec, name))
    elif advice := error_hint(culprit.exit):
        parts.append(advice)
    same = sorted(f.task for f in others if failed_alike(culprit, f))
    if same:
        parts.append(_("{tasks} failed in the same way").format(tasks=shorten(same)))
    if followers := sorted({f.task for f in others}.difference(same)):
        ended = ngettext("{tasks} ended after it", "{tasks} ended after it, too", len(followers))
        parts.append(ended.format(tasks=shorten(followers)))
    parts.append(
        _("Its output: `tfcluster logs {name} {task}`").format(name=name, task=culprit.task)
    )
    return _sentences(parts)


def _raise_memory(culprit: TaskFailure, spec: Spec, name: str) -> str:
    if (limit := memory_limit(culprit, spec)) is None:
        return _("Use fewer tasks or smaller batches, or set a limit for each task")
    task_type = parse_task(culprit.task)[0].value
    option = f"--{task_type}-memory {format_bytes(2 * parse_memory(limit))}"
    text = _("Raise the limit with `tfcluster rerun {name} {option}`")
    return text.format(name=name, option=option)


def healing(
    failure: TaskFailure, together: bool, heals: int, checkpoint: str | None, spec: Spec
) -> str:
    """What was disrupted and what is done about it."""
    what = _("All workers restart together") if together else _("It is restarted")
    if spec.mode.value == "in-graph":
        after = (
            _("its variables are gone: initialise or restore them in the notebook")
            if failure.task.startswith("ps-")
            else _("the client goes on, or opens a new session")
        )
    elif not (together or _carries_training(failure.task, spec)):
        after = _("the others go on meanwhile")
    elif checkpoint is None:
        after = _("no checkpoint was found, so what was not saved starts again")
    else:
        after = _("training resumes from {place}").format(place=_place_of(checkpoint))
    times = _times(spec.lifecycle.heals)
    done = _("{what} ({number} of {times}); {after}")
    done = done.format(what=what, number=heals, times=times, after=after)
    return _sentences([exit_message(failure, spec), done])


def _carries_training(task: str, spec: Spec) -> bool:
    """Whether training cannot go on without this task: it holds the variables, or leads."""
    leader = "chief-0" if spec.replicas.chief.count else "worker-0"
    return task.startswith("ps-") or task == leader


def _place_of(checkpoint: str) -> str:
    """TensorFlow 1 ends a checkpoint's name with the step; TensorFlow 2 may only count them."""
    if not checkpoint:
        return _("its newest checkpoint, if it saves any")
    if step := re.fullmatch(r"model\.ckpt-(\d+)", checkpoint):
        return _("the checkpoint at step {step}").format(step=step.group(1))
    return _("its checkpoint {checkpoint}").format(checkpoint=checkpoint)


def collateral(task: str, checkpoint: str | None) -> str:
    """Why the workers restart together after a disruption elsewhere."""
    where = _("the beginning") if checkpoint is None else _place_of(checkpoint)
    text = _("{task} ended after the disruption, so the workers restart together from {where}.")
    return text.format(task=task, where=where)


def investigating(failure: TaskFailure, seconds: float, spec: Spec) -> str:
    """A failure whose cause is not settled yet."""
    return _("{ended}; looking up to {time} whether another task was the cause.").format(
        ended=exit_message(failure, spec), time=format_duration(seconds)
    )


def backing_off(failure: TaskFailure, seconds: float, number: int, spec: Spec) -> str:
    """A failure that will be retried."""
    retry = _("Retry {number} of {most} in {time}").format(
        number=number, most=spec.lifecycle.restarts, time=format_duration(seconds)
    )
    return _sentences([exit_message(failure, spec), retry])


def queued(waiting_for: str) -> str:
    """Why it is not started yet."""
    return _("Waiting for {what}.").format(what=waiting_for or _("room"))


def admitted(total: int) -> str:
    """It has room, and its tasks are made."""
    return _("Starting {count} tasks.").format(count=total)


def starting(missing: Sequence[str], total: int) -> str:
    """Who is still missing."""
    if not missing:
        return _("All {count} tasks are up.").format(count=total)
    return _("Waiting for {tasks} to start ({ready} of {total} ready).").format(
        tasks=shorten(missing), ready=total - len(missing), total=total
    )


def running(spec: Spec, unfinished: Sequence[str], finished: Sequence[str], name: str) -> str:
    """What is going on."""
    if spec.mode.value == "in-graph":
        return _(
            "All {count} servers accept connections; "
            "`%tfcluster connect {name}` in a notebook uses them."
        ).format(count=len(unfinished), name=name)
    count = len(unfinished)
    text = ngettext("{count} task is running", "{count} tasks are running", count)
    parts = [text.format(count=count)]
    if finished:
        parts.append(_("{tasks} finished").format(tasks=shorten(finished)))
    return _("; ").join(parts) + _(".")


def start_timeout(
    missing: Sequence[str], spec: Spec, name: str, because: Sequence[str] = ()
) -> str:
    """Who never came up; `because` are sentences that say why, where that is known."""
    advice = "; ".join(each.rstrip(".") for each in because) or (
        _("its TensorFlow server did not open its port")
        if spec.mode.value == "in-graph" or (spec.program and spec.program.serves)
        else _("its program was not started")
    )
    return _(
        "{tasks} did not come up within {time}: {why}. "
        "Its output: `tfcluster logs {name} {task}`. "
        "If it only needs longer: --start-timeout 30m."
    ).format(
        tasks=shorten(missing),
        time=format_duration(spec.lifecycle.start_timeout),
        why=advice,
        name=name,
        task=missing[0] if missing else "",
    )


def queue_timeout(waiting_for: str, limit: float) -> str:
    """It never got room."""
    return _(
        "No room within {time}: it waited for {what}. Ask for less, or raise --queue-timeout."
    ).format(time=format_duration(limit), what=waiting_for or _("room"))


def max_duration(limit: float, unfinished: Sequence[str]) -> str:
    """It ran out of its time."""
    return _(
        "Not finished after {time} (--max-duration): {tasks} still ran. "
        "Raise the limit, or look with `tfcluster logs` whether it hung."
    ).format(time=format_duration(limit), tasks=shorten(unfinished))


def idle_timeout(limit: float, since: float) -> str:
    """Nobody used the servers."""
    return _(
        "No notebook used it for {time} (--idle-timeout), since {since}; its tasks were stopped."
    ).format(time=format_duration(limit), since=time.strftime("%H:%M", time.localtime(since)))


def stopping(reason: str, by: str, left: Sequence[str], may_come: bool) -> str:
    """A stop under way."""
    parts = [_("A stop was requested by {whom}").format(whom=_requester(reason, by))]
    if left:
        parts.append(_("waiting for {tasks} to end").format(tasks=shorten(left)))
    elif may_come:
        parts.append(_("calling back the tasks that may still come"))
    return _("; ").join(parts) + _(".")


def stopped(reason: str, by: str) -> str:
    """A stop that was carried out."""
    return _("Ended by {whom}.").format(whom=_requester(reason, by))


def _requester(reason: str, by: str) -> str:
    return (by or _("its owner")) + (f": {reason}" if reason else "")


def succeeded(finished: Sequence[str], reclaim_after: float, holding: Sequence[str]) -> str:
    """It worked."""
    parts = [_("{tasks} finished successfully").format(tasks=shorten(finished))]
    if holding:
        later = _("{tasks} will be reclaimed {time} later")
        parts.append(later.format(tasks=shorten(holding), time=format_duration(reclaim_after)))
    return _("; ").join(parts) + _(".")


def reclaimed(tasks: Sequence[str]) -> str:
    """Parameter servers whose work is done."""
    return _("Reclaimed {tasks}.").format(tasks=shorten(tasks))


def log_copy_failed(why: str) -> str:
    """A log volume that is full or gone while tasks run."""
    return _(
        "The log volume takes no copies of what tasks print ({why}): training goes on, and the "
        "copies do when there is room. Make room by `tfcluster delete NAME --with-logs`"
    ).format(why=why)


def never_started() -> str:
    """Of a task of a run that is over, which nobody ever started."""
    return _("it was never started")


def record_damaged(path: str, why: str, name: str, *, ended: bool) -> str:
    """Describe a run whose record cannot be read."""
    text = (
        _(
            "Its record {path} cannot be read: {why}. Nothing of it runs any more; remove it with "
            "`tfcluster delete {name}`"
        )
        if ended
        else _(
            "Its record {path} cannot be read: {why}. While it runs it writes the record again; "
            "end it with `tfcluster stop {name}`, remove it with `tfcluster delete {name}`"
        )
    )
    return text.format(path=path, why=why, name=name)


def status_damaged(path: str) -> str:
    """Describe a run that has a supervisor but whose status cannot be read."""
    return _("Its status {path} cannot be read; it is written again as long as it runs.").format(
        path=path
    )


def full_disk(mount: str) -> str:
    """Say that the disk of a run's records is full."""
    return _(
        "No space left on the disk mounted at {mount}: what tasks print and checkpoints may be "
        "lost. Free some space there, such as with `tfcluster delete NAME --with-logs`"
    ).format(mount=mount)
