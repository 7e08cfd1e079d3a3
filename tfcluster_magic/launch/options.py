"""The options of a launch: the table, and how their values are read.

Command line, magic, forms and Python keywords use this table. `read_options` turns option values
into a `Spec` in JSON form: it finds every problem at once, and names the option that caused each
problem. Short forms (`images:/mnt/images:ro`) and default numbers of tasks are defined in this
module. Bounds, and rules about several fields, are checked in `validation/`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from ..errors import Problem
from ..i18n import _
from ..spec import AwaitedOutcome, Mode, PassFlags, ServerKind, SuccessPolicy, TaskType
from ..spec.quantities import DURATION_RULE, parse_duration

FieldPath = tuple[str, ...]


class Kind(Enum):
    """The kind of an option's value. A member's value is the placeholder in help texts."""

    WHOLE = "N"
    NUMBER = "CORES"
    MEMORY = "SIZE"
    DURATION = "TIME"
    WORD = "WORD"
    FILE = "PATH"
    SWITCH = ""
    PAIRS = "NAME=VALUE"
    IMAGE = "IMAGE"
    NAMES = "NAME"
    VOLUMES = "CLAIM:PATH[:ro]"
    SECRETS = "NAME[:PATH|:VAR=KEY]"
    ANNOTATIONS = "KEY=VALUE"
    CLAIM = "SIZE[:CLASS]"
    RUNS = "RUN[:success|end]"

    @property
    def repeats(self) -> bool:
        """Whether the option may be given several times."""
        return self is Kind.PAIRS or (self.has_parts and self is not Kind.CLAIM)

    @property
    def has_parts(self) -> bool:
        """Whether a value consists of parts or items, and is an object or a list in JSON."""
        return self in _ITEM_TEXT or self in (Kind.NAMES, Kind.ANNOTATIONS)


@dataclass(frozen=True)
class Option:
    """One option: `flag` is its name on a command line, `key` its name in Python, `label` its name
    in forms. `path` is the path of the field that the option sets. If the option has an effect in
    one mode only, `only` is this mode.
    """

    flag: str
    label: str
    path: FieldPath
    kind: Kind
    help: str
    words: tuple[str, ...] = ()
    only: Mode | None = None

    @property
    def key(self) -> str:
        """The option's name in Python: `worker_cpu` for `--worker-cpu`."""
        return self.flag[2:].replace("-", "_")

    @property
    def only_kubernetes(self) -> bool:
        """Whether the option has an effect only if tasks are pods."""
        return self.path[0] in ("image", "pods")


def _enum_values(enum: type[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in enum)


def _resources(task_type: TaskType) -> list[Option]:
    name, where = task_type.value, ("replicas", task_type.value, "resources")
    only = None if task_type in (TaskType.WORKER, TaskType.PS) else Mode.BETWEEN_GRAPH
    return [
        Option(flag, label, (*where, key), kind, text, only=only)
        for flag, label, key, kind, text in (
            (f"--{name}-cpu", "CPU cores", "cpu", Kind.NUMBER, f"CPU cores of each {name}"),
            (f"--{name}-memory", "Memory", "memory", Kind.MEMORY, f"memory limit of each {name}"),
            (f"--{name}-gpu", "GPUs", "gpu", Kind.WHOLE, f"GPUs of each {name}"),
        )
    ]


def count_path(task_type: TaskType) -> FieldPath:
    """Return the field with the number of tasks of one type."""
    return ("replicas", task_type.value, "count")


def _limit(
    flag: str,
    label: str,
    key: str,
    help_text: str,
    kind: Kind = Kind.DURATION,
    only: Mode | None = None,
) -> Option:
    return Option(flag, label, ("lifecycle", key), kind, help_text, only=only)


OPTIONS: tuple[Option, ...] = (
    Option(
        "--mode",
        "Mode",
        ("mode",),
        Kind.WORD,
        "what drives the training: each worker's program, or this notebook [between-graph]",
        _enum_values(Mode),
    ),
    Option(
        "--workers", "Workers", count_path(TaskType.WORKER), Kind.WHOLE, "number of workers [2]"
    ),
    Option(
        "--ps",
        "Parameter servers",
        count_path(TaskType.PS),
        Kind.WHOLE,
        "number of parameter servers [1 if in-graph or if the program uses them, else 0]",
    ),
    Option(
        "--chief",
        "Chief",
        count_path(TaskType.CHIEF),
        Kind.SWITCH,
        "one chief, in addition to the workers [when the program needs one]",
        only=Mode.BETWEEN_GRAPH,
    ),
    Option(
        "--evaluator",
        "Evaluator",
        count_path(TaskType.EVALUATOR),
        Kind.SWITCH,
        "one evaluator [if the program has code for one]",
        only=Mode.BETWEEN_GRAPH,
    ),
    Option("--cpu", "CPU cores", ("*", "cpu"), Kind.NUMBER, "CPU cores of each task"),
    Option(
        "--memory", "Memory", ("*", "memory"), Kind.MEMORY, "memory limit of each task, such as 2Gi"
    ),
    Option("--gpu", "GPUs", ("*", "gpu"), Kind.WHOLE, "GPUs of each task"),
    *(
        o
        for t in (TaskType.WORKER, TaskType.PS, TaskType.CHIEF, TaskType.EVALUATOR)
        for o in _resources(t)
    ),
    Option(
        "--env",
        "Environment",
        ("env",),
        Kind.PAIRS,
        "environment variable of the tasks; repeatable",
    ),
    Option(
        "--pass-flags",
        "Flags",
        ("passFlags",),
        Kind.WORD,
        "flags that TFCluster adds for the program: all, only addresses, or none [all]",
        _enum_values(PassFlags),
        only=Mode.BETWEEN_GRAPH,
    ),
    Option(
        "--server",
        "Server",
        ("server",),
        Kind.WORD,
        "in-graph: server of each task: TensorFlow's C API or tf.distribute.Server [native]",
        _enum_values(ServerKind),
        only=Mode.IN_GRAPH,
    ),
    Option(
        "--python",
        "Python",
        ("interpreter",),
        Kind.FILE,
        "Python that the tasks run with [the one that launches]",
    ),
    Option(
        "--image",
        "Image",
        ("image",),
        Kind.IMAGE,
        "container image of the tasks [the administrator's]",
    ),
    Option(
        "--image-pull-secret",
        "Registry secrets",
        ("pods", "imagePullSecrets"),
        Kind.NAMES,
        "secret that opens the image's registry; repeatable",
    ),
    Option(
        "--volume",
        "Volumes",
        ("pods", "volumes"),
        Kind.VOLUMES,
        "claim that every task mounts at a path; repeatable",
    ),
    Option(
        "--secret",
        "Secrets",
        ("pods", "secrets"),
        Kind.SECRETS,
        "secret for tasks: NAME for variables named like its keys, NAME:PATH for files, "
        "NAME:VARIABLE=KEY for single keys; repeatable",
    ),
    Option(
        "--annotation",
        "Annotations",
        ("pods", "annotations"),
        Kind.ANNOTATIONS,
        "annotation of the pods; repeatable",
    ),
    Option(
        "--data-claim",
        "Data volume",
        ("pods", "dataClaim"),
        Kind.CLAIM,
        "the run's own claim at /data, deleted with the run",
    ),
    Option(
        "--success-policy",
        "Success",
        ("lifecycle", "successPolicy"),
        Kind.WORD,
        "tasks whose success ends the run; if you set chief, its success also ends the workers at "
        "once [chief if there is one, else all]",
        _enum_values(SuccessPolicy),
        only=Mode.BETWEEN_GRAPH,
    ),
    _limit(
        "--restarts",
        "Retries",
        "restarts",
        "maximum number of retries of a failing program [0]",
        Kind.WHOLE,
        only=Mode.BETWEEN_GRAPH,
    ),
    _limit(
        "--heals",
        "Restarts after disruptions",
        "heals",
        "maximum number of disruptions, such as a lost node, after which tasks start again [3]",
        Kind.WHOLE,
    ),
    _limit(
        "--reclaim-after",
        "Keep parameter servers",
        "reclaimAfter",
        "keep parameter servers and the evaluator for this long after success [30s]",
        only=Mode.BETWEEN_GRAPH,
    ),
    Option(
        "--after",
        "After",
        ("after",),
        Kind.RUNS,
        "wait until this run has succeeded, or with :end until it has ended in any way; NAME means "
        "its newest run, schedule:NAME the newest run of that schedule; repeatable",
    ),
    _limit(
        "--queue-timeout",
        "Queue timeout",
        "queueTimeout",
        "end the run if it waits for room longer than this [never]",
    ),
    _limit(
        "--start-timeout",
        "Start timeout",
        "startTimeout",
        "end the run if it takes longer than this to start [10m]",
    ),
    _limit(
        "--image-timeout",
        "Image timeout",
        "imageTimeout",
        "end the run if the registry does not deliver the image within this time [2m]",
    ),
    _limit(
        "--max-duration", "Maximum duration", "maxDuration", "end the run after this long [24h]"
    ),
    _limit(
        "--idle-timeout",
        "Idle timeout",
        "idleTimeout",
        "in-graph: end the run when it has not been used for this long [1h]",
        only=Mode.IN_GRAPH,
    ),
    _limit(
        "--stall-timeout",
        "Stall timeout",
        "stallTimeout",
        "end the run when no task prints, writes event files or uses CPU for this long [never]",
        only=Mode.BETWEEN_GRAPH,
    ),
    _limit(
        "--grace", "Grace period", "grace", "time between asking a task to end and killing it [10s]"
    ),
    _limit(
        "--keep-for",
        "Keep the record",
        "keepFor",
        "keep the record for this long after the run has ended [30d]",
    ),
)
BY_KEY: Mapping[str, Option] = {option.key: option for option in OPTIONS}

DEFAULT_WORKERS = 2


def unknown_options(options: Mapping[str, object]) -> list[Problem]:
    """Return a problem for each unknown key of `options`."""
    problems = []
    for key in sorted(options.keys() - BY_KEY.keys()):
        close = difflib.get_close_matches(key, BY_KEY, 1)
        allowed = (
            _("did you mean {close}?").format(close=close[0])
            if close
            else _("the options are {options}").format(options=", ".join(BY_KEY))
        )
        problems.append(Problem(key, options[key], allowed))
    return problems


# Options with parts: reading a text of the command line, and writing this text from the value.
# `validation/` checks names and paths like all other values. Most of these options are for pods.

_VOLUME = re.compile(
    r"(?P<claim>[^/:]+)(?:/(?P<subPath>[^:]+))?:(?P<path>[^:]+)(?::(?P<how>r[ow]))?"
)
_SECRET = re.compile(r"(?P<name>[^:]+)(?::(?P<path>.+))?", re.DOTALL)
_CLAIM = re.compile(r"(?P<size>[^:]+)(?::(?P<storageClass>.+))?", re.DOTALL)


def read_pod_option(kind: Kind, value: object) -> object:
    """Return the JSON form of `value`, which may be a list of texts, one text with several items,
    or already JSON. Raises ValueError, whose message shows the right syntax.
    """
    if kind is Kind.ANNOTATIONS and isinstance(value, Mapping):
        return {str(key): str(content) for key, content in value.items()}
    if kind is Kind.CLAIM:
        return _read_claim(value)
    items = value.split() if isinstance(value, str) else value
    found = [
        _READ_ITEM[kind](item) for item in (items if isinstance(items, (list, tuple)) else [items])
    ]
    return dict(found) if kind is Kind.ANNOTATIONS else found


def pod_option_texts(kind: Kind, value: object) -> list[str]:
    """Return the texts of an option: one text for each time that the option is given. Texts in
    `value` are not changed.
    """
    value = msgspec.to_builtins(value)
    if kind is Kind.ANNOTATIONS and isinstance(value, Mapping):
        return [f"{key}={content}" for key, content in value.items()]
    if kind is not Kind.CLAIM and isinstance(value, str):
        value = value.split()
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_ITEM_TEXT[kind](item) if isinstance(item, Mapping) else str(item) for item in items]


def _read_volume(item: object) -> object:
    if isinstance(item, Mapping):
        return item
    if not (said := _VOLUME.fullmatch(str(item))):
        raise ValueError(
            _(
                "write CLAIM:PATH, with :ro after it to read only, such as images:/mnt/images:ro; "
                "CLAIM/FOLDER:PATH mounts a folder of the claim"
            )
        )
    given = {key: text for key in ("claim", "path", "subPath") if (text := said[key])}
    return {**given, "readOnly": True} if said["how"] == "ro" else given


def _read_secret(item: object) -> object:
    if isinstance(item, Mapping):
        return item
    said = _SECRET.fullmatch(str(item))
    given = {key: text for key, text in said.groupdict().items() if text} if said else {}
    at = given.get("path", "")
    pairs = [] if at.startswith("/") else [each.partition("=") for each in at.split(",") if at]
    if not said or not all(name and equals and key for name, equals, key in pairs):
        raise ValueError(
            _(
                "write NAME, NAME:PATH for files, such as s3:/mnt/s3, or NAME:VARIABLE=KEY[,…] "
                "for single keys, such as s3:AWS_ACCESS_KEY_ID=accesskey"
            )
        )
    if not pairs:
        return given
    return {"name": given["name"], "variables": {name: key for name, _equals, key in pairs}}


def _read_annotation(item: object) -> tuple[str, str]:
    name, equals, content = str(item).partition("=")
    if not equals or not name:
        raise ValueError(_("write KEY=VALUE, such as prometheus.io/scrape=true"))
    return name, content


def _read_claim(value: object) -> object:
    if isinstance(value, Mapping):
        return value
    if not (said := _CLAIM.fullmatch(str(value))):
        raise ValueError(_("write SIZE or SIZE:CLASS, such as 10Gi or 10Gi:shared"))
    return {key: text for key, text in said.groupdict().items() if text}


def _read_dependency(item: object) -> object:
    if isinstance(item, Mapping):
        return item
    schedule, text = split_schedule(str(item))
    run, colon, until = text.partition(":")
    if not run or (colon and until not in _enum_values(AwaitedOutcome)):
        raise ValueError(
            _(
                "write RUN, RUN:success or RUN:end, such as prepare-3:end, or schedule:NAME for "
                "the newest run of a schedule"
            )
        )
    return {"run": f"{schedule}{run}", **({"until": until} if until else {})}


OF_SCHEDULE = "schedule:"
"""Prefix that marks the name of a schedule in `--after`."""


def split_schedule(text: str) -> tuple[str, str]:
    """Split the prefix `schedule:` from the rest of a value of `--after`: from
    `schedule:nightly:end`, the rest is `nightly:end`. `schedule:end` has no prefix; it means a run
    called schedule.
    """
    rest = text.removeprefix(OF_SCHEDULE)
    if rest == text or rest in _enum_values(AwaitedOutcome):
        return "", text
    return OF_SCHEDULE, rest


def _dependency_text(dependency: Mapping[str, Any]) -> str:
    run, until = str(dependency.get("run", "")), dependency.get("until")
    return f"{run}:{until}" if until and until != AwaitedOutcome.SUCCESS.value else run


_READ_ITEM: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.NAMES: str,
    Kind.VOLUMES: _read_volume,
    Kind.SECRETS: _read_secret,
    Kind.ANNOTATIONS: _read_annotation,
    Kind.RUNS: _read_dependency,
}
_ITEM_TEXT: Mapping[Kind, Callable[[Mapping[str, Any]], str]] = {
    Kind.VOLUMES: lambda v: "".join(
        [
            str(v.get("claim", "")),
            f"/{v['subPath']}" if v.get("subPath") else "",
            f":{v.get('path', '')}",
            ":ro" if v.get("readOnly") else "",
        ]
    ),
    Kind.SECRETS: lambda s: ":".join(
        filter(
            None,
            (
                str(s.get("name", "")),
                s.get("path")
                or ",".join(f"{name}={key}" for name, key in s.get("variables", {}).items()),
            ),
        )
    ),
    Kind.CLAIM: lambda c: ":".join(filter(None, (str(c.get("size", "")), c.get("storageClass")))),
    Kind.RUNS: _dependency_text,
}


def option_of(field: str, given: Collection[str] = ()) -> str:
    """Return the option that sets a field of a `Spec`, such as --worker-memory; the field itself if
    no option sets it. `field` is a path, such as `replicas.worker.resources.memory`. If several
    options can set the field, return one whose key is in `given`: --memory if only `memory` is.
    """
    path = tuple(field.split("."))
    able = [option for option in OPTIONS if option.path == path]
    if path[0] == "replicas" and path[-2] == "resources":
        able += [option for option in OPTIONS if option.path == ("*", path[-1])]
    typed = [option for option in able if option.key in given]
    return next((option.flag for option in typed + able), field)


# Option values as a `Spec` in JSON form.


@dataclass
class OptionValues:
    """Option values as a `spec` in JSON form, and the problems so far. `origin` has the option that
    set each field. `for_all` has the resources for every task until `fill_in_defaults` knows which
    task types exist.
    """

    spec: dict[str, object] = field(default_factory=dict)
    origin: dict[FieldPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    for_all: dict[str, tuple[object, str]] = field(default_factory=dict)

    def get(self, path: FieldPath) -> object:
        """Return the value at `path`; None if there is no value."""
        at: object = self.spec
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        return at

    def put(self, path: FieldPath, value: object, origin: str | None = None) -> None:
        """Set the value at `path`; `origin` is the name of the field in problems."""
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
        """Return the problems with the names that the user typed: if an option set the field of a
        problem, the problem names the option instead of the field.
        """
        return [Problem(self._called(str(p.field)), p.value, p.allowed) for p in problems]

    def _called(self, name: str) -> str:
        path = tuple(
            part
            for part in re.split(r"[.\[\]]+", name.removeprefix("$.").removeprefix("spec."))
            if part
        )
        rest: FieldPath = ()
        while path:
            if path in self.origin:
                return " ".join([self.origin[path], *rest])
            rest = (path[-1], *rest)
            path = path[:-1]
        return name


def read_options(
    options: Mapping[str, object],
    spec: Mapping[str, object] | None = None,
    *,
    onto: OptionValues | None = None,
    origins: Mapping[str, str] | None = None,
) -> OptionValues:
    """Read the values in `options`, whose keys are the options' names in Python; None means that an
    option is not given. Add the values to `spec`, or to values that were read before (`onto`).
    Problems call an option by its name in `origins`, or by its flag if `origins` lacks the option.
    """
    values = OptionValues(_copy(spec or {})) if onto is None else onto
    called = {option.key: option.flag for option in OPTIONS} | dict(origins or {})
    given = {key: value for key, value in options.items() if value is not None and value != ()}
    values.problems += unknown_options(given)
    for option in OPTIONS:
        if option.key not in given:
            continue
        try:
            value = _READ[option.kind](given[option.key])
        except ValueError as error:
            said = given[option.key]
            said = " ".join(map(str, said)) if isinstance(said, (list, tuple)) else said
            values.problems.append(Problem(called[option.key], said, str(error)))
            continue
        if option.words and value not in option.words:
            allowed = _("use one of {words}").format(words=", ".join(option.words))
            values.problems.append(Problem(called[option.key], value, allowed))
            continue
        if option.path[0] == "*":
            values.for_all[option.path[1]] = (value, called[option.key])
            continue
        before = values.get(option.path)
        if option.kind.repeats and isinstance(value, dict) and isinstance(before, dict):
            value = {**before, **value}
        values.put(option.path, value, called[option.key])
    return values


def fill_in_defaults(values: OptionValues, wanted: Collection[TaskType] = ()) -> set[TaskType]:
    """Fill in the numbers of tasks that were not given, and give each task type the resources that
    were given for every task. `wanted` are the task types, besides workers, that the program needs.
    Return the types that get a task only because the program needs it.
    """
    in_graph = values.get(("mode",)) == Mode.IN_GRAPH.value
    asked_for = set() if in_graph else set(wanted)
    defaults = {
        TaskType.WORKER: DEFAULT_WORKERS,
        TaskType.PS: int(in_graph),
        **dict.fromkeys(asked_for, 1),
    }
    given: set[TaskType] = set()
    replicas = values.get(("replicas",))
    for task_type in TaskType:
        if values.get(count_path(task_type)) is None:
            said = isinstance(replicas, dict) and task_type.value in replicas
            if task_type in defaults or said:
                values.put(count_path(task_type), defaults.get(task_type, 0))
                given |= asked_for & {task_type}
        if not values.get(count_path(task_type)):
            continue
        for key, (value, flag) in values.for_all.items():
            path = ("replicas", task_type.value, "resources", key)
            if path not in values.origin:  # --worker-cpu takes precedence over --cpu
                values.put(path, value, flag)
    return given


def _copy(value: Mapping[str, object]) -> dict[str, object]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in value.items()}


def _read_whole(value: object) -> object:
    text = str(value).strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(_("write a whole number"))
    return int(text)


def _read_number(value: object) -> object:
    if isinstance(value, (int, float)):
        return value
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError(_("write a number, such as 1 or 0.5")) from None
    if not math.isfinite(number):
        raise ValueError(_("write a number, such as 1 or 0.5"))
    return number


def _read_duration(value: object) -> object:
    try:
        return float(value) if isinstance(value, (int, float)) else parse_duration(str(value))
    except ValueError:
        raise ValueError(DURATION_RULE) from None


def _read_pairs(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    pairs: dict[str, str] = {}
    for item in value if isinstance(value, (list, tuple)) else [value]:
        name, equals, content = str(item).partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                _(
                    "write NAME=VALUE; a name consists of letters, digits and '_' and does not "
                    "begin with a digit"
                )
            )
        pairs[name] = content
    return pairs


_READ: Mapping[Kind, Callable[[object], object]] = {
    Kind.WHOLE: _read_whole,
    Kind.NUMBER: _read_number,
    Kind.MEMORY: str,
    Kind.DURATION: _read_duration,
    Kind.WORD: str,
    Kind.FILE: str,
    Kind.SWITCH: lambda value: int(bool(value)),
    Kind.PAIRS: _read_pairs,
    Kind.IMAGE: str,
    **{kind: partial(read_pod_option, kind) for kind in Kind if kind.has_parts},
}
