"""A launch as a command line or a magic: the reverse of `options.read_options`. Pure.

Parsing the resulting arguments gives the same launch; defaults are left out. This module formats
each kind of value, and escapes characters that IPython would change in a cell. An invalid launch
can be written as a command line, too.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..errors import TFClusterError
from ..program import Findings, find_out
from ..spec import Mode, Program, ProgramKind, Spec, TaskType, TFCluster
from ..spec.spec import fields_of
from . import ProjectUse
from .options import DEFAULT_WORKERS, OPTIONS, Kind, Option, pod_option_texts

_ABOVE = "# %%tfcluster\n"  # in a snapshot, this line stands for the first line of a cell


def launch_argv(
    program: str | None,
    arguments: Sequence[str] = (),
    name: str | None = None,
    options: Mapping[str, object] | None = None,
    sha256: str | None = None,
    config: str | None = None,
) -> list[str]:
    """Return the command-line arguments of a launch, with the verb first. `options` are the values
    that the user gave, by key.
    """
    words = ["launch"]
    for option in OPTIONS:
        value = (options or {}).get(option.key)
        if value is not None and value != ():
            words += _option_argv(option, value)
    if name is not None:
        words += _pair("--name", name)
    if sha256 is not None:
        words += _pair("--sha256", sha256)
    if config is not None:
        words += _pair("--config", config)
    if program is not None:
        words.append(f"./{program}" if program.startswith("-") else program)
    return [*words, "--", *map(str, arguments)] if arguments else words


def magic_line(words: Sequence[str], cell: bool = False) -> str:
    """Return the arguments as a `%tfcluster` line; if `cell` is true, as the first line of a cell
    with a program. IPython would expand `{…}` and `$name`, and a line break would end the line, so
    these characters are escaped.
    """
    line = shlex.join(words)
    breaks = {char for char in line if char != " " and len(f"a{char}a".splitlines()) > 1}
    braces = any(char in line for char in "{}")
    escapes = {ord("{"): "{{", ord("}"): "}}"} | {ord(c): f"{{chr({ord(c)})}}" for c in breaks}
    if (
        breaks or braces or '"\'"' in line
    ):  # any other `$` is in single quotes, where IPython does not expand it
        escapes[ord("$")] = "{chr(36)}"
    return f"{'%%' if cell else '%'}tfcluster {line.translate(escapes)}"


def shell_command(cluster: TFCluster) -> str | None:
    """Return the shell command that launches `cluster` again.

    Return None for a cell, a text in the record, or a command of the image: no command line can
    express these. If the program's path is relative and its working folder is known, the command
    changes to this folder first.
    """
    program = cluster.spec.program
    if program is not None and program.kind in _WORDLESS:
        return None
    line = shlex.join(["tfcluster", *_cluster_argv(cluster, _source(program))])
    folder = program.working_dir if program else None
    if program is not None and folder and os.path.isabs(folder) and not _is_absolute(program):
        return f"cd {shlex.quote(folder)} && {line}"
    return line


_WORDLESS = (ProgramKind.CELL, ProgramKind.INLINE, ProgramKind.COMMAND)
_NO_CELL = "# No cell says it: launch its cluster file with `tfcluster launch --file`."


def notebook_cell(cluster: TFCluster) -> str:
    """Return the cell that launches `cluster` again in any notebook."""
    program = cluster.spec.program
    if program is not None and program.kind in _WORDLESS:
        text = _cell_of(program)
        return (
            f"{magic_line(_cluster_argv(cluster, None), cell=True)}\n{text}" if text else _NO_CELL
        )
    return magic_line(_cluster_argv(cluster, portable_source(program) or _source(program)))


def _cluster_argv(cluster: TFCluster, source: str | None) -> list[str]:
    arguments = cluster.spec.program.arguments if cluster.spec.program else ()
    use = ProjectUse.of(cluster.status.inferred) if source is not None else None
    spec = replace(cluster.spec, after=())  # the runs that `cluster` waited for have ended
    options = options_of(spec, use.keys if use else ())
    config = use.config if use else None
    return launch_argv(source, arguments, cluster.metadata.cluster, options, config=config)


def options_of(spec: Spec, told: Collection[str] = ()) -> dict[str, object]:
    """Return the values, by key, of the options that produce `spec`. Defaults are left out, except
    for options in `told`, which a project's file sets to other values.
    """
    found = _options_of(spec)
    for option in OPTIONS:
        if option.key not in told or option.key in found:
            continue
        if option.path[0] == "*":
            types = [TaskType(each) for each in spec.replicas.counts]
            paths = {f"{t.value}_{option.key}": (t.value, option.path[1]) for t in types}
            values = {
                key: field_at(spec, ("replicas", name, "resources", resource))
                for key, (name, resource) in paths.items()
            }
            found |= {k: v for k, v in values.items() if k not in found and v not in _NONE}
        elif (value := field_at(spec, option.path)) not in _NONE:
            found[option.key] = value
    return found


def _options_of(spec: Spec) -> dict[str, object]:
    found: dict[str, object] = {}
    shared = _shared_resources(spec)
    for option in OPTIONS:
        if option.path[0] == "*":
            if option.path[1] in shared:
                found[option.key] = shared[option.path[1]]
        elif option.path[:1] == ("replicas",) and option.path[2] == "resources":
            task_type, key = TaskType(option.path[1]), option.path[3]
            value = field_at(spec, option.path)
            common = key in shared and task_type in spec.replicas.counts
            if not common and value != field_default(option.path):
                found[option.key] = value
        elif (value := field_at(spec, option.path)) != _implied_value(
            option, spec
        ) and value not in _NONE:
            found[option.key] = value
    return found


_NONE: tuple[object, ...] = ((), {}, None)
"""The values of options that are not given."""


def portable_source(program: Program | None) -> str | None:
    """Return a source that names the same program from every folder; None if there is none."""
    if program is None or program.kind in _WORDLESS:
        return None
    if program.kind in (ProgramKind.URL, ProgramKind.LINK) or _is_absolute(program):
        return program.source
    folder = program.working_dir
    if folder is None or not os.path.isabs(folder):
        return None
    return os.path.normpath(os.path.join(folder, program.source))


def value_text(kind: Kind, value: object) -> str:
    """Return a value as a user writes it on a command line."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if kind is Kind.DURATION:
        return _duration_text(value)
    return str(int(value)) if value == int(value) else repr(value)


def field_at(model: Any, path: tuple[str, ...]) -> object:
    """Return the value of the field at `path`, which has JSON names, in a model; None if a field on
    the path is absent.
    """
    for part in path:
        if model is None:
            return None
        names = {f.encode_name: f.name for f in fields_of(model.__class__)}
        model = getattr(model, names[part])
    return model


def field_default(path: tuple[str, ...]) -> object:
    """Return the default of a field. Numbers of tasks have their defaults in `_implied_value`."""
    return field_at(Spec(), path)


def option_texts(option: Option, value: object) -> list[str]:
    """Return an option's value as a user types it: one text for each time that it is given."""
    if option.kind is Kind.PAIRS:
        if isinstance(value, Mapping):
            return [f"{name}={content}" for name, content in value.items()]
        return [str(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
    if option.kind.has_parts:
        return pod_option_texts(option.kind, value)
    return [value_text(option.kind, value)]


def _option_argv(option: Option, value: object) -> list[str]:
    if option.kind is Kind.SWITCH:
        return [option.flag if value else f"--no-{option.flag[2:]}"]
    return [word for text in option_texts(option, value) for word in _pair(option.flag, text)]


def _pair(flag: str, text: str) -> list[str]:
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _shared_resources(spec: Spec) -> dict[str, object]:
    """Return the resources that are equal for all task types, if there are several types."""
    types = list(spec.replicas.counts)
    found: dict[str, object] = {}
    for key in ("cpu", "memory", "gpu"):
        first, *rest = (field_at(spec, ("replicas", t.value, "resources", key)) for t in types)
        if rest and first and all(value == first for value in rest):
            found[key] = first
    return found


def _implied_value(option: Option, spec: Spec) -> object:
    """Return the value that an option's field gets if the option is not given; None if unknown."""
    if option.path == ("replicas", TaskType.WORKER.value, "count"):
        return DEFAULT_WORKERS
    if option.path[:1] == ("replicas",) and option.path[2] == "count":
        task_type = TaskType(option.path[1])
        if spec.mode is Mode.IN_GRAPH:
            return int(task_type is TaskType.PS)
        findings = _findings(spec.program)
        return None if findings is None else int(task_type in findings.wanted)
    return field_default(option.path)


def _findings(program: Program | None) -> Findings | None:
    """Return the findings in the text of a program, if its files are in the record."""
    if program is None or program.files is None:
        return None
    try:
        # no folder is read, because the files are in the record
        return find_out(program, Path(os.devnull))
    except (TFClusterError, binascii.Error):
        return None


def _cell_of(program: Program) -> str:
    """Return a program as the text of a cell; empty if no cell can express the program."""
    if program.kind is not ProgramKind.CELL and not program.entrypoint.endswith(".py"):
        return ""
    content = (program.files or {}).get(program.entrypoint)
    if content is None:
        return "# The text of the cell is too long for the record: it is in the run's folder."
    return cell_text(base64.b64decode(content))


def cell_text(content: bytes) -> str:
    """Return the text of a cell from the file of its snapshot."""
    return content.decode("utf-8", "replace").removeprefix(_ABOVE).rstrip("\n")


def _source(program: Program | None) -> str | None:
    return None if program is None or program.kind in _WORDLESS else program.source


def _is_absolute(program: Program) -> bool:
    return os.path.isabs(os.path.expanduser(program.source))


def _duration_text(seconds: float) -> str:
    if seconds < 0 or seconds != int(seconds):
        return f"{Decimal(repr(seconds)):f}"
    left, text = int(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0"
