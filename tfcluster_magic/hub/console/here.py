"""This machine as a world of the console: one reader process for each person that has runs here.

Promises that root opens nobody's folders: each reader runs under its person's account, is started
when somebody looks and ends a minute after the last look. A home that hangs holds up its own rows
alone: they stay as they were, and the answer says so. What a reader says is taken for rows, and the
owner is who it was asked for, whatever stands in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from ...errors import BackendUnavailable, NotFound, TFClusterError
from ...i18n import VARIABLE, _
from ...models import Stop
from ..local_servers import HIDDEN, NoServer, Person, account
from .reader import ERRORS, Answer, Ask
from .world import Filled, Held, Leaks, Missed, Row, Seen

WITHIN = 15.0
"""Seconds for one answer of a reader, its start on a busy machine included."""
WAIT = 5.0
"""Seconds that a listing waits for those who have not answered before."""
UNUSED = 60.0
_MOST_BYTES = 64 * 1024 * 1024
_NAMES_KEPT = 30.0
_DECODER = msgspec.json.Decoder(Answer)

Names = Callable[[], Awaitable[Iterable[str]]]


class PersonReader:
    """The reader of one person; `person` is None for who runs the hub."""

    def __init__(self, name: str, person: Person | None) -> None:
        self.name = name
        self.rows: tuple[Row, ...] = ()
        self.why = ""
        self._person = person
        self._process: Process | None = None
        self._lock = asyncio.Lock()
        self._listing: asyncio.Task[None] | None = None

    def list(self) -> asyncio.Task[None]:
        """Begin to read the runs, or wait with whoever has begun."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._list())
        return self._listing

    async def _list(self) -> None:
        try:
            answer = await self.ask(Ask(do="list"))
        except TFClusterError as error:
            self.why = str(error)
        else:
            mine = (msgspec.structs.replace(row, owner=self.name) for row in answer.rows)
            self.rows, self.why = tuple(mine), ""

    async def ask(self, ask: Ask) -> Answer:
        """One answer; raises what the reader tells, or BackendUnavailable."""
        async with self._lock:
            try:
                line = await asyncio.wait_for(self._line(msgspec.json.encode(ask)), WITHIN)
                answer = _DECODER.decode(line)
            except (asyncio.TimeoutError, OSError, ValueError, asyncio.LimitOverrunError) as error:
                self._kill()
                slow = isinstance(error, asyncio.TimeoutError)
                why = _("no answer within {seconds:g} s").format(seconds=WITHIN) if slow else error
                text = _("the files of {name} cannot be read: {why}")
                raise BackendUnavailable(text.format(name=self.name, why=why)) from None
        if answer.error:
            raise ERRORS.get(answer.error, TFClusterError)(answer.detail)
        return answer

    async def _line(self, question: bytes) -> bytes:
        if self._process is None or self._process.returncode is not None:
            self._process = await self.begin("reader", stdin=PIPE, stdout=PIPE)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(question + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise OSError(_("its reader has ended; the hub's log may say why"))
        return line

    async def begin(self, program: str, **streams: Any) -> Process:
        """Start one of our programs under the person's account."""
        command = [sys.executable, "-I", "-m", f"tfcluster_magic.hub.console.{program}"]
        words: dict[str, Any] = {"cwd": "/", "limit": _MOST_BYTES, **streams}
        if self._person is None:
            env = {k: v for k, v in os.environ.items() if not k.startswith(HIDDEN)}
            return await asyncio.create_subprocess_exec(*command, env=env, **words)
        who = self._person
        env = {"HOME": str(who.home), "USER": who.name, "LOGNAME": who.name, "PATH": os.defpath}
        if language := os.environ.get(VARIABLE):
            env[VARIABLE] = language
        groups = os.getgrouplist(who.name, who.gid)
        return await asyncio.create_subprocess_exec(
            *command, env=env, user=who.uid, group=who.gid, extra_groups=groups, **words
        )

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._process.kill()
            self._process = None

    async def close(self) -> None:
        """End the process; it ends by itself when nobody asks any more."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await asyncio.wait_for(process.communicate(), 2)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                process.kill()
            with contextlib.suppress(asyncio.TimeoutError):  # what hangs in the kernel ends later
                await asyncio.wait_for(process.communicate(), 10)


class Here:
    """This machine; as root with everybody who has a system account and is a user of the hub.

    Args:
        owner: the hub's user who runs the hub.
        names: tells every user of the hub; asked only as root.
    """

    def __init__(self, owner: str, names: Names) -> None:
        self._owner, self._names = owner, names
        self._readers = {owner: PersonReader(owner, None)}
        self._named_at = float("-inf")
        self._used_at = 0.0

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

    async def stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        """See `World.stop`."""
        await self._of(owner).ask(Ask(do="stop", name=name, uid=uid, stop=stop))

    async def tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        """See `World.tail`."""
        answer = await self._of(owner).ask(Ask(do="tail", name=name, task=task, lines=lines))
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
        await self._of(owner).ask(Ask(do="remove", leak=leak))

    async def pack(self, owner: str, out: int, tell: Callable[[str], None]) -> None:
        """See `World.pack`. Nothing is waited for."""
        del tell
        await self._people()
        process = await self._of(owner).begin("packer", stdin=DEVNULL, stdout=out, stderr=PIPE)
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
        if time.monotonic() - self._used_at > UNUSED:
            await self.close()

    async def close(self) -> None:
        """End every reader."""
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))

    def _of(self, owner: str) -> PersonReader:
        self._used_at = time.monotonic()
        if owner not in self._readers:
            raise NotFound(_("nobody called {owner} has runs here").format(owner=owner))
        return self._readers[owner]

    async def _people(self) -> None:
        """Bring up to date who there is."""
        now = self._used_at = time.monotonic()
        if os.geteuid() != 0 or now - self._named_at < _NAMES_KEPT:
            return
        names = set(await self._names())
        self._named_at = now
        for name in names - self._readers.keys():
            with contextlib.suppress(NoServer):
                self._readers[name] = PersonReader(name, account(name, 0, self._owner))
        for name in self._readers.keys() - names - {self._owner}:
            await self._readers.pop(name).close()
