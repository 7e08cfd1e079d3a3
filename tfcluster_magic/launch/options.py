"""The options of a launch as one table.

Promises that the command line, the magic, forms and Python keywords know the same options. Owns
the table and nothing else: `wish.py` reads what a person said with them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ..errors import Problem
from ..i18n import _
from ..spec import Mode, ServerKind, SuccessPolicy, TaskType

Path = tuple[str, ...]


class Kind(Enum):
    """What an option's value is; the name is shown in help."""

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
    SECRETS = "NAME[:PATH]"
    ANNOTATIONS = "KEY=VALUE"
    CLAIM = "SIZE[:CLASS]"

    @property
    def repeats(self) -> bool:
        """Whether the option may be given several times."""
        return self in (Kind.PAIRS, Kind.NAMES, Kind.VOLUMES, Kind.SECRETS, Kind.ANNOTATIONS)


@dataclass(frozen=True)
class Option:
    """One option: `flag` on a command line, `key` in Python, `path` of the field that it sets.

    `label` is what a form calls it.
    """

    flag: str
    label: str
    path: Path
    kind: Kind
    help: str
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`--worker-cpu` gives `worker_cpu`."""
        return self.flag[2:].replace("-", "_")

    @property
    def only_kubernetes(self) -> bool:
        """Whether it means nothing where tasks are no pods."""
        return self.path[0] in ("image", "pods")


def _words(enum: type[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in enum)


def _resources(task_type: TaskType) -> list[Option]:
    name, where = task_type.value, ("replicas", task_type.value, "resources")
    return [
        Option(flag, label, (*where, key), kind, text)
        for flag, label, key, kind, text in (
            (f"--{name}-cpu", "CPU cores", "cpu", Kind.NUMBER, f"CPU cores of each {name}"),
            (f"--{name}-memory", "Memory", "memory", Kind.MEMORY, f"memory limit of each {name}"),
            (f"--{name}-gpu", "GPUs", "gpu", Kind.WHOLE, f"GPUs of each {name}"),
        )
    ]


def count_of(task_type: TaskType) -> Path:
    """The field that holds the number of tasks of one type."""
    return ("replicas", task_type.value, "count")


def _limit(flag: str, label: str, key: str, help_text: str, kind: Kind = Kind.DURATION) -> Option:
    return Option(flag, label, ("lifecycle", key), kind, help_text)


OPTIONS: tuple[Option, ...] = (
    Option(
        "--mode",
        "Who drives",
        ("mode",),
        Kind.WORD,
        "who drives: each worker's program, or this notebook [between-graph]",
        _words(Mode),
    ),
    Option("--workers", "Workers", count_of(TaskType.WORKER), Kind.WHOLE, "number of workers [2]"),
    Option(
        "--ps",
        "Parameter servers",
        count_of(TaskType.PS),
        Kind.WHOLE,
        "number of parameter servers [1 in-graph and when the program speaks of them, else 0]",
    ),
    Option(
        "--chief", "Chief", count_of(TaskType.CHIEF), Kind.SWITCH, "one chief beside the workers"
    ),
    Option("--evaluator", "Evaluator", count_of(TaskType.EVALUATOR), Kind.SWITCH, "one evaluator"),
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
        "--server",
        "Server",
        ("server",),
        Kind.WORD,
        "in-graph: TensorFlow's C API, or tf.distribute.Server [native]",
        _words(ServerKind),
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
        "secret for tasks, as files at a path, else as variables; repeatable",
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
        "a claim of the run's own at /data, deleted with the run",
    ),
    Option(
        "--success-policy",
        "Success",
        ("lifecycle", "successPolicy"),
        Kind.WORD,
        "whose success ends the run [all]",
        _words(SuccessPolicy),
    ),
    _limit("--restarts", "Retries", "restarts", "retries of a failing program [0]", Kind.WHOLE),
    _limit("--heals", "Heals", "heals", "restarts after a disruption from outside [3]", Kind.WHOLE),
    _limit(
        "--reclaim-after",
        "Parameter servers stay",
        "reclaimAfter",
        "parameter servers live this long after success [30s]",
    ),
    _limit(
        "--queue-timeout",
        "Wait for room",
        "queueTimeout",
        "give up waiting for room after this long [never]",
    ),
    _limit(
        "--start-timeout", "Time to start", "startTimeout", "give up starting after this long [10m]"
    ),
    _limit("--max-duration", "Longest run", "maxDuration", "end the run after this long [24h]"),
    _limit(
        "--idle-timeout", "Idle at most", "idleTimeout", "in-graph: end when unused this long [1h]"
    ),
    _limit(
        "--grace", "Grace period", "grace", "time between asking a task to end and killing it [10s]"
    ),
    _limit(
        "--keep-for",
        "Keep the record",
        "keepFor",
        "keep the record of the ended run this long [30d]",
    ),
)
BY_KEY: Mapping[str, Option] = {option.key: option for option in OPTIONS}

DEFAULT_WORKERS = 2


def unknown(options: Mapping[str, object]) -> list[Problem]:
    """What is wrong with the keys among `options` that are none."""
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
