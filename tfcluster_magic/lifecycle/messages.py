"""Messages about a run's state: what happened, to which task, and what to do next. For each reason,
a function chooses the codes of messages (`spec.message_table`) and their values. Pure.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from ..i18n import ENGLISH, _, language
from ..spec import (
    ADDRESS_FLAGS,
    MEMORY_PATTERN,
    AwaitedOutcome,
    Cause,
    Clause,
    Dependency,
    Event,
    FoundCheckpoint,
    Message,
    PassFlags,
    Phase,
    Reason,
    Spec,
    Status,
    TaskExit,
    TaskFailure,
    flag_key,
)
from ..spec.message_table import FULL_STOP
from ..spec.names import parse_task
from ..spec.quantities import format_bytes, parse_memory
from .observation import Quiet

# ---- from messages to sentences ----


def sentences(parts: Iterable[Clause]) -> str:
    """Join messages as sentences in the current language."""
    whole = ""
    for part in parts:
        said = str(part)
        stop = "" if said.endswith((".", "。", "!", "?")) else _(FULL_STOP)
        whole += ("" if not whole or whole.endswith("。") else " ") + said + stop
    return whole


def english(parts: Iterable[Clause]) -> str:
    """Join messages as sentences in English. A record contains this text beside the messages'
    codes.
    """
    with language(ENGLISH):
        return sentences(parts)


def english_clause(what: Clause) -> str:
    """Return one message in English, as a part of a sentence, so without a full stop at its end."""
    with language(ENGLISH):
        return str(what)


class Told(Protocol):
    """A status, an event or a task, with an English sentence and the messages (codes and values)
    behind it.
    """

    @property
    def message(self) -> str:
        """The sentence in English."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages: codes and values."""


def shown(told: Told) -> str:
    """Return the sentences of a status, event or task in the current language. If `told` has no
    codes, or an unknown code, return its stored English sentence.
    """
    try:
        return sentences(told.messages) if told.messages else told.message
    except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
        return told.message


def shown_inferred(status: Status) -> list[str]:
    """Return one sentence, in the current language, for each fact that the launch inferred from the
    program. Facts with a code of a newer version are left out.
    """
    told = (Event(at=0.0, reason="", message="", messages=(each,)) for each in status.inferred)
    return [text for each in told if (text := shown(each))]


def with_messages(status: Status, *parts: Message) -> Status:
    """Return a copy of the status with these messages in place of its own."""
    return replace(status, messages=parts, message=english(parts))


def event(at: float, reason: Reason, *parts: Message) -> Event:
    """Return a new event with these messages, which happened at `at` (epoch seconds)."""
    return Event(at=at, reason=reason.value, message=english(parts), messages=parts)


def with_detail(task_exit: TaskExit, cause: Cause, detail: Clause, **more: Any) -> TaskExit:
    """Return a copy of `task_exit` with this cause and detail."""
    coded = detail if isinstance(detail, Message) else None
    words = english_clause(detail)
    return replace(task_exit, cause=cause, detail=words, detail_message=coded, **more)


# ---- parts of messages ----

MOST_NAMES = 5


def shorten(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return names as text, such as `worker-0, worker-1 and 7 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return _("{names} and {count} more").format(
        names=", ".join(names[:most]), count=len(names) - most
    )


def some(names: Sequence[str]) -> list[str | Message] | Message:
    """Return the names as a value for a message: at most five names, and the number of the other
    names.
    """
    first: list[str | Message] = list(names[:MOST_NAMES])
    if len(names) <= MOST_NAMES:
        return first
    return Message("AndMore", {"names": first, "count": len(names) - MOST_NAMES})


def clauses(parts: Sequence[Message]) -> Message:
    """Join several clauses into one message."""
    return parts[0] if len(parts) == 1 else Message("Clauses", {"parts": list(parts)})


def _saying(words: str) -> Clause:
    return Message("Saying", {"words": words}) if words else ""


def _in_brackets(detail: Clause, said: Clause = "") -> Clause:
    """Return a detail in brackets; empty if there is no detail or if the detail only repeats
    `said`.
    """
    repeats = bool(said) and english_clause(said) in english_clause(detail)
    return Message("InBrackets", {"detail": detail}) if detail and not repeats else ""


def _times(number: int) -> Message:
    return Message("Times", {"count": number})


# ---- what a task's last lines say ----

CANNOT_EXECUTE = 126
"""A shell's exit code for a file that it may not execute."""

_ERROR_HINTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"No module named '?tensorflow'?(?:$|[\s;])", "TensorFlowMissing", ()),
    (
        (
            r"No module named '?tensorflow\.(?:contrib|examples|app|flags)"
            r"|module '(?:tensorflow|tensorflow\._api\.v2\.\w+)' has no attribute '(?:Session|app"
            r"|placeholder|ConfigProto|get_variable|variable_scope|InteractiveSession|flags|gfile"
            r"|global_variables_initializer|set_random_seed|layers|contrib|reset_default_graph|log"
            r"|logging|python_io|assign|to_float|random_normal|truncated_normal|Supervisor"
            r"|MonitoredTrainingSession|\w+Optimizer|get_or_create_global_step|replica_device_setter"
            r"|global_step|FileWriter|merge_all|softmax_cross_entropy_with_logits_v2)'"
        ),
        "LegacyTensorFlow",
        (),
    ),
    (r"^ModuleNotFoundError: No module named '?([\w.]+)", "ModuleMissing", ("module",)),
    (
        r"(?:Could not start gRPC server|Address already in use|Failed to add port|errno: ?98)",
        "PortTaken",
        (),
    ),
    (
        r"(?:^|exec: |line \d+: )([\w./+-]+): (?:command )?not found",
        "CommandMissing",
        ("command",),
    ),
    (r"No space left on device|Disk quota exceeded", "DiskFull", ()),
    (
        r"create_per_worker_dataset|Attempt to convert a value \(PerReplica",
        "KerasUnsupported",
        (),
    ),
    (r"There is no id for task_type '?ps", "NoServersWanted", ()),
    (r"py_function|PyFunc|EagerPyFunc", "PyFunctionElsewhere", ()),
    (
        (
            r"PermissionDeniedError: (\S+); Permission denied|PermissionError: .*: '([^']+)"
            r"|Read-only file system: '([^']+)"
        ),
        "PathNotWritable",
        ("path",),
    ),
    (r"Permission denied: '?([^']+)", "PathNotWritable", ("path",)),
    (
        (
            r"FileNotFoundError: .*: '([^']+)'|NotFoundError: (\S+); No such file"
            r"|can't open file '([^']+)'"
        ),
        "FileMissing",
        ("path",),
    ),
    (
        (
            r"^MemoryError|ArrayMemoryError|std::bad_alloc|Unable to allocate .* for an array"
            r"|OOM when allocating .*device:CPU"
        ),
        "HostMemory",
        (),
    ),
    (
        (
            r"OOM when allocating|CUDA_ERROR_OUT_OF_MEMORY|Status: out of memory"
            r"|ResourceExhaustedError: .*(?:allocate|[Oo]ut of memory)"
        ),
        "DeviceMemory",
        (),
    ),
    (
        (
            r"lib(?:cuda|cudart|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nccl)[\w.-]*"
            r": cannot open shared object"
        ),
        "CudaMissing",
        (),
    ),
    (
        r"DNN library is not found|DNN library initialization failed|CUDNN_STATUS_",
        "CudnnFailed",
        (),
    ),
    (r"version `?(?:GLIBCXX|GLIBC|CXXABI)_[\d.]+'? not found", "OlderSystem", ()),
    (
        (
            r"Descriptors cannot (?:not )?be created directly|compiled using NumPy 1"
            r"|numpy\.core\.multiarray failed to import|_ARRAY_API not found"
            r"|numpy\.\w+ size changed"
        ),
        "PackagesConflict",
        (),
    ),
    (
        r"error: unrecognized arguments?: (.+)|Unknown command line flag '([^']+)'",
        "UnknownArguments",
        ("arguments",),
    ),
    (r"OutOfRangeError: End of sequence|[Yy]our input ran out of data", "DataRanOut", ()),
    (
        r"error: the following arguments are required: (.+)",
        "MissingArguments",
        ("arguments",),
    ),
)
"""Patterns of frequent errors, each with the advice to show for it. If several patterns match, the
first one counts. Each entry has a pattern for the error, the code of the advice, and the names of
the advice's values, which are the groups of the pattern.
"""
_LOG_NOISE = re.compile(
    r"^\s*$|^[IWE]\d{4} |^\d{4}-\d\d-\d\d .*: [IWE] |^\*\*\*|^\s+(File |@|\^|~)|^Traceback "
)


def last_error_line(task_exit: TaskExit) -> str:
    """Return the error in a task's output; if none was recognized, the last line that is no log
    noise.
    """
    if task_exit.error or task_exit.signal:
        return task_exit.error
    for line in reversed(task_exit.last_lines):
        if not _LOG_NOISE.match(line):
            return line.strip()[:300]
    return ""


def error_hint(task_exit: TaskExit) -> Message | None:
    """Return the advice about a known error; None for any other error."""
    if task_exit.signal == signals.SIGILL:
        return Message("OtherProcessor")
    printed = "\n".join(task_exit.last_lines)
    if task_exit.error:
        printed = f"{task_exit.error}\n{task_exit.origin}"
    if task_exit.exit_code == CANNOT_EXECUTE and (
        found := re.search(r"([\w./+-]+): Permission denied", printed)
    ):
        return Message("NotExecutable", {"command": found.group(1)})
    for pattern, code, names in _ERROR_HINTS:
        if match := re.search(pattern, printed, re.MULTILINE):
            values = [group.strip() for group in match.groups() if group]
            return Message(code, dict(zip(names, values, strict=True)))
    return None


_FLAG_REFUSED = re.compile(
    r"unrecogni[sz]ed (?:arguments?|option)|no such option|unknown (?:command line )?(?:flag|option"
    r"|argument)|option -\S+ not recognized|illegal option|could not consume arg|ambiguous option"
    r"|error: argument -|Invalid value for|unexpected extra argument|flag --\S+: ",
    re.IGNORECASE,
)
"""Messages of argparse, optparse, absl, click, getopt, fire and shells for a refused flag."""


def refused_flag(task_exit: TaskExit, spec: Spec, name: str) -> Message | None:
    """Return what to do about a flag that TFCluster passed and the program refused; None if it
    refused no such flag.
    """
    blamed: list[str] = []
    for line in filter(_FLAG_REFUSED.search, task_exit.last_lines):
        words = set(re.findall(r"(?:--|(?<=['\"`]))([A-Za-z][\w-]*)", line))
        blamed += [f for f in spec.passed_flags if f in words and f not in blamed]
    if not blamed:
        return None
    word = PassFlags.NONE if {*map(flag_key, blamed)} & {*ADDRESS_FLAGS} else PassFlags.ADDRESSES
    flags = [f"--{flag}" for flag in blamed]
    return Message(
        "FlagRefused",
        {"flags": flags, "count": len(blamed), "name": name, "word": word.value},
    )


def _said(task_exit: TaskExit) -> Clause:
    """Return the error in a task's output, with its file and line and the error that caused it."""
    said: Clause = _saying(words := last_error_line(task_exit))
    if words and task_exit.file:
        file, line = task_exit.file, task_exit.line
        said = Message("SayingAt", {"words": words, "file": file, "line": line})
    if words and task_exit.origin:
        said = Message("CausedBy", {"said": said, "error": task_exit.origin})
    return said


_HIDDEN = {"thread": "ThreadDied", "process": "ProcessDied", "pipe": "PipeHid"}


def hidden_error(task: str, task_exit: TaskExit) -> Message | None:
    """Describe the error in the output of a task that succeeded nevertheless."""
    code = _HIDDEN.get(task_exit.hidden)
    return Message(code, {"task": task, "said": _said(task_exit)}) if code else None


# ---- how a task ended ----


def _signal_name(number: int) -> Clause:
    known = {each.value: each.name for each in signals.Signals}
    return known.get(number) or Message("SignalNumber", {"number": number})


def _signal_in_detail(detail: str) -> Clause:
    """Return the signal that the detail names, else `SomeSignal`: a shell does not report which
    signal ended its child.
    """
    found = re.search(r"\bSIG[A-Z0-9]+", detail)
    return found.group() if found else Message("SomeSignal")


def task_ended(failure: TaskFailure, spec: Spec) -> Message:
    """Return a clause such as `worker-1 failed with exit code 1: ValueError: …`."""
    task, task_exit = failure.task, failure.exit
    words, said = last_error_line(task_exit), _said(task_exit)
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
        return Message("Crashed", {"task": task, "signal": by, "more": beside, "said": said})
    if task_exit.exit_code == 0:
        return Message("ExitCodeZero", {"task": task, "said": said})
    if task_exit.exit_code is None:
        return Message("Failed", {"task": task, "said": said})
    code_ended = task_exit.exit_code
    return Message("ExitCode", {"task": task, "code": code_ended, "said": said})


def exit_message(failure: TaskFailure, spec: Spec) -> str:
    """Return `task_ended` in the current language."""
    return str(task_ended(failure, spec))


_LIMIT = re.compile(rf"limit ({MEMORY_PATTERN[1:-1]})(?:$|, )")


def memory_limit(failure: TaskFailure, spec: Spec) -> str | None:
    """Return the memory limit that the spec requests, else the effective limit in the exit's detail
    (`limit 1Gi, …`).
    """
    given = _LIMIT.match(failure.exit.detail)
    asked = spec.replicas.of(parse_task(failure.task)[0]).resources.memory
    return asked or (given and given.group(1))


def _memory_used(task_exit: TaskExit) -> Clause:
    """Return the detail of the exit without the memory limit."""
    given = _LIMIT.match(task_exit.detail)
    rest = task_exit.detail[given.end() :] if given else task_exit.detail
    used = re.fullmatch(r"used (\S+)", rest)
    return Message("MemoryUsed", {"used": used.group(1)}) if used else rest


def out_of_memory_detail(limit: str, used: str) -> str:
    """Return the detail of the exit of a task that exceeded its memory limit. `memory_limit` parses
    this text.
    """
    return f"limit {limit}, used {used}" if used else f"limit {limit}"


def failed_alike(failure: TaskFailure, other: TaskFailure) -> bool:
    """Return whether two tasks failed with the same cause, exit code and error line, and neither
    because it lost a peer.
    """
    first, second = failure.exit, other.exit
    return (
        bool(last_error_line(first))
        and not (first.follows or second.follows)
        and (first.cause, first.exit_code, last_error_line(first))
        == (second.cause, second.exit_code, last_error_line(second))
    )


# ---- why a run is in its state ----

Sentences = tuple[Message, ...]


def failed(
    reason: Reason, culprit: TaskFailure, others: Sequence[TaskFailure], spec: Spec, name: str
) -> Sentences:
    """Say why the run failed, and what to do."""
    if reason is Reason.PEER_FINISHED:
        return _peer_finished(culprit, others, name)
    parts = [task_ended(culprit, spec)]
    if reason is Reason.PS_EXITED:
        parts.append(Message("ServerLeftWorkers"))
    if reason is Reason.DISRUPTED:
        parts.append(Message("RestartsUsedUp", {"times": _times(spec.lifecycle.heals)}))
    if reason is Reason.OOM_KILLED:
        parts.append(_raise_memory(culprit, spec, name))
    elif advice := refused_flag(culprit.exit, spec, name) or error_hint(culprit.exit):
        parts.append(advice)
    same = sorted(f.task for f in others if failed_alike(culprit, f))
    if same:
        parts.append(Message("FailedAlike", {"tasks": some(same)}))
    if followers := sorted({f.task for f in others}.difference(same)):
        values = {"tasks": some(followers), "count": len(followers)}
        parts.append(Message("EndedAfterIt", values))
    parts.append(Message("SeeLogs", {"name": name, "task": culprit.task}))
    return tuple(parts)


def _peer_finished(finished: TaskFailure, others: Sequence[TaskFailure], name: str) -> Sentences:
    """Say that a worker finished while others needed it, and how the first of the others failed."""
    first = min(others, key=lambda f: f.exit.finished_at)
    told = {
        "task": finished.task,
        "others": some(sorted({f.task for f in others})),
        "said": _said(first.exit),
    }
    output = Message("SeeLogs", {"name": name, "task": finished.task})
    return Message("FinishedFirst", told), Message("EqualSteps"), output


def _raise_memory(culprit: TaskFailure, spec: Spec, name: str) -> Message:
    if (limit := memory_limit(culprit, spec)) is None:
        return Message("FewerTasks")
    task_type = parse_task(culprit.task)[0].value
    option = f"--{task_type}-memory {format_bytes(2 * parse_memory(limit))}"
    return Message("RaiseMemory", {"name": name, "option": option})


def healing(
    failure: TaskFailure, together: bool, heals: int, checkpoint: str | None, spec: Spec
) -> Sentences:
    """Say what was disrupted, and what is done about it."""
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
    """Return whether training cannot continue without this task, such as the chief or a parameter
    server.
    """
    leader = "chief-0" if spec.replicas.chief.count else "worker-0"
    return task.startswith("ps-") or task == leader


def _place_of(checkpoint: str) -> Message:
    """Return a message that says where training resumes, given the name of a checkpoint. TensorFlow
    1 ends a checkpoint's name with the step; TensorFlow 2 may only count checkpoints.
    """
    if not checkpoint:
        return Message("NewestCheckpoint")
    if step := re.fullmatch(r"model\.ckpt-(\d+)", checkpoint):
        return Message("CheckpointAtStep", {"step": step.group(1)})
    return Message("CheckpointNamed", {"checkpoint": checkpoint})


def collateral(task: str, checkpoint: str | None) -> Message:
    """Say that the workers restart together because `task` failed after the disruption of another
    task.
    """
    where = Message("TheBeginning") if checkpoint is None else _place_of(checkpoint)
    return Message("RestartAfterDisruption", {"task": task, "where": where})


def investigating(failure: TaskFailure, seconds: float, spec: Spec) -> Message:
    """Describe a failure whose cause is not known yet."""
    return Message("Investigating", {"ended": task_ended(failure, spec), "time": seconds})


def backing_off(failure: TaskFailure, seconds: float, number: int, spec: Spec) -> Sentences:
    """Describe a failure after which the program is retried."""
    most = spec.lifecycle.restarts
    retry = Message("BackingOff", {"number": number, "most": most, "time": seconds})
    return task_ended(failure, spec), retry


def queued(waiting_for: Message | None) -> Message:
    """Say why the run has not started. None means that the free resources are not known yet."""
    return (
        Message("ChecksRoom") if waiting_for is None else Message("Queued", {"what": waiting_for})
    )


def awaits(waits: Sequence[Dependency], missing: Sequence[str] = ()) -> Message:
    """Say for which runs a run waits; `missing` are the runs that do not exist yet."""
    parts = [
        Message(
            "RunToSucceed" if each.until is AwaitedOutcome.SUCCESS else "RunToEnd",
            {"run": each.run},
        )
        for each in waits
    ]
    what = parts[0] if len(parts) == 1 else Message("AllOf", {"parts": parts})
    return Message("NoSuchRunYet", {"what": what, "runs": list(missing)}) if missing else what


def with_first_reason(spec: Spec, status: Status, ended: Collection[str] = ()) -> Status:
    """Return the status of a new run with a message that says why it is queued: it waits for other
    runs, except those in `ended`, or for free resources. The first turn replaces the message.
    """
    if status.message or status.phase is not Phase.QUEUED:
        return status
    left = [each for each in spec.after if each.run not in ended]
    return with_messages(status, queued(awaits(left) if left else None))


def awaited_done(after: Sequence[Dependency]) -> Message:
    """Say that the runs that were waited for are done."""
    return Message("AwaitedDone", {"runs": [each.run for each in after]})


def admitted(total: int) -> Message:
    """Say that the run has its resources and its tasks are being created."""
    return Message("Starting", {"count": total})


def starting(missing: Sequence[str], total: int) -> Message:
    """Say which tasks are not up yet."""
    if not missing:
        return Message("AllTasksUp", {"count": total})
    ready = total - len(missing)
    return Message("WaitingForTasks", {"tasks": some(missing), "ready": ready, "total": total})


def running(
    spec: Spec,
    unfinished: Sequence[str],
    finished: Sequence[str],
    name: str,
    evaluator: Message | None = None,
) -> Message:
    """Say which tasks run and which have finished, and how the evaluator ended if it failed."""
    count = len(unfinished)
    if spec.mode.value == "in-graph":
        return Message("ServersRunning", {"count": count, "name": name})
    parts = [Message("TasksRunning", {"count": count})]
    if finished:
        parts.append(Message("TasksFinished", {"tasks": some(finished)}))
    if evaluator is not None and evaluator.code != "EvaluatorFinished":
        parts.append(evaluator)
    return clauses(parts)


Quiets = Mapping[str, Quiet]
"""By the name of a task that does nothing: since when it has been silent, and for which task it
waits.
"""


def stalled(
    since: float, waiting: Quiets, finished: Mapping[str, float], spec: Spec, name: str
) -> Sentences:
    """Say that no task does anything any more, which tasks wait for which other tasks and since
    when, and what to do. `waiting` has the trainers that have not finished. `finished` has, for
    each trainer that has finished, the time at which it finished, in epoch seconds.
    """
    tasks = list(waiting)
    first = Message("Stalled", {"tasks": some(tasks), "since": since, "count": len(tasks)})
    advice = Message("StallAdvice", {"name": name})
    leader = "chief-0" if spec.replicas.chief.count else "worker-0"
    if spec.lifecycle.stall_timeout is not None:
        advice = Message("StallEnds", {"time": spec.lifecycle.stall_timeout})
    elif leader in finished and spec.success_policy.value == "all":
        advice = Message("StallAdviceLeader", {"name": name, "task": leader})
    stacks = Message("StallStacks", {"name": name})
    return (first, *_who_waits_for_whom(waiting, finished), stacks, advice)


def stalled_for(
    limit: float,
    since: float,
    waiting: Quiets,
    finished: Mapping[str, float],
    culprit: str,
    name: str,
) -> Sentences:
    """Say that a run was ended because nothing happened any more."""
    values = {"tasks": some(list(waiting)), "time": limit, "since": since}
    logs = Message("SeeLogs", {"name": name, "task": culprit})
    stacks = Message("StallStacks", {"name": name})
    return (Message("StallTimeout", values), *_who_waits_for_whom(waiting, finished), stacks, logs)


MOST_PEERS = 2


def _who_waits_for_whom(waiting: Quiets, finished: Mapping[str, float]) -> Sentences:
    """Say for which tasks the silent tasks wait, as far as TensorFlow names them. If none of the
    named tasks has finished, also say which tasks have finished.
    """
    peers: dict[str, list[str]] = {}
    for task, quiet in waiting.items():
        if quiet.peer:
            peers.setdefault(quiet.peer, []).append(task)
    found: list[Message] = []
    for peer in sorted(peers, key=lambda each: each not in finished)[:MOST_PEERS]:
        values: dict[str, Any] = {"tasks": some(peers[peer]), "peer": peer}
        values["count"] = len(peers[peer])
        if peer in finished:
            values["at"] = finished[peer]
        found.append(Message("WaitsForFinished" if peer in finished else "WaitsForTask", values))
    if finished and not any(peer in finished for peer in peers):
        at = max(finished.values())
        values = {"tasks": some(list(finished)), "at": at, "count": len(finished)}
        found.append(Message("FinishedBefore", values))
    words = next((quiet.words for quiet in waiting.values() if quiet.words), "")
    if words and not peers:
        found.append(Message("TensorFlowSays", {"words": words}))
    return tuple(found)


START_SIGNS = {
    "ports": "StartedElsewhere",
    "steps": "StartedBySteps",
    "events": "StartedByEventFiles",
    "cpu": "StartedByCpu",
}
"""The signs of activity by which a task counts as started although its port is closed, each with
the code of its message.
"""


def start_oddity(
    task: str, sign: str, own: int, ports: Sequence[int], cores: float, seconds: float
) -> Message | None:
    """Return the message that a task counts as started because of `sign`, a key of `START_SIGNS`,
    although its port is closed. Return None if the sign is unknown.

    `own` is the task's closed port, `ports` are the ports on which it listens instead. The task
    used `cores` CPU cores for `seconds`.
    """
    values: dict[str, Any] = {"task": task, "own": own}
    if sign == "ports":
        values["ports"] = some([str(port) for port in ports])
    if sign == "cpu":
        values |= {"cores": f"{cores:.1f}", "time": seconds}
    return Message(START_SIGNS[sign], values) if sign in START_SIGNS else None


def start_timeout(
    missing: Sequence[str], spec: Spec, name: str, because: Sequence[Message] = ()
) -> Message:
    """Say which tasks never came up; `because` says why, if known."""
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


NO_IMAGE = (
    "ImageNotFound",
    "ImagePrivate",
    "ImageSecretRefused",
    "ImageNameInvalid",
    "ImageNotOnNode",
    "ImageOtherProcessor",
)
"""Codes of permanent problems with an image: waiting for the image is useless."""


def no_image(tasks: Sequence[str], why: Message, words: str, limit: float) -> Sentences:
    """Say that an image was still not available after `limit` seconds. `words` is the registry's
    answer.
    """
    said = _in_brackets(Message("RegistrySays", {"words": words}) if words else "")
    values = {"tasks": some(tasks), "time": limit, "why": why, "said": said}
    return Message("ImageTimeout", values), Message("ImageAdvice")


def queue_timeout(waiting_for: Message | None, limit: float) -> Message:
    """Say that the resources for the run did not become free within `limit` seconds."""
    return Message("QueueTimeout", {"time": limit, "what": waiting_for or Message("Room")})


def max_duration(limit: float, unfinished: Sequence[str], name: str) -> Message:
    """Say that the run reached its maximum duration, and which tasks had not finished."""
    return Message("MaxDuration", {"time": limit, "tasks": some(unfinished), "name": name})


def idle_timeout(limit: float, since: float) -> Message:
    """Say that the run ended because its servers were not used for `limit` seconds."""
    return Message("IdleTimeout", {"time": limit, "since": since})


def stopping(reason: str, by: str, left: Sequence[str], may_come: bool) -> Message:
    """Say who asked the run to stop and why, and which tasks have not ended yet."""
    parts = [Message("StopRequested", _requester(reason, by))]
    if left:
        parts.append(Message("TasksToEnd", {"tasks": some(left)}))
    elif may_come:
        parts.append(Message("TasksCalledBack"))
    return clauses(parts)


def stopped(reason: str, by: str) -> Message:
    """Say who stopped the run, and why."""
    return Message("StoppedBy", _requester(reason, by))


def _requester(reason: str, by: str) -> dict[str, Any]:
    return {"whom": by or Message("Owner"), "said": _saying(reason)}


def evaluator_ended(ended: TaskFailure, spec: Spec) -> Message:
    """Say how the evaluator ended: it failed, or was stopped when training was over."""
    if ended.exit.cause is Cause.STOPPED:
        return ended.exit.detail_message or Message("EvaluatorStoppedEarly")
    words = last_error_line(ended.exit)
    if ended.exit.cause is Cause.ERROR and words:
        return Message("EvaluatorFailed", {"words": words})
    return task_ended(ended, spec)


def succeeded(
    finished: Sequence[str],
    reclaim_after: float,
    holding: Sequence[str],
    evaluator: Message | None = None,
) -> Message:
    """Say that the required tasks have succeeded, which tasks still run and when they will be
    stopped, and how the evaluator ended.
    """
    parts = [Message("Succeeded", {"tasks": some(finished)})]
    if evaluator is not None:
        parts.append(evaluator)
    if holding:
        parts.append(Message("ReclaimLater", {"tasks": some(holding), "time": reclaim_after}))
    return clauses(parts)


def reclaimed(tasks: Sequence[str]) -> Message:
    """Name the parameter servers that were reclaimed."""
    return Message("Reclaimed", {"tasks": some(tasks)})


def trained_nothing(found: FoundCheckpoint, name: str) -> Message:
    """Say that a run trained nothing, because it resumed a training that was already complete, and
    what to do.
    """
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
    """Say that results of the run are in `folder`, which is not the run's own folder."""
    return Message("WritesElsewhere", {"folder": folder})


def writes_lost(task: str, folder: str) -> Message:
    """Warn that a task writes results into a folder on its pod's own disk, which is deleted with
    the pod.
    """
    return Message("WritesLost", {"task": task, "folder": folder})


def log_copy_failed(why: str) -> Message:
    """Say that the log volume is full or gone while tasks run."""
    return Message("LogCopyFailed", {"why": why})


def record_damaged(path: str, why: str, name: str, *, ended: bool) -> Message:
    """Say that the record of a run is unreadable."""
    code = "RecordDamaged" if ended else "RecordDamagedRunning"
    return Message(code, {"path": path, "why": why, "name": name})


def full_disk(mount: str) -> str:
    """Return the warning that the disk of a run's records is full."""
    return _(
        "No space left on the disk mounted at {mount}: checkpoints and task output may be lost. "
        "Free some space there, for example with `tfcluster delete NAME --with-logs`"
    ).format(mount=mount)
