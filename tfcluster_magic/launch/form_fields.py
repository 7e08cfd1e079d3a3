"""The options of a launch as fields of a form: the section, bounds and default of each. Pure.

A form shows exactly the options of the command line: fields are derived from the table in
`options.py` and from the bounds in `spec/`. Other modules check the values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

from msgspec import Meta

from ..errors import Problem
from ..i18n import _
from ..spec import Mode, Model, Spec, TaskType
from ..spec.spec import fields_of
from .launch_as_command import field_at, field_default, option_texts, value_text
from .options import BY_KEY, DEFAULT_WORKERS, OPTIONS, Kind, Option

BASIC, RESOURCES, LIMITS, PODS = "basic", "resources", "limits", "pods"
_UNITS = {Kind.DURATION: "s", Kind.MEMORY: "B"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def form_fields(is_here: bool, most_tasks: int | None = None) -> list[dict[str, Any]]:
    """Return every option in the order of the command line, in the current language.

    Options of pods are left out if tasks are processes of this machine (`is_here`). In the result,
    `path` is the field of the spec, with `*` for every task type. `default` is the default in each
    mode as a user would write it; it is null if the program decides or there is no default. In
    fields for numbers of tasks, `maximum` is not above `most_tasks`.
    """
    fields = [_field(option) for option in OPTIONS if not (is_here and option.only_kubernetes)]
    for field in fields if most_tasks is not None else ():
        if field["path"][-1] == "count" and "maximum" in field:
            field["maximum"] = min(field["maximum"], most_tasks)
    if not is_here:  # a kernel's Python does not exist in the tasks' image
        python = next(field for field in fields if field["key"] == "python")
        python |= {"section": PODS, "example": "python3"}
    return fields


def form_values(spec: Spec, told: Collection[str] = ()) -> dict[str, str | bool | list[str]]:
    """Return the values of a form's fields, by key, for another launch of `spec`. Default values
    are left out, except for the options in `told`: a project's file sets these options to other
    values.

    A value is a text as a user types it, a boolean for a switch, or a list of texts for a
    repeatable option. All numbers of tasks are included, even if they are defaults. From the
    result, `read_options` makes the same spec again.
    """
    found: dict[str, str | bool | list[str]] = {}
    for option in OPTIONS:
        if option.path[0] == "*":
            continue  # the resources of every task type have their own fields
        value = field_at(spec, option.path)
        is_count = option.path[0] == "replicas" and option.path[-1] == "count"
        is_told = is_count and option.only in (None, spec.mode)
        is_told = is_told or option.key in told or _of_each(option) in told
        if value in ((), {}, None) or (value == field_default(option.path) and not is_told):
            continue
        texts = option_texts(option, value)
        if option.kind is Kind.SWITCH:
            found[option.key] = bool(value)
        else:
            found[option.key] = texts if option.kind.repeats else texts[0]
    return found


def _of_each(option: Option) -> str:
    """Return the key of the option that sets this resource for all task types, such as `memory` for
    the option `worker_memory`; '' if the option is not a resource of one task type.
    """
    return option.path[-1] if option.path[2:3] == ("resources",) else ""


def option_for(field: str, said: Mapping[str, object]) -> str | None:
    """Return the name of the form's input that a problem with this `field` concerns, if there is
    one. `said` are the options that were given. Besides the options, `program`, `name`,
    `arguments`, `sha256`, `config` and `kernelspec` are inputs.
    """
    if field == _("arguments after --"):
        return "arguments"
    words = field.split(" ")
    if words[0].startswith("--"):
        key = words[0][2:].replace("-", "_")
        return key if key in BY_KEY or key in ("name", "sha256", "config") else None
    if field in _BESIDE:
        return _BESIDE[field]
    found = re.split(r"[.\[\]]+", field.removeprefix("$.").removeprefix("spec."))
    path = tuple(part for part in found if part)
    if path[:1] == ("program",):
        return "arguments" if path[1:2] == ("arguments",) else "program"
    while path:
        keys = [option.key for option in OPTIONS if _may_set(option, path)]
        # Several options may set one path: --memory sets the path of --worker-memory, unless
        # --worker-memory is given.
        if keys:
            return next((key for key in reversed(keys) if key in said), keys[-1])
        path = path[:-1]
    return None


_BESIDE = {
    "name": "name",
    "kernelspec": "kernelspec",
    "tensorflow": "kernelspec",
    "replicas": "workers",  # the field of the problem "too many tasks"
    "spec.replicas": "workers",
}


def form_problems(
    problems: Sequence[Problem],
    said: Mapping[str, object],
    inputs: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return problems as data for a form: each has the input that it concerns and, if known, the
    number of tasks that would fit. `inputs` maps a problem's field to a form input that is not a
    launch option.
    """
    return [
        {
            "field": str(problem.field),
            "option": inputs.get(str(problem.field)) or option_for(str(problem.field), said),
            "value": _json_value(problem.value),
            "allowed": str(problem.allowed),
            "message": str(problem),
            "fits": problem.fits,
        }
        for problem in problems
    ]


def _field(option: Option) -> dict[str, Any]:
    path = option.path if option.path[0] != "*" else (*_EACH, option.path[1])
    modes = [m for m in Mode if option.only in (None, m)]
    field: dict[str, Any] = {
        "key": option.key,
        "flag": option.flag,
        "path": list(option.path),
        "kind": option.kind.name.lower(),
        "section": _section(option),
        "label": _(option.label),
        "help": re.sub(r" ?\[[^\]]*\]$", "", _(option.help)),
        "modes": [mode.value for mode in modes],
        "default": {mode.value: _default(option, mode) for mode in modes},
        "unit": _UNITS.get(option.kind),
        "words": list(option.words),
        "example": option.kind.value
        if option.only_kubernetes or option.kind is Kind.RUNS
        else None,
    }
    return field | bounds(path)


_EACH = ("replicas", TaskType.WORKER.value, "resources")


def _section(option: Option) -> str:
    if option.path[0] in ("lifecycle", "after"):
        return LIMITS
    if option.only_kubernetes:
        return PODS
    counts = option.path[0] == "replicas" and option.path[-1] == "count"
    return BASIC if counts or option.path[0] in ("mode", "interpreter") else RESOURCES


def _default(option: Option, mode: Mode) -> str | None:
    if option.path == ("replicas", TaskType.WORKER.value, "count"):
        return str(DEFAULT_WORKERS)
    if option.path == ("replicas", TaskType.PS.value, "count"):
        return "1" if mode is Mode.IN_GRAPH else None
    without = option.kind in (Kind.SWITCH, Kind.PAIRS, Kind.RUNS)
    if option.path[0] == "*" or without or option.only_kubernetes:
        return None
    value = field_default(option.path)
    return None if value is None else value_text(option.kind, value)


def bounds(path: Sequence[str], model: type[Model] = Spec) -> dict[str, Any]:
    """Return the bounds of the field at `path` of a model, by their names in JSON Schema."""
    kind: Any = model
    for part in path:
        inner = _model_in(kind)
        if inner is None:
            return {}  # the path leads to a value in `env`
        kind = {f.encode_name: f for f in fields_of(inner)}[part].type
    found: dict[str, Any] = {}
    for meta in _metas(kind):
        for name, called in _BOUNDS.items():
            if (bound := getattr(meta, name)) is not None:
                found[called] = bound
    return found


def _model_in(kind: Any) -> type[Model] | None:
    for candidate in (kind, *get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, Model):
            return candidate
    return None


def _metas(kind: Any) -> list[Meta]:
    found = [meta for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, Meta)]
    return found + [meta for part in get_args(kind) for meta in _metas(part)]


def _may_set(option: Option, path: tuple[str, ...]) -> bool:
    if option.path[0] == "*":
        return path[:1] == ("replicas",) and path[2:] == ("resources", option.path[1])
    return option.path == path or (len(path) > 1 and option.path == (*path, "count"))


def _json_value(value: object) -> object:
    """Return a value in a form that JSON can express."""
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
