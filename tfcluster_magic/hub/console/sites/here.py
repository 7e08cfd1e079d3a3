"""This machine as a site of the console: one reader process for each person that has runs here.

Promises that root opens nobody's folders: each reader runs under its person's account, is started
when somebody looks and ends a minute after the last look. A home that hangs holds up its own rows
alone: they stay as they were, and the answer says so. What a reader says is taken for rows, and the
owner is who it was asked for, whatever stands in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from ....errors import NotFound, TFClusterError
from ....i18n import _
from ....spec import Stop
from ...local_servers import NoServer, account
from .base import KEPT, Filled, Held, Leaks, Missed, Seen
from .local import Nursery, PersonReader
from .reader import Answer, Ask

WAIT = 5.0
"""Seconds that a listing waits for those who have not answered before."""
UNUSED = 60.0
"""Seconds after the last look when readers end; their rows are kept a little longer."""
_NAMES_KEPT = 30.0

Names = Callable[[], Awaitable[Iterable[str]]]


class Here:
    """This machine; as root with everybody who has a system account and is a user of the hub.

    Args:
        owner: the hub's user who runs the hub.
        names: tells every user of the hub; asked only as root.
    """

    def __init__(self, owner: str, names: Names) -> None:
        self._owner, self._names = owner, names
        self._fork_server = Nursery()
        self._readers = {owner: PersonReader(owner, None, self._fork_server)}
        self._named_at = float("-inf")
        self._used_at = 0.0
        self._naming = asyncio.Lock()

    async def runs(self) -> Seen:
        """See `World.runs`."""
        missed: list[Missed] = []
        try:
            await self._people()
        except TFClusterError as error:
            missed.append(Missed(owner="", detail=str(error)))
        readers = list(self._readers.values())
        tasks = {reader: reader.list() for reader in readers}
        if waited_for := [task for reader, task in tasks.items() if not reader.why]:
            await asyncio.wait(waited_for, timeout=WAIT)
        for reader, task in tasks.items():
            if not task.done() and not reader.why:
                reader.why = _("the files of {name} do not answer").format(name=reader.name)
        missed += [Missed(owner=r.name, detail=r.why) for r in readers if r.why]
        return Seen(rows=tuple(row for r in readers for row in r.rows), missed=tuple(missed))

    async def still(self, seen: Seen) -> Seen:
        """See `World.still`."""
        await self._people()
        return Seen(
            rows=tuple(row for row in seen.rows if row.owner in self._readers),
            missed=tuple(one for one in seen.missed if one.owner in {"", *self._readers}),
        )

    async def stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        """See `World.stop`."""
        reader = await self._of(owner)
        await reader.ask(Ask(do="stop", name=name, uid=uid, stop=stop))

    async def tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        """See `World.tail`."""
        reader = await self._of(owner)
        answer = await reader.ask(Ask(do="tail", name=name, task=task, lines=lines))
        return list(answer.lines)

    async def hours(self) -> Held:
        """See `World.hours`."""
        await self._people()
        answers, missed = await self._all(Ask(do="hours"))
        return Held(users={name: answer.hours for name, answer in answers}, missed=missed)

    async def storage(self) -> Filled:
        """See `World.storage`."""
        await self._people()
        answers, missed = await self._all(Ask(do="storage"))
        return Filled(users={name: answer.volumes for name, answer in answers}, missed=missed)

    async def leaks(self) -> Leaks:
        """See `World.leaks`."""
        await self._people()
        answers, missed = await self._all(Ask(do="leaks"))
        replace = msgspec.structs.replace
        found = [replace(leak, owner=name) for name, answer in answers for leak in answer.leaks]
        return Leaks(items=tuple(found), missed=missed)

    async def _all(self, ask: Ask) -> tuple[list[tuple[str, Answer]], tuple[Missed, ...]]:
        """What every reader answers, and which did not."""
        readers = list(self._readers.values())
        asked = (reader.ask(ask) for reader in readers)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[tuple[str, Answer]] = []
        missed: list[Missed] = []
        for reader, answer in zip(readers, answers, strict=True):
            if isinstance(answer, Answer):
                found.append((reader.name, answer))
            elif isinstance(answer, TFClusterError):
                missed.append(Missed(owner=reader.name, detail=str(answer)))
            else:
                raise answer
        return found, tuple(missed)

    async def remove(self, owner: str, leak: str) -> None:
        """See `World.remove`."""
        reader = await self._of(owner)
        await reader.ask(Ask(do="remove", leak=leak))

    async def pack(self, owner: str, out: int, tell: Callable[[str], None]) -> None:
        """See `World.pack`. Nothing is waited for."""
        del tell
        reader = await self._of(owner)
        packer = "tfcluster_magic.hub.console.packer"
        process = await reader.begin(packer, stdin=DEVNULL, stdout=out, stderr=PIPE)
        try:
            _out, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            text = _("the data of {name} cannot be packed: {why}")
            why = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:500]
            raise TFClusterError(text.format(name=owner, why=why or process.returncode))

    async def rest(self) -> None:
        """End the readers when nobody has looked for a while; to be called now and then."""
        unused = time.monotonic() - self._used_at
        if unused > UNUSED:
            await self.close()
        if unused > KEPT:
            for reader in self._readers.values():
                reader.rows = ()

    async def close(self) -> None:
        """End every reader, and what starts them."""
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))
        await self._fork_server.close()

    def _reader(self, name: str) -> PersonReader:
        """Raises NoServer: they have no account here."""
        return PersonReader(name, account(name, 0, self._owner), self._fork_server)

    async def _of(self, owner: str) -> PersonReader:
        """The reader of somebody who is a user now, whatever a page still shows."""
        await self._people()
        if owner not in self._readers:
            raise NotFound(_("nobody called {owner} has runs here").format(owner=owner))
        return self._readers[owner]

    async def _people(self) -> None:
        """Bring up to date who there is."""
        self._used_at = time.monotonic()
        if os.geteuid() != 0:
            return
        async with self._naming:  # a page of runs that are stopped asks once who there is
            now = time.monotonic()
            if now - self._named_at < _NAMES_KEPT:
                return
            names = set(await self._names())
            self._named_at = now
            for name in names - self._readers.keys():
                with contextlib.suppress(NoServer):
                    self._readers[name] = self._reader(name)
            for name in self._readers.keys() - names - {self._owner}:
                await self._readers.pop(name).close()
