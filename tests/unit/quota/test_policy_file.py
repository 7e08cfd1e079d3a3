"""Policy files: what is wrong in the policies of operator and hub is said in words of a policy."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml
from msgspec import Meta

from tfcluster_magic.errors import InvalidRequest, TFClusterError
from tfcluster_magic.hub.tenancy import policy as hub
from tfcluster_magic.i18n import language
from tfcluster_magic.kube.objects import policy as operator
from tfcluster_magic.quota.policy_file import InvalidPolicy, Mistake, allowed
from tfcluster_magic.spec import Model
from tfcluster_magic.spec.spec import fields_of

POLICIES: dict[str, tuple[type[Model], Callable[[str], object]]] = {
    "operator": (operator.Policy, operator.parse_policy),
    "hub": (hub.PolicyFields, hub.parse_policy),
}


Path = tuple[str | int, ...]


def parts(kind: Any) -> Iterator[Any]:
    """Yield a type and the types of which it is made."""
    yield kind
    for each in get_args(kind):
        if not isinstance(each, Meta):
            yield from parts(each)


def places(kind: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and type of each field in a policy, of elements of lists and mappings too."""
    if get_origin(kind) is tuple:
        yield (*path, 0), get_args(kind)[0]
        yield from places(get_args(kind)[0], (*path, 0))
    elif get_origin(kind) is dict:
        if get_args(kind)[1] is not Any:
            yield (*path, "g"), get_args(kind)[1]
            yield from places(get_args(kind)[1], (*path, "g"))
    elif isinstance(kind, type) and issubclass(kind, Model):
        for field in fields_of(kind):
            yield (*path, field.encode_name), field.type
            yield from places(field.type, (*path, field.encode_name))
    elif NoneType in get_args(kind):
        yield from places(get_args(kind)[0], path)


def written(path: Path, value: object) -> str:
    """Return a policy with a value at a path."""
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return yaml.safe_dump(value)


def shown(path: Path) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).lstrip(
        "."
    )


PLACES = [
    pytest.param(name, path, kind, id=f"{name}-{shown(path)}")
    for name, (model, _parse) in POLICIES.items()
    for path, kind in places(model)
]
VALUES = ("2h", "A b:^", -1, 1.5, 10**12, 10**400, None, True, ["x"], {"zz": {"yy": [1]}})
SCHEMA_WORDS = re.compile(
    r"Expected|`\$|None\b|NoneType|\bstr\b|\bint\b|\bfloat\b|\bbool\b|matching|regex|\(\?!"
)


def mistakes(name: str, text: str) -> tuple[Mistake, ...]:
    try:
        POLICIES[name][1](text)
    except InvalidPolicy as error:
        return error.mistakes
    return ()


@pytest.mark.parametrize(("name", "path", "kind"), PLACES)
def test_a_wrong_value_of_any_field_is_refused_in_words_of_a_policy(
    name: str, path: Path, kind: Any
) -> None:
    """Every field of both policies refuses values of a wrong type, and names itself, the value and
    what is allowed, without words of a schema.
    """
    refused = 0
    for value in VALUES:
        for each in mistakes(name, written(path, value)):
            if each.field == shown(path) and each.what.startswith("got "):
                refused += 1
            assert not SCHEMA_WORDS.search(each.what), each
    assert refused >= 2, kind


@pytest.mark.parametrize(("name", "path", "kind"), PLACES)
def test_the_limits_of_a_number_are_said(name: str, path: Path, kind: Any) -> None:
    """If a number has a least or a highest value, the sentence about the field names it."""
    del name, path
    for each in parts(kind):
        if get_origin(each) is not Annotated:
            continue
        for rule in get_args(each)[1:]:
            for bound in (rule.ge, rule.gt, rule.le, rule.lt):
                assert bound is None or f"{bound:.0f}" in allowed(kind)
            if rule.pattern or rule.min_length:
                assert not allowed(kind).startswith("text")
    if NoneType in get_args(kind):
        assert allowed(kind).endswith(", or null")


SEVERAL = """\
defaultCpu: two
maxTasks: 0
egress: [10.0.0.0/8, here]
dns:
  - {network: 169.254.20.10, port: many}
tolerance: 3
defualtImage: x
sharedData: [{claim: imagenet}]
nodeSelector: {zone: 1, 2: b}
runAsUser:
requireDigest: "yes"
"""
SAID = """\
line 1: defaultCpu: got 'two'; a number of cores above 0, at most 1024
line 2: maxTasks: got 0; a whole number from 1 to 4000
line 3: egress[1]: 'here' does not appear to be an IPv4 or IPv6 network
line 5: dns[0].port: got 'many'; the port of the pods, from 1 to 65535
line 6: tolerance: there is no such field; the fields are those in docs/reference/policy.md
line 7: defualtImage: there is no such field; did you mean defaultImage?
line 8: sharedData[0]: the field path is required
line 9: nodeSelector.zone: got 1; text
line 9: nodeSelector.2: 2 is not text: put it into quotation marks
line 10: runAsUser: got null; the number of a user other than root, from 1
line 11: requireDigest: got 'yes'; true or false
"""


def test_all_mistakes_are_said_at_once_with_their_lines() -> None:
    """A refusal names every mistake with its line: wrong types, unknown and missing fields, and
    rules of a single field.
    """
    with pytest.raises(InvalidPolicy) as refusal:
        operator.parse_policy(SEVERAL)
    assert f"{refusal.value}\n" == SAID


def test_only_the_first_mistakes_of_many_are_said() -> None:
    """A message has at most 20 mistakes, and says how many more there are."""
    with pytest.raises(InvalidPolicy) as refusal:
        operator.parse_policy("".join(f"zz{each}: 1\n" for each in range(30)))
    assert len(refusal.value.mistakes) == 30
    assert str(refusal.value).splitlines()[20:] == ["10 more mistakes"]


def test_rules_are_translated() -> None:
    """A mistake is reported in the language of its reader."""
    with language("zh-CN"), pytest.raises(InvalidPolicy) as refusal:
        operator.parse_policy("defaultCpu: two\n")
    assert "核" in str(refusal.value)
    assert "cores" not in str(refusal.value)


def test_a_file_is_named_with_its_mistakes(tmp_path: pathlib.Path) -> None:
    """A process that reads a policy from a file names the file, and why it cannot be used."""
    file = tmp_path / "policy.yaml"
    assert operator.load_policy("") == operator.Policy()
    with pytest.raises(InvalidRequest, match=r"--policy: got '.*policy\.yaml'; No such file"):
        operator.load_policy(str(file))
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match="it is not UTF-8 text"):
        operator.load_policy(str(file))
    file.write_text("\n\n\ndefaultCpu: two\n")
    said = f"the policy {file} is not valid: line 4: defaultCpu: got 'two'; a number of cores above"
    with pytest.raises(TFClusterError, match=re.escape(said)) as refusal:
        operator.load_policy(str(file))
    assert refusal.value.exit_code == 2
