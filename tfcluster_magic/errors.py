"""All errors that users see, and removal of terminals' control sequences from text.

The message of an error says what was requested, what is allowed, and what to do.

    TFClusterError            any error that is shown to users as it is, without a traceback
    ├── UsageError            the arguments are not a valid command
    │   └── TooLarge          the request has more bytes than are accepted
    ├── InvalidRequest        the request itself is wrong: all problems at once
    │   └── PreflightRefused  valid, but there is no room; the message says how many tasks fit
    │       └── SetupRefused  something that it needs is missing or not allowed here
    ├── NameTaken             a run of this name is still active
    ├── NotFound              no such run, task or log
    ├── NotAllowed            it may exist, but cannot be reached in this way
    ├── Conflict              the verb does not apply to the run's present phase
    ├── ClusterFailed         raised by wait(): the run ended without success
    ├── WaitTimeout           raised by wait(): the run did not reach the phase in time
    ├── BackendUnavailable    the backend does not answer, or cannot be used
    └── ClientUnsupported     In-Graph client: cannot work here; the message says what does

Only the user interfaces turn errors into an exit code (`exit_code`) or an HTTP status
(`http_status`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from .spec.message_table import Clause, Message

if TYPE_CHECKING:
    import tensorflow_log  # by bare name, as the runtime's modules import each other
else:  # runtime/ is a folder of scripts, not a package
    tensorflow_log = import_module("tfcluster_magic.runtime.tensorflow_log")

TensorFlowLog = tensorflow_log.TensorFlowLog
are_program_lines, program_lines = tensorflow_log.are_program_lines, tensorflow_log.program_lines


@dataclass(frozen=True)
class Problem:
    """One problem of a request: the `field` (a JSON path, or the subject), the `value` given, and
    what is `allowed`.

    `fits` is a value that would be accepted, if there is one. If the operator may refuse a run
    because of this problem, `field` and `allowed` must be messages, because the run's record stores
    messages. Otherwise they may be text. `str()` of a `Message` returns its text in the current
    language.
    """

    field: Clause
    value: object
    allowed: Clause
    fits: int | None = None

    @property
    def message(self) -> Message:
        """The problem as one message, for a record."""
        value = _shown_value(self.value)
        return Message("Problem", {"field": self.field, "value": value, "allowed": self.allowed})

    def __str__(self) -> str:
        return str(self.message)


def _shown_value(value: object) -> Clause:
    if value is None:
        return Message("Nothing")
    if isinstance(value, Message):
        return Message("Quoted", {"words": value})
    shown = repr(value)
    return shown if len(shown) <= 120 else shown[:117] + "..."


def with_magic_commands(text: str) -> str:
    """Return a message in which each command is written as it is typed in a cell."""
    return text.replace("`tfcluster ", "`%tfcluster ")


class TFClusterError(Exception):
    """An error that is reported to the user by its message, without a traceback."""

    exit_code = 1
    http_status = 500

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows below the failed cell: the message, with commands as typed in
        cells.
        """
        return [sanitize_text(with_magic_commands(f"{type(self).__name__}: {self}"))]


class UsageError(TFClusterError):
    """The command is invalid: an unknown verb or option, or options that exclude each other."""

    exit_code = 2
    http_status = 400


class TooLarge(UsageError):
    """The request has more bytes than are accepted; nothing was done."""

    http_status = 413


class InvalidRequest(TFClusterError):
    """The request is wrong. `problems` holds every problem; `message` has all of them below one
    headline.
    """

    exit_code = 2
    http_status = 422
    headline = Message("LaunchRefused")

    def __init__(self, problems: Sequence[Problem], headline: Clause | None = None) -> None:
        self.problems = tuple(problems)
        what, found = headline or self.headline, [each.message for each in self.problems]
        if len(found) == 1:
            self.message = Message("RefusedFor", {"what": what, "problem": found[0]})
        else:
            values = {"what": what, "count": len(found), "problems": found}
            self.message = Message("RefusedForReasons", values)
        super().__init__(str(self.message))


MOST_PROBLEMS = (20, 10, 5, 3, 1)
"""If a refusal is too long for a record, it is cut to its first 20 problems; if it is still too
long, to its first 10, and so on.
"""


def with_few_problems(refusal: Clause, most: int) -> Clause:
    """Return a refusal with its first `most` problems and the number of the others. Text is
    returned unchanged.
    """
    if isinstance(refusal, str):
        return refusal
    values = {
        name: with_few_problems(value, most) if isinstance(value, Message) else value
        for name, value in refusal.params.items()
    }
    problems = values.get("problems")
    if refusal.code == "RefusedForReasons" and isinstance(problems, list | tuple):
        *first, last = problems
        more = int(last.params["count"]) if _counts_more(last) else 0
        found = first if more else problems
        if len(found) > most:
            rest = Message("More", {"count": len(found) - most + more})
            values["problems"] = [*found[:most], rest]
    return Message(refusal.code, values)


def _counts_more(problem: Clause) -> bool:
    return isinstance(problem, Message) and problem.code == "More"


class PreflightRefused(InvalidRequest):
    """The request is valid, but there is no room for it. Where possible, a problem names the number
    of tasks that would fit.
    """

    exit_code = 3
    http_status = 409
    headline = Message("NoRoomForCluster")


class SetupRefused(PreflightRefused):
    """The request is valid, but something it needs is missing or not allowed here: a Python, a
    folder, an image. Fewer tasks or resources would not help.
    """

    exit_code = 7
    headline = Message("CannotRunHere")


class NameTaken(TFClusterError):
    """A run of this name is still active."""

    exit_code = 4
    http_status = 409


class NotFound(TFClusterError):
    """The run, task or log does not exist."""

    exit_code = 5
    http_status = 404


class NotAllowed(TFClusterError):
    """The request names something that cannot be reached this way."""

    exit_code = 5
    http_status = 403


class Conflict(TFClusterError):
    """The command cannot be applied to the run in its present phase."""

    exit_code = 4
    http_status = 409


class ClusterFailed(TFClusterError):
    """The awaited run ended without success."""

    exit_code = 10


class WaitTimeout(TFClusterError):
    """The run did not reach the awaited phase in time; the run continues."""

    exit_code = 11
    http_status = 504


class WaitInterrupted(KeyboardInterrupt):
    """The user interrupted a wait. The run continues; the code after the wait does not run."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows below the interrupted cell: the message, no traceback."""
        return [sanitize_text(with_magic_commands(str(self)))]


class BackendUnavailable(TFClusterError):
    """The backend cannot be used or does not answer."""

    exit_code = 6
    http_status = 503


class ClientUnsupported(TFClusterError):
    """The In-Graph client cannot do what was asked; the message says what works."""


# Text from others, made safe for a terminal. Program output, names and stop reasons come from other
# people. Control characters in them could move the cursor, rewrite the line above, or set a
# clipboard or a link. Bidirectional marks could show the characters of a name in a wrong order.

# This pattern matches escape sequences of ECMA-48 (CSI, and OSC and similar ones with their
# content), the control characters C0 and C1, and characters that change the direction of text or
# end a line invisibly. If a sequence begins with a C1 character, only this character matches and
# not the rest of the sequence, because wrongly encoded text has such characters, too.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RESET = "\x1b[0m"


def one_line(text: str) -> str:
    """Return `text` on one line, without anything that moves the cursor or changes colours."""
    return strip_controls(text.replace("\n", " ").replace("\t", " "))


def strip_controls(text: str) -> str:
    """Return `text` without control sequences, including colours; line breaks and tabs stay."""
    return _CONTROL.sub("", text)


def sanitize_text(text: str) -> str:
    """Return `text` with its colours, but without other control sequences. The colours are reset at
    the end, as they could otherwise hide what is printed next.
    """
    found = _CONTROL.sub(lambda each: each[0] if _COLOUR.fullmatch(each[0]) else "", text)
    return found if "\x1b" not in found or found.endswith(_RESET) else found + _RESET


def last_overwrite(text: str) -> str:
    """Return the last state of a line that overwrites itself, as progress bars do."""
    if "\r" not in text:
        return text
    parts = [part for part in text.split("\r") if part.strip()]
    return parts[-1] if parts else ""
