"""Every error a person may meet, as one tree; messages say what was asked, what is allowed, what to
do.

    TFClusterError            anything that a face may show as it is, without a traceback
    ├── UsageError            the words are not a command
    │   └── TooLarge          the request has more bytes than are accepted
    ├── InvalidRequest        the request itself is wrong: all problems at once
    │   └── PreflightRefused  well formed, but it does not fit: the number that would fit
    ├── NameTaken             a run of this name is still active
    ├── NotFound              no such run, task or log
    ├── NotAllowed            it may be there, but is not for this door
    ├── Conflict              the verb does not apply to the run's present phase
    ├── ClusterFailed         raised by wait(): the run ended without success
    ├── WaitTimeout           raised by wait(): the run did not get there in time
    ├── BackendUnavailable    the world behind the verbs does not answer
    └── ClientUnsupported     In-Graph client: this combination cannot work, and what does

Faces turn them into an exit code (`exit_code`) or an HTTP status (`http_status`); nothing else
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .i18n import _, mark
from .terminal_text import tame


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: `field` (JSON path), the `value` given, and what is `allowed`.

    `fits` is the value that would do, where there is one.
    """

    field: str
    value: object
    allowed: str
    fits: int | None = None

    def __str__(self) -> str:
        shown = _("nothing") if self.value is None else repr(self.value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        return _("{field}: got {value}; {allowed}").format(
            field=self.field, value=shown, allowed=self.allowed
        )


def in_cells(text: str) -> str:
    """A message with its commands as they are written in a cell."""
    return text.replace("`tfcluster ", "`%tfcluster ")


class TFClusterError(Exception):
    """An error that is reported to the user as its message alone."""

    exit_code = 1
    http_status = 500

    def _render_traceback_(self) -> list[str]:
        """What IPython shows below the failed cell: the message, commands as cells have them."""
        return [tame(in_cells(f"{type(self).__name__}: {self}"))]


class UsageError(TFClusterError):
    """The words are not a command: an unknown verb or option, or some that exclude each other."""

    exit_code = 2
    http_status = 400


class TooLarge(UsageError):
    """A request has more bytes than are accepted; none of them was used."""

    http_status = 413


class InvalidRequest(TFClusterError):
    """The request is wrong; `problems` holds every one of them."""

    exit_code = 2
    http_status = 422
    headline = mark("the launch was refused")

    def __init__(self, problems: Sequence[Problem], headline: str | None = None) -> None:
        self.problems = tuple(problems)
        head = headline or _(self.headline)
        if len(self.problems) == 1:
            text = _("{what}: {problem}").format(what=head, problem=self.problems[0])
        else:
            title = _("{what} for {count} reasons:").format(what=head, count=len(self.problems))
            text = "\n".join([title, *(f"  - {p}" for p in self.problems)])
        super().__init__(text)


class PreflightRefused(InvalidRequest):
    """Well formed, but there is no room; each problem names the number that fits."""

    exit_code = 3
    http_status = 409
    headline = mark("there is no room for this cluster")


class NameTaken(TFClusterError):
    """A run of this name is still active."""

    exit_code = 4
    http_status = 409


class NotFound(TFClusterError):
    """No such run, task or log."""

    exit_code = 5
    http_status = 404


class NotAllowed(TFClusterError):
    """What was named lies outside of what may be reached this way."""

    exit_code = 5
    http_status = 403


class Conflict(TFClusterError):
    """The verb does not apply to the run as it is now."""

    exit_code = 4
    http_status = 409


class ClusterFailed(TFClusterError):
    """A run that somebody waited for ended without success."""

    exit_code = 10


class WaitTimeout(TFClusterError):
    """The run did not reach the awaited phase in time; it goes on."""

    exit_code = 11
    http_status = 504


class BackendUnavailable(TFClusterError):
    """The backend cannot be used or does not answer."""

    exit_code = 6
    http_status = 503


class ClientUnsupported(TFClusterError):
    """What the In-Graph client was asked for cannot work; the message says what does."""
