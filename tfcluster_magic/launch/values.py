"""What a person said with the options of a launch, as a `Spec` in JSON form.

Promises that everything wrong with them is found at once, and that each problem is called by the
option that caused it. Owns the rule for how many tasks there are when nobody says. Never checks
bounds or rules between fields (`validation/`), never reads a file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ..errors import Problem
from ..i18n import _
from ..spec import Mode, TaskType
from ..spec.quantities import duration_rule, parse_duration
from . import pod_options
from .options import DEFAULT_WORKERS, OPTIONS, Kind, Path, count_of, unknown


@dataclass
class Wish:
    """Option values as a `spec` in JSON form, the `origin` of its fields, and the problems so far.

    `for_all` holds the resources for every task, until `settle` knows which types there are.
    """

    spec: dict[str, object] = field(default_factory=dict)
    origin: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    for_all: dict[str, tuple[object, str]] = field(default_factory=dict)

    def get(self, path: Path) -> object:
        """The value at `path`, or None."""
        at: object = self.spec
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        return at

    def put(self, path: Path, value: object, origin: str | None = None) -> None:
        """Set the value at `path`; `origin` is what to call the field when it turns out wrong."""
        at = self.spec
        for key in path[:-1]:
            below = at.get(key)
            if not isinstance(below, dict):
                below = at[key] = {}
            at = below
        at[path[-1]] = value
        if origin:
            self.origin[path] = origin

    def by_option(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return the problems, each field called by the option that set it."""
        return [Problem(self._called(p.field), p.value, p.allowed) for p in problems]

    def _called(self, name: str) -> str:
        path = tuple(
            part
            for part in re.split(r"[.\[\]]+", name.removeprefix("$.").removeprefix("spec."))
            if part
        )
        rest: Path = ()
        while path:
            if path in self.origin:
                return " ".join([self.origin[path], *rest])
            rest = (path[-1], *rest)
            path = path[:-1]
        return name


def wish(options: Mapping[str, object], spec: Mapping[str, object] | None = None) -> Wish:
    """Read `options` (by their Python keys; None means not given) on top of `spec`."""
    values = Wish(_copy(spec or {}))
    given = {key: value for key, value in options.items() if value is not None and value != ()}
    values.problems += unknown(given)
    for option in OPTIONS:
        if option.key not in given:
            continue
        try:
            value = _READ[option.kind](given[option.key])
        except ValueError as error:
            said = given[option.key]
            said = " ".join(map(str, said)) if isinstance(said, (list, tuple)) else said
            values.problems.append(Problem(option.flag, said, str(error)))
            continue
        if option.words and value not in option.words:
            allowed = _("use one of {words}").format(words=", ".join(option.words))
            values.problems.append(Problem(option.flag, value, allowed))
            continue
        if option.path[0] == "*":
            values.for_all[option.path[1]] = (value, option.flag)
            continue
        before = values.get(option.path)
        if option.kind.repeats and isinstance(value, dict) and isinstance(before, dict):
            value = {**before, **value}
        values.put(option.path, value, option.flag)
    return values


def settle(values: Wish, uses_ps: bool) -> None:
    """Fill in counts that were not given, and the resources for every task.

    `uses_ps`: the program mentions parameter servers.
    """
    in_graph = values.get(("mode",)) == Mode.IN_GRAPH.value
    defaults = {TaskType.WORKER: DEFAULT_WORKERS, TaskType.PS: int(in_graph or uses_ps)}
    replicas = values.get(("replicas",))
    for task_type in TaskType:
        if values.get(count_of(task_type)) is None:
            said = isinstance(replicas, dict) and task_type.value in replicas
            if task_type in defaults or said:
                values.put(count_of(task_type), defaults.get(task_type, 0))
        if not values.get(count_of(task_type)):
            continue
        for key, (value, flag) in values.for_all.items():
            path = ("replicas", task_type.value, "resources", key)
            if path not in values.origin:  # --worker-cpu goes before --cpu
                values.put(path, value, flag)


def _copy(value: Mapping[str, object]) -> dict[str, object]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in value.items()}


def _whole(value: object) -> object:
    text = str(value).strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(_("write a whole number"))
    return int(text)


def _number(value: object) -> object:
    if isinstance(value, (int, float)):
        return value
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError(_("write a number, such as 1 or 0.5")) from None
    if not math.isfinite(number):
        raise ValueError(_("write a number, such as 1 or 0.5"))
    return number


def _duration(value: object) -> object:
    try:
        return float(value) if isinstance(value, (int, float)) else parse_duration(str(value))
    except ValueError:
        raise ValueError(duration_rule()) from None


def _pairs(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    pairs: dict[str, str] = {}
    for item in value if isinstance(value, (list, tuple)) else [value]:
        name, equals, content = str(item).partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                _("write NAME=VALUE; a name has letters, digits and '_', and no digit first")
            )
        pairs[name] = content
    return pairs


_READ: Mapping[Kind, Callable[[object], object]] = {
    Kind.WHOLE: _whole,
    Kind.NUMBER: _number,
    Kind.MEMORY: str,
    Kind.DURATION: _duration,
    Kind.WORD: str,
    Kind.FILE: str,
    Kind.SWITCH: lambda value: int(bool(value)),
    Kind.PAIRS: _pairs,
    Kind.IMAGE: str,
    **{
        kind: partial(pod_options.read, kind)
        for kind in (Kind.NAMES, Kind.VOLUMES, Kind.SECRETS, Kind.ANNOTATIONS, Kind.CLAIM)
    },
}
