"""Conversion of specs and statuses to and from the form of the Kubernetes API. Pure.

The models count durations and times in seconds and CPU in cores, as Python does. The custom
resource follows the conventions of the Kubernetes API: quantities, `…Seconds`, RFC 3339, constants
in CamelCase, no floating-point numbers, no maps of objects. This module converts the names, values
and schemas of fields. A value that cannot be converted is kept, so that validation refuses it with
its own message.

Ref:
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from msgspec.structs import fields

from .message_table import Message
from .spec import (
    MEMORY_PATTERN,
    DataClaim,
    Lifecycle,
    Model,
    Pods,
    Resources,
    Spec,
    TaskType,
    Volume,
)
from .status import Reclaimed, Status, TaskExit, Usage

Schema = dict[str, Any]
Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Form:
    """The form of a field in the resource: its name, both conversions, and the change of its
    schema.

    `schema` gets the field's schema in the model, with bounds and defaults, and returns the schema
    for Kubernetes.
    """

    name: str
    write: Convert
    read: Convert
    schema: Callable[[Schema], Schema]


# Times, as `metav1.MicroTime`.

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FRACTION = re.compile(r"\.(\d+)")


def format_time(seconds: float) -> str:
    """Return a time in epoch seconds as RFC 3339 with microseconds. 1.5 gives
    "1970-01-01T00:00:01.500000Z". Raises OverflowError, ValueError.
    """
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%fZ}"


def parse_time(text: str) -> float:
    """Return the epoch seconds of a time in RFC 3339. Raises ValueError."""
    text = _FRACTION.sub(lambda digits: f".{digits[1][:6]:0<6}", text.upper())
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _time_schema(node: Schema) -> Schema:
    told = node["description"].replace(", in seconds since 1970", "")
    made = _typed(node, type="string", format="date-time", description=told)
    return _told(made, "In RFC 3339.")


def _time_name(name: str) -> str:
    """Return the name that the resource gives to a field with a time: `stopAt` becomes `stopTime`.
    If the status of a Kubernetes Job has a field with the same meaning, the name of that field is
    used.
    """
    if name in _AS_IN_JOBS:
        return _AS_IN_JOBS[name]
    return "time" if name == "at" else f"{name.removesuffix('At')}Time"


_AS_IN_JOBS = {"startedAt": "startTime", "finishedAt": "completionTime"}


# Durations.


def _write_seconds(seconds: Any) -> Any:
    return math.ceil(seconds) if isinstance(seconds, (int, float)) else seconds


def _seconds_schema(node: Schema) -> Schema:
    least = math.floor(node["minimum"]) + 1 if node.pop("exclusiveMinimum", False) else None
    node = _typed(node, type="integer", format="int64")
    if least is not None:
        node["minimum"] = least
    if "default" in node:
        node["default"] = math.ceil(node["default"])
    return _told(node, "In seconds.")


# Quantities.

QUANTITY_PATTERN = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
"""Ref: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: dict[str, int] = {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}


_MOST_DIGITS = 30
"""Maximum digits before or after the point of a quantity; Kubernetes counts to 2^63 and to
10^-9.
"""


def parse_quantity(said: object) -> Decimal:
    """Return the exact number of a quantity: "250m" gives 0.25. Raises ValueError."""
    text = str(said)
    if isinstance(said, bool) or len(text) > 64 or not re.fullmatch(QUANTITY_PATTERN[:-1], text):
        raise ValueError(f"{said!r} is no quantity of Kubernetes")
    try:
        if text[-2:] in _BINARY:
            return Decimal(text[:-2]) * _BINARY[text[-2:]]
        if text[-1] in _POWERS:
            return Decimal(text[:-1]).scaleb(_POWERS[text[-1]])
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{said!r} is no quantity of Kubernetes") from None
    if abs(number.adjusted()) > _MOST_DIGITS:  # integers with a million digits take minutes
        raise ValueError(f"{said!r} is beyond what Kubernetes counts")
    return number


def format_cores(cores: float) -> str:
    """Return CPU cores as an exact quantity: 0.2 gives "200m", 2.0 gives "2"."""
    exact = Decimal(repr(float(cores)))
    for suffix, number in (("", exact), ("m", exact.scaleb(3))):
        if number == number.to_integral_value():
            return f"{int(number)}{suffix}"
    return f"{exact:f}"


def _write_cores(cores: Any) -> Any:
    return format_cores(cores) if isinstance(cores, (int, float)) else cores


def _read_cores(said: Any) -> Any:
    return float(parse_quantity(said))


def _read_memory(said: Any) -> Any:
    """Return an amount of memory as the models write it: with a suffix that users write, such as
    `2Gi`, or in bytes.
    """
    if isinstance(said, str) and re.fullmatch(MEMORY_PATTERN[:-1], said):
        return said
    count = parse_quantity(said)
    if 0 <= count < 10**15:
        return str(math.ceil(count))
    return f"{math.ceil(count / 2**40)}Ti" if count > 0 else said


def _write_bytes(count: Any) -> Any:
    if not isinstance(count, int):
        return count
    for suffix, size in reversed(_BINARY.items()):
        if count and count % size == 0:
            return f"{count // size}{suffix}"
    return str(count)


def _read_bytes(said: Any) -> Any:
    return int(parse_quantity(said))


def _quantity_schema(node: Schema) -> Schema:
    told: Schema = {"description": node.get("description", "").replace("memory in bytes", "memory")}
    either: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    return _told({**told, **either, "x-kubernetes-int-or-string": True}, "A quantity.")


# Constants.

_INITIALISMS = {"url": "URL"}


def constant(value: str) -> str:
    """Return a value as a constant of the API: `between-graph` gives `BetweenGraph`."""
    return "".join(_INITIALISMS.get(part, part.capitalize()) for part in value.split("-"))


_HIDING = ("thread", "process", "pipe")
"""The values of `TaskExit.hidden`."""


def _constants(values: tuple[str, ...], name: str) -> Form:
    there = {value: constant(value) for value in values}
    back = {said: value for value, said in there.items()}

    def write(value: Any) -> Any:
        return there.get(value, value) if isinstance(value, str) else value

    def read(said: Any) -> Any:
        return back.get(said, said) if isinstance(said, str) else said

    def schema(node: Schema) -> Schema:
        changed = {key: write(node[key]) for key in ("default",) if key in node}
        if "enum" in node:
            changed["enum"] = [write(value) for value in node["enum"]]
        if "description" in node:
            changed["description"] = re.sub(
                "[a-z]+-[a-z]+", lambda word: write(word[0]), node["description"]
            )
        return {**node, **changed}

    return Form(name, write, read, schema)


# Fields that have another structure in the resource than in the model.


def _write_message(told: Schema) -> Schema:
    """Return a message without floating-point numbers, which become texts in `decimals`."""
    kept, decimals = {}, {}
    for key, value in (told.get("params") or {}).items():
        if isinstance(value, float):
            decimals[key] = repr(value)
        else:
            kept[key] = _each(value, _write_message)
    made = {key: value for key, value in told.items() if key != "params"}
    made |= {"params": kept} if kept else {}
    return made | ({"decimals": decimals} if decimals else {})


def _read_message(told: Schema) -> Schema:
    kept = {key: _each(value, _read_message) for key, value in (told.get("params") or {}).items()}
    kept |= {key: float(value) for key, value in (told.get("decimals") or {}).items()}
    made = {key: value for key, value in told.items() if key not in ("params", "decimals")}
    return made | ({"params": kept} if kept else {})


def _each(value: Any, convert: Callable[[Schema], Schema]) -> Any:
    """Return `value` with every message in it converted."""
    if isinstance(value, Mapping):
        return convert(dict(value)) if isinstance(value.get("params", {}), Mapping) else value
    if isinstance(value, (list, tuple)):
        return [_each(part, convert) for part in value]
    return value


_MESSAGE_DECIMALS = {
    "description": "Values that are not whole numbers, as text.",
    "type": "object",
    "additionalProperties": {"type": "string"},
}


def _write_days(days: Any) -> Any:
    """Return a list with an object for each day. The object has the date, and the milliseconds for
    which tasks reserved resources, by task type.
    """
    return [
        {
            "date": day,
            "taskMilliseconds": {kind: round(each * 1000) for kind, each in types.items()},
        }
        for day, types in days.items()
    ]


def _read_days(days: Any) -> Any:
    if isinstance(days, Mapping):
        return days
    return {
        each["date"]: {kind: ms / 1000 for kind, ms in each["taskMilliseconds"].items()}
        for each in days
    }


def _days_schema(node: Schema) -> Schema:
    day = {"description": "The day in UTC, as in 2026-11-22.", "type": "string"}
    held = {
        "description": "Milliseconds for which the tasks of a type together reserved resources.",
        "type": "object",
        "additionalProperties": {"type": "integer", "format": "int64"},
    }
    item = {
        "description": "What was reserved on one day.",
        "type": "object",
        "properties": {"date": day, "taskMilliseconds": by_task_type(held)},
        "required": ["date", "taskMilliseconds"],
    }
    return {
        "description": node["description"],
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["date"],
    }


def by_task_type(node: Schema) -> Schema:
    """Convert the schema of a map by task type; return the schema of an object whose fields are the
    task types.
    """
    value = node["additionalProperties"]
    made = {key: each for key, each in node.items() if key != "additionalProperties"}
    told = value.get("description", "")
    parts = {
        each.value: {**value, "description": f"{_OF_TYPE[each]} {told}".strip()}
        for each in TaskType
    }
    return {**made, "properties": parts}


_OF_TYPE = {
    TaskType.CHIEF: "For the chief.",
    TaskType.WORKER: "For workers.",
    TaskType.PS: "For parameter servers.",
    TaskType.EVALUATOR: "For the evaluator.",
}


def _write_names(names: Any) -> Any:
    if isinstance(names, str):
        return names
    return [{"name": name} if isinstance(name, str) else name for name in names]


def _read_names(names: Any) -> Any:
    if isinstance(names, str):
        return names
    return [each["name"] if isinstance(each, Mapping) else each for each in names]


def _names_schema(node: Schema) -> Schema:
    name = {"description": "Name of a Secret.", **node["items"]}
    item = {
        "description": "A Secret in the namespace of the run.",
        "type": "object",
        "properties": {"name": name},
        "required": ["name"],
    }
    return {**node, "items": item}


# The table that says which field has which form.


def _same(value: Any) -> Any:
    return value


def _typed(node: Schema, **words: Any) -> Schema:
    """Return a schema with the type and the other keywords in `words`."""
    return {**{key: each for key, each in node.items() if key != "type"}, **words}


def _told(node: Schema, unit: str) -> Schema:
    """Return a schema whose description ends in the unit."""
    return {**node, "description": f"{node.get('description', '')} {unit}".strip()}


def _cores_by_type(node: Schema) -> Schema:
    value = _quantity_schema(node["additionalProperties"])
    return by_task_type({**node, "additionalProperties": value})


def _milliseconds(node: Schema) -> Schema:
    told = node["description"].replace("in seconds", "in milliseconds")
    return _typed(node, type="integer", format="int64", description=told)


def _map_of(convert: Convert) -> Convert:
    return lambda value: {key: _tried(convert, each) for key, each in value.items()}


def _scaled(factor: float, kind: Callable[[float], Any]) -> Convert:
    return lambda value: kind(value * factor) if isinstance(value, (int, float)) else value


_OWN: Mapping[tuple[type[Model], str], Form] = {
    (Resources, "cpu"): Form("cpu", _write_cores, _read_cores, _quantity_schema),
    (Resources, "memory"): Form("memory", _same, _read_memory, _quantity_schema),
    (DataClaim, "size"): Form("size", _same, _read_memory, _quantity_schema),
    (DataClaim, "storageClass"): Form("storageClassName", _same, _same, _same),
    (Volume, "claim"): Form("claimName", _same, _same, _same),
    (Pods, "imagePullSecrets"): Form("imagePullSecrets", _write_names, _read_names, _names_schema),
    (TaskExit, "hidden"): _constants(_HIDING, "hidden"),
    (TaskExit, "finishedAt"): Form("finishedTime", format_time, parse_time, _time_schema),
    (Reclaimed, "cpu"): Form("cpu", _write_cores, _read_cores, _quantity_schema),
    (Reclaimed, "memory"): Form("memory", _write_bytes, _read_bytes, _quantity_schema),
    (Usage, "days"): Form("days", _write_days, _read_days, _days_schema),
    (Usage, "holding"): Form("holding", _same, _same, by_task_type),
    (Usage, "cores"): Form("cores", _map_of(_write_cores), _map_of(_read_cores), _cores_by_type),
    (Usage, "used"): Form(
        "usedCPUMilliseconds", _scaled(1000, round), _scaled(0.001, float), _milliseconds
    ),
    (Status, "counts"): Form("counts", _same, _same, by_task_type),
}
_WHOLE: Mapping[type[Model], tuple[Convert, Convert]] = {Message: (_write_message, _read_message)}
"""Models that two functions convert as a whole, instead of field by field: (write, read)."""


@cache
def forms(kind: type[Model]) -> Mapping[str, Form]:
    """Return the form of each field that differs in the resource, by its name in the model."""
    found = {}
    for field in fields(kind):
        if form := _form(kind, field.encode_name, field.type):
            found[field.encode_name] = form
    return found


FORMS = "resource_forms"
"""Name of the class variable in which a model lists the forms of some fields: of those whose names
do not determine their form.
"""


def time_form(name: str) -> Form:
    """Return the form of a time that is called `name` in the resource."""
    return Form(name, format_time, parse_time, _time_schema)


def seconds_form(name: str) -> Form:
    """Return the form of a duration that is called `name` in the resource."""
    return Form(name, _write_seconds, _same, _seconds_schema)


def many_seconds_form(name: str) -> Form:
    """Return the form of a list of durations that is called `name` in the resource."""

    def schema(node: Schema) -> Schema:
        item = _seconds_schema({"description": "One value.", **node["items"]})
        made = {**node, "items": item}
        if "default" in node:
            made["default"] = [math.ceil(each) for each in node["default"]]
        return _told(made, "In seconds.")

    return Form(name, lambda value: [_write_seconds(each) for each in value], _same, schema)


def any_form(name: str, text: str) -> Form:
    """Return the form of a field whose values have several types, which a schema cannot express."""
    free = {"description": text, "x-kubernetes-preserve-unknown-fields": True}
    return Form(name, _same, _same, lambda _node: dict(free))


def _form(kind: type[Model], name: str, annotation: Any) -> Form | None:
    if (kind, name) in _OWN:
        return _OWN[kind, name]
    if name in (own := getattr(kind, FORMS, {})):
        return own[name]  # type: ignore[no-any-return]
    leaf = _leaf(annotation)
    if isinstance(leaf, type) and issubclass(leaf, enum.Enum):
        values = tuple(str(member.value) for member in leaf)
        # Values that begin with a capital letter are constants already.
        return _constants(values, name) if values[0].islower() else None
    if leaf is float and (name == "at" or name.endswith("At")):
        return Form(_time_name(name), format_time, parse_time, _time_schema)
    if leaf is float and kind is Lifecycle:
        return Form(f"{name}Seconds", _write_seconds, _same, _seconds_schema)
    return None


def _leaf(annotation: Any) -> Any:
    """Return the type without annotations and without `| None`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif None.__class__ in get_args(annotation):
            annotation = next(a for a in get_args(annotation) if a is not None.__class__)
        else:
            return annotation


@dataclass(frozen=True)
class _Plan:
    """The conversion of a model: for each field, the name and the function for its value."""

    write: Mapping[str, tuple[str, Convert]]
    read: Mapping[str, tuple[str, Convert]]


@cache
def _plan(kind: type[Model]) -> _Plan:
    there: dict[str, tuple[str, Convert]] = {}
    back: dict[str, tuple[str, Convert]] = {}
    own = forms(kind)
    for field in fields(kind):
        name = field.encode_name
        if name in own:
            form = own[name]
            there[name], back[form.name] = (form.name, form.write), (name, form.read)
        elif (shape := _nested(field.type)) is not None:
            wrap, model = shape
            there[name] = name, wrap(_writer(model))
            back[name] = name, wrap(_reader(model))
    return _Plan(there, back)


def _nested(annotation: Any) -> tuple[Callable[[Convert], Convert], type[Model]] | None:
    """Return two things for a field that holds a model, or a list or map of models: a function that
    receives the conversion of one model and returns the conversion of the whole field; and the type
    of the model. Return None for any other field.
    """
    annotation = _leaf(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return _same, annotation
    inner, places = get_args(annotation), {tuple: (0, _list_of), dict: (1, _map_of)}
    where, wrap = places.get(get_origin(annotation), (0, None))
    if wrap is None:
        return None
    model = _leaf(inner[where])
    return (wrap, model) if isinstance(model, type) and issubclass(model, Model) else None


def _list_of(convert: Convert) -> Convert:
    return lambda value: (
        [_tried(convert, each) for each in value] if isinstance(value, (list, tuple)) else value
    )


def _writer(kind: type[Model]) -> Convert:
    return lambda value: write(kind, value) if isinstance(value, Mapping) else value


def _reader(kind: type[Model]) -> Convert:
    return lambda value: read(kind, value) if isinstance(value, Mapping) else value


def write(kind: type[Model], content: Mapping[str, Any]) -> dict[str, Any]:
    """Convert JSON-like data of a model to the form of the Kubernetes resource."""
    if kind in _WHOLE:
        made: dict[str, Any] = _tried(_WHOLE[kind][0], content)
        return made
    return _converted(content, _plan(kind).write)


def read(kind: type[Model], content: Mapping[str, Any]) -> dict[str, Any]:
    """Convert JSON-like data from the form of the Kubernetes resource to the form of the model. A
    field that already has its name in the model keeps this name.
    """
    if kind in _WHOLE:
        made: dict[str, Any] = _tried(_WHOLE[kind][1], content)
        return made
    return _converted(content, _plan(kind).read)


def _converted(
    content: Mapping[str, Any], plan: Mapping[str, tuple[str, Convert]]
) -> dict[str, Any]:
    made = {}
    for key, value in content.items():
        name, convert = plan.get(key, (key, _same))
        made[name] = value if value is None else _tried(convert, value)
    return made


def _tried(convert: Convert, value: Any) -> Any:
    """Return the converted value, or `value` itself if it cannot be converted."""
    try:
        return convert(value)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return value


def other_names(kind: type[Model]) -> dict[str, str]:
    """Return the names of fields in the resource by their names in the model, for those fields
    whose two names differ.
    """
    return {name: form.name for name, form in forms(kind).items() if form.name != name}


def properties(kind: type[Model], parts: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the schemas of a model's fields as they are in the resource. `parts` are the schemas
    of these fields in the model.
    """
    own, made = forms(kind), {}
    for name, node in parts.items():
        if name in own:
            made[own[name].name] = own[name].schema(node)
        else:
            made[name] = node
    return made | ({"decimals": _MESSAGE_DECIMALS} if kind is Message else {})


def field_path(path: str) -> str:
    """Return the path of a field below `spec` with the resource's names.
    `spec.lifecycle.maxDuration` gives `spec.lifecycle.maxDurationSeconds`.
    """
    first, *parts = path.split(".")
    kind: type[Model] | None = Spec
    found = [first]
    for part in parts:
        name, bracket, index = part.partition("[")
        own = forms(kind)[name].name if kind and name in forms(kind) else name
        found.append(own + bracket + index)
        types = {field.encode_name: field.type for field in fields(kind)} if kind else {}
        shape = _nested(types[name]) if name in types else None
        kind = shape[1] if shape else None
    return ".".join(found)


def _models(kind: type[Model], found: dict[str, type[Model]]) -> dict[str, type[Model]]:
    if kind.__name__ not in found:
        found[kind.__name__] = kind
        for field in fields(kind):
            if shape := _nested(field.type):
                _models(shape[1], found)
    return found


MODELS: Mapping[str, type[Model]] = _models(Status, _models(Spec, {}))
"""The models of a spec and a status, by their names in a JSON Schema."""


def models_of(*kinds: type[Model]) -> Mapping[str, type[Model]]:
    """Return these models and all models in their fields, by their names in a JSON Schema."""
    found: dict[str, type[Model]] = {}
    for kind in kinds:
        _models(kind, found)
    return found
