"""Messages about a run's state: what happened, to whom, and what to do next, as codes and values.

One function for each reason chooses codes of `message_table` and their values; `text` makes the
sentence, in the language of the moment. Pure: facts in, messages out. Nothing here decides.

    messages.text(Message("TasksFinished", {"tasks": ["worker-0"]}))  # "worker-0 finished"
"""

from __future__ import annotations

import re
import signal as signals
import string
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from ..i18n import ENGLISH, _, language, ngettext
from ..spec import (
    MEMORY_PATTERN,
    Cause,
    Event,
    FoundCheckpoint,
    Message,
    Reason,
    Spec,
    Status,
    TaskExit,
    TaskFailure,
)
from ..spec.names import parse_task
from ..spec.quantities import format_bytes, format_duration, parse_memory
from .message_table import FULL_STOP, SEPARATORS, TEXTS

Clause = Message | str
"""A message, or the words of somebody else as they are."""

# ---- from a message to its text ----


def _joined(separator: str) -> Callable[[Any], str]:
    """Join a list by a separator, which is translated, too; what is no list stays."""
    return lambda value: _(separator).join(value) if isinstance(value, list) else str(value)


FORMATS: Mapping[str, Callable[[Any], str]] = {
    **{name: _joined(separator) for name, separator in SEPARATORS.items()},
    "clock": lambda seconds: time.strftime("%H:%M", time.localtime(seconds)),
    "duration": format_duration,
    "quoted": lambda words: f"'{words}'",
}
"""How a text has a value written: `{time:duration}`; lists by the separator of their parts."""


class _Renderer(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """One value in its place."""
        made = FORMATS.get(format_spec)
        return str(value) if made is None else made(value)


_RENDERER = _Renderer()


def text(what: Clause) -> str:
    """A message in the language of the moment.

    Raises:
        LookupError: its code is not known, or a value is missing: a newer version wrote it.
    """
    if isinstance(what, str):
        return what
    form = TEXTS[what.code]
    form = ngettext(*form, _count_of(what)) if isinstance(form, tuple) else _(form)
    values = {name: _shown(value) for name, value in what.params.items()}
    return _RENDERER.vformat(form, (), values)


def _count_of(what: Message) -> float:
    count = what.params["count"]
    return count if isinstance(count, int | float) else 0


def _shown(value: object) -> object:
    if isinstance(value, Message):
        return text(value)
    return [_shown(each) for each in value] if isinstance(value, list | tuple) else value


def sentences(parts: Iterable[Clause]) -> str:
    """Messages as sentences, one after the other, in the language of the moment."""
    whole = ""
    for part in parts:
        said = text(part)
        stop = "" if said.endswith((".", "。", "!", "?")) else _(FULL_STOP)
        whole += ("" if not whole or whole.endswith("。") else " ") + said + stop
    return whole


def english(parts: Iterable[Clause]) -> str:
    """The same in English, as a record keeps it beside the codes."""
    with language(ENGLISH):
        return sentences(parts)


def english_clause(what: Clause) -> str:
    """One message in English, without a full stop of its own."""
    with language(ENGLISH):
        return text(what)


class Told(Protocol):
    """A status, an event or a task: a sentence in English, and its messages by their codes."""

    @property
    def message(self) -> str:
        """In English."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """By code."""


def shown(told: Told) -> str:
    """Return the sentences of a status, event or task in the language of the moment; as stored,
    where it has no codes or a code that this version does not know.
    """
    try:
        return sentences(told.messages) if told.messages else told.message
    except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
        return told.message


def with_messages(status: Status, *parts: Message) -> Status:
    """The status with these as its sentences."""
    return replace(status, messages=parts, message=english(parts))


def event(at: float, reason: Reason, *parts: Message) -> Event:
    """Something that happened to the run at `at`."""
    return Event(at=at, reason=reason.value, message=english(parts), messages=parts)


def with_detail(task_exit: TaskExit, cause: Cause, detail: Clause, **more: Any) -> TaskExit:
    """The end of a task as one of this cause, with a detail about it."""
    coded = detail if isinstance(detail, Message) else None
    words = english_clause(detail)
    return replace(task_exit, cause=cause, detail=words, detail_message=coded, **more)


# ---- parts of messages ----

MOST_NAMES = 5


def shorten(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """`worker-0, worker-1 and 7 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return _("{names} and {count} more").format(
        names=", ".join(names[:most]), count=len(names) - most
    )


def some(names: Sequence[str]) -> list[str | Message] | Message:
    """At most five names as a value, and how many more there are."""
    first: list[str | Message] = list(names[:MOST_NAMES])
    if len(names) <= MOST_NAMES:
        return first
    return Message("AndMore", {"names": first, "count": len(names) - MOST_NAMES})


def clauses(parts: Sequence[Message]) -> Message:
    """Several clauses as one."""
    return parts[0] if len(parts) == 1 else Message("Clauses", {"parts": list(parts)})


def _saying(words: str) -> Clause:
    return Message("Saying", {"words": words}) if words else ""


def _in_brackets(detail: Clause, said: Clause = "") -> Clause:
    """A detail in brackets, unless it only repeats what was `said`."""
    repeats = bool(said) and english_clause(said) in english_clause(detail)
    return Message("InBrackets", {"detail": detail}) if detail and not repeats else ""


def _times(number: int) -> Message:
    return Message("Times", {"count": number})


# ---- what a task's last lines say ----

_ERROR_HINTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"ModuleNotFoundError: No module named '?tensorflow\b", "TensorFlowMissing", ()),
    (r"ModuleNotFoundError: No module named '?([\w.]+)", "ModuleMissing", ("module",)),
    (
        r"(?:Could not start gRPC server|Address already in use|Failed to add port|errno: ?98)",
        "PortTaken",
        (),
    ),
    (
        r"File \"(?:[^\"]*/)?([^\"/]+)\", line (\d+)\n(?:.*\n){0,2}(?:Syntax|Indentation|Tab)Error",
        "SyntaxErrorAt",
        ("file", "line"),
    ),
    (
        r"(?:exec|line \d+): ([\w./+-]+): (?:command )?not found",
        "CommandMissing",
        ("command",),
    ),
    (r"No space left on device", "DiskFull", ()),
    (
        r"create_per_worker_dataset|Attempt to convert a value \(PerReplica",
        "KerasUnsupported",
        (),
    ),
    (r"py_function|PyFunc|EagerPyFunc", "PyFunctionElsewhere", ()),
    (r"(?:Permission denied|Read-only file system): '?([^']+)", "PathNotWritable", ("path",)),
    (r"error: unrecognized arguments?: (.+)", "UnknownArguments", ("arguments",)),
)
"""Errors that many meet, the first that fits: a pattern over the last lines, the code of what to do
about it, and the names of its values.
"""
_LOG_NOISE = re.compile(
    r"^\s*$|^[IWE]\d{4} |^\d{4}-\d\d-\d\d .*: [IWE] |^\*\*\*|^\s+(File |@|\^|~)|^Traceback "
)


def last_error_line(task_exit: TaskExit) -> str:
    """The line that says best why a task failed: its last one that is not log noise."""
    for line in reversed(task_exit.last_lines):
        if not _LOG_NOISE.match(line):
            return line.strip()[:300]
    return ""


def error_hint(task_exit: TaskExit) -> Message | None:
    """Return the advice about a known error, None for any other."""
    printed = "\n".join(task_exit.last_lines)
    for pattern, code, names in _ERROR_HINTS:
        if match := re.search(pattern, printed):
            return Message(
                code, {n: g.strip() for n, g in zip(names, match.groups(), strict=False)}
            )
    return None


# ---- how a task ended ----


def _signal_name(number: int) -> Clause:
    known = {each.value: each.name for each in signals.Signals}
    return known.get(number) or Message("SignalNumber", {"number": number})


def _signal_in_detail(detail: str) -> Clause:
    """The signal of which only a detail tells: a shell hides what ended its child."""
    found = re.search(r"\bSIG[A-Z0-9]+", detail)
    return found.group() if found else Message("SomeSignal")


def task_ended(failure: TaskFailure, spec: Spec) -> Message:
    """`worker-1 failed with exit code 1: ValueError: …`, without a full stop."""
    task, task_exit = failure.task, failure.exit
    words = last_error_line(task_exit)
    more: Clause = task_exit.detail_message or task_exit.detail
    match task_exit.cause:
        case Cause.OOM:
            limit = memory_limit(failure, spec)
            beside = _in_brackets(_memory_used(task_exit))
            if limit is None:
                return Message("MachineOutOfMemory", {"task": task, "more": beside})
            return Message("OutOfMemory", {"task": task, "limit": limit, "more": beside})
        case Cause.KILLED:
            detail = task_exit.detail
            by = _signal_name(task_exit.signal) if task_exit.signal else _signal_in_detail(detail)
            beside = _in_brackets(more, by)
            return Message("Killed", {"task": task, "signal": by, "more": beside})
        case Cause.NOT_STARTED:
            return Message(
                "NotStarted", {"task": task, "why": more or words or Message("NoReason")}
            )
        case Cause.EVICTED | Cause.LOST:
            code = "Lost" if task_exit.cause is Cause.LOST else "Evicted"
            return Message(code, {"task": task, "more": _in_brackets(more)})
    if task_exit.signal:
        by = _signal_name(task_exit.signal)
        beside = _in_brackets(more, by)
        return Message(
            "Crashed", {"task": task, "signal": by, "more": beside, "said": _saying(words)}
        )
    if task_exit.exit_code == 0:
        return Message("ExitCodeZero", {"task": task, "said": _saying(words)})
    if task_exit.exit_code is None:
        return Message("Failed", {"task": task, "said": _saying(words)})
    code_ended = task_exit.exit_code
    return Message("ExitCode", {"task": task, "code": code_ended, "said": _saying(words)})


def exit_message(failure: TaskFailure, spec: Spec) -> str:
    """`task_ended` in the language of the moment."""
    return text(task_ended(failure, spec))


_LIMIT = re.compile(rf"limit ({MEMORY_PATTERN[1:-1]})(?:$|, )")


def memory_limit(failure: TaskFailure, spec: Spec) -> str | None:
    """What was asked for, else what a detail tells that it got (`limit 1Gi, …`)."""
    given = _LIMIT.match(failure.exit.detail)
    asked = spec.replicas.of(parse_task(failure.task)[0]).resources.memory
    return asked or (given and given.group(1))


def _memory_used(task_exit: TaskExit) -> Clause:
    """Return the part of a detail beside the limit."""
    given = _LIMIT.match(task_exit.detail)
    rest = task_exit.detail[given.end() :] if given else task_exit.detail
    used = re.fullmatch(r"used (\S+)", rest)
    return Message("MemoryUsed", {"used": used.group(1)}) if used else rest


def out_of_memory_detail(limit: str, used: str) -> str:
    """The detail of the end of a task that used more than its limit, as `memory_limit` reads it."""
    return f"limit {limit}, used {used}" if used else f"limit {limit}"


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

Sentences = tuple[Message, ...]


def failed(
    reason: Reason, culprit: TaskFailure, others: Sequence[TaskFailure], spec: Spec, name: str
) -> Sentences:
    """Say why the run failed, and what to do."""
    parts = [task_ended(culprit, spec)]
    if reason is Reason.PS_EXITED:
        parts.append(Message("ServerLeftWorkers"))
    if reason is Reason.DISRUPTED:
        parts.append(Message("RestartsUsedUp", {"times": _times(spec.lifecycle.heals)}))
    if reason is Reason.OOM_KILLED:
        parts.append(_raise_memory(culprit, spec, name))
    elif advice := error_hint(culprit.exit):
        parts.append(advice)
    same = sorted(f.task for f in others if failed_alike(culprit, f))
    if same:
        parts.append(Message("FailedAlike", {"tasks": some(same)}))
    if followers := sorted({f.task for f in others}.difference(same)):
        values = {"tasks": some(followers), "count": len(followers)}
        parts.append(Message("EndedAfterIt", values))
    parts.append(Message("SeeLogs", {"name": name, "task": culprit.task}))
    return tuple(parts)


def _raise_memory(culprit: TaskFailure, spec: Spec, name: str) -> Message:
    if (limit := memory_limit(culprit, spec)) is None:
        return Message("FewerTasks")
    task_type = parse_task(culprit.task)[0].value
    option = f"--{task_type}-memory {format_bytes(2 * parse_memory(limit))}"
    return Message("RaiseMemory", {"name": name, "option": option})


def healing(
    failure: TaskFailure, together: bool, heals: int, checkpoint: str | None, spec: Spec
) -> Sentences:
    """Say what was disrupted and what is done about it."""
    if spec.mode.value == "in-graph":
        lost_variables = failure.task.startswith("ps-")
        after = Message("RestoreVariables" if lost_variables else "ClientGoesOn")
    elif not (together or _carries_training(failure.task, spec)):
        after = Message("OthersGoOn")
    elif checkpoint is None:
        after = Message("NothingSaved")
    else:
        after = Message("ResumesFrom", {"place": _place_of(checkpoint)})
    done = Message(
        "Healing",
        {
            "what": Message("RestartTogether" if together else "RestartAlone"),
            "number": heals,
            "times": _times(spec.lifecycle.heals),
            "after": after,
        },
    )
    return task_ended(failure, spec), done


def _carries_training(task: str, spec: Spec) -> bool:
    """Whether training cannot go on without this task: it holds the variables, or leads."""
    leader = "chief-0" if spec.replicas.chief.count else "worker-0"
    return task.startswith("ps-") or task == leader


def _place_of(checkpoint: str) -> Message:
    """TensorFlow 1 ends a checkpoint's name with the step; TensorFlow 2 may only count them."""
    if not checkpoint:
        return Message("NewestCheckpoint")
    if step := re.fullmatch(r"model\.ckpt-(\d+)", checkpoint):
        return Message("CheckpointAtStep", {"step": step.group(1)})
    return Message("CheckpointNamed", {"checkpoint": checkpoint})


def collateral(task: str, checkpoint: str | None) -> Message:
    """Say why the workers restart together after a disruption elsewhere."""
    where = Message("TheBeginning") if checkpoint is None else _place_of(checkpoint)
    return Message("RestartAfterDisruption", {"task": task, "where": where})


def investigating(failure: TaskFailure, seconds: float, spec: Spec) -> Message:
    """Describe a failure whose cause is not settled yet."""
    return Message("Investigating", {"ended": task_ended(failure, spec), "time": seconds})


def backing_off(failure: TaskFailure, seconds: float, number: int, spec: Spec) -> Sentences:
    """Describe a failure that will be retried."""
    most = spec.lifecycle.restarts
    retry = Message("BackingOff", {"number": number, "most": most, "time": seconds})
    return task_ended(failure, spec), retry


def queued(waiting_for: Message | None) -> Message:
    """Say why it is not started yet."""
    return Message("Queued", {"what": waiting_for or Message("Room")})


def admitted(total: int) -> Message:
    """Say that it has room and its tasks are made."""
    return Message("Starting", {"count": total})


def starting(missing: Sequence[str], total: int) -> Message:
    """Say which tasks are still missing."""
    if not missing:
        return Message("AllTasksUp", {"count": total})
    ready = total - len(missing)
    return Message("WaitingForTasks", {"tasks": some(missing), "ready": ready, "total": total})


def running(spec: Spec, unfinished: Sequence[str], finished: Sequence[str], name: str) -> Message:
    """Say which tasks run and which have finished."""
    count = len(unfinished)
    if spec.mode.value == "in-graph":
        return Message("ServersRunning", {"count": count, "name": name})
    parts = [Message("TasksRunning", {"count": count})]
    if finished:
        parts.append(Message("TasksFinished", {"tasks": some(finished)}))
    return clauses(parts)


def start_timeout(
    missing: Sequence[str], spec: Spec, name: str, because: Sequence[Message] = ()
) -> Message:
    """Who never came up; `because` are sentences that say why, where that is known."""
    serves = spec.mode.value == "in-graph" or (spec.program and spec.program.serves)
    unknown = Message("PortNotOpened" if serves else "ProgramNotStarted")
    return Message(
        "StartTimeout",
        {
            "tasks": some(missing),
            "time": spec.lifecycle.start_timeout,
            "why": clauses(because or [unknown]),
            "name": name,
            "task": missing[0] if missing else "",
        },
    )


def queue_timeout(waiting_for: Message | None, limit: float) -> Message:
    """Say that it never got room."""
    return Message("QueueTimeout", {"time": limit, "what": waiting_for or Message("Room")})


def max_duration(limit: float, unfinished: Sequence[str]) -> Message:
    """Say that it ran out of time."""
    return Message("MaxDuration", {"time": limit, "tasks": some(unfinished)})


def idle_timeout(limit: float, since: float) -> Message:
    """Say that nobody used the servers."""
    return Message("IdleTimeout", {"time": limit, "since": since})


def stopping(reason: str, by: str, left: Sequence[str], may_come: bool) -> Message:
    """Describe a stop under way."""
    parts = [Message("StopRequested", _requester(reason, by))]
    if left:
        parts.append(Message("TasksToEnd", {"tasks": some(left)}))
    elif may_come:
        parts.append(Message("TasksCalledBack"))
    return clauses(parts)


def stopped(reason: str, by: str) -> Message:
    """Describe a stop that was carried out."""
    return Message("StoppedBy", _requester(reason, by))


def _requester(reason: str, by: str) -> dict[str, Any]:
    return {"whom": by or Message("Owner"), "said": _saying(reason)}


def succeeded(finished: Sequence[str], reclaim_after: float, holding: Sequence[str]) -> Message:
    """Say that the required tasks have succeeded, and what is reclaimed later."""
    parts = [Message("Succeeded", {"tasks": some(finished)})]
    if holding:
        parts.append(Message("ReclaimLater", {"tasks": some(holding), "time": reclaim_after}))
    return clauses(parts)


def reclaimed(tasks: Sequence[str]) -> Message:
    """Name the parameter servers that were reclaimed."""
    return Message("Reclaimed", {"tasks": some(tasks)})


def trained_nothing(found: FoundCheckpoint, name: str) -> Message:
    """Say that a run began where an earlier one had ended, and what to do."""
    of = Message("OfRun", {"run": found.run}) if found.run else ""
    place = _place_of(found.checkpoint)
    return Message(
        "TrainedNothing",
        {
            "place": place,
            "of": of,
            "folder": found.folder,
            "steps": Message("Steps", {"count": found.steps}) if found.steps else Message("NoStep"),
            "anew": Message("WithoutResume" if found.run else "AnotherFolder"),
            "name": name,
        },
    )


def writes_elsewhere(folder: str) -> Message:
    """Name a folder outside of the run's own that holds its results."""
    return Message("WritesElsewhere", {"folder": folder})


def writes_lost(task: str, folder: str) -> Message:
    """Name a folder on a pod's own disk that holds results of a task."""
    return Message("WritesLost", {"task": task, "folder": folder})


def log_copy_failed(why: str) -> Message:
    """Describe a log volume that is full or gone while tasks run."""
    return Message("LogCopyFailed", {"why": why})


def record_damaged(path: str, why: str, name: str, *, ended: bool) -> Message:
    """Describe a run whose record cannot be read."""
    code = "RecordDamaged" if ended else "RecordDamagedRunning"
    return Message(code, {"path": path, "why": why, "name": name})


def full_disk(mount: str) -> str:
    """Say that the disk of a run's records is full: a warning of whoever reads the record."""
    return _(
        "No space left on the disk mounted at {mount}: what tasks print and checkpoints may be "
        "lost. Free some space there, such as with `tfcluster delete NAME --with-logs`"
    ).format(mount=mount)
