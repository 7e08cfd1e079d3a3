"""Rows of the table of users as somebody asks for them: filtered, sorted, one page. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...kube.api.amounts import quantity
from ...quota.limits import Term
from ...spec import Model
from ..tenancy.grants import Entitlement, Storage
from .asking import KEPT, read
from .hub_users import HubUser
from .sites.base import Row

SERVERS = ("running", "starting", "stopping", "stopped")


class Amounts(Model, frozen=True, omit_defaults=False):
    """Cores, bytes, devices, tasks, bytes of claims; None: not bounded, or nobody could say."""

    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    pods: float | None = None
    storage: float | None = None


class UserRow(Model, frozen=True, omit_defaults=False):
    """One user. `group` is the one whose words count, "" where the policy's default does."""

    name: str
    admin: bool
    account: str
    groups: tuple[str, ...]
    group: str
    override: Term | None
    last_seen: float | None
    server: str
    servers: dict[str, str]
    clusters: int
    used: Amounts
    allowed: Amounts


class UserPage(Model, frozen=True, omit_defaults=False):
    """Some rows of those that fit. `servers` counts what the other filters leave."""

    items: tuple[UserRow, ...]
    total: int
    all: int
    servers: dict[str, int]


COLUMNS: dict[str, Callable[[UserRow], Any]] = {
    "name": lambda row: row.name,
    "admin": lambda row: not row.admin,
    "group": lambda row: (row.group, row.groups),
    "seen": lambda row: -(row.last_seen or 0.0),
    "server": lambda row: SERVERS.index(row.server),
    "clusters": lambda row: row.clusters,
    "cpu": lambda row: row.used.cpu or 0.0,
    "memory": lambda row: row.used.memory or 0.0,
    "gpu": lambda row: row.used.gpu or 0.0,
    "storage": lambda row: row.used.storage or 0.0,
}
"""By what a table can be sorted."""


class UserQuery(Model, frozen=True):
    """What somebody wants to see; no `servers` are all of them."""

    text: str = ""
    group: str = ""
    servers: tuple[str, ...] = ()
    sort: str = "name"
    descending: bool = False
    limit: int = 100
    offset: int = 0
    kept: bool = False
    """Whether runs of the last look will do where a new one takes long."""


def query(given: Mapping[str, Sequence[str]]) -> UserQuery:
    """What the words of an address ask for.

    Raises:
        InvalidRequest: a word or a value is not known; all of them are named.
    """
    said = read(given, COLUMNS, "name", words=("group",), one=KEPT, many={"server": SERVERS})
    return UserQuery(
        text=said.text,
        group=said.last.get("group", ""),
        servers=said.chosen["server"],
        sort=said.sort,
        descending=said.descending,
        limit=said.limit,
        offset=said.offset,
        kept=said.last.get("kept") == "true",
    )


def page(rows: Sequence[UserRow], asked: UserQuery) -> UserPage:
    """The rows that are asked for."""
    fits = [row for row in rows if _fits(row, asked)]
    servers = Counter(row.server for row in fits)
    if asked.servers:
        fits = [row for row in fits if row.server in asked.servers]
    fits.sort(key=lambda row: row.name)  # the same order at each look
    fits.sort(key=COLUMNS[asked.sort], reverse=asked.descending)
    return UserPage(
        items=tuple(fits[asked.offset : asked.offset + asked.limit]),
        total=len(fits),
        all=len(rows),
        servers={state: servers[state] for state in SERVERS},
    )


def rows(
    users: Iterable[HubUser],
    accounts: Mapping[str, str],
    entitlements: Callable[[HubUser], Entitlement],
    runs: Iterable[Row],
    stored: Mapping[str, float],
    *,
    has_claims: bool,
) -> list[UserRow]:
    """Everybody whom the hub knows, or who has an account there.

    `has_claims`: what the policy says of no folder is bounded all the same.
    """
    known = {one.name: one for one in users}
    known |= {name: HubUser(name=name) for name in accounts.keys() - known.keys()}
    of_owner: dict[str, list[Row]] = defaultdict(list)
    for run in runs:
        if run.active:
            of_owner[run.owner].append(run)
    return [
        _row(
            one,
            accounts.get(name, ""),
            entitled := entitlements(one),
            of_owner[name],
            stored.get(name),
            _storage(entitled.grant.storage, has_claims=has_claims),
        )
        for name, one in known.items()
    ]


def _row(
    user: HubUser,
    account: str,
    entitled: Entitlement,
    runs: Sequence[Row],
    stored: float | None,
    storage: float | None,
) -> UserRow:
    quota = entitled.grant.quota
    used = Amounts(
        cpu=sum(run.cpu for run in runs),
        memory=sum(run.memory for run in runs),
        gpu=sum(run.gpu for run in runs),
        pods=sum(sum(run.tasks.values()) for run in runs),
        storage=stored,
    )
    allowed = Amounts(
        cpu=quota.cpu,
        memory=None if quota.memory is None else float(quantity(quota.memory)),
        gpu=quota.gpu,
        pods=quota.pods,
        storage=storage,
    )
    states = [state for state in SERVERS if state in user.servers.values()]
    return UserRow(
        name=user.name,
        admin=user.admin,
        account=account,
        groups=user.groups,
        group=entitled.group,
        override=entitled.override,
        last_seen=user.last_seen,
        server=states[0] if states else "stopped",
        servers=user.servers,
        clusters=len(runs),
        used=used,
        allowed=allowed,
    )


def _storage(storage: Storage, *, has_claims: bool) -> float | None:
    """What all folders together may hold; None where one of them is not bounded."""
    sizes = list((storage.claims if has_claims else storage.said).values())
    bounds = [float(quantity(size)) for size in sizes if size is not None]
    return sum(bounds) if len(bounds) == len(sizes) else None


def _fits(row: UserRow, asked: UserQuery) -> bool:
    if asked.group and asked.group not in row.groups:
        return False
    where = (row.name, *row.groups, row.account, row.override.reason if row.override else "")
    return not asked.text or asked.text in "\n".join(where).casefold()
