"""Fixtures of the hub's tests: real hubs, which the tests of a file share, and the browser of
tests/ui.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.hub.make_run import Hub, Visitor
from support.hub.real_hub import RealHub
from support.ui.browser import context, profile, pytest_runtest_makereport, shots

ORDER = ("restarts", "class", "console_users", "console", "backup", "openid", "system_accounts")
ORDER += ("accounts", "first_visit", "idle", "subdomains")
"""The slowest files, which run first so that two test processes end at the same time."""
FOR_EACH = 90
"""Seconds that each student adds to the time limit of test_class.py, enough for a busy machine."""
__all__ = ["context", "profile", "pytest_runtest_makereport", "shots"]  # fixtures, re-exported


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the slowest files first; give the test of a class a time limit that depends on the number
    of students.
    """
    items.sort(key=_rank)  # sorting is stable, so the order within a file stays
    limit = 600 + FOR_EACH * config.getoption("class_size")
    for item in items:
        if "class_size" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(limit))


def _rank(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_")
    return ORDER.index(name) if name in ORDER else len(ORDER)


@pytest.fixture(scope="session")
def class_size(pytestconfig: pytest.Config) -> int:
    """Return the number of students (`--class-size`)."""
    return int(pytestconfig.getoption("class_size"))


@pytest.fixture(scope="module")
def hub_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """A hub with the accounts `ada` and `bob`, neither of them an administrator."""
    hub = RealHub(tmp_path_factory.mktemp("hub"), ["ada", "bob"])
    try:
        hub.start()
        yield hub
    finally:
        hub.close()


@pytest.fixture(scope="module")
def start_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Hub]]:
    """Return a function that starts a hub as `make run` does, with the arguments of Hub."""
    started: list[Hub] = []

    def start(**words: Any) -> Hub:
        hub = Hub(tmp_path_factory.mktemp("hub"), **words)
        started.append(hub)
        hub.start()
        return hub

    yield start
    for hub in started:
        hub.close()


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    """A hub that all tests of a file share, after its first start."""
    return start_hub()


@pytest.fixture(scope="module")
def admin(hub: Hub) -> Visitor:
    """The hub's owner, signed in with the link of the first start."""
    return hub.owner_signs_in()
