"""The options of a launch as one table, and what a person said with them as a `Spec` in JSON form.

Promises that the command line, the magic and Python keywords know the same options, and that
everything wrong with them is found at once. Owns the table and the rule for how many tasks there
are when nobody says. Never checks bounds or rules between fields (`validation.py`), never reads
a file.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from .errors import Problem
from .models import Mode, ServerKind, SuccessPolicy, TaskType
from .quantity import DURATION_RULE, parse_duration

Path = tuple[str, ...]


class Kind(Enum):
    """What an option's value is; the name is shown in help."""

    WHOLE = "N"
    NUMBER = "CORES"
    MEMORY = "SIZE"
    DURATION = "TIME"
    WORD = "WORD"
    SWITCH = ""
    PAIRS = "NAME=VALUE"


@dataclass(frozen=True)
class Option:
    """One option: `flag` on a command line, `key` in Python, `path` of the field that it sets."""

    flag: str
    path: Path
    kind: Kind
    help: str
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`--worker-cpu` gives `worker_cpu`."""
        return self.flag[2:].replace("-", "_")


def _words(enum: type[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in enum)


def _resources(task_type: TaskType) -> list[Option]:
    name, where = task_type.value, ("replicas", task_type.value, "resources")
    return [
        Option(f"--{name}-cpu", (*where, "cpu"), Kind.NUMBER, f"CPU cores of each {name}"),
        Option(f"--{name}-memory", (*where, "memory"), Kind.MEMORY, f"memory limit of each {name}"),
        Option(f"--{name}-gpu", (*where, "gpu"), Kind.WHOLE, f"GPUs of each {name}"),
    ]


def _count(task_type: TaskType) -> Path:
    return ("replicas", task_type.value, "count")


def _limit(flag: str, key: str, help_text: str, kind: Kind = Kind.DURATION) -> Option:
    return Option(flag, ("lifecycle", key), kind, help_text)


OPTIONS: tuple[Option, ...] = (
    Option(
        "--mode",
        ("mode",),
        Kind.WORD,
        "who drives: each worker's program, or this notebook [between-graph]",
        _words(Mode),
    ),
    Option("--workers", _count(TaskType.WORKER), Kind.WHOLE, "number of workers [2]"),
    Option(
        "--ps",
        _count(TaskType.PS),
        Kind.WHOLE,
        "number of parameter servers [1 in-graph and when the program speaks of them, else 0]",
    ),
    Option("--chief", _count(TaskType.CHIEF), Kind.SWITCH, "one chief beside the workers"),
    Option("--evaluator", _count(TaskType.EVALUATOR), Kind.SWITCH, "one evaluator"),
    Option("--cpu", ("*", "cpu"), Kind.NUMBER, "CPU cores of each task"),
    Option("--memory", ("*", "memory"), Kind.MEMORY, "memory limit of each task, such as 2Gi"),
    Option("--gpu", ("*", "gpu"), Kind.WHOLE, "GPUs of each task"),
    *(
        o
        for t in (TaskType.WORKER, TaskType.PS, TaskType.CHIEF, TaskType.EVALUATOR)
        for o in _resources(t)
    ),
    Option("--env", ("env",), Kind.PAIRS, "environment variable of the tasks; repeatable"),
    Option(
        "--server",
        ("server",),
        Kind.WORD,
        "in-graph: TensorFlow's C API, or tf.distribute.Server [native]",
        _words(ServerKind),
    ),
    Option(
        "--success-policy",
        ("lifecycle", "successPolicy"),
        Kind.WORD,
        "whose success ends the run [all]",
        _words(SuccessPolicy),
    ),
    _limit("--restarts", "restarts", "retries of a failing program [0]", Kind.WHOLE),
    _limit("--heals", "heals", "restarts after a disruption from outside [3]", Kind.WHOLE),
    _limit(
        "--reclaim-after", "reclaimAfter", "parameter servers live this long after success [30s]"
    ),
    _limit("--queue-timeout", "queueTimeout", "give up waiting for room after this long [never]"),
    _limit("--start-timeout", "startTimeout", "give up starting after this long [10m]"),
    _limit("--max-duration", "maxDuration", "end the run after this long [24h]"),
    _limit("--idle-timeout", "idleTimeout", "in-graph: end when unused this long [1h]"),
    _limit("--grace", "grace", "time between asking a task to end and killing it [10s]"),
    _limit("--keep-for", "keepFor", "keep the record of the ended run this long [30d]"),
)
BY_KEY: Mapping[str, Option] = {option.key: option for option in OPTIONS}


@dataclass
class Wish:
    """What was asked for: the `spec` in JSON form, `origin` of its fields, and the problems so far.

    `for_all` holds resources asked for every task, until `settle` knows which types there are.
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

    def in_its_words(self, problems: Iterable[Problem]) -> list[Problem]:
        """The problems with each field called by the option that set it."""
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
    """What `options` (by their Python keys; None means not said) ask for, on top of `spec`."""
    asked = Wish(_copy(spec or {}))
    given = {key: value for key, value in options.items() if value is not None and value != ()}
    for key in sorted(given.keys() - BY_KEY.keys()):
        close = difflib.get_close_matches(key, BY_KEY, 1)
        allowed = f"did you mean {close[0]}?" if close else f"the options are {', '.join(BY_KEY)}"
        asked.problems.append(Problem(key, given[key], allowed))
    for option in OPTIONS:
        if option.key not in given:
            continue
        try:
            value = _READ[option.kind](given[option.key])
        except ValueError as error:
            said = given[option.key]
            said = " ".join(map(str, said)) if isinstance(said, (list, tuple)) else said
            asked.problems.append(Problem(option.flag, said, str(error)))
            continue
        if option.words and value not in option.words:
            allowed = f"use one of {', '.join(option.words)}"
            asked.problems.append(Problem(option.flag, value, allowed))
            continue
        if option.path[0] == "*":
            asked.for_all[option.path[1]] = (value, option.flag)
            continue
        before = asked.get(option.path)
        if isinstance(value, dict) and isinstance(before, dict):
            value = {**before, **value}
        asked.put(option.path, value, option.flag)
    return asked


def settle(asked: Wish, speaks_of_ps: bool) -> None:
    """Give counts where nobody did, and every task what was asked for all of them.

    `speaks_of_ps`: the program mentions parameter servers.
    """
    in_graph = asked.get(("mode",)) == Mode.IN_GRAPH.value
    defaults = {TaskType.WORKER: 2, TaskType.PS: int(in_graph or speaks_of_ps)}
    replicas = asked.get(("replicas",))
    for task_type in TaskType:
        if asked.get(_count(task_type)) is None:
            said = isinstance(replicas, dict) and task_type.value in replicas
            if task_type in defaults or said:
                asked.put(_count(task_type), defaults.get(task_type, 0))
        if not asked.get(_count(task_type)):
            continue
        for key, (value, flag) in asked.for_all.items():
            path = ("replicas", task_type.value, "resources", key)
            if path not in asked.origin:  # --worker-cpu goes before --cpu
                asked.put(path, value, flag)


def _copy(value: Mapping[str, object]) -> dict[str, object]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in value.items()}


def _whole(value: object) -> object:
    text = str(value).strip()
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError("write a whole number")
    return int(text)


def _number(value: object) -> object:
    if isinstance(value, (int, float)):
        return value
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError("write a number, such as 1 or 0.5") from None
    if not math.isfinite(number):
        raise ValueError("write a number, such as 1 or 0.5")
    return number


def _duration(value: object) -> object:
    try:
        return float(value) if isinstance(value, (int, float)) else parse_duration(str(value))
    except ValueError:
        raise ValueError(DURATION_RULE) from None


def _pairs(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    pairs: dict[str, str] = {}
    for item in [value] if isinstance(value, str) else list(value):  # type: ignore[call-overload]
        name, equals, content = str(item).partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                "write NAME=VALUE; a name has letters, digits and '_', and no digit first"
            )
        pairs[name] = content
    return pairs


_READ: Mapping[Kind, Callable[[object], object]] = {
    Kind.WHOLE: _whole,
    Kind.NUMBER: _number,
    Kind.MEMORY: str,
    Kind.DURATION: _duration,
    Kind.WORD: str,
    Kind.SWITCH: lambda value: int(bool(value)),
    Kind.PAIRS: _pairs,
}
