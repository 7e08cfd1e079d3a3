"""How a task ended, in words: what a record's message, its events and its table say of an end.

Pure: one failure in, a clause without a full stop out. What follows from it is `explain`'s.
"""

from __future__ import annotations

import re
import signal as signals

from ..i18n import _
from ..spec import MEMORY_PATTERN, Cause, Spec, TaskFailure
from ..spec.names import parse_task
from .hints import last_words


def _signal_name(number: int) -> str:
    known = {each.value: each.name for each in signals.Signals}
    return known.get(number) or _("signal {number}").format(number=number)


def _named_signal(detail: str) -> str:
    """The signal of which only a detail tells: a shell hides what ended its child."""
    found = re.search(r"\bSIG[A-Z0-9]+", detail)
    return found.group() if found else _("a signal")


def _beside(detail: str, said: str | None = None) -> str:
    """A detail in brackets, unless it only repeats what was `said`."""
    return f" ({detail})" if detail and not (said and said in detail) else ""


def how_it_ended(failure: TaskFailure, spec: Spec) -> str:
    """`worker-1 failed with exit code 1: ValueError: …`, without a full stop."""
    task, task_exit = failure.task, failure.exit
    words = last_words(task_exit)
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
        return text.format(task=task, limit=limit) + _beside(more.removeprefix(known).lstrip(", "))
    if task_exit.cause is Cause.KILLED:
        by = _signal_name(task_exit.signal) if task_exit.signal else _named_signal(more)
        text = _("{task} was killed from outside ({by})").format(task=task, by=by)
        return text + _beside(more, by)
    if task_exit.cause is Cause.NOT_STARTED:
        why = task_exit.detail or words or _("no reason was given")
        return _("{task} could not be started: {why}").format(task=task, why=why)
    if task_exit.cause in (Cause.EVICTED, Cause.LOST):
        gone = _("{task} was lost") if task_exit.cause is Cause.LOST else _("{task} was evicted")
        return gone.format(task=task) + _beside(more)
    if task_exit.signal:
        by = _signal_name(task_exit.signal)
        return _("{task} crashed ({by})").format(task=task, by=by) + _beside(more, by) + said
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


def alike(failure: TaskFailure, other: TaskFailure) -> bool:
    """Whether two tasks failed by themselves with the same last words: neither broke the other."""
    first, second = failure.exit, other.exit
    return (
        bool(last_words(first))
        and not (first.follows or second.follows)
        and (first.cause, first.exit_code, last_words(first))
        == (second.cause, second.exit_code, last_words(second))
    )
