"""The rules that a schema cannot express, such as rules about several fields of a spec.

A rule returns problems and raises no errors. The rules for `pods` refuse invalid settings of pods,
and mounts over folders that every task needs. These rules do not know the administrator's policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from ...errors import Problem
from ...spec import ENV_NAME_PATTERN, Message, Mode, PassFlags, Pods, ServerKind, Spec, TaskType
from ...spec.quantities import parse_memory
from ...spec.record_size import payload_sizes
from ...spec.spec import PAYLOAD_BYTES

RESERVED_MOUNTS = ("/tfcluster", "/data", "/log", "/proc", "/sys", "/dev")
"""Folders at or below which nothing may be mounted."""
SYSTEM_FOLDERS = (
    "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/opt", "/root", "/run", "/sbin", "/srv",
    "/tmp", "/usr", "/var",  # noqa: S108 - no temporary file is made here
)  # fmt: skip
"""Folders at which nothing may be mounted, because a mount would hide the image's content. Mounts
below these folders are allowed.
"""
RESERVED_ANNOTATIONS = ("tfcluster.dev/", "batch.kubernetes.io/")
SMALLEST_CLAIM = "1Mi"
MOST_TASKS = 1000
SMALLEST_MEMORY = "64Mi"

# Messages of these rules; the rules of the custom resource (`kube.objects.crd`) have the same
# messages.

ONE_AT_MOST = Message("OneAtMost")
WORKER_NEEDED = Message("WorkerNeeded")
TASKS_AT_MOST = Message("TasksAtMost", {"most": MOST_TASKS})
PROGRAM_NEEDED = Message("ProgramNeeded")
PROGRAM_UNUSED = Message("ProgramUnused")
NO_SUCH_TASKS = Message("NoSuchTasks")
MEMORY_AT_LEAST = Message("MemoryAtLeast", {"least": SMALLEST_MEMORY})
ENV_NAME = Message("EnvironmentName")
RESERVED_NAME = Message("ReservedName")
ONE_PROGRAM = Message("OneProgram")
NO_PROGRAM = Message("NoProgram")
COMMAND_ALONE = Message("CommandAlone")
ENTRYPOINT_NEEDED = Message("EntrypointNeeded")
ENTRYPOINT_MISSING = Message("EntrypointMissing")
PAYLOAD_AT_MOST = Message("PayloadAtMost", {"limit": PAYLOAD_BYTES // 1024})
INTERPRETER_PATH = Message("InterpreterPath")
PLAIN_PATH = Message("PlainPath")
HIDING_MOUNT = Message("HidingMount", {"ours": list(RESERVED_MOUNTS)})
MOUNTED_TWICE = Message("MountedTwice")
NAMED_TWICE = Message("NamedTwice")
FILES_OR_VARIABLES = Message("FilesOrVariables")
CLAIM_AT_LEAST = Message("ClaimAtLeast", {"least": SMALLEST_CLAIM})


def _pods(spec: Spec) -> list[Problem]:
    """Return every problem of `spec.pods`."""
    return (
        []
        if spec.pods is None
        else [
            *_pod_paths(spec.pods),
            *_pod_duplicates(spec.pods),
            *_pod_limits(spec.pods),
            *_secret_variables(spec.pods),
        ]
    )


def _pod_paths(pods: Pods) -> Iterator[Problem]:
    mounts = [(f"spec.pods.volumes[{i}].path", v.path) for i, v in enumerate(pods.volumes)]
    mounts += [(f"spec.pods.secrets[{i}].path", s.path) for i, s in enumerate(pods.secrets)]
    seen: set[str] = set()
    for field, path in mounts:
        if not path:
            continue
        if not _is_plain_path(path[1:]):
            yield Problem(field, path, PLAIN_PATH)
        elif path in SYSTEM_FOLDERS or f"/{PurePosixPath(path).parts[1]}" in RESERVED_MOUNTS:
            yield Problem(field, path, HIDING_MOUNT)
        elif path in seen:
            yield Problem(field, path, MOUNTED_TWICE)
        seen.add(path)
    for i, volume in enumerate(pods.volumes):
        if volume.sub_path and not _is_plain_path(volume.sub_path):
            yield Problem(f"spec.pods.volumes[{i}].subPath", volume.sub_path, PLAIN_PATH)


def _is_plain_path(path: str) -> bool:
    return not {"", ".", ".."} & {*path.split("/")}


def _pod_duplicates(pods: Pods) -> Iterator[Problem]:
    named = (("imagePullSecrets", "", pods.image_pull_secrets),)
    as_environment = [s.name if s.is_environment else "" for s in pods.secrets]
    for field, end, names in (*named, ("secrets", ".name", as_environment)):
        for index in _repeated(names):
            yield Problem(f"spec.pods.{field}[{index}]{end}", names[index], NAMED_TWICE)


def _repeated(names: Iterable[str]) -> Iterator[int]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name and name in seen:
            yield index
        seen.add(name)


def _pod_limits(pods: Pods) -> Iterator[Problem]:
    for key, value in pods.annotations.items():
        if key.startswith(RESERVED_ANNOTATIONS):
            yield Problem(f"spec.pods.annotations.{key}", value, RESERVED_NAME)
    if (claim := pods.data_claim) and parse_memory(claim.size) < parse_memory(SMALLEST_CLAIM):
        yield Problem("spec.pods.dataClaim.size", claim.size, CLAIM_AT_LEAST)


def _secret_variables(pods: Pods) -> Iterator[Problem]:
    for index, secret in enumerate(pods.secrets):
        where = f"spec.pods.secrets[{index}].variables"
        if secret.path and secret.variables:
            yield Problem(where, ", ".join(secret.variables), FILES_OR_VARIABLES)
        for name, key in secret.variables.items():
            if not re.fullmatch(ENV_NAME_PATTERN, name):
                yield Problem(where, name, ENV_NAME)
            if name.startswith(RESERVED_ENV):
                yield Problem(f"{where}.{name}", key, RESERVED_NAME)


# Rules for every spec.

RESERVED_ENV = (
    "TF_CONFIG", "TFCLUSTER_", "JUPYTERHUB_", "JPY_", "JUPYTER_TOKEN", "LD_PRELOAD"
)  # fmt: skip


def _counts(spec: Spec) -> list[Problem]:
    replicas = spec.replicas
    problems = [
        Problem(f"spec.replicas.{single.value}.count", count, ONE_AT_MOST)
        for single in (TaskType.CHIEF, TaskType.EVALUATOR)
        if (count := replicas.of(single).count) > 1
    ]
    if not replicas.worker.count and not replicas.chief.count:
        problems.append(Problem("spec.replicas.worker.count", 0, WORKER_NEEDED))
    if replicas.total > MOST_TASKS:
        problems.append(Problem("spec.replicas", replicas.total, TASKS_AT_MOST))
    return problems


def _mode(spec: Spec) -> list[Problem]:
    if spec.mode is Mode.BETWEEN_GRAPH:
        if spec.program is not None:
            return []
        return [Problem("spec.program", None, PROGRAM_NEEDED)]
    problems = [
        Problem(f"spec.replicas.{t.value}.count", count, NO_SUCH_TASKS)
        for t in (TaskType.CHIEF, TaskType.EVALUATOR)
        if (count := spec.replicas.of(t).count)
    ]
    if spec.program is not None:
        problems.append(Problem("spec.program", spec.program.source, PROGRAM_UNUSED))
    return problems


class OnlyIn(NamedTuple):
    """A field of a spec that may differ from its default in one mode only, and the message for the
    other mode.
    """

    attribute: str
    mode: Mode
    default: Enum
    why: Message

    @property
    def field(self) -> str:
        """The field's name in JSON."""
        return Spec.__struct_encode_fields__[Spec.__struct_fields__.index(self.attribute)]


ONLY_IN = (
    OnlyIn("server", Mode.IN_GRAPH, ServerKind.NATIVE, Message("OnlyServersInGraph")),
    OnlyIn(
        "pass_flags",
        Mode.BETWEEN_GRAPH,
        PassFlags.ALL,
        Message("NoFlagsInGraph"),
    ),
)
"""The fields that may be set in one mode only; `kube/objects/crd.py` has the same rules in CEL."""


def _only_in(spec: Spec) -> list[Problem]:
    return [
        Problem(f"spec.{rule.field}", said.value, rule.why)
        for rule in ONLY_IN
        if spec.mode is not rule.mode
        and (said := getattr(spec, rule.attribute)) is not rule.default
    ]


def _memory(spec: Spec) -> list[Problem]:
    problems = []
    for task_type in TaskType:
        memory = spec.replicas.of(task_type).resources.memory
        if memory is not None and parse_memory(memory) < parse_memory(SMALLEST_MEMORY):
            field = f"spec.replicas.{task_type.value}.resources.memory"
            problems.append(Problem(field, memory, MEMORY_AT_LEAST))
    return problems


def _env(spec: Spec) -> list[Problem]:
    found = []
    for key, value in spec.env.items():
        where = f"spec.env.{key}"
        if not re.fullmatch(ENV_NAME_PATTERN, key):  # `$` matches before a final newline, too
            found.append(Problem("spec.env", key, ENV_NAME))
        if key.startswith(RESERVED_ENV):
            found.append(Problem(where, value, RESERVED_NAME))
        if "\0" in value:
            found.append(Problem(where, value, Message("NulInValue")))
    return found


def _forms(spec: Spec) -> list[Problem]:
    """Check that a program is given in one form, with the fields of that form."""
    program = spec.program
    if program is None:
        return []
    forms = {each: getattr(program, each) for each in PROGRAM_FORMS}
    said = [each for each, value in forms.items() if value is not None]
    if len(said) > 1:
        return [Problem("spec.program", ", ".join(said), ONE_PROGRAM)]
    if not said and not program.sha256:
        return [Problem("spec.program", None, NO_PROGRAM)]
    if not said and not program.entrypoint:
        return [Problem("spec.program.entrypoint", None, ENTRYPOINT_NEEDED)]
    if program.command is not None and (odd := program.sha256 or program.entrypoint):
        return [Problem("spec.program", odd, COMMAND_ALONE)]
    return []


PROGRAM_FORMS = ("inline", "command", "path", "url", "files")
"""The fields of `spec.program` in which a program can be given. A program with none of them is a
snapshot in the workspace.
"""


def _files(spec: Spec) -> list[Problem]:
    """Check the fields of a program inside the record; the package `program` verifies the content
    of the files.
    """
    program = spec.program
    if program is None or program.files is None:
        return []
    found = []
    if program.entrypoint not in program.files:
        found.append(Problem("spec.program.entrypoint", program.entrypoint, ENTRYPOINT_MISSING))
    return found


def _payload(spec: Spec) -> list[Problem]:
    sizes = payload_sizes(spec)
    size = sum(sizes.values())
    if size <= PAYLOAD_BYTES:
        return []
    largest = max(sizes, key=lambda field: sizes[field])
    return [Problem(f"spec.{largest}", Message("Bytes", {"count": size}), PAYLOAD_AT_MOST)]


def _after(spec: Spec) -> list[Problem]:
    runs = [each.run for each in spec.after]
    return [Problem(f"spec.after[{i}].run", runs[i], NAMED_TWICE) for i in _repeated(runs)]


def _arguments(spec: Spec) -> list[Problem]:
    program = spec.program
    lists = {"arguments": program.arguments, "command": program.command or ()} if program else {}
    return [
        Problem(f"spec.program.{where}[{i}]", text, Message("NulInArgument"))
        for where, texts in lists.items()
        for i, text in enumerate(texts)
        if "\0" in text
    ]


def _interpreter(spec: Spec) -> list[Problem]:
    path = spec.interpreter
    if path is None or (path.startswith("/") and "\0" not in path):
        return []
    return [Problem("spec.interpreter", path, INTERPRETER_PATH)]


def _text(spec: Spec) -> list[Problem]:
    """Check that all texts are valid UTF-8, because file names and command lines may contain any
    bytes.
    """
    try:
        msgspec.json.encode(spec)
    except UnicodeEncodeError:
        return list(_undecodable(msgspec.to_builtins(spec), "spec"))
    return []


def _undecodable(value: object, path: str) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _undecodable(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _undecodable(item, f"{path}[{index}]")
    elif isinstance(value, str) and any(0xD800 <= ord(c) <= 0xDFFF for c in value):
        yield Problem(path, value, Message("NotUtf8"))


_RULES = (
    _counts,
    _mode,
    _only_in,
    _memory,
    _env,
    _forms,
    _files,
    _arguments,
    _interpreter,
    _after,
    _pods,
    _text,
)


def check_rules(spec: Spec, *, is_launch: bool = True) -> list[Problem]:
    """Return a problem for each broken rule about several fields of a spec. The spec must already
    be valid according to the schema. The size of the spec is checked only at launch, so that a run
    that another release accepted continues.
    """
    rules = (*_RULES, _payload) if is_launch else _RULES
    return [problem for rule in rules for problem in rule(spec)]
