"""The reader of one person, as the console asks it, and the fork server that starts them all.

Promises that a question comes to an end in bounded time, that a reader which does not answer is
ended and begun again by the next question, and that what it says is taken for rows of whom it was
asked for, whatever stands in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ....errors import BackendUnavailable, TFClusterError
from ....i18n import VARIABLE, _
from ...local_servers import HIDDEN, Person
from .base import Row
from .reader import ERRORS, Answer, Ask
from .rows import bounded

WITHIN = 15.0
"""Seconds for one answer of a reader, its start on a busy machine included."""
_MOST_BYTES = 64 * 1024 * 1024
_DECODER = msgspec.json.Decoder(Answer)


class Child:
    """A reader that was started."""

    def __init__(self, pid: int, said: asyncio.StreamReader, asked: asyncio.StreamWriter) -> None:
        self.pid, self._said, self._asked = pid, said, asked

    async def ask(self, question: bytes) -> bytes:
        """One line for one line. Raises OSError."""
        self._asked.write(question + b"\n")
        await self._asked.drain()
        line = await self._said.readline()
        if not line:
            raise OSError(_("its reader has ended; the hub's log may say why"))
        return line

    async def ended(self) -> None:
        """Have nothing more to ask, and wait until it has ended."""
        self._asked.write_eof()
        with contextlib.suppress(OSError):
            while await self._said.read(_MOST_BYTES):
                pass  # what it was about to say

    def forget(self) -> None:
        """Nobody asks it any more."""
        self._asked.close()


class Nursery:
    """The process that starts readers; it is started itself when one is wanted."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._channel: socket.socket | None = None
        self._lock = asyncio.Lock()

    async def begin(self, person: Person | None) -> Child:
        """Start the reader of a person, None: of who runs the hub. Raises OSError."""
        begun = asyncio.ensure_future(self._begin(person))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:  # nobody waits any more for what was asked for already
            begun.add_done_callback(self._unwanted)
            raise

    async def _begin(self, person: Person | None) -> Child:
        wanted: dict[str, Any] = {"environ": environment(person)}
        if person is not None:
            wanted |= {"uid": person.uid, "gid": person.gid, "groups": person.groups}
        async with self._lock:
            channel = await self._opened()
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    text = msgspec.json.encode({"begin": wanted})
                    socket.send_fds(channel, [text], [theirs.fileno()])
                told = await asyncio.get_running_loop().sock_recv(channel, 100)
                if not told:
                    raise OSError(_("its reader has ended; the hub's log may say why"))
            except OSError:
                ours.close()
                await self.close()  # the next one is started by another
                raise
        said, asked = await asyncio.open_connection(sock=ours, limit=_MOST_BYTES)
        return Child(int(told), said, asked)

    def _unwanted(self, begun: asyncio.Task[Child]) -> None:
        if not begun.cancelled() and not begun.exception():
            self.end(begun.result())

    def end(self, child: Child) -> None:
        """End a reader at once, if it has not ended by itself."""
        child.forget()
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(msgspec.json.encode({"end": {"pid": child.pid}}))

    async def close(self) -> None:
        """End the process; readers go on until they are ended."""
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
                    *program("tfcluster_magic.hub.console.sites.nursery"),
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


class PersonReader:
    """The reader of one person; `person` is None for who runs the hub."""

    def __init__(self, name: str, person: Person | None, fork_server: Nursery) -> None:
        self.name = name
        self.rows: tuple[Row, ...] = ()
        self.why = ""
        self._person, self._fork_server = person, fork_server
        self._child: Child | None = None
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
            mine = (replace(bounded(row), owner=self.name) for row in answer.rows)
            self.rows, self.why = tuple(mine), ""

    async def ask(self, ask: Ask) -> Answer:
        """One answer; raises what the reader tells, or BackendUnavailable."""
        async with self._lock:
            try:
                line = await asyncio.wait_for(self._line(msgspec.json.encode(ask)), WITHIN)
                answer = _DECODER.decode(line)
            except (asyncio.TimeoutError, OSError, ValueError, asyncio.LimitOverrunError) as error:
                self._end()
                slow = isinstance(error, asyncio.TimeoutError)
                why = _("no answer within {seconds:g} s").format(seconds=WITHIN) if slow else error
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
        """End the process; it ends by itself when nobody asks any more."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
        if self._child is None:
            return
        with contextlib.suppress(asyncio.TimeoutError, OSError):
            await asyncio.wait_for(self._child.ended(), 2)
        self._end()


def program(module: str) -> list[str]:
    """The command of one of our programs."""
    return [sys.executable, "-I", "-m", module]


def environment(person: Person | None) -> Mapping[str, str]:
    """What a program of ours sees that runs as a person, None: as who runs the hub."""
    if person is None:
        return {key: text for key, text in os.environ.items() if not key.startswith(HIDDEN)}
    env = {"HOME": str(person.home), "USER": person.name, "LOGNAME": person.name}
    env["PATH"] = os.defpath
    if language := os.environ.get(VARIABLE):
        env[VARIABLE] = language
    return env
