"""The route of logs: lines of some or all tasks, streamed, searched, or downloaded as one file.

`log_streams` reads and encodes the lines in threads; this module parses the request and answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import msgspec
from tornado.iostream import StreamClosedError

from ..backends.base import LogLine
from ..errors import BackendUnavailable, InvalidRequest, Problem, TFClusterError
from ..i18n import _
from ..output.text import PLAIN, Prefixer, task_names
from ..web import problem
from .base import TFClusterHandler, abort_connection, guarded
from .log_streams import MOST_AROUND, Encode, Lines, LogStream, NumberedLine, Search, around
from .worker import READ_WITHIN

HEARTBEAT = 15.0
"""Seconds after which a silent log stream sends a heartbeat."""


class LogsHandler(TFClusterHandler):
    """`/clusters/{ref}/logs`."""

    _stream: LogStream | None = None
    _search: Search | None = None

    @guarded
    async def get(self, ref: str) -> None:
        """Answer with log lines of some or all tasks."""
        manager = self.service.manager
        tasks, tail = self.get_query_arguments("task"), self._tail()
        follow, download = self.flag("follow"), self.flag("download")
        cluster = await self.call(manager.status, ref)
        name = cluster.metadata.name
        names = tasks or task_names(cluster)
        show = Prefixer(names, PLAIN)
        part = self._part(names)

        def read() -> Lines:
            return part(manager.logs(name, tasks, follow=follow and not download, tail=tail))

        stream = self.service.streams.begin(
            cluster, read, _encode_text(show) if download else _encode_json
        )
        self._stream = stream
        try:
            first = await stream.next(READ_WITHIN)
            if download:
                self.set_header("Content-Disposition", f'attachment; filename="{name}.log"')
                await self._send_text(stream, first)
            else:
                await self._send_json(stream, first)
        except asyncio.TimeoutError:
            raise BackendUnavailable(
                _("the logs of {name} could not be read within {seconds:g} s").format(
                    name=name, seconds=READ_WITHIN
                )
            ) from None
        except StreamClosedError:
            return  # the browser has gone
        finally:
            stream.close()

    def on_connection_close(self) -> None:
        """Stop reading, because the browser has gone."""
        if self._stream is not None:
            self._stream.close()
        super().on_connection_close()

    async def _send_text(self, stream: LogStream, batch: bytes | None) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        try:
            while batch is not None:
                self.write(batch)
                await self.flush()
                batch = await stream.next(None)
        except TFClusterError as error:  # the answer has begun, so the error is sent in it
            self.write(f"[{error}]\n")
        except StreamClosedError:
            raise
        except Exception:  # noqa: BLE001 - after any error, a partial file must not look complete
            self.log_exception(*sys.exc_info())
            abort_connection(self)
            return
        self.finish(set_content_type="text/plain; charset=utf-8")

    async def _send_json(self, stream: LogStream, batch: bytes | None) -> None:
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")  # otherwise a buffering proxy delays the lines
        clock = asyncio.get_running_loop().time
        told_at = clock()
        try:
            while batch is not None:
                if batch:
                    self.write(batch)
                elif clock() - told_at >= HEARTBEAT:
                    self.write(b"{}\n")
                if batch or clock() - told_at >= HEARTBEAT:
                    await self.flush()
                    told_at = clock()
                batch = await self._next(stream, told_at + HEARTBEAT - clock())
            printed = {} if self._search is None else {"printed": self._search.printed}
            self.write(msgspec.json.encode({"end": True} | printed) + b"\n")
        except TFClusterError as error:
            self.write(msgspec.json.encode({"problem": problem(error)}) + b"\n")
        self.finish(set_content_type="application/x-ndjson")

    async def _next(self, stream: LogStream, within: float) -> bytes | None:
        try:
            return await stream.next(max(0.0, within))
        except asyncio.TimeoutError:
            return b""  # a volume hangs; the heartbeat shows the browser that the server answers

    def _part(self, tasks: list[str]) -> Callable[[Lines], Lines]:
        """Return the function that selects the lines to send: those that `?search=` or `?around=`
        requests, or all.

        Raises:
            InvalidRequest: a parameter is invalid.
        """
        text = self.get_query_argument("search", "", strip=False)
        place = self.get_query_argument("around", "")
        if (text or place) and (tail := self.get_query_argument("tail", "")):
            why = _("omit it with `search` and `around`, which read the whole log")
            raise _refused("tail", tail, why)
        if text:
            before = self._number("before")
            self._search = Search(
                text,
                tasks,
                case=self.flag("case"),
                most=self._number("most") or None,
                before=None if before is None else before / 1000,
                tensorflow_logs=not self.flag("hide_tensorflow_logs"),
                regex=self.flag("regex"),
            )
            return self._search
        if place:
            task, _colon, number = place.rpartition(":")
            if not (task and _is_number(number)):
                words = _("a task and the number of one of its lines, such as `worker-0:1200`")
                raise _refused("around", place, _("use {words}").format(words=words))
            most = min(self._number("lines") or MOST_AROUND, MOST_AROUND)
            return lambda lines: around(lines, task, int(number), most)
        return lambda lines: lines

    def _tail(self) -> int | None:
        return self._number("tail")

    def _number(self, name: str) -> int | None:
        """Return the whole number `name` of the query; None if the query does not have it.

        Raises:
            InvalidRequest: the value is not a whole number.
        """
        said = self.get_query_argument(name, "")
        if said and not _is_number(said):
            raise _refused(name, said, _("use {words}").format(words=_("a whole number >= 0")))
        return int(said) if said else None


def _is_number(said: str) -> bool:
    return said.isascii() and said.isdigit() and len(said) < 16


def _refused(name: str, said: str, why: str) -> InvalidRequest:
    return InvalidRequest([Problem(name, said, why)], _("the request was refused"))


def _encode_json(lines: list[LogLine]) -> bytes:
    return msgspec.json.encode({"lines": [_told(line) for line in lines]}) + b"\n"


def _told(line: LogLine) -> tuple[str | int | None, ...]:
    """Return a line's fields, with its time in milliseconds and, if it has one, its number."""
    at = None if line.at is None else round(line.at * 1000)
    number = (line.number,) if isinstance(line, NumberedLine) else ()
    return (line.task, line.text, at, *number)


def _encode_text(show: Prefixer) -> Encode:
    return lambda lines: "".join(f"{show(line)}\n" for line in lines).encode()


ROUTES = [(r"clusters/([^/]+)/logs", LogsHandler)]
