"""Validation of untrusted data. The result is a `Spec`, or an error with every problem.

Each problem has the field, its value and the rule that it breaks. Types and bounds come from
`spec/` and are checked by `schema`; rules about several fields are in `rules`. Every user interface
uses this package, so a form, a YAML file and a command line get the same errors. The custom
resource's schema repeats the rules for kubectl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from ...errors import InvalidRequest, Problem
from ...program.snapshots import completed
from ...spec import Message, Model, Spec, conversion
from ...spec.names import is_valid, name_rule
from . import schema
from .rules import MOST_TASKS, RESERVED_ENV, SMALLEST_MEMORY, check_rules

__all__ = [
    "MOST_TASKS",
    "RESERVED_ENV",
    "SMALLEST_MEMORY",
    "check_rules",
    "read_model",
    "validate",
    "validate_name",
    "value_problems",
]

M = TypeVar("M", bound=Model)


def validate(data: Mapping[str, Any], *, is_launch: bool = True) -> Spec:
    """Build a Spec from JSON-like data. If `is_launch` is false, the data is from a run that was
    accepted before, and its size is not checked. Raises InvalidRequest with every problem.
    """
    problems: list[Problem] = []
    clean = schema.check_schema(data, Spec, "spec", problems)
    spec: Spec | None = None
    if not problems:
        spec = conversion.convert(clean, Spec)
        problems += check_rules(spec, is_launch=is_launch)
        spec = replace(spec, program=completed(spec.program))
    if problems or spec is None:
        raise InvalidRequest(problems)
    return spec


def value_problems(data: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the single values of JSON-like data, without those of rules about
    several values.
    """
    problems: list[Problem] = []
    schema.check_schema(data, Spec, "spec", problems)
    return problems


def validate_name(name: str) -> None:
    """Raise InvalidRequest unless `name` may name a cluster."""
    if not is_valid(name):
        raise InvalidRequest([Problem("name", name, name_rule(name))])


def read_model(data: Mapping[str, Any], kind: type[M]) -> M:
    """Build a model of the type `kind` from JSON-like data. Raises InvalidRequest with every
    problem.
    """
    problems: list[Problem] = []
    clean = schema.check_schema(data, kind, "", problems)
    if problems:
        raise InvalidRequest(problems, Message("RequestRefused"))
    return conversion.convert(clean, kind)
