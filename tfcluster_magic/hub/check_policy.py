"""The command `check-policy`: checks policy files before an administrator applies them.

The command reads only the files. It recognises by the fields whether a file is the operator's
policy or the hub's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click

from ..i18n import _, mark
from ..kube.objects import policy as operator_policy
from ..quota.policy_file import InvalidPolicy, Mistake, PolicyText, similar_field
from ..spec import Model
from ..spec.spec import fields_of
from .tenancy import policy as hub_policy


@dataclass(frozen=True)
class PolicyKind:
    """A policy that the command can check."""

    title: str
    fields: frozenset[str]
    parse: Callable[[str], object]

    def known(self, data: Mapping[object, object], others: frozenset[str]) -> tuple[int, int]:
        """Return how many keys are fields of this policy only, and how many are or resemble such
        fields. The first number counts more.
        """
        own = self.fields - others
        exact = sum(str(key) in own for key in data)
        return exact, sum(bool(similar_field(str(key), own)) for key in data)


def _kind(title: str, model: type[Model], parse: Callable[[str], object]) -> PolicyKind:
    return PolicyKind(title, frozenset(each.encode_name for each in fields_of(model)), parse)


OPERATOR = _kind(
    mark("the operator's policy"), operator_policy.Policy, operator_policy.parse_policy
)
HUB = _kind(mark("the hub's policy"), hub_policy.PolicyFields, hub_policy.parse_policy)


def mistakes_in(content: bytes) -> tuple[tuple[PolicyKind, ...], tuple[Mistake, ...]]:
    """Return the policies that a file may be, and its mistakes. A file may be both policies if it
    has only fields that both have; it is neither if it is not YAML.
    """
    try:
        text = content.decode()
        data = PolicyText(text).data
    except UnicodeDecodeError:
        return (), (Mistake(1, "", _("it is not UTF-8 text")),)
    except InvalidPolicy as error:
        return (), error.mistakes
    if isinstance(data, dict) and "apiVersion" in data:
        why = _("it is a Kubernetes manifest; check the policy.yaml of which its ConfigMap is made")
        return (), (Mistake(1, "", why),)
    kinds: tuple[PolicyKind, ...] = (OPERATOR, HUB)
    if isinstance(data, dict):
        operator, hub = OPERATOR.known(data, HUB.fields), HUB.known(data, OPERATOR.fields)
        if operator != hub:
            kinds = (OPERATOR,) if operator > hub else (HUB,)
    found = [(kind, _mistakes(kind, text)) for kind in kinds]
    fewest = min(len(mistakes) for _kind, mistakes in found)
    best = [(kind, mistakes) for kind, mistakes in found if len(mistakes) == fewest]
    return tuple(kind for kind, _mistakes in best), best[0][1]


def _mistakes(kind: PolicyKind, text: str) -> tuple[Mistake, ...]:
    try:
        kind.parse(text)
    except InvalidPolicy as error:
        return error.mistakes
    return ()


@click.command("check-policy")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.pass_context
def check_policy(ctx: click.Context, files: tuple[str, ...]) -> None:
    """Check policy files before you apply them.

    FILE is the operator's policy (k8s/base/policy.yaml) or the hub's (hub_config/policy.yaml); `-`
    is the standard input. For each file, the command prints that it is valid, or every mistake with
    its line. The exit code is 2 if a file has a mistake.
    """
    is_valid = True
    for file in files:
        with click.open_file(file, "rb") as content:
            kinds, mistakes = mistakes_in(content.read())
        what = _(" and as ").join(_(kind.title) for kind in kinds) or _("a policy")
        text = _("{file}: not valid as {what}") if mistakes else _("{file}: valid as {what}")
        click.echo(text.format(file=file, what=what))
        for each in mistakes:
            click.echo(f"  {each}")
            is_valid = False
    if not is_valid:
        ctx.exit(2)
