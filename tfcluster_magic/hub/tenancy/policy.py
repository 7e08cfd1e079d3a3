"""The policy file of the hub's administrators. Pure.

The file is parsed strictly. A mistake is reported with its line, the value and what is allowed. In
a parsed policy, limits are at least the requests, and names are unique. A group's settings are
merged over those of `default`: mappings key by key, while lists are replaced. `entitlements`
defines the fields and their defaults; `overrides` changes them for single users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from ...errors import TFClusterError
from ...i18n import _
from ...kube.api.resource_amounts import parse_quantity
from ...kube.objects import images, network_policy
from ...notifications import NotificationPolicy
from ...notifications.sending import network_mistake as closed_network
from ...quota.limits import Limits, Quota
from ...spec import Model, conversion
from ...spec.quantities import NUMBER_RULE, non_finite_numbers
from .entitlements import (
    ETCD_BUDGET,
    Amount,
    ContainerAmounts,
    Entitlement,
    Grant,
    HubPolicy,
    Image,
    Placement,
    entitlement_for_groups,
)

Step = str | int
"""A key of a mapping, or an index of a list."""


def line_of(text: str, path: tuple[Step, ...]) -> int:
    """Return the line number, counted from 1, of the value at `path` in a YAML text."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == step), None)
            if found is None:
                break
            key, node = found
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            if step >= len(node.value):
                break
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def repeated_key(text: str) -> tuple[int, str] | None:
    """Return the line and name of the first repeated key in a mapping; None if no key is
    repeated.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for mapping in _mappings(root):
        seen: set[str] = set()
        for key, _value in mapping.value:
            if key.value in seen:
                return key.start_mark.line + 1, str(key.value)
            seen.add(key.value)
    return None


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _key, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _mappings(each)


# -- policy file

__all__ = [
    "Entitlement",
    "Grant",
    "HubPolicy",
    "PolicyMistake",
    "entitlement_for_groups",
    "parse_policy",
]

Where = tuple[Step, ...]
CLAIMS = ("workspace", "data", "log")
TAKEN = ("/home/jovyan", "/data", "/log", "/tmp")  # noqa: S108
"""Paths that notebooks and tasks already use."""
_AT = re.compile(r"(?P<said>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


class PolicyMistake(TFClusterError):
    """A mistake in the policy: `line` is its line number, and `what` describes it."""

    exit_code = 2
    http_status = 422

    def __init__(self, line: int, what: str) -> None:
        self.line, self.what = line, what
        super().__init__(_("line {line}: {what}").format(line=line, what=what))


class _File(Model, frozen=True):
    """The top-level fields of the policy file. The settings of each group are only a mapping here;
    they are converted later, one group at a time.
    """

    default: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    placement: Placement = Placement()
    images: tuple[Image, ...] = ()
    gpu_resource: Annotated[str, Meta(min_length=1)] = "nvidia.com/gpu"
    dns: tuple[network_policy.DnsResolver, ...] = network_policy.DEFAULT_DNS
    operator_secrets: bool = True
    on_removal: Literal["keep", "delete"] = "keep"
    notifications: NotificationPolicy | None = None
    etcd_budget: Amount = ETCD_BUDGET


class _Group(Grant, frozen=True):
    """The fields of a group; only groups have `priority`."""

    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0


def parse_policy(text: str) -> HubPolicy:
    """Return the policy in a file; an empty file gives the defaults.

    Raises:
        PolicyMistake: the file is not YAML, or not a valid policy; the message names the first
            mistake.
    """
    try:
        said = yaml.safe_load(text)
        twice = repeated_key(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or str(error)
        line = mark.line + 1 if mark else 1
        raise PolicyMistake(line, _("it is not valid YAML: {why}").format(why=why)) from None
    except (ValueError, RecursionError) as error:  # such as a number with thousands of digits
        raise PolicyMistake(1, _("it is not valid YAML: {why}").format(why=error)) from None
    if twice:
        line, key = twice
        raise PolicyMistake(line, _("{word} is repeated").format(word=key))
    return _PolicyReader(text).policy({} if said is None else said)


class _PolicyReader:
    def __init__(self, text: str) -> None:
        self._text = text

    def policy(self, said: object) -> HubPolicy:
        for path, text in non_finite_numbers(said):
            what = _("got {value!r}; {why}").format(value=text, why=NUMBER_RULE)
            raise self._mistake(_steps(f".{path}"), what)
        file = self._convert(said, _File, ())
        self._convert(file.default, Grant, ("default",))
        default = self._grant(file.default, ("default",))
        grants, priorities = {}, {}
        for name, words in file.groups.items():
            where: Where = ("groups", name)
            group = self._convert(words, _Group, where)
            own = {key: value for key, value in words.items() if key != "priority"}
            grants[name] = self._grant(_over(file.default, own), where)
            priorities[name] = group.priority
        if why := network_policy.dns_mistake(file.dns):
            raise self._mistake(("dns",), why)
        networks = file.notifications.private_networks if file.notifications else ()
        for place, each in enumerate(networks):
            if why := closed_network(each):
                raise self._mistake(("notifications", "privateNetworks", place), why)
        self._unique("images", (each.name for each in file.images), ("images",))
        self._images(file.images, any(g.require_digest for g in (default, *grants.values())))
        return HubPolicy(
            default=default,
            grants=grants,
            priorities=priorities,
            placement=file.placement,
            images=file.images,
            gpu_resource=file.gpu_resource,
            dns=file.dns,
            operator_secrets=file.operator_secrets,
            on_removal=file.on_removal,
            notifications=file.notifications,
            etcd_budget=file.etcd_budget,
        )

    def _convert(self, said: object, kind: type[Any], where: Where) -> Any:
        try:
            return conversion.convert(said, kind)
        except msgspec.ValidationError as error:
            found = _AT.fullmatch(str(error))
            assert found is not None
            path = (*where, *_steps(found["path"] or ""))
            what, inside = found["said"], said
            if unknown := _UNKNOWN.search(what):
                path = (*path, unknown[1])
                what = _("there is no such field; the fields are {words}").format(
                    words=", ".join(sorted(_words(kind, path[len(where) : -1])))
                )
            else:
                for step in path[len(where) :]:
                    inside = inside[step]  # type: ignore[index]
                why = _rule(kind, path[len(where) :]) or what
                what = _("got {value!r}; {why}").format(value=inside, why=why)
            raise self._mistake(path, what) from None

    def _grant(self, said: Mapping[str, Any], where: Where) -> Grant:
        """Return a grant after checking that it is consistent. Raises PolicyMistake."""
        grant: Grant = self._convert(said, Grant, where)
        for place, network in enumerate(grant.egress):
            if why := network_policy.network_mistake(network):
                raise self._mistake((*where, "egress", place), why)
        if not grant.sizes:
            raise self._mistake((*where, "sizes"), _("there must be at least one size"))
        self._unique("sizes", (each.name for each in grant.sizes), where)
        names = [*CLAIMS, *(each.name for each in grant.shared_data)]
        self._unique("sharedData", names, where)
        paths = [*TAKEN, *(each.path for each in grant.shared_data)]
        self._unique("sharedData", paths, where)
        for place, size in enumerate(grant.sizes):
            at: Where = (*where, "sizes", place)
            self._most(size.cpu, size.cpu_limit, (*at, "cpuLimit"))
            self._most(size.memory, size.memory_limit, (*at, "memoryLimit"))
        for place, shared in enumerate(grant.shared_data):
            if bool(shared.volume) == bool(shared.class_):
                why = _("set either volume or class, and not both")
                raise self._mistake((*where, "sharedData", place), why)
        self._limits(grant, (*where, "limits"))
        return grant

    def _images(self, offered: Iterable[Image], need_digest: bool) -> None:
        for place, each in enumerate(offered):
            why = ""
            try:
                found = images.parse_image(each.image)
            except ValueError as error:
                why = str(error)
            else:
                if need_digest and not found.digest:
                    why = _(
                        "a group requires images with a digest. To find the digest: {command}"
                    ).format(command=f"`docker buildx imagetools inspect {each.image}`")
            if why:
                where = ("images", place, "image")
                raise self._mistake(
                    where, _("got {value!r}; {why}").format(value=each.image, why=why)
                )

    def _limits(self, grant: Grant, where: Where) -> None:
        limits = grant.limits
        for word in ContainerAmounts.__struct_fields__:
            json = ContainerAmounts.__struct_encode_fields__[
                ContainerAmounts.__struct_fields__.index(word)
            ]
            default, most = getattr(limits.default, word), getattr(limits.max, word)
            self._most(default, most, (*where, "default", json))
            self._most(getattr(limits.request, word), default or most, (*where, "request", json))

    def _most(self, less: object, more: object, where: Where) -> None:
        if less is not None and more is not None and parse_quantity(less) > parse_quantity(more):
            why = _("{less} is more than {more}").format(less=less, more=more)
            raise self._mistake(where, why)

    def _unique(self, word: str, names: Iterable[str], where: Where) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                why = _("{name} occurs twice").format(name=name)
                raise self._mistake((*where, word) if where[-1:] != (word,) else where, why)
            seen.add(name)

    def _mistake(self, where: Where, what: str) -> PolicyMistake:
        line = line_of(self._text, where)
        return PolicyMistake(line, f"{_shown(where)}: {what}" if where else what)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with the values in `above`: mappings are merged key by key, and any other
    value in `above` replaces the one in `below`.
    """
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _over(found[key], value) if both else value
    return found


def _steps(path: str) -> Where:
    steps: list[Step] = []
    for found in _STEP.finditer(path):
        if found[1] is None and found[2] is None:
            break  # msgspec writes `[...]` in place of the key of a mapping
        steps.append(found[1] if found[1] is not None else int(found[2]))
    return tuple(steps)


def _words(kind: type[Any], path: Where) -> tuple[str, ...]:
    """Return the field names of the struct at `path` inside `kind`."""
    return tuple(field.encode_name for field in _struct(_type_at(kind, path)).fields)


def _rule(kind: type[Any], path: Where) -> str:
    """Return what is allowed at `path`; empty if the model does not describe it."""
    return _description(_type_at(kind, path))


def _type_at(kind: type[Any], path: Where) -> Any:
    info: Any = msgspec.inspect.type_info(kind)
    for step in path:
        if isinstance(info, msgspec.inspect.VarTupleType):
            info = info.item_type
        elif (struct := _struct(info)) is not None:
            info = next(field.type for field in struct.fields if field.encode_name == step)
    return info


def _description(info: Any) -> str:
    if isinstance(info, msgspec.inspect.Metadata):
        return str((info.extra_json_schema or {}).get("description", ""))
    if isinstance(info, msgspec.inspect.LiteralType):
        return _("use one of {words}").format(words=", ".join(map(str, info.values)))
    if isinstance(info, msgspec.inspect.UnionType):
        return next((said for each in info.types if (said := _description(each))), "")
    return ""


def _struct(info: Any) -> Any:
    """Return the struct inside a type; None if there is none."""
    if isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    return info if isinstance(info, msgspec.inspect.StructType) else None


def _shown(where: Where) -> str:
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in where)
    return text.lstrip(".")


def limits_of(entitlement: Entitlement, notifications: NotificationPolicy | None = None) -> Limits:
    """Return the limits that a notebook on this machine gets."""
    grant = entitlement.grant
    quota = grant.quota
    return Limits(
        group=entitlement.group,
        quota=Quota(cpu=quota.cpu, memory=quota.memory, gpu=quota.gpu, pods=quota.pods),
        budget=_granted(grant, "budget"),
        storage={name: size for name, size in grant.storage.said.items() if size is not None},
        notifications=None if notifications is None else msgspec.to_builtins(notifications),
        override=entitlement.override,
    )


def _granted(grant: Grant, part: str) -> dict[str, Any]:
    found = msgspec.to_builtins(getattr(grant, part, None))
    return found if isinstance(found, dict) else {}
