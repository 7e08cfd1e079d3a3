"""Placeholders for the due time in a program's arguments and environment.

There are only two, each with an optional format:

    {scheduled_for}             2026-11-27T02:00:00+08:00
    {scheduled_for:%Y-%m-%d}    2026-11-27
    {previous_success:%Y%m%d}   the newest earlier due time that succeeded, or empty

Every other text in braces stays as it is. No template engine reads a user's text: names come from a
list, and formats may hold only the directives in `DIRECTIVES`, which do not depend on a locale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..errors import Problem
from ..i18n import _
from ..spec import Spec

NAMES = ("scheduled_for", "previous_success")
DIRECTIVES = "YmdHMSjuwVGyzfI%"
_PLACEHOLDER = re.compile(r"\{(scheduled_for|previous_success)(?::([^{}]{0,64}))?\}")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
VARIABLE = "TFCLUSTER_SCHEDULED_FOR"
"""The variable with the due time in the environment of each task, in ISO 8601."""


def substitute(text: str, times: Mapping[str, datetime | None]) -> str:
    """Return `text` with its placeholders replaced; `times` are in the schedule's zone."""

    def value(found: re.Match[str]) -> str:
        at = times[found[1]]
        if at is None:
            return ""
        return at.strftime(found[2]) if found[2] else iso_text(at)

    return _PLACEHOLDER.sub(value, text)


def iso_text(at: datetime) -> str:
    """Return a time as ISO 8601 to the second, with its offset."""
    return at.isoformat(timespec="seconds")


def problems(arguments: Sequence[str], env: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each placeholder with an unknown directive."""
    found = []
    for where, text in (
        *((_("arguments after --"), argument) for argument in arguments),
        *(("--env", content) for content in env.values()),
    ):
        for placeholder in _PLACEHOLDER.finditer(text):
            wrong = [d for d in _DIRECTIVE.findall(placeholder[2] or "") if d not in DIRECTIVES]
            wrong += [""] if "" in _DIRECTIVE.findall(placeholder[2] or "") else []
            if wrong:
                allowed = _("use {words}").format(words=" ".join(f"%{d}" for d in DIRECTIVES))
                found.append(Problem(where, placeholder[0], allowed))
    return found


def fill_in(spec: Spec, due: datetime, previous: datetime | None) -> Spec:
    """Return `spec` with the placeholders of its arguments and environment replaced."""
    times = {"scheduled_for": due, "previous_success": previous}
    env = {name: substitute(text, times) for name, text in spec.env.items()}
    program = spec.program
    if program is not None:
        words = tuple(substitute(word, times) for word in program.arguments)
        program = replace(program, arguments=words)
    return replace(spec, env=env, program=program)
