"""Temporary limits of a single user, and the file that tells a notebook its limits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from tfcluster_magic.errors import InvalidRequest, TFClusterError
from tfcluster_magic.hub.tenancy.entitlements import CLAIM, Entitlement, Grant, StorageSizes
from tfcluster_magic.hub.tenancy.overrides import (
    LONGEST,
    Override,
    checked_override,
    encode_overrides,
    entitled,
    next_end,
    read_overrides,
)
from tfcluster_magic.hub.tenancy.policy import limits_of, parse_policy
from tfcluster_magic.hub.user_limits import Allowances
from tfcluster_magic.quota.limits import Limits, OverrideTerm, Quota, ResourceTotals, problems

NOW = 1_000_000.0
POLICY = """
default: {quota: {cpu: 8, memory: 32Gi}, storage: {class: nfs, data: 50Gi}}
groups:
  ml101: {priority: 5, quota: {cpu: 4}}
"""


def override(**words: object) -> Override:
    given = {"until": NOW + 10, "reason": "a thesis", "by": "eve", "at": NOW, **words}
    return Override(**given)  # type: ignore[arg-type]


def test_an_override_lies_over_the_group_word_by_word() -> None:
    """An override changes only its own keys, and shows its end and its reason."""
    found = entitled(
        parse_policy(POLICY),
        ["ml101"],
        override(quota={"cpu": 32, "memory": None}, storage={"data": "80Gi"}),
        NOW,
    )

    assert (found.grant.quota.cpu, found.grant.quota.memory) == (32, None)
    assert (found.grant.storage.class_, found.grant.storage.data) == ("nfs", "80Gi")
    assert found.group == "ml101"
    assert found.override == OverrideTerm(until=NOW + 10, reason="a thesis")


def test_a_limit_that_says_the_default_is_one() -> None:
    """A storage limit also limits a folder of this machine, even if it equals the default size of a
    claim. Without a limit, or with null, the folder is unlimited.
    """
    policy = parse_policy(
        """
default: {storage: {log: 10Gi}}
groups: {free: {storage: {log: null}}, more: {storage: {data: 10Gi}}}
"""
    )

    def told(group: str, said: Override | None = None) -> dict[str, object]:
        return limits_of(entitled(policy, [group], said, NOW)).storage

    assert told("") == {"log": CLAIM}
    assert told("free") == {}
    assert told("more") == {"log": CLAIM, "data": CLAIM}
    assert told("free", override(storage={"workspace": CLAIM})) == {"workspace": CLAIM}
    assert limits_of(Entitlement(Grant(storage=StorageSizes(log=CLAIM)))).storage == {"log": CLAIM}
    assert limits_of(entitled(parse_policy(""), [], None, NOW)).storage == {}


def test_an_override_ends_at_its_time() -> None:
    """After the end of an override, the group's limits apply again."""
    more = override(quota={"cpu": 32})
    policy = parse_policy(POLICY)

    assert entitled(policy, ["ml101"], more, NOW + 9.9).grant.quota.cpu == 32
    assert entitled(policy, ["ml101"], more, NOW + 10) == entitled(policy, ["ml101"], None, NOW)
    assert next_end({"ada": more, "bob": override(until=NOW - 1)}, NOW) == NOW + 10
    assert next_end({"ada": more}, NOW + 10) is None


def test_an_override_of_another_release_does_not_count() -> None:
    """An override with unknown keys is ignored without an error."""
    assert entitled(parse_policy(POLICY), [], override(quota={"qpu": 1}), NOW).grant.quota.cpu == 8


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"reason": " "}, "reason"),
        ({"until": NOW}, "366 days"),
        ({"until": NOW + LONGEST + 1}, "366 days"),
        ({}, "at least one field of quota, storage or budget"),
        ({"quota": {"cpu": "two"}}, "quota.cpu: .*a number of cores above 0"),
        ({"quota": {"qpu": 1}}, "quota.qpu: .*there is no such field; the fields are cpu, gpu"),
        ({"storage": {"class": "fast"}}, "use workspace, data, log"),
    ],
)
def test_what_no_policy_could_say_is_refused(words: dict[str, object], told: str) -> None:
    """An invalid override is refused with the allowed values."""
    with pytest.raises(InvalidRequest, match=told):
        checked_override(override(**words), NOW)


def test_overrides_are_the_same_after_writing() -> None:
    """Overrides are unchanged after they are written and read."""
    some = {"ada": override(quota={"cpu": 32, "memory": None}), "zoë": override(budget={"days": 7})}

    assert read_overrides(encode_overrides(some)) == some
    assert read_overrides("") == {}


def test_a_notebook_is_told_what_its_user_may_have(tmp_path: Path) -> None:
    """Without a policy, the file of a user has no limits. With a policy, it has the limits of the
    user's group; during an override, it has the limits of the override.
    """
    now = [NOW]
    told = Allowances(tmp_path, clock=lambda: now[0])

    def said() -> dict[str, object]:
        file = told.tell("a/b", ["ml101"])
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent == tmp_path / "limits"
        return dict(json.loads(file.read_bytes()))

    assert said() == {"quota": {}}
    (tmp_path / "policy.yaml").write_text(POLICY)
    assert said()["quota"] == {"cpu": 4.0, "memory": "32Gi"}
    told.overrides.set("a/b", override(until=NOW + 5e9, quota={"gpu": 2}))
    assert said()["quota"] == {"cpu": 4.0, "memory": "32Gi", "gpu": 2}
    assert said()["override"] == {"until": NOW + 5e9, "reason": "a thesis"}
    now[0] = NOW + 5e9
    assert "override" not in said()


def test_a_policy_with_a_mistake_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a mistake in the policy, the old policy stays, and the log names the line of the
    mistake. If the policy already has a mistake when the hub starts, the hub does not start, and
    the error names the line.
    """
    told = Allowances(tmp_path)
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    assert told.of("ada", []).grant.quota.cpu == 8
    file.write_text("default: {quota: {cpu: two}}")

    assert told.of("ada", []).grant.quota.cpu == 8
    assert "line 1: default.quota.cpu" in caplog.text
    with pytest.raises(TFClusterError, match="line 1"):
        told.policy.load()


def test_overrides_that_have_ended_go_with_the_next_change(tmp_path: Path) -> None:
    """Ended overrides are deleted from the file, which only the hub may read."""
    file = Allowances(tmp_path).overrides
    file.set("ada", override(until=1.0))
    file.set("bob", override(until=5e9))

    assert list(file.all()) == ["bob"]
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.clear("bob")
    assert not file.clear("bob")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes for another account")
def test_an_account_may_read_its_limits_and_not_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account can read its own file of limits in root's folder, but can neither list nor change
    the folder.
    """
    monkeypatch.setattr("tfcluster_magic.hub.user_limits.OF_ROOT", tmp_path / "open")
    file = Allowances(tmp_path / "closed").tell("ada", [], gid=65534)

    assert (file.stat().st_uid, file.stat().st_gid) == (0, 65534)
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.parent.stat().st_mode & 0o777 == 0o711


def test_more_than_is_allowed_is_refused_with_the_way_out() -> None:
    """The refusal says what was requested, the limit and its source, how much is left, and which
    runs use the rest.
    """
    quota = Quota(cpu=16, memory="8Gi", gpu=1, pods=100)
    runs = [ResourceTotals("a-1", 8, 2**30, 0, 4), ResourceTotals("b-1", 4, 2**30, 0, 2)]
    (problem,) = problems(
        ResourceTotals("", 8, 2**31, 1, 4), runs, Limits(group="ml101", quota=quota)
    )

    assert str(problem) == (
        "quota.cpu: got '8 CPU cores'; your limit is 16 CPU cores at the same time (group ml101), "
        "with 4 CPU cores left (a-1 8 CPU cores, b-1 4 CPU cores): ask for less, wait, or "
        "`tfcluster stop a-1`; for more, ask an administrator of the hub"
    )
    term = OverrideTerm(until=NOW, reason="a thesis")
    over = problems(ResourceTotals("", 0, 2**40, 2, 101), [], Limits(quota=quota, override=term))
    assert [each.field for each in over] == ["quota.memory", "quota.gpu", "quota.pods"]
    assert all("an administrator's exception: a thesis" in str(each.allowed) for each in over)
    assert problems(ResourceTotals("", 4, 2**30, 1, 4), runs, Limits(quota=quota)) == []
    assert problems(ResourceTotals("", 999, 2**50, 9, 999), runs, Limits()) == []


def test_the_file_is_read_as_it_is_written() -> None:
    """The file with a user's limits is read as it was written."""
    said = limits_of(entitled(parse_policy(POLICY), [], override(quota={"pods": 3}), NOW))

    assert msgspec.json.decode(msgspec.json.encode(said), type=Limits) == said
