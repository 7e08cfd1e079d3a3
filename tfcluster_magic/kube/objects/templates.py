"""Rendering of YAML templates. Pure. A value can never add YAML structure, because values enter the
output only through the filters `json` and `yaml`. An undefined name is an error.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from typing import Any

import yaml
from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON prints unchanged and YAML refuses or reads as a line break."""


class QuotedText(str):
    """The output of a filter: exactly one YAML value."""

    __slots__ = ()


def as_json(value: object) -> QuotedText:
    """Return a value on one line as JSON, which is YAML."""
    _defined(value)
    text = json.dumps(value, ensure_ascii=False)
    return QuotedText(_UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _defined(value: object) -> None:
    if isinstance(value, StrictUndefined):
        str(value)  # `str` raises an error that names the undefined variable


class _Dumper(yaml.SafeDumper):
    """A dumper of readable YAML: lists indented below their key, multi-line text as a block."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _UNPRINTABLE.search(text):
        # other styles print these characters unchanged, and parsers read them as line breaks
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(value: object) -> QuotedText:
    """Return a value as lines of YAML; keys keep their order."""
    _defined(value)
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return QuotedText(text)  # the last line break stays, because it may belong to a value


def yaml_documents(values: list[dict[str, Any]]) -> str:
    """Return several values as one stream of YAML documents."""
    return "---\n".join(map(as_yaml, values))


def template_environment(loader: BaseLoader | None = None) -> Environment:
    """Return a strict Jinja environment with the two filters. Templates of a `loader` are
    untrusted: they run in a sandbox.
    """
    kind = ImmutableSandboxedEnvironment if loader else Environment
    made = kind(
        loader=loader or PackageLoader("tfcluster_magic"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"json": as_json, "yaml": as_yaml}
    return made


def _only_quoted(value: object) -> object:
    if not isinstance(value, QuotedText):
        raise TypeError(f"{value!r} must pass through `json` or `yaml` to be printed")
    return value


def load_yaml(text: str) -> Any:
    """Parse one YAML document."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is 150 times faster
    return yaml.load(str(text), Loader=loader)  # noqa: S506


def render_object(template: str, **values: object) -> dict[str, Any]:
    """Render a template of the package to one YAML mapping."""
    places: list[object] = []
    text = _marking().get_template(template).render(values, **{_PLACES: places})
    made: dict[str, Any] = _filled(_read(text), places)
    return made


# -- parsing a template's text only once -----------------------------------------------------------
# A template's text is parsed with a mark in place of each value, and the result is cached. It is
# the same for all values that take the same branches. When the values were parsed too, parsing was
# a quarter of the operator's work for a launch.

_MARK = "\ue000"
"""A private-use character of Unicode, which none of our templates has."""
_PLACES = "values_by_mark"

_read = lru_cache(maxsize=256)(load_yaml)


@cache
def _marking() -> Environment:
    made = template_environment()
    made.finalize = _only_quoted
    made.filters["json"] = _marked
    return made


@pass_context
def _marked(context: Context, value: object) -> QuotedText:
    _defined(value)
    places: list[object] = context[_PLACES]
    places.append(json.loads(json.dumps(value)))
    return QuotedText(f'"{_MARK}{len(places) - 1}"')


def _filled(read: Any, places: list[object]) -> Any:
    if isinstance(read, dict):
        return {_filled(key, places): _filled(value, places) for key, value in read.items()}
    if isinstance(read, list):
        return [_filled(value, places) for value in read]
    if isinstance(read, str) and read.startswith(_MARK):
        return places[int(read.removeprefix(_MARK))]
    return read
