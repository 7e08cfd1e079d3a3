"""One machine as a site of the console: a reader process for each person with runs.

Root never opens a person's folders: each reader runs under its person's account. A reader starts on
demand and ends a minute after the last request. If a home directory hangs, only the rows of its
owner stay outdated, and the answer says so. A reader's rows are validated, and the reader's person
becomes their owner, whatever the rows say.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ....errors import BackendUnavailable, NotFound, TFClusterError
from ....i18n import _
from ....schedules import Pause
from ....spec import Stop, conversion
from ...auth.system_accounts import NoServer, Person, account, environment, why_no_notebook
from .base import (
    RUNS_KEPT,
    Missed,
    SiteHours,
    SiteLeaks,
    SiteRun,
    SiteRuns,
    SiteSchedule,
    SiteStorage,
    bounded_row,
    bounded_schedule,
)
from .person_reader import (
    ERRORS,
    ForkCommand,
    ReaderAnswer,
    ReaderRequest,
    StartReader,
    StopReader,
)

ANSWER_SECONDS = 15.0
"""Timeout in seconds of a reader's answer, including the reader's start on a busy machine."""
_MOST_BYTES = 64 * 1024 * 1024
_DECODER = conversion.decoder(ReaderAnswer)


class ReaderProcess:
    """A running reader and its connection."""

    def __init__(self, pid: int, said: asyncio.StreamReader, asked: asyncio.StreamWriter) -> None:
        self.pid, self._said, self._asked = pid, said, asked

    async def ask(self, question: bytes) -> bytes:
        """Send a request as one line, and return the line of the answer. Raises OSError."""
        self._asked.write(question + b"\n")
        await self._asked.drain()
        line = await self._said.readline()
        if not line:
            raise OSError(_("the process that reads them has ended; the hub's log may say why"))
        return line

    async def ended(self) -> None:
        """Close the stream of requests, and wait until the reader has ended."""
        self._asked.write_eof()
        with contextlib.suppress(OSError):
            while await self._said.read(_MOST_BYTES):
                pass  # discard a late answer

    def forget(self) -> None:
        """Close the connection without waiting."""
        self._asked.close()


class ForkServer:
    """The process that forks readers; it starts on demand."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._channel: socket.socket | None = None
        self._lock = asyncio.Lock()

    async def begin(self, person: Person | None) -> ReaderProcess:
        """Start a reader under the account of `person`, or of the hub's owner if None. Raises
        OSError.
        """
        begun = asyncio.ensure_future(self._begin(person))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:  # the fork cannot be cancelled; end its reader later
            begun.add_done_callback(self._unwanted)
            raise

    async def _begin(self, person: Person | None) -> ReaderProcess:
        wanted = StartReader(environ=environment(person))
        if person is not None:
            groups = tuple(person.groups)
            wanted = replace(wanted, uid=person.uid, gid=person.gid, groups=groups)
        async with self._lock:
            channel = await self._opened()
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    text = msgspec.json.encode(ForkCommand(begin=wanted))
                    socket.send_fds(channel, [text], [theirs.fileno()])
                told = await asyncio.get_running_loop().sock_recv(channel, 100)
                if not told:
                    raise OSError(
                        _("the process that reads them has ended; the hub's log may say why")
                    )
            except OSError:
                ours.close()
                await self.close()  # the next reader gets a new fork server
                raise
        said, asked = await asyncio.open_connection(sock=ours, limit=_MOST_BYTES)
        return ReaderProcess(int(told), said, asked)

    def _unwanted(self, begun: asyncio.Task[ReaderProcess]) -> None:
        if not begun.cancelled() and not begun.exception():
            self.end(begun.result())

    def end(self, child: ReaderProcess) -> None:
        """Kill a reader if it has not ended by itself."""
        child.forget()
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(msgspec.json.encode(ForkCommand(end=StopReader(child.pid))))

    async def close(self) -> None:
        """End the fork server; its readers keep running."""
        channel, self._channel = self._channel, None
        process, self._process = self._process, None
        if channel is not None:
            channel.close()
        if process is not None:
            await process.wait()

    async def _opened(self) -> socket.socket:
        if self._channel is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                number = theirs.fileno()
                self._process = await asyncio.create_subprocess_exec(
                    *program("tfcluster_magic.hub.console.sites.person_reader"),
                    str(number),
                    pass_fds=(number,),
                    env={"PATH": os.defpath},
                    cwd="/",
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                )
            ours.setblocking(False)
            self._channel = ours
        return self._channel


class ReaderClient:
    """A client of the reader process of one person; `person` is None for the hub's owner."""

    def __init__(self, name: str, person: Person | None, fork_server: ForkServer) -> None:
        self.name = name
        self.rows: tuple[SiteRun, ...] = ()
        self.schedules: tuple[SiteSchedule, ...] = ()
        self.why = ""
        self._person, self._fork_server = person, fork_server
        self._child: ReaderProcess | None = None
        self._lock = asyncio.Lock()
        self._listing: asyncio.Task[None] | None = None

    def list(self) -> asyncio.Task[None]:
        """Return the task that reads the runs and schedules: the one in progress, or a new one."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._list())
        return self._listing

    async def _list(self) -> None:
        try:
            answer = await self.ask(ReaderRequest(do="list"))
        except TFClusterError as error:
            self.why = str(error)
        else:
            mine = (replace(bounded_row(row), owner=self.name) for row in answer.rows)
            self.rows, self.why = tuple(mine), ""
            plans = (replace(bounded_schedule(row), owner=self.name) for row in answer.schedules)
            self.schedules = tuple(plans)

    async def ask(self, ask: ReaderRequest) -> ReaderAnswer:
        """Send a request and return the answer. Raises the error that the answer contains, or
        BackendUnavailable.
        """
        async with self._lock:
            try:
                line = await asyncio.wait_for(self._line(msgspec.json.encode(ask)), ANSWER_SECONDS)
                answer = _DECODER.decode(line)
            except (asyncio.TimeoutError, OSError, ValueError, asyncio.LimitOverrunError) as error:
                self._end()
                slow = isinstance(error, asyncio.TimeoutError)
                why = (
                    _("no answer within {seconds:g} s").format(seconds=ANSWER_SECONDS)
                    if slow
                    else error
                )
                text = _("the files of {name} cannot be read: {why}")
                raise BackendUnavailable(text.format(name=self.name, why=why)) from None
        if answer.error:
            raise ERRORS.get(answer.error, TFClusterError)(answer.detail)
        return answer

    async def _line(self, question: bytes) -> bytes:
        if self._child is None:
            self._child = await self._fork_server.begin(self._person)
        return await self._child.ask(question)

    async def begin(self, module: str, **streams: Any) -> Process:
        """Start one of our programs under the person's account."""
        words: dict[str, Any] = {"cwd": "/", "env": environment(self._person), **streams}
        if (who := self._person) is not None:
            words |= {"user": who.uid, "group": who.gid, "extra_groups": who.groups}
        return await asyncio.create_subprocess_exec(*program(module), **words)

    def _end(self) -> None:
        if self._child is not None:
            self._fork_server.end(self._child)
            self._child = None

    async def close(self) -> None:
        """End the reader by closing its requests; kill it if it does not end within two seconds."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
        if self._child is None:
            return
        with contextlib.suppress(asyncio.TimeoutError, OSError):
            await asyncio.wait_for(self._child.ended(), 2)
        self._end()


def program(module: str) -> list[str]:
    """Return the command that runs one of our modules."""
    return [sys.executable, "-I", "-m", module]


# -- site

LISTING_SECONDS = 5.0
"""Maximum seconds that a listing waits for readers."""
UNUSED_SECONDS = 60.0
"""Seconds without requests after which readers end; their rows are kept for `RUNS_KEPT`."""
_NAMES_KEPT = 30.0

UserNames = Callable[[], Awaitable[Iterable[str]]]


class LocalSite:
    """This machine, with the runs of the hub's owner. If root runs the hub, all hub users with a
    system account are included.

    Args:
        owner: the hub user whose account runs the hub.
        names: returns the names of all hub users; called only if the hub runs as root.
    """

    def __init__(self, owner: str, names: UserNames) -> None:
        self._owner, self._names = owner, names
        self._fork_server = ForkServer()
        self._readers = {owner: ReaderClient(owner, None, self._fork_server)}
        self._named_at = float("-inf")
        self._used_at = 0.0
        self._naming = asyncio.Lock()

    async def runs(self) -> SiteRuns:
        """See `Site.runs`."""
        missed: list[Missed] = []
        try:
            await self._people()
        except TFClusterError as error:
            missed.append(Missed(owner="", detail=str(error)))
        readers = list(self._readers.values())
        tasks = {reader: reader.list() for reader in readers}
        if waited_for := [task for reader, task in tasks.items() if not reader.why]:
            await asyncio.wait(waited_for, timeout=LISTING_SECONDS)
        for reader, task in tasks.items():
            if not task.done() and not reader.why:
                reader.why = _("reading the files of {name} takes too long").format(
                    name=reader.name
                )
        missed += [Missed(owner=r.name, detail=r.why) for r in readers if r.why]
        return SiteRuns(
            rows=tuple(row for r in readers for row in r.rows),
            schedules=tuple(row for r in readers for row in r.schedules),
            missed=tuple(missed),
        )

    async def still(self, seen: SiteRuns) -> SiteRuns:
        """See `Site.still`."""
        await self._people()
        return SiteRuns(
            rows=tuple(row for row in seen.rows if row.owner in self._readers),
            schedules=tuple(row for row in seen.schedules if row.owner in self._readers),
            missed=tuple(one for one in seen.missed if one.owner in {"", *self._readers}),
        )

    async def runs_of(self, owner: str, /) -> SiteRuns:
        """See `Site.runs_of`."""
        self._used_at = time.monotonic()
        reader = self._readers.get(owner)
        if reader is None:
            if os.geteuid() != 0:
                return SiteRuns()
            try:
                reader = self._readers[owner] = self._reader(owner)
            except NoServer:  # no account, so no runs
                return SiteRuns()
        task = reader.list()
        await asyncio.wait([task], timeout=LISTING_SECONDS)
        why = reader.why
        if not task.done():
            why = why or _("reading the files of {name} takes too long").format(name=owner)
        missed = (Missed(owner=owner, detail=why),) if why else ()
        return SiteRuns(rows=reader.rows, missed=missed)

    async def stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        """See `Site.stop`."""
        reader = await self._of(owner)
        await reader.ask(ReaderRequest(do="stop", name=name, uid=uid, stop=stop))

    async def pause(self, owner: str, name: str, uid: str, pause: Pause) -> None:
        """See `Site.pause`."""
        reader = await self._of(owner)
        await reader.ask(ReaderRequest(do="pause", name=name, uid=uid, pause=pause))

    async def resume(self, owner: str, name: str, uid: str) -> None:
        """See `Site.resume`."""
        reader = await self._of(owner)
        await reader.ask(ReaderRequest(do="resume", name=name, uid=uid))

    async def tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        """See `Site.tail`."""
        reader = await self._of(owner)
        answer = await reader.ask(ReaderRequest(do="tail", name=name, task=task, lines=lines))
        return list(answer.lines)

    async def graphs(self, _rows: Sequence[SiteRun], /) -> Mapping[str, str]:
        """See `Site.graphs`; Grafana is for sites on Kubernetes."""
        return {}

    async def hours(self) -> SiteHours:
        """See `Site.hours`."""
        await self._people()
        answers, missed = await self._all(ReaderRequest(do="hours"))
        return SiteHours(users={name: answer.hours for name, answer in answers}, missed=missed)

    async def storage(self) -> SiteStorage:
        """See `Site.storage`."""
        await self._people()
        answers, missed = await self._all(ReaderRequest(do="storage"))
        return SiteStorage(users={name: answer.volumes for name, answer in answers}, missed=missed)

    def why_no_notebook(self, name: str, *, run: bool = True) -> str:
        """Return why this machine has no usable account of this name; empty if it has one."""
        return why_no_notebook(name, self._owner, run=run)

    async def leaks(self) -> SiteLeaks:
        """See `Site.leaks`."""
        await self._people()
        answers, missed = await self._all(ReaderRequest(do="leaks"))
        found = [replace(leak, owner=name) for name, answer in answers for leak in answer.leaks]
        return SiteLeaks(items=tuple(found), missed=missed)

    async def _all(
        self, ask: ReaderRequest
    ) -> tuple[list[tuple[str, ReaderAnswer]], tuple[Missed, ...]]:
        """Return the answers of all readers, and the users whose readers failed."""
        readers = list(self._readers.values())
        asked = (reader.ask(ask) for reader in readers)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[tuple[str, ReaderAnswer]] = []
        missed: list[Missed] = []
        for reader, answer in zip(readers, answers, strict=True):
            if isinstance(answer, ReaderAnswer):
                found.append((reader.name, answer))
            elif isinstance(answer, TFClusterError):
                missed.append(Missed(owner=reader.name, detail=str(answer)))
            else:
                raise answer
        return found, tuple(missed)

    async def remove(self, owner: str, leak: str) -> None:
        """See `Site.remove`."""
        reader = await self._of(owner)
        await reader.ask(ReaderRequest(do="remove", leak=leak))

    async def pack(self, owner: str, out: int, tell: Callable[[str], None]) -> None:
        """See `Site.pack`. This site never calls `tell`."""
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
        """End unused readers; call this periodically."""
        unused = time.monotonic() - self._used_at
        if unused > UNUSED_SECONDS:
            await self.close()
        if unused > RUNS_KEPT:
            for reader in self._readers.values():
                reader.rows, reader.schedules = (), ()

    async def close(self) -> None:
        """End all readers and the fork server."""
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))
        await self._fork_server.close()

    def _reader(self, name: str) -> ReaderClient:
        """Return a new reader. Raises NoServer if the user has no account here."""
        return ReaderClient(name, account(name, 0, self._owner), self._fork_server)

    async def _of(self, owner: str) -> ReaderClient:
        """Return the reader of a current user. Raises NotFound."""
        await self._people()
        if owner not in self._readers:
            raise NotFound(_("there is no user {owner} with runs here").format(owner=owner))
        return self._readers[owner]

    async def _people(self) -> None:
        """Make readers for new users of the hub, and close those of removed users."""
        self._used_at = time.monotonic()
        if os.geteuid() != 0:
            return
        async with self._naming:  # requests that arrive together ask the hub once
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
