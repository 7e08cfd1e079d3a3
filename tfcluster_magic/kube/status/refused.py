"""Why a Job may not make its pods: the words of its FailedCreate events as clauses. Pure.

Promises the number that is allowed and the option that asks for no more, or who can change it.
Ref: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
"""

from __future__ import annotations

import re

from ...i18n import _
from ..api import wording
from ..api.amounts import quantity
from .said import BY_ITSELF, BY_SOMEBODY, FOR_GOOD, Asked, Clause, Rule, first, kubernetes_says

REASON = "FailedCreate"
_BEFORE = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?')


def clause(words: str, asked: Asked) -> Clause:
    """The message of a FailedCreate event."""
    body = _BEFORE.sub("", words)
    return first(RULES, body, asked, REASON) or Clause(BY_SOMEBODY, kubernetes_says(body), REASON)


def _pairs(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _show(key: str, amount: str) -> str:
    try:
        return wording.show(key, quantity(amount))
    except ValueError:
        return f"{amount} {key}"


def _quota(found: re.Match[str], asked: Asked) -> str:
    """`exceeded quota: small, requested: a=1,b=2, used: a=3,b=4, limited: a=3,b=5`."""
    name, requested, used, limited = found.groups()
    each, taken, hard = (_pairs(text) for text in (requested, used, limited))
    told = _(", ").join(
        _("{used} of {limit} is taken and a {task} needs {each}").format(
            used=_show(key, taken.get(key, "0")),
            limit=_show(key, hard[key]),
            task=asked.task_type,
            each=_show(key, each.get(key, "0")),
        )
        for key in hard
    )
    return _(
        "the quota {name} of this namespace is used up ({told}): "
        "end another run, or ask for fewer or smaller tasks"
    ).format(name=name, told=told)


def _unstated(found: re.Match[str], asked: Asked) -> str:
    name, said = found.groups()
    options = [
        asked.option(key, example)
        for key, example in (("cpu", "1"), ("memory", "1Gi"))
        if re.search(rf"\b{key}\b", said)
    ]
    keys = ", ".join(dict.fromkeys(part.split(" for:")[0].strip() for part in said.split(";")))
    text = _("the quota {name} wants every task to say {keys}").format(name=name, keys=keys)
    return text + (_(": use {options}").format(options=" ".join(options)) if options else "")


_BOUND = re.compile(
    r"(maximum|minimum) (\S+) usage per (?:Container|Pod) is ([^,\s\]]+), but (?:limit|request) is "
    r"([^,\s\].]+(?:\.\d+)?)"
)


def _bounds(found: re.Match[str], asked: Asked) -> str:
    """All bounds of a LimitRange that are broken, each with the option that keeps it."""
    parts, options = [], []
    for kind, name, bound, has in _BOUND.findall(found.string):
        text = (
            _("a task may use at most {bound} in this namespace, and {has} is asked for")
            if kind == "maximum"
            else _("a task must use at least {bound} in this namespace, and {has} is asked for")
        )
        parts.append(text.format(bound=_show(name, bound), has=_show(name, has)))
        if name in ("cpu", "memory"):
            options.append(asked.option(name, bound))
    use = _(": use {options}").format(options=" ".join(options)) if options else ""
    return _("; ").join(parts) + use


RULES: tuple[Rule, ...] = (
    (
        r"exceeded quota: (\S+), requested: (.*), used: (.*), limited: (\S*)",
        BY_ITSELF,
        _quota,
    ),
    (r"failed quota: (\S+): must specify (.*)", FOR_GOOD, _unstated),
    (_BOUND.pattern, FOR_GOOD, _bounds),
    (
        r"(\S+) max limit to request ratio per \w+ is ([^,\s]+)",
        FOR_GOOD,
        lambda m, a: _(
            "the limit of {name} may be {ratio} times what is requested at most in this "
            "namespace: ask the administrator, or use a smaller {option}"
        ).format(name=m.group(1), ratio=m.group(2), option=a.option(m.group(1), "")),
    ),
    (
        r'failed calling webhook "([^"]+)".*?: ((?:service|no endpoints|dial|context|Post).*)',
        BY_SOMEBODY,
        lambda m, _a: _(
            "the admission webhook {name}, which has to agree to each pod, does not answer: "
            "it is tried again; ask the administrator ({why})"
        ).format(name=m.group(1), why=m.group(2).rpartition(": ")[2] or m.group(2)),
    ),
    (
        r'admission webhook "([^"]+)" denied the request: (.*)',
        FOR_GOOD,
        lambda m, _a: _("the admission webhook {name} refuses it: {why}").format(
            name=m.group(1), why=m.group(2).rstrip(".")
        ),
    ),
    (
        r'violates PodSecurity "([^"]+)": (.*)',
        FOR_GOOD,
        lambda m, _a: _(
            "Pod Security {level} of this namespace refuses its pod: {why}; ask the administrator"
        ).format(level=m.group(1), why=m.group(2)),
    ),
    (
        r"no PriorityClass with name (\S+) was found",
        FOR_GOOD,
        lambda m, _a: _(
            "there is no priority class {name}, which the administrator's policy names"
        ).format(name=m.group(1)),
    ),
    (
        r"error looking up service account (\S+?)/(\S+):",
        FOR_GOOD,
        lambda m, _a: _(
            "there is no service account {name} in the namespace {namespace}, which the "
            "administrator's policy names"
        ).format(name=m.group(2), namespace=m.group(1)),
    ),
    (
        r"because it is being terminated",
        FOR_GOOD,
        lambda _m, _a: _("this namespace is being deleted"),
    ),
)  # fmt: skip
