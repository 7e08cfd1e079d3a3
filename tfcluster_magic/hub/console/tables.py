"""The console's tables of runs, schedules, users and storage. Pure.

Each table has columns, filters, an order and pages. All wrong query parameters are reported
together, with what is allowed. Sorting is stable: rows with equal keys keep the same order in each
reading.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...kube.api.resource_amounts import parse_quantity
from ...lifecycle.messages import shown
from ...quota.limits import OverrideTerm
from ...quota.storage import WARN_FROM, FolderEntry, FolderUsage
from ...schedules import SCHEDULE_STATES
from ...spec import Model, Phase, Reason
from ..auth.commands import AccountState
from ..tenancy.entitlements import Entitlement, StorageSizes
from .hub_users import HubUser
from .sites.base import SiteRun, SiteSchedule, SiteStorage

R = TypeVar("R")

MOST = 1000
"""Maximum number of rows in a page."""
ALWAYS = ("limit", "offset", "q", "sort")
"""Query parameters of every table."""


# ---- generic tables


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column: the key by which rows are sorted, and the texts that `q` searches. Without
    `sort`, the table cannot be sorted by this column; without `text`, the column is not searched.
    """

    name: str
    sort: Callable[[R], Any] | None = None
    text: Callable[[R], Sequence[str]] | None = None


@dataclass(frozen=True)
class Filter(Generic[R]):
    """A query parameter that selects rows.

    Args:
        name: the parameter.
        fits: whether a row matches the given values.
        choices: the allowed values; empty for any.
        many: whether the parameter takes several values. A request separates the values by
            commas, or repeats the parameter.
        counted: returns the choice to which a row belongs. If it is set, a page has a count for
            each choice: the number of rows that belong to the choice and match the other filters.
    """

    name: str
    fits: Callable[[R, tuple[str, ...]], bool] = lambda _row, _values: True
    choices: tuple[str, ...] = ()
    many: bool = False
    counted: Callable[[R], str] | None = None


class Query(Model, frozen=True):
    """A checked query; `chosen` has the values of each filter in the request."""

    text: str
    chosen: dict[str, tuple[str, ...]]
    sort: str
    descending: bool
    limit: int
    offset: int

    @property
    def kept(self) -> bool:
        """Whether rows of the last reading are good enough if a new reading takes long."""
        return self.chosen.get(KEPT.name) == ("true",)


@dataclass(frozen=True)
class TablePage(Generic[R]):
    """One page of the matching rows. `total` is the number of matching rows, and `all` the number
    of all rows. `counts` has the number of rows for each choice of the filter whose `counted` is
    set.
    """

    items: tuple[R, ...]
    total: int
    all: int
    counts: dict[str, int]


@dataclass(frozen=True)
class Table(Generic[R]):
    """One table.

    Args:
        columns: the columns of the table.
        filters: the filters of the table; `counted` is set in at most one of them.
        usual: the default sort column, with a leading `-` for descending.
        order: returns the key by which rows that are equal in the sort column are ordered.
    """

    columns: tuple[Column[R], ...]
    filters: tuple[Filter[R], ...]
    usual: str
    order: Callable[[R], Any]

    @property
    def sort_keys(self) -> dict[str, Callable[[R], Any]]:
        """The sort keys by column name."""
        return {each.name: each.sort for each in self.columns if each.sort is not None}

    def query(self, given: Mapping[str, Sequence[str]]) -> Query:
        """Return the query that the parameters of a request describe.

        Raises:
            InvalidRequest: lists every unknown parameter and invalid value.
        """
        known = sorted((*ALWAYS, *(each.name for each in self.filters)))
        use = _("use {words}")
        wrong = [
            Problem(name, values[-1], use.format(words=", ".join(known)))
            for name, values in given.items()
            if name not in known
        ]
        last = {name: values[-1] for name, values in given.items() if values}
        chosen: dict[str, tuple[str, ...]] = {}
        for each in self.filters:
            values = _values(each, given.get(each.name, ()))
            wrong += [
                Problem(each.name, value, use.format(words=", ".join(each.choices)))
                for value in values
                if each.choices and value not in each.choices
            ]
            if values:
                chosen[each.name] = values
        by = last.get("sort", self.usual)
        if by.removeprefix("-") not in self.sort_keys:
            wrong.append(Problem("sort", by, use.format(words=", ".join(self.sort_keys))))
        limit = _count("limit", last.get("limit", "100"), 1, MOST, wrong)
        offset = _count("offset", last.get("offset", "0"), 0, 10**9, wrong)
        if wrong:
            raise InvalidRequest(wrong, _("the request is invalid"))
        return Query(
            text=last.get("q", "").strip().casefold(),
            chosen=chosen,
            sort=by.removeprefix("-"),
            descending=by.startswith("-"),
            limit=limit,
            offset=offset,
        )

    def page(self, rows: Sequence[R], query: Query) -> TablePage[R]:
        """Return the page of `rows` for which the query asks."""
        fits = [row for row in rows if not query.text or query.text in self._text(row)]
        counted: Filter[R] | None = None
        for each in self.filters:
            if each.counted is not None:
                counted = each
            else:
                fits = _filtered(fits, each, query)
        counts: dict[str, int] = {}
        if counted is not None and counted.counted is not None:
            found = Counter(map(counted.counted, fits))
            counts = {choice: found[choice] for choice in counted.choices}
            fits = _filtered(fits, counted, query)
        fits.sort(key=self.order)
        fits.sort(key=self.sort_keys[query.sort], reverse=query.descending)
        return TablePage(
            items=tuple(fits[query.offset : query.offset + query.limit]),
            total=len(fits),
            all=len(rows),
            counts=counts,
        )

    def _text(self, row: R) -> str:
        texts = (each.text(row) for each in self.columns if each.text is not None)
        return "\n".join(text for words in texts for text in words).casefold()


def row_limit(text: str) -> int:
    """Return the number of rows or lines in the parameter `limit`. Raises InvalidRequest."""
    wrong: list[Problem] = []
    limit = _count("limit", text, 1, MOST, wrong)
    if wrong:
        raise InvalidRequest(wrong, _("the request is invalid"))
    return limit


def _values(word: Filter[Any], given: Sequence[str]) -> tuple[str, ...]:
    if word.many:
        return tuple(value for values in given for value in values.split(",") if value)
    return (given[-1],) if given and given[-1] else ()


def _count(name: str, text: str, least: int, most: int, wrong: list[Problem]) -> int:
    """Return the number in a parameter; append the problem to `wrong` if it is invalid."""
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not least <= count <= most:
        rule = _("a whole number from {least} to {most}").format(least=least, most=most)
        wrong.append(Problem(name, text, rule))
    return count


def _filtered(rows: list[R], word: Filter[R], query: Query) -> list[R]:
    values = query.chosen.get(word.name)
    return rows if values is None else [row for row in rows if word.fits(row, values)]


KEPT: Filter[Any] = Filter("kept", choices=("true", "false"))
"""A query parameter of tables with runs: whether rows of the last reading are good enough if a new
reading takes long.
"""


# ---- runs

RUNS: Table[SiteRun] = Table(
    columns=(
        Column("owner", lambda row: row.owner, lambda row: (row.owner,)),
        Column("name", lambda row: (row.cluster, row.run), lambda row: (row.name,)),
        Column("phase", lambda row: row.phase, lambda row: (row.phase,)),
        Column("reason", lambda row: row.reason, lambda row: (row.reason,)),
        Column("message", text=lambda row: (shown(row),)),
        Column("age", lambda row: -row.created_at),
        Column("tasks", lambda row: sum(row.tasks.values())),
        Column("cpu", lambda row: row.cpu),
        Column("memory", lambda row: row.memory),
        Column("gpu", lambda row: row.gpu),
        Column("node", lambda row: row.nodes, lambda row: row.nodes),
    ),
    filters=(
        Filter(
            "phase",
            lambda row, phases: row.phase in phases,
            tuple(sorted(phase.value for phase in Phase)),
            many=True,
            counted=lambda row: row.phase,
        ),
        Filter(
            "reason",
            lambda row, reasons: row.reason in reasons,
            tuple(sorted(reason.value for reason in Reason)),
        ),
        Filter("owner", lambda row, owners: row.owner in owners),
        Filter("active", lambda row, said: row.active == (said == ("true",)), ("true", "false")),
        KEPT,
    ),
    usual="age",
    order=lambda row: (row.owner, row.cluster, row.run),
)


# ---- schedules

SCHEDULES: Table[SiteSchedule] = Table(
    columns=(
        Column("owner", lambda row: row.owner, lambda row: (row.owner,)),
        Column("name", lambda row: row.name, lambda row: (row.name,)),
        Column("cron", lambda row: (row.cron, row.time_zone), lambda row: (row.cron,)),
        Column("next", lambda row: float("inf") if row.next_at is None else row.next_at),
        Column("last", lambda row: -(row.marks[-1].due if row.marks else 0.0)),
        Column("state", lambda row: row.state, lambda row: (row.by, str(row.reason))),
    ),
    filters=(
        Filter(
            "state",
            lambda row, states: row.state in states,
            SCHEDULE_STATES,
            many=True,
            counted=lambda row: row.state,
        ),
        Filter("owner", lambda row, owners: row.owner in owners),
        KEPT,
    ),
    usual="owner",
    order=lambda row: (row.owner, row.name),
)


# ---- users

SERVERS = ("running", "starting", "stopping", "stopped")


class UserAmounts(Model, frozen=True, omit_defaults=False):
    """Cores, bytes of memory, GPUs, pods and bytes of folders; None for unlimited or unknown."""

    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    pods: float | None = None
    storage: float | None = None


class UserRow(Model, frozen=True, omit_defaults=False):
    """One user. `group` is the group whose limits apply, empty for the policy's default. `account`
    is None for a user without one of the hub's own accounts.
    """

    name: str
    admin: bool
    account: AccountState | None
    groups: tuple[str, ...]
    group: str
    override: OverrideTerm | None
    last_seen: float | None
    server: str
    servers: dict[str, str]
    clusters: int
    used: UserAmounts
    allowed: UserAmounts


USERS: Table[UserRow] = Table(
    columns=(
        Column("name", lambda row: row.name, lambda row: (row.name,)),
        Column("admin", lambda row: not row.admin),
        Column("group", lambda row: (row.group, row.groups), lambda row: row.groups),
        Column("account", text=lambda row: (row.account.in_words(),) if row.account else ()),
        Column("override", text=lambda row: (row.override.reason,) if row.override else ()),
        Column("seen", lambda row: -(row.last_seen or 0.0)),
        Column("server", lambda row: SERVERS.index(row.server)),
        Column("clusters", lambda row: row.clusters),
        Column("cpu", lambda row: row.used.cpu or 0.0),
        Column("memory", lambda row: row.used.memory or 0.0),
        Column("gpu", lambda row: row.used.gpu or 0.0),
        Column("storage", lambda row: row.used.storage or 0.0),
    ),
    filters=(
        Filter(
            "server",
            lambda row, states: row.server in states,
            SERVERS,
            many=True,
            counted=lambda row: row.server,
        ),
        Filter("group", lambda row, groups: not set(groups).isdisjoint(row.groups)),
        KEPT,
    ),
    usual="name",
    order=lambda row: row.name,
)


def user_rows(
    users: Iterable[HubUser],
    accounts: Mapping[str, AccountState],
    entitlements: Callable[[HubUser], Entitlement],
    runs: Iterable[SiteRun],
    stored: Mapping[str, float],
    *,
    has_claims: bool,
) -> list[UserRow]:
    """Return a row for everybody who is a hub user or has an account. With `has_claims`, folders
    are volume claims, which have a size even if the policy sets none.
    """
    known = {one.name: one for one in users}
    known |= {name: HubUser(name=name) for name in accounts.keys() - known.keys()}
    of_owner: dict[str, list[SiteRun]] = defaultdict(list)
    for run in runs:
        if run.active:
            of_owner[run.owner].append(run)
    return [
        _user_row(
            one,
            accounts.get(name),
            entitled := entitlements(one),
            of_owner[name],
            stored.get(name),
            _storage_bound(entitled.grant.storage, has_claims=has_claims),
        )
        for name, one in known.items()
    ]


def _user_row(
    user: HubUser,
    account: AccountState | None,
    entitled: Entitlement,
    runs: Sequence[SiteRun],
    stored: float | None,
    storage: float | None,
) -> UserRow:
    quota = entitled.grant.quota
    used = UserAmounts(
        cpu=sum(run.cpu for run in runs),
        memory=sum(run.memory for run in runs),
        gpu=sum(run.gpu for run in runs),
        pods=sum(sum(run.tasks.values()) for run in runs),
        storage=stored,
    )
    allowed = UserAmounts(
        cpu=quota.cpu,
        memory=None if quota.memory is None else float(parse_quantity(quota.memory)),
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


def _storage_bound(storage: StorageSizes, *, has_claims: bool) -> float | None:
    """Return the limit of all folders together; None if one of them is unlimited."""
    sizes = list((storage.claims if has_claims else storage.said).values())
    bounds = [float(parse_quantity(size)) for size in sizes if size is not None]
    return sum(bounds) if len(bounds) == len(sizes) else None


# ---- storage


class StorageRow(Model, frozen=True, omit_defaults=False):
    """One folder or claim of a user (see `FolderUsage`)."""

    owner: str
    name: str
    path: str
    used: int | None
    allowed: int | None
    share: float
    at_least: bool
    largest: tuple[FolderEntry, ...]
    note: str


STORAGE: Table[StorageRow] = Table(
    columns=(
        Column("owner", lambda row: row.owner, lambda row: (row.owner,)),
        Column("name", lambda row: row.name, lambda row: (row.name,)),
        Column("path", text=lambda row: (row.path,)),
        Column("note", text=lambda row: (row.note,)),
        Column("used", lambda row: row.used or 0),
        Column("allowed", lambda row: row.allowed or 0),
        Column("share", lambda row: row.share),
    ),
    filters=(
        Filter(
            "full",
            lambda row, values: "true" not in values or row.share >= WARN_FROM,
            ("true", "false"),
        ),
        Filter("owner", lambda row, owners: row.owner in owners),
    ),
    usual="-share",
    order=lambda row: (row.owner, row.name),
)


def storage_rows(filled: SiteStorage, allowed: Mapping[str, Mapping[str, int]]) -> list[StorageRow]:
    """Return a row for each folder; `allowed` has the limits that the site does not know, by user
    and folder.
    """
    found = []
    for owner, volumes in filled.users.items():
        for each in volumes:
            most = allowed.get(owner, {}).get(each.name) if each.allowed is None else each.allowed
            found.append(_storage_row(owner, replace(each, allowed=most)))
    return found


def _storage_row(owner: str, volume: FolderUsage) -> StorageRow:
    fields = {name: getattr(volume, name) for name in volume.__struct_fields__}
    return StorageRow(owner=owner, share=round(volume.share, 4), **fields)


def storage_page(every: Sequence[StorageRow], query: Query) -> dict[str, Any]:
    """Return the page of folders for which the query asks, with the number of all folders and the
    number of nearly full ones.
    """
    page = STORAGE.page(every, query)
    nearly_full = sum(row.share >= WARN_FROM for row in every)
    return {"items": page.items, "total": page.total, "all": page.all, "full": nearly_full}
