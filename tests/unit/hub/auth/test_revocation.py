"""The removal of a user by a shell command, and the methods of spawners that JupyterHub calls for
it.
"""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from jupyterhub import orm
from jupyterhub.auth import DummyAuthenticator
from jupyterhub.spawner import Spawner
from jupyterhub.user import UserDict

from tfcluster_magic.hub.auth.revocation import delete_user


class Keeping(Spawner):  # type: ignore[misc]
    """A spawner that keeps data; its notebooks run until they are stopped."""

    loses_data = False
    stopped: ClassVar[list[str]] = []
    deleted: ClassVar[list[tuple[str, bool]]] = []

    async def start(self) -> str:
        return ""

    async def poll(self) -> int | None:
        return 0 if self.name in self.stopped else None

    async def stop(self, now: bool = False) -> None:
        self.stopped.append(self.name)

    async def delete_forever(self) -> None:
        self.deleted.append((self.name, self.loses_data))


class Proxy:
    """A stand-in for JupyterHub's proxy, which is asked to delete the routes of notebooks."""

    async def delete_user(self, _user: Any, _name: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize("runs", [True, False])
def test_a_spawner_hears_that_the_data_goes(runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spawner that JupyterHub asks to delete a user is told to delete the user's data, too.
    This is also true if the notebook was running, in which case JupyterHub makes a new spawner for
    the deletion.
    """
    for name in ("stopped", "deleted"):
        monkeypatch.setattr(Keeping, name, [])
    session = orm.new_session_factory("sqlite:///:memory:")()
    settings = {"spawner_class": Keeping, "authenticator": DummyAuthenticator()}
    users = UserDict(lambda: session, settings)
    session.add(orm.User(name="ada"))
    session.commit()
    user = users["ada"]
    if runs:
        spawner = user.spawners[""]
        spawner.api_token = "of no server"
        spawner.orm_spawner.server = orm.Server()
        session.commit()
        assert spawner.active
    app: Any = SimpleNamespace(users=users, proxy=Proxy(), log=logging.getLogger(__name__))
    assert asyncio.run(delete_user(app, "ada", with_data=True))
    assert Keeping.stopped == [""] * runs
    assert Keeping.deleted == [("", True)]
    assert users.get("ada") is None
