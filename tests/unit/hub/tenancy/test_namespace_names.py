"""Names of users' namespaces."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubespawner import KubeSpawner

from tfcluster_magic.errors import UsageError
from tfcluster_magic.hub.tenancy import namespace_objects

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@given(NAMES)
def test_every_name_has_a_valid_namespace(user: str) -> None:
    """Every user name gives a valid name of a namespace."""
    found = namespace_objects.namespace_of_user(user, "abcdefghijklmn-")
    assert LABEL.fullmatch(found)
    assert namespace_objects.namespace_of_user(user).startswith("tfcluster-u-")


@given(st.sets(NAMES | st.from_regex(r"\A[aA1_. -]{1,4}\Z"), min_size=2, max_size=8))
def test_no_two_names_share_a_namespace(users: set[str]) -> None:
    """Different users never share a namespace, even if their names differ only in case or special
    characters.
    """
    assert len({namespace_objects.namespace_of_user(user) for user in users}) == len(users)


@pytest.mark.parametrize(
    "user", ["alice", "a_b", "user@example.com", "1abc", "x" * 60, "用户", "a--b"]
)
def test_the_namespace_is_the_one_that_the_spawner_makes(user: str) -> None:
    """The spawner, which creates the namespace, and tenancy compute the same name."""
    spawner = SimpleNamespace(
        name="",
        user=SimpleNamespace(name=user, id=1),
        slug_scheme="safe",
        _namespace_default=lambda: "tfcluster-hub",
    )
    made = KubeSpawner._expand_user_properties(spawner, "tfcluster-u-{username}")
    assert namespace_objects.namespace_of_user(user) == made


def test_a_prefix_that_no_namespace_can_begin_with_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invalid prefix for the names of namespaces, from the environment, is refused."""
    monkeypatch.setenv(namespace_objects.PREFIX_VARIABLE, "team-a-")
    assert namespace_objects.namespace_prefix() == "team-a-"
    for wrong in ("Team-", "team", "-", "x" * 20 + "-"):
        monkeypatch.setenv(namespace_objects.PREFIX_VARIABLE, wrong)
        with pytest.raises(UsageError, match="end with a hyphen"):
            namespace_objects.namespace_prefix()
