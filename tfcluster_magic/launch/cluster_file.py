"""Cluster files: a TFCluster, or only its spec, as YAML or JSON, in our or kubectl's form.

Reading takes the name, the spec and the program's source; fields of a run (uid, run number, status,
a stop request) are dropped. This module also writes such a file for a run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidRequest, Problem
from ..i18n import _
from ..program.snapshots import written_program
from ..spec import API_VERSION, KIND, ProgramKind, Spec, TFCluster, names, resource_form
from .launch_as_command import portable_source
from .validation.rules import PROGRAM_FORMS

MOST_BYTES = 4 * 1024 * 1024  # a record, even with its program, is far smaller


@dataclass(frozen=True)
class ClusterFile:
    """The content of a cluster file. If the file has no snapshot, `program` is the source of the
    program; if the source is a folder, `entry` is the file to start.
    """

    name: str | None
    spec: dict[str, object]
    program: str | None = None
    arguments: tuple[str, ...] = ()
    entry: str | None = None


def read(path: str) -> ClusterFile:
    """Read a cluster file, or standard input for `-`.

    Raises:
        InvalidRequest: the file is missing, too large, not YAML, or not a TFCluster.
    """
    data = _parse(path, read_text(path))
    name: str | None = None
    if "kind" in data or "apiVersion" in data or "spec" in data:
        kind, version = data.get("kind", KIND), data.get("apiVersion", API_VERSION)
        if kind != KIND or version != API_VERSION:
            rule = _("a file must describe a {kind} of {version}")
            raise _refusal(
                path,
                _("{kind} of {version}").format(kind=kind, version=version),
                rule.format(kind=KIND, version=API_VERSION),
            )
        metadata = data.get("metadata") or {}
        if not isinstance(metadata, Mapping):
            raise _refusal(path, metadata, _("`metadata` must contain `cluster: <name>`"))
        # In a file for kubectl, the name is that of a run, such as `digits-1`.
        run = str(metadata.get("name") or "")
        name = metadata.get("cluster") or names.parse_ref(run)[0] or None
        spec = data.get("spec") or {}
    else:
        spec = data
    if not isinstance(spec, Mapping):
        raise _refusal(
            path, spec, _("`spec` must contain fields such as mode, replicas and program")
        )
    spec = resource_form.read(Spec, {k: v for k, v in spec.items() if k != "stop"})
    program = spec.get("program")
    if isinstance(program, Mapping) and program.get("source") and not _says_what_runs(program):
        spec = {key: value for key, value in spec.items() if key != "program"}
        arguments = tuple(str(argument) for argument in program.get("arguments") or ())
        source, entry = _relative_to_file(path, str(program["source"])), program.get("entrypoint")
        return ClusterFile(name, spec, source, arguments, None if entry is None else str(entry))
    return ClusterFile(name, spec)


def _says_what_runs(program: Mapping[str, object]) -> bool:
    """Return whether `program` contains the program, or says where the tasks find it. If so, its
    `source` is only a label.
    """
    return any(program.get(each) is not None for each in ("sha256", *PROGRAM_FORMS))


def cluster_file_of(cluster: TFCluster) -> dict[str, object]:
    """Return the cluster file that launches `cluster` again, from any folder.

    The file names the program's source if the source can be found from any folder; a launch then
    takes a new snapshot of the source. If the source cannot be found (a cell, an unknown folder),
    the file has the run's own snapshot.
    """
    spec: dict[str, Any] = msgspec.to_builtins(cluster.spec)
    for own in ("stop", "resumeFrom", "after"):
        spec.pop(own, None)
    program = cluster.spec.program
    source = portable_source(program)
    if program is not None and program.by_hand:
        spec["program"] = written_program(program)
    elif program is not None and source is not None:
        spec["program"] = {"source": source}
        if program.kind is ProgramKind.FOLDER:
            spec["program"]["entrypoint"] = program.entrypoint
        if program.arguments:
            spec["program"]["arguments"] = list(program.arguments)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"cluster": cluster.metadata.cluster},
        "spec": {"mode": cluster.spec.mode.value, **spec},
    }


def read_text(path: str, field: str = "", most: int = MOST_BYTES) -> str:
    """Read the text of a file of at most `most` bytes, or of standard input for `-`.

    `field` is the name of the text in errors.

    Raises:
        InvalidRequest: the text is missing, too large or not UTF-8.
    """
    try:
        if path == "-":
            content = sys.stdin.buffer.read(most + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(most + 1)
        if len(content) > most:
            allowed = _("it has more than {count} bytes, which is too much").format(count=most)
            raise _refusal(path, path, allowed, field)
        return content.decode("utf-8")
    except OSError as error:
        told = _("it cannot be read: {why}").format(why=error.strerror)
        raise _refusal(path, path, told, field) from None
    except UnicodeDecodeError:
        raise _refusal(path, path, _("it is not text in UTF-8"), field) from None


def read_documents(path: str, text: str, field: str = "") -> list[object]:
    """Parse a text that was read from `path` as YAML documents.

    Raises:
        InvalidRequest: the text is not YAML.
    """
    import yaml  # a top-level import would slow the start of every command

    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        text = _("it is not YAML: line {line}: {why}") if mark else _("it is not YAML: {why}")
        words = {"line": mark.line + 1 if mark else 0, "why": getattr(error, "problem", error)}
        raise _refusal(path, path, text.format(**words), field) from None
    # for example, a number has thousands of digits, or a date or a key is invalid
    except (ValueError, TypeError) as error:
        raise _refusal(path, path, _("it is not YAML: {why}").format(why=error), field) from None
    except RecursionError:
        raise _refusal(path, path, _("it is nested too deeply"), field) from None


def _parse(path: str, text: str) -> Mapping[str, object]:
    documents = read_documents(path, text)
    data = documents[0] if len(documents) == 1 else None
    if len(documents) > 1:
        told = _("{count} documents").format(count=len(documents))
        raise _refusal(
            path, told, _("a cluster file holds one TFCluster: launch them one after another")
        )
    if not isinstance(data, Mapping):
        raise _refusal(
            path,
            data,
            _("a file must hold a TFCluster or its spec, as `tfcluster render` prints it"),
        )
    return data


def _relative_to_file(path: str, source: str) -> str:
    """Return a program's path with the cluster file's folder in front: a path in the file is
    relative to the file, so that both can be moved together.
    """
    if path == "-" or "://" in source or Path(source).is_absolute():
        return source
    return str(Path(path).parent / source)


def _refusal(path: str, value: object, allowed: str, field: str = "") -> InvalidRequest:
    return InvalidRequest([Problem(field or f"--file {path}", value, allowed)])
