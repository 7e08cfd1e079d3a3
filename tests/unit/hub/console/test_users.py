"""Users in the console: class files, table rows, and the policy on Kubernetes."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.console_rows import row
from support.tenancy_world import HOME, World, world

from tfcluster_magic.errors import InvalidRequest, TFClusterError
from tfcluster_magic.hub.auth.commands import AccountState
from tfcluster_magic.hub.console import class_import, tables
from tfcluster_magic.hub.console.hub_users import HubUser, HubUsers
from tfcluster_magic.hub.console.on_kubernetes import KubernetesSitePolicy
from tfcluster_magic.hub.tenancy.entitlement_sources import ACCEPTED_POLICY_MAP, POLICY_KEY
from tfcluster_magic.hub.tenancy.overrides import Override, entitled
from tfcluster_magic.hub.tenancy.policy import parse_policy
from tfcluster_magic.kube.api.client import path

__all__ = ["world"]  # a fixture used by the test below

POLICY = parse_policy(
    """
default: {quota: {cpu: 2, memory: 8Gi}, storage: {workspace: 1Gi, data: 2Gi, log: 1Gi}}
groups: {ml101: {priority: 1, quota: {cpu: 4}}, vision: {priority: 2, quota: {gpu: 2}}}
"""
)
USERS = [
    HubUser(name="ada", admin=True, last_seen=20.0, servers={"": "running"}),
    HubUser(name="bob", groups=("ml101", "vision"), last_seen=30.0, servers={"x": "starting"}),
    HubUser(name="cyd", groups=("ml101",)),
]
RUNS = [row("ada", 3, memory=2**30), row("ada", 2, active=False), row("gone", 1)]
OVERRIDES = {"cyd": Override(until=100.0, reason="a thesis", quota={"cpu": 32})}


def names(**given: str) -> list[str]:
    """Return the names of the users on a page; `given` are the parameters of its URL."""

    def entitlement(user: HubUser):
        return entitled(POLICY, user.groups, OVERRIDES.get(user.name), 50.0)

    accounts, stored = {"dan": AccountState()}, {"ada": 5.0}
    rows = tables.user_rows(USERS, accounts, entitlement, RUNS, stored, has_claims=True)
    asked = tables.USERS.query({key: [text] for key, text in given.items()})
    return [one.name for one in tables.USERS.page(rows, asked).items]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({}, ["ada", "bob", "cyd", "dan"]),
        ({"q": "THESIS"}, ["cyd"]),
        ({"q": "no pass"}, ["dan"]),
        ({"group": "ml101"}, ["bob", "cyd"]),
        ({"server": "running,starting"}, ["ada", "bob"]),
        ({"sort": "seen"}, ["bob", "ada", "cyd", "dan"]),
        ({"sort": "-cpu", "limit": "1"}, ["ada"]),
        ({"limit": "1", "offset": "3"}, ["dan"]),
    ],
)
def test_rows_that_fit(given: dict[str, str], fits: list[str]) -> None:
    """Rows are filtered, sorted and paged in a stable order."""
    assert names(**given) == fits


def test_a_row_says_what_is_used_and_what_is_allowed_by_whom() -> None:
    """Resources of active runs count as used; limits come from the user's group with the highest
    priority and from the override.
    """

    def entitlement(user: HubUser):
        return entitled(POLICY, user.groups, OVERRIDES.get(user.name), 50.0)

    rows = tables.user_rows(USERS, {}, entitlement, RUNS, {"ada": 5.0}, has_claims=True)
    ada, bob, cyd = rows

    assert (ada.clusters, ada.used.cpu, ada.used.memory, ada.used.pods) == (1, 1.0, 2**30, 3)
    assert (ada.allowed.cpu, ada.allowed.gpu, ada.allowed.storage) == (2, None, 4 * 2**30)
    assert (bob.group, bob.allowed.gpu, bob.server) == ("vision", 2, "starting")
    assert (cyd.group, cyd.allowed.cpu, cyd.server, cyd.last_seen) == ("ml101", 32, "stopped", None)
    assert cyd.override is not None and cyd.override.reason == "a thesis"


@pytest.mark.parametrize(
    ("said", "there", "here"),
    [
        ("", 30, None),
        ("log: 10Gi", 30, None),
        ("workspace: 10Gi, data: 10Gi, log: 10Gi", 30, 30),
        ("workspace: 1Gi, data: 10Gi, log: 2Gi", 13, 13),
    ],
)
def test_all_storage_is_bounded_where_each_part_is(said: str, there: int, here: int | None) -> None:
    """Without a size in the policy, a claim has the default size, and a local folder has no
    limit.
    """
    policy = parse_policy(f"default: {{storage: {{{said}}}}}")
    allowed = []
    for has_claims in (True, False):
        (one, *_others) = tables.user_rows(
            USERS,
            {},
            lambda user: entitled(policy, user.groups, None, 0.0),
            RUNS,
            {},
            has_claims=has_claims,
        )
        allowed.append(one.allowed.storage)
    assert allowed == [there * 2**30, None if here is None else here * 2**30]


@pytest.mark.parametrize(
    "words", [{"colour": "red"}, {"sort": "x"}, {"server": "x"}, {"limit": "0"}]
)
def test_what_cannot_be_asked_is_named(words: dict[str, str]) -> None:
    """A wrong parameter is refused with the allowed values."""
    with pytest.raises(InvalidRequest, match=r"use |a whole number"):
        names(**words)


def test_a_class_is_read_line_by_line() -> None:
    """Line numbers count the lines of the file, also after a cell of two lines; empty lines are
    skipped.
    """
    text = '\ufeffID, User ,Group\n1,Ada,\n\n2,bob,vision\n"a\nb",ADA,\n3,x/y,\n4,cyd,a b\n'
    found = class_import.read_class(text, "ml101")

    assert [(one.number, one.name, one.group) for one in found if not one.problem] == [
        (2, "ada", "ml101"),
        (4, "bob", "vision"),
    ]
    assert [(one.number, one.name) for one in found if one.problem] == [
        (5, "ada"),
        (7, "x/y"),
        (8, "cyd"),
    ]


@pytest.mark.parametrize(
    "text", ["", "surname\nada", "name\n", 'name\n"ada', "name\n" + "a\n" * 2001]
)
def test_what_is_no_class_is_refused(text: str) -> None:
    """An invalid file is refused, and nothing is imported."""
    with pytest.raises(InvalidRequest, match="nothing was imported"):
        class_import.read_class(text)


def test_a_site_on_kubernetes_has_the_policy_that_counts(world: World) -> None:
    """The accepted policy is read again after a change; overrides are stored in a separate
    object.
    """
    site = KubernetesSitePolicy(
        world.server.api(), HOME, "tfcluster-u-", HubUsers({}), lambda: ["tfcluster-u-ada"]
    )
    more = Override(until=time.time() + 60, reason="a thesis", quota={"cpu": 32})

    async def look() -> None:
        assert (await site.policy()).grants == {}
        assert await site.unprepared({"ada", "bob"}) == {"bob"}
        data = {POLICY_KEY: "groups: {ml101: {}}"}
        world.server.put(path("configmaps", HOME, ACCEPTED_POLICY_MAP), {"data": data})
        assert not await site.override("ada", (), more)
        assert await site.overrides() == {"ada": more}
        assert list((await site.policy()).grants) == ["ml101"]
        assert await site.override("ada", (), None)
        assert await site.overrides() == {}
        world.server.put(
            path("configmaps", HOME, ACCEPTED_POLICY_MAP), {"data": {POLICY_KEY: "groups: 1"}}
        )
        assert not await site.override("ada", (), more)
        with pytest.raises(TFClusterError, match="line 1"):
            await site.policy()

    asyncio.run(look())
