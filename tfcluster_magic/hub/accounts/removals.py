"""Users who were removed from a shell: the running hub forgets them as its admin page would.

It promises that what a command noted in the file of accounts is done by the hub within seconds, or
at its next start: notebooks end, sessions and rights go, spawners hear of it; and that a note stays
until it is done. It looks into the file; no other process has a way into the hub for this.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .store import AccountStore

EVERY = 1.0
"""Seconds between two looks at the file: another process writes it, and nothing tells."""


async def follow(app: Any, store: AccountStore) -> None:
    """Forget who was removed, as long as the hub runs; what fails is tried again."""
    while True:
        await asyncio.sleep(EVERY)
        try:
            for name, with_data in (await asyncio.to_thread(store.removed)).items():
                if await forget(app, name, with_data=with_data):
                    await asyncio.to_thread(store.forgotten, name)
        except Exception:
            # A file that cannot be read, a proxy that is away: both heal without a restart.
            app.log.exception("Users who were removed are still there; trying again")


async def forget(app: Any, name: str, *, with_data: bool) -> bool:
    """Delete a user of the hub; False when that has to wait for a notebook that starts or stops.

    `with_data` is for spawners that keep something of a user: their trait `loses_data`.
    """
    user = app.users.get(name)
    if user is None:
        return True
    names = list(user.orm_user.orm_spawners)
    if any(user.spawners[each].pending for each in names):
        return False
    for each in names:
        if user.spawners[each].active:
            await app.proxy.delete_user(user, each)
            await user.stop(each)
        user.spawners[each].loses_data = with_data  # another than before: one that ends is dropped
    await user.delete_spawners()
    app.users.delete(user)
    app.log.info("%s was removed from a shell: deleted", name)
    return True
