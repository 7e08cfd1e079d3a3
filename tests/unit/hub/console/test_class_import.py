"""Import of a class into the hub: its requests, and failed lines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tfcluster_magic.errors import BackendUnavailable, Conflict, InvalidRequest, NotFound, Problem
from tfcluster_magic.hub.console.class_import import (
    PORTION,
    ClassImport,
    ClassLine,
    ImportedLine,
    Importing,
)
from tfcluster_magic.hub.console.hub_users import HubUsers
from tfcluster_magic.hub.user_limits import NoSitePolicy


class Hub(HubUsers):
    """The part of the hub's API that an import uses."""

    def __init__(self) -> None:
        super().__init__({})
        self.users: dict[str, set[str]] = {"ada": set()}
        self.codes: dict[str, int] = {}
        self.asked: list[str] = []
        self.without_account: set[str] = set()
        """Names for which no account can be made."""
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append(f"{method} {path.partition('?')[0]}")
        await self.answers.wait()
        await asyncio.sleep(0)  # lets other coroutines run between two requests
        steps = path.partition("?")[0].split("/")
        return (
            self._read(*steps) if method == "GET" else self._changed(method, *steps, **(body or {}))
        )

    def _read(self, what: str) -> Any:
        if what == "users":
            every = [{"name": n, "groups": [*g]} for n, g in sorted(self.users.items())]
            return {"items": every, "_pagination": {"next": None}}
        if what == "groups":
            return {"items": [], "_pagination": {"next": None}}
        if what == "accounts":
            state = {"state": "link", "linkUntil": 1e10}
            return {"accounts": dict.fromkeys(self.codes, state)}
        raise NotFound(what)

    def _changed(self, method: str, *steps: str, **body: Any) -> Any:
        match method, steps:
            case "POST", ("users",):
                made = [name for name in body["usernames"] if name not in self.users]
                if not made:
                    raise Conflict("all of them already exist")
                self.users |= {name: set() for name in made}
                return [{"name": name} for name in made]
            case "POST", ("groups", group, "users"):
                for name in body["users"]:
                    self.users[name].add(group)
            case "POST", ("accounts", "links"):
                if self.without_account & set(body["names"]):
                    raise InvalidRequest([Problem("name", "", "not this one")])
                for name in body["names"]:
                    self.codes[name] = self.codes.get(name, 0) + 1
                return {"links": {n: f"http://h?code={n}" for n in body["names"]}}
            case "DELETE", ("users", name):
                del self.users[name]
        return {}


def a_class(count: int) -> list[ClassLine]:
    return [ClassLine(number=n + 2, name=f"student{n}", group="ml101") for n in range(count)]


async def imported(hub: Hub, lines: Sequence[ClassLine], told: list[int] | None = None):
    """Import lines and return the results; `told` gets the size of each portion."""
    work = ClassImport(hub, "http://hub/", NoSitePolicy(), lambda _name: "")
    await work.look(lines)

    async def ended(done: Sequence[ImportedLine]) -> None:
        if told is not None:
            told.append(len(done))

    return await work.do(lines, ended)


def test_a_class_costs_the_hub_a_few_requests_for_each_portion() -> None:
    """A portion needs a few requests, whatever the number of its lines; a second import changes
    nothing.
    """

    async def whole() -> None:
        hub, told = Hub(), []
        found = await imported(hub, a_class(500), told)
        assert all(
            one.ok and one.link == f"http://hub/set-password?code={one.name}" for one in found
        )
        assert [one.line for one in found] == list(range(2, 502))
        assert sum(told) == 500 and max(told) == PORTION
        assert len(hub.asked) < 100
        assert hub.users["student7"] == {"ml101"} and set(hub.codes.values()) == {1}
        changed = [one for one in hub.asked if one.startswith("POST")]
        again = await imported(hub, a_class(500))
        assert not any(one.steps or one.link for one in again)
        assert [one for one in hub.asked if one.startswith("POST")] == changed

    asyncio.run(whole())


def test_a_line_that_fails_hides_no_other_and_leaves_nothing() -> None:
    """A failed line is reported and its new user deleted; existing users stay."""

    async def whole() -> None:
        hub = Hub()
        hub.without_account = {"student3", "ada"}
        lines = [*a_class(10), ClassLine(number=99, name="ada")]
        found = {one.name: one for one in await imported(hub, lines)}
        failed = {name for name, one in found.items() if not one.ok}
        assert failed == {"student3", "ada"}
        assert "not this one" in found["student3"].detail and not found["student3"].steps
        assert "student3" not in hub.users and "ada" in hub.users
        assert all(found[name].link for name in found.keys() - failed)
        assert Counter(hub.codes.values()) == {1: 9}

    asyncio.run(whole())


def test_two_imports_at_once_make_one_link_for_each() -> None:
    """The second of two imports at the same time waits for the first and changes nothing."""

    async def whole() -> None:
        hub, importing = Hub(), Importing()
        hub.answers.clear()

        async def one() -> list[ImportedLine]:
            async with importing:
                return await imported(hub, a_class(3))

        both = [asyncio.ensure_future(one()) for _ in range(2)]
        await asyncio.sleep(0)
        hub.answers.set()
        first, second = await asyncio.gather(*both)
        assert all(each.link for each in first)
        assert not any(each.link or each.steps for each in second)
        assert set(hub.codes.values()) == {1}

    asyncio.run(whole())


def test_how_far_it_is_is_told_and_over_with_it() -> None:
    """The progress of an import is reset at the import's end, even after an error."""

    async def whole() -> None:
        importing = Importing()

        async def fail() -> None:
            async with importing as progress:
                progress.total = 5
                assert importing.progress.total == 5
                raise BackendUnavailable("the audit log cannot be written")

        with pytest.raises(BackendUnavailable):
            await fail()
        assert (importing.progress.done, importing.progress.total) == (0, 0)
        async with importing:
            pass

    asyncio.run(whole())
