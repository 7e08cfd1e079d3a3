"""The table of a schedule's options, used for the command line, the form and the messages.

Bounds and defaults are in `ScheduleRules`; this module parses the values that users type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from ..i18n import _, mark
from ..launch.form_fields import bounds
from ..launch.launch_as_command import value_text
from ..launch.options import Kind
from ..spec.quantities import DURATION_RULE, parse_duration
from . import CatchUp, Overlap, ScheduleRules


class ScheduleKind(Enum):
    """The kind of an option's value; the member's value is the kind of its input in a form."""

    CRON = "cron"
    ZONE = "zone"
    WORD = "word"
    WHOLE = "whole"
    DURATION = "duration"
    DURATIONS = "durations"
    SWITCH = "switch"


@dataclass(frozen=True)
class ScheduleOption:
    """One option: `flag` on a command line, `key` in Python, `label` in forms."""

    flag: str
    label: str
    kind: ScheduleKind
    help: str
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key in Python: `--time-zone` gives `time_zone`, `--retry-delay` `retry_delays`."""
        key = self.flag[2:].replace("-", "_")
        return f"{key}s" if self.kind is ScheduleKind.DURATIONS else key

    @property
    def field(self) -> str:
        """The option's name in the JSON of `ScheduleRules`; empty if the option is not a rule."""
        return _FIELDS.get(self.key, "")

    def read(self, typed: object) -> object:
        """Return the value that a typed text stands for. A value that is not a text is returned
        unchanged. Raises ValueError.
        """
        if self.kind is ScheduleKind.DURATIONS:
            each = [typed] if isinstance(typed, (str, float, int)) else list(_sequence(typed))
            return [parse_duration(one) if isinstance(one, str) else one for one in each]
        if not isinstance(typed, str):
            return typed
        if self.kind is ScheduleKind.DURATION:
            return parse_duration(typed)
        return int(typed) if self.kind is ScheduleKind.WHOLE else typed

    @property
    def allowed(self) -> str:
        """The values that the option allows, as text for an error message."""
        if self.kind in (ScheduleKind.DURATION, ScheduleKind.DURATIONS):
            return str(DURATION_RULE)
        if self.kind is ScheduleKind.SWITCH:
            return _("write true or false")
        limits = bounds((self.field,), ScheduleRules)
        span = f"{limits['minimum']} … {limits['maximum']}" if "maximum" in limits else ""
        return _("use {words}").format(words=", ".join(self.words) or span)

    def texts(self, value: object) -> list[str]:
        """Return a value as a user types it: a list with one text for each time that the option is
        repeated.
        """
        many = value if isinstance(value, (list, tuple)) else [value]
        return [value_text(_AS_TYPED.get(self.kind, Kind.FILE), each) for each in many]

    def form_field(self) -> dict[str, Any]:
        """Return the option's form field, in the same shape as `form_fields` for a launch."""
        default, (told, _bracket, absent) = self._default(), _(self.help).partition(" [")
        return {
            "key": self.key,
            "flag": self.flag,
            "path": [self.field or self.key],
            "kind": self.kind.value,
            "section": "schedule",
            "label": _(self.label),
            "help": told,
            "modes": ["between-graph"],
            "default": {"between-graph": default},
            "words": list(self.words),
            "example": absent.rstrip("]") if default is None and absent else None,
            **bounds((self.field,) if self.field else (), ScheduleRules),
        }

    def _default(self) -> str | None:
        found = getattr(_DEFAULTS, self.key, None)
        if self.kind in (ScheduleKind.CRON, ScheduleKind.ZONE, ScheduleKind.SWITCH):
            return None  # the form has a default of its own for these kinds
        return None if found is None else " ".join(self.texts(found))


def _sequence(value: object) -> Sequence[object]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(value)
    return value


_FIELDS = {each.name: each.encode_name for each in msgspec.structs.fields(ScheduleRules)}
_DEFAULTS = ScheduleRules(cron="@daily")
_AS_TYPED: Mapping[ScheduleKind, Kind] = {
    ScheduleKind.DURATION: Kind.DURATION,
    ScheduleKind.DURATIONS: Kind.DURATION,
    ScheduleKind.WHOLE: Kind.WHOLE,
}

SCHEDULE_OPTIONS: tuple[ScheduleOption, ...] = (
    ScheduleOption(
        "--cron",
        mark("Cron expression"),
        ScheduleKind.CRON,
        mark("when: minute, hour, day of month, month, day of week"),
    ),
    ScheduleOption(
        "--time-zone",
        mark("Time zone"),
        ScheduleKind.ZONE,
        mark("zone of --cron, such as Asia/Shanghai [this machine's]"),
    ),
    ScheduleOption(
        "--overlap",
        mark("If the previous run is still active"),
        ScheduleKind.WORD,
        mark("if the previous run is still active: run beside it, skip, or stop it first [forbid]"),
        tuple(each.value for each in Overlap),
    ),
    ScheduleOption(
        "--max-parallel",
        mark("Runs at the same time"),
        ScheduleKind.WHOLE,
        mark("maximum number of runs at the same time; further runs wait [no limit]"),
    ),
    ScheduleOption(
        "--catch-up",
        mark("Missed due times"),
        ScheduleKind.WORD,
        mark("which missed due times are run [last]"),
        tuple(each.value for each in CatchUp),
    ),
    ScheduleOption(
        "--deadline",
        mark("Deadline"),
        ScheduleKind.DURATION,
        mark("skip a due time if nothing could be launched for this long after it [never]"),
    ),
    ScheduleOption(
        "--retries",
        mark("Retries in a new run"),
        ScheduleKind.WHOLE,
        mark("maximum number of retries after a failed run, each in a new run [0]"),
    ),
    ScheduleOption(
        "--retry-delay",
        mark("Wait before a retry"),
        ScheduleKind.DURATIONS,
        mark("wait before a retry; repeatable: one for each retry, the last for all others [1m]"),
    ),
    ScheduleOption(
        "--after-success",
        mark("Only after success"),
        ScheduleKind.SWITCH,
        mark("run only if the run of the previous due time succeeded"),
    ),
    ScheduleOption(
        "--pause-after",
        mark("Pause after failures"),
        ScheduleKind.WHOLE,
        mark("pause after this many failures in a row [never]"),
    ),
    ScheduleOption(
        "--advised",
        mark("Apply advice"),
        ScheduleKind.SWITCH,
        mark(
            "launch each run with the options that the usage of earlier runs advises, changed by "
            "at most a factor of 2"
        ),
    ),
    ScheduleOption(
        "--track",
        mark("Read the program each time"),
        ScheduleKind.SWITCH,
        mark("read the program anew at each due time, without a snapshot"),
    ),
)
RULE_OPTIONS: Mapping[str, ScheduleOption] = {
    each.key: each for each in SCHEDULE_OPTIONS if each.field
}
"""The options of a schedule's rules, by key."""


def schedule_argv(name: str | None, said: Mapping[str, Any], launch: Sequence[str]) -> list[str]:
    """Return the arguments of the command `schedule create`. The dictionary `said` has the options
    of the schedule by key; the list `launch` is what `launch_argv` returns.
    """
    words = ["schedule", "create", *([name] if name else [])]
    for option in SCHEDULE_OPTIONS:
        value = said.get(option.key)
        if value in (None, "", ()):
            continue
        if option.kind is ScheduleKind.SWITCH:
            words.append(option.flag if value else f"--no-{option.flag[2:]}")
        else:
            texts = option.texts(value)
            words += [
                w
                for t in texts
                for w in ([option.flag, t] if t[:1] != "-" else [f"{option.flag}={t}"])
            ]
    return [*words, *launch[1:]]
