"""Policy files: the YAML of an administrator, read strictly into a model. Pure.

Every mistake is reported with its line, the value and what is allowed, in words of the policy. The
models define the fields; `Meta(description=…)` of a field's type is the sentence that says what is
allowed. Rules about several fields belong to the policies: the operator's is
`kube.objects.policy`, the hub's `hub.tenancy.policy`, that of one account's notifications
`backends.local.notification_store`.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from ..errors import InvalidRequest, Problem, TFClusterError
from ..i18n import _, mark, ngettext
from ..spec import MEMORY_PATTERN, Message, Model, PositiveSeconds, conversion
from ..spec.quantities import NUMBER_RULE, non_finite_numbers
from ..spec.spec import fields_of

# Types that several policies use.

Amount = Annotated[
    str,
    Meta(
        pattern=MEMORY_PATTERN,
        description=mark("an amount with Ki, Mi, Gi or Ti, such as 2Gi"),
    ),
]
Network = Annotated[str, Meta(description=mark("a network such as 10.0.0.0/8"))]
LimitSeconds = Annotated[
    PositiveSeconds,
    Meta(description=mark("a number of seconds above 0, at most 31622400, such as 7200")),
]

# Mistakes.

Step = str | int
"""A key of a mapping, or an index of a list."""
Where = tuple[Step, ...]
MOST_SHOWN = 20
"""Maximum number of mistakes in the message of an error."""
MOST_FIELDS = 20
"""Maximum number of fields that a message lists."""
MOST_VALUE = 120
"""Maximum characters of a wrong value in a message."""


@dataclass(frozen=True)
class Wrong:
    """A mistake at a place in a policy; `value` is the wrong value as text, or empty."""

    where: Where
    rule: str
    value: str = ""

    @property
    def field(self) -> str:
        """The place as text, such as `default.sizes[0].cpu`."""
        steps = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in self.where)
        return "".join(steps).lstrip(".")

    @property
    def what(self) -> str:
        """The value and what is allowed."""
        if not self.value:
            return self.rule
        return _("got {value}; {why}").format(value=self.value, why=self.rule)

    def below(self, where: Where) -> Wrong:
        """Return this mistake for a policy in which the model stands at `where`."""
        return Wrong((*where, *self.where), self.rule, self.value)


@dataclass(frozen=True)
class Mistake:
    """A mistake in a file. `field` is the path of the wrong field; empty for the whole file."""

    line: int
    field: str
    what: str

    def __str__(self) -> str:
        what = f"{self.field}: {self.what}" if self.field else self.what
        return _("line {line}: {what}").format(line=self.line, what=what)


class InvalidPolicy(TFClusterError):
    """A policy with mistakes. The message has the mistakes, one on each line."""

    exit_code = 2
    http_status = 422

    def __init__(self, mistakes: Sequence[Mistake], file: str = "") -> None:
        self.mistakes = tuple(mistakes)
        lines = [str(each) for each in mistakes[:MOST_SHOWN]]
        if (more := len(mistakes) - MOST_SHOWN) > 0:
            text = ngettext("{count} more mistake", "{count} more mistakes", more)
            lines.append(text.format(count=more))
        said = "\n".join(lines)
        if file:
            said = _("the policy {file} is not valid: {why}").format(file=file, why=said)
        super().__init__(said)


# Reading.

M = TypeVar("M", bound=Model)


class PolicyText:
    """The text of a policy, as YAML; an empty text is an empty mapping.

    Raises:
        InvalidPolicy: the text is not YAML, or repeats a key.
    """

    def __init__(self, text: str) -> None:
        import yaml  # slow to import, and most commands read no policy

        try:
            said = yaml.safe_load(text)
            self._root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
            twice = list(_repeated_keys(self._root))
        except yaml.YAMLError as error:
            place = getattr(error, "problem_mark", None)
            why = getattr(error, "problem", None) or str(error)
            raise _not_yaml(place.line + 1 if place else 1, why) from None
        except (ValueError, RecursionError) as error:  # such as a number with thousands of digits
            raise _not_yaml(1, error) from None
        if twice:
            rule = _("{word} is repeated")
            raise InvalidPolicy([Mistake(line, "", rule.format(word=key)) for line, key in twice])
        self.data: Any = {} if said is None else said

    def read(
        self,
        kind: type[M],
        rules: Callable[[M, Any], Iterable[Wrong]],
        unit: Callable[[Where], int] = lambda _where: 1,
    ) -> M:
        """Return the policy as a model.

        Args:
            kind: the model.
            rules: returns the mistakes that the types do not express, from a model and its data.
                If a field has a wrong type, `rules` gets the model without this field.
            unit: returns how many steps of a path name the field that is left out.

        Raises:
            InvalidPolicy: the policy has mistakes; all are named.
        """
        wrong = list(wrong_types(self.data, kind))
        if not isinstance(self.data, Mapping):
            raise self._refusal(wrong)
        data = copy.deepcopy(self.data)
        for each in wrong:
            _leave_out(data, each.where[: unit(each.where)])
        model = conversion.convert(data, kind)
        if wrong := [*wrong, *rules(model, data)]:
            raise self._refusal(wrong)
        return model

    def _refusal(self, wrong: Iterable[Wrong]) -> InvalidPolicy:
        found = [Mistake(self._line(each.where), each.field, each.what) for each in wrong]
        return InvalidPolicy(sorted(found, key=lambda each: each.line))

    def _line(self, where: Where) -> int:
        """Return the line number, counted from 1, of the value at `where`."""
        node, line = self._root, self._root.start_mark.line + 1 if self._root else 1
        for step in where:
            if node.id == "mapping":
                found = next(((k, v) for k, v in node.value if k.value == step), None)
                if found is None:
                    break
                key, node = found
                line = key.start_mark.line + 1
            elif node.id == "sequence" and isinstance(step, int):
                if step >= len(node.value):
                    break
                node = node.value[step]
                line = node.start_mark.line + 1
            else:
                break
        return line


def read_policy_file(file: str, parse: Callable[[str], M]) -> M:
    """Return the policy in the file that an option `--policy` names.

    Raises:
        InvalidPolicy: the policy has mistakes.
        InvalidRequest: the file cannot be read.
    """
    try:
        return parse(Path(file).read_text(encoding="utf-8"))
    except InvalidPolicy as error:
        raise InvalidPolicy(error.mistakes, file) from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or _("it is not UTF-8 text")
        headline = _("the policy cannot be used")
        raise InvalidRequest([Problem("--policy", file, why)], headline) from None


def _not_yaml(line: int, why: object) -> InvalidPolicy:
    return InvalidPolicy([Mistake(line, "", _("it is not valid YAML: {why}").format(why=why))])


def _repeated_keys(node: Any) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each repeated key in a mapping, from a node of PyYAML."""
    if node is None:
        return
    if node.id == "mapping":
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key.start_mark.line + 1, str(key.value)
            seen.add(key.value)
            yield from _repeated_keys(value)
    elif node.id == "sequence":
        for each in node.value:
            yield from _repeated_keys(each)


def _leave_out(data: Any, where: Where) -> None:
    *above, last = where
    for step in above:
        data = data.get(step, {})
    for key in [key for key in data if str(key) == last]:
        del data[key]


def shown_value(value: object) -> str:
    """Return a value as it is written in YAML, cut to MOST_VALUE characters."""
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    except (TypeError, ValueError):  # JSON has no such key, such as a date, or no such long number
        text = f"({type(value).__name__})"
    return text if len(text) <= MOST_VALUE else text[: MOST_VALUE - 3] + "..."


# Types.


def wrong_types(value: object, kind: Any, where: Where = ()) -> Iterator[Wrong]:
    """Yield each value that does not have the type `kind`, or a type inside it; also each unknown
    and each missing field.
    """
    plain = kind
    if get_origin(kind) in _UNIONS:
        choices = [each for each in get_args(kind) if each is not NoneType]
        plain = choices[0] if len(choices) == 1 else kind
    origin, parts = get_origin(plain), get_args(plain)
    if isinstance(plain, type) and issubclass(plain, Model) and isinstance(value, Mapping):
        yield from _wrong_fields(value, plain, where)
    elif origin is tuple and isinstance(value, list):
        for place, each in enumerate(value):
            yield from wrong_types(each, parts[0], (*where, place))
    elif origin is dict and isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(key, str):
                yield from wrong_types(each, parts[1], (*where, key))
            else:
                rule = _("{key} is not text: put it into quotation marks")
                yield Wrong((*where, str(key)), rule.format(key=shown_value(key)))
    elif odd := list(non_finite_numbers(value)):
        yield from (Wrong(where, str(NUMBER_RULE), repr(text)) for _path, text in odd)
    elif not _converts(value, kind):
        yield Wrong(where, allowed(kind), shown_value(value))


def similar_field(word: str, fields: Iterable[str]) -> str:
    """Return the field that is nearly spelt like a word; empty if none is."""
    return next(iter(difflib.get_close_matches(word, [*fields], 1, cutoff=0.75)), "")


def _wrong_fields(data: Mapping[Any, Any], kind: type[Model], where: Where) -> Iterator[Wrong]:
    known = {field.encode_name: field for field in fields_of(kind)}
    for key, value in data.items():
        if key in known:
            yield from wrong_types(value, known[key].type, (*where, key))
            continue
        if close := similar_field(str(key), known):
            rule = _("there is no such field; did you mean {word}?").format(word=close)
        else:
            words = _field_names(kind)
            rule = _("there is no such field; the fields are {words}").format(words=words)
        yield Wrong((*where, str(key)), rule)
    for name, field in known.items():
        if field.required and name not in data:
            yield Wrong(where, _("the field {name} is required").format(name=name))


def _converts(value: object, kind: Any) -> bool:
    try:
        conversion.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def allowed(kind: Any) -> str:
    """Return the sentence that says which values a type allows."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        said = [each.description for each in parts[1:] if getattr(each, "description", None)]
        return _(said[-1]) if said else allowed(parts[0])
    if origin is Literal:
        return _("use one of {words}").format(words=", ".join(sorted(map(str, parts))))
    if origin in _UNIONS:
        rule = next(allowed(each) for each in parts if each is not NoneType)
        return _("{rule}, or null").format(rule=rule) if NoneType in parts else rule
    if isinstance(kind, type) and issubclass(kind, Model):
        return _("a mapping with the fields {words}").format(words=_field_names(kind))
    if origin is dict:
        return _("a mapping")
    return str(Message(_KINDS.get(origin or kind, "Text")))


def _field_names(kind: type[Model]) -> str:
    names = sorted(field.encode_name for field in fields_of(kind))
    return ", ".join(names) if len(names) <= MOST_FIELDS else _("those in docs/reference/policy.md")


_UNIONS = (Union, UnionType)
_KINDS = {bool: "TrueOrFalse", int: "WholeNumber", float: "Number", tuple: "List"}
