"""Routes of runs: list, status, logs, delete, and the verbs of `VERB_BODIES`. `launch.py` has the
routes that start a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from tornado.iostream import StreamClosedError

from ..backends.base import LogLine
from ..errors import (
    BackendUnavailable,
    InvalidRequest,
    NotFound,
    Problem,
    TFClusterError,
    is_tensorflow_log,
)
from ..i18n import _
from ..launch.cluster_file import cluster_file_of
from ..launch.launch_as_command import notebook_cell, shell_command
from ..output.documents import to_yaml
from ..output.report import task_rows
from ..output.text import PLAIN, Prefixer, task_names
from ..spec import DISPLAY_NAME_LENGTH, MOST_TAGS, NOTE_LENGTH, TAG_LENGTH, Model, TFCluster
from ..usage.stacks import stack_text
from ..usage.summary import run_usage
from ..web import problem
from .base import TFClusterHandler, abort_connection, guarded
from .log_streams import MOST_AROUND, Encode, Lines, LogStream, NumberedLine, Search, around
from .worker import READ_WITHIN

HEARTBEAT = 15.0
"""Seconds after which a silent log stream sends a heartbeat."""
GONE_WITHIN = 2.0
"""Maximum seconds that a request waits for a removal; a longer removal is reported when it ends."""


class StopBody(Model, frozen=True):
    """Stop a run; answers before it has ended."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class NoteBody(Model, frozen=True):
    """Set the note of a run; an empty text removes it."""

    text: Annotated[str, Meta(max_length=NOTE_LENGTH)]


class RenameBody(Model, frozen=True):
    """Set the display name of a run; an empty text removes it."""

    text: Annotated[str, Meta(max_length=DISPLAY_NAME_LENGTH)]


TagText = Annotated[str, Meta(max_length=4 * TAG_LENGTH)]


class TagBody(Model, frozen=True):
    """Add tags to a run, and remove others."""

    add: Annotated[tuple[TagText, ...], Meta(max_length=MOST_TAGS)] = ()
    remove: Annotated[tuple[TagText, ...], Meta(max_length=MOST_TAGS)] = ()


VERB_BODIES: Mapping[str, type[Model]] = {
    "note": NoteBody,
    "rename": RenameBody,
    "stop": StopBody,
    "tag": TagBody,
}
"""Request bodies by verb.

`POST /clusters/{ref}/<verb>` calls `ClusterManager.<verb>` with the fields of the body and answers
with the run. The OpenAPI document, docs/reference/api.md and the page's types are generated from
this table. They describe the verb by the body's docstring.
"""


class RunsHandler(TFClusterHandler):
    """`/clusters`."""

    @guarded
    async def get(self) -> None:
        """Answer with the runs, newest first, and the number of the last event that they
        include.
        """
        events, every = self.service.run_events, self.flag("all")
        at, sequence = time.time(), events.sequence
        await self.call(self.service.look_for_graphs)
        clusters = await self.call(self.service.manager.list, all_runs=every)
        failure = self.service.watcher.problem
        self.reply(
            {
                "runs": self.service.views(clusters),
                "at": at,
                "stream": events.stream,
                "sequence": sequence,
                "problem": None if failure is None else problem(failure),
            }
        )


class RunHandler(TFClusterHandler):
    """`/clusters/{ref}`."""

    @guarded
    async def get(self, ref: str) -> None:
        """Answer with a run's whole record, and with commands that launch it again."""
        cluster = await self.call(self.service.manager.status, ref)
        words = await self.call(_launch_text, cluster)
        self.reply(self.service.view(cluster, whole=True) | words)

    @guarded
    async def delete(self, ref: str) -> None:
        """Delete a run; stop it first if it has tasks, and delete it once they have ended."""
        with_logs = self.flag("logs")
        cluster = await self.meant(ref)
        check = self.service.manager.check_delete
        await self.call(check, cluster.metadata.name, with_logs=with_logs)
        if cluster.status.released_at is None:
            why = _("it is being deleted")
            cluster = await self.call(self.service.manager.stop, cluster.metadata.name, why)
            self.service.watcher.learn(cluster)
        if await self.service.removals.remove(cluster, with_logs, GONE_WITHIN):
            self.set_status(204)
            self.finish()
        else:
            self.reply(self.service.view(cluster), 202)


class VerbHandler(TFClusterHandler):
    """`/clusters/{ref}/<verb>`, for each of `VERB_BODIES`."""

    def initialize(self, verb: str) -> None:
        """Serve this verb."""
        self._verb = verb

    @guarded
    async def post(self, ref: str) -> None:
        """Apply the verb to a run, and send the new state to all pages."""
        body = self.read(VERB_BODIES[self._verb])
        name = (await self.meant(ref)).metadata.name
        verb: Callable[..., TFCluster] = getattr(self.service.manager, self._verb)
        cluster = await self.call(verb, name, **msgspec.structs.asdict(body))
        self.service.watcher.learn(cluster)
        self.reply(self.service.view(cluster))


MOST_LISTED = 50
"""Maximum runs whose tasks one request lists, because each run is a call of the backend."""
COMPARE_WITHIN = 15.0
"""Timeout in seconds of a comparison, which reads up to 50 runs one after the other."""


class TasksHandler(TFClusterHandler):
    """`/tasks`."""

    @guarded
    async def get(self) -> None:
        """Answer with the tasks of runs by run name: states, times, places and last log lines.
        Missing runs are left out, because browsers log each 404 in their console.
        """
        found = {}
        names = [*dict.fromkeys(self.get_query_arguments("run"))]
        if len(names) > MOST_LISTED:
            allowed = _("name at most {most} runs").format(most=MOST_LISTED)
            raise InvalidRequest([Problem("run", str(len(names)), allowed)])
        for name in names:
            with contextlib.suppress(NotFound):
                manager = self.service.manager
                cluster, seen = await self.call(manager.tasks, name, counts=_is_telling)
                found[name] = {"uid": cluster.metadata.uid, "tasks": task_rows(cluster, seen)}
        self.reply({"runs": found})


def _is_telling(text: str) -> bool:
    return not is_tensorflow_log(text)


MOST_POINTS = 1000
"""Maximum points of a graph in a request."""


class UsageHandler(TFClusterHandler):
    """`/clusters/{ref}/usage`."""

    @guarded
    async def get(self, ref: str) -> None:
        """Answer with what each task of a run uses, with the samples of the tasks that are named,
        and on request with graphs of all tasks.
        """
        manager, tasks = self.service.manager, tuple(self.get_query_arguments("task"))
        points, graphs = self._points("points"), self._points("graphs")
        only = tasks if self.get_query_argument("only", "") == "1" else None
        cluster = await self.call(manager.status, ref)
        if (
            only is not None
            and graphs is None
            and (why := await self.call(manager.unseen, cluster))
        ):
            # Rows of tasks are shown without lines then, and their page need not ask again.
            usage = run_usage(cluster, {}, {}, time.time(), only=frozenset())
            self.reply({"usage": msgspec.to_builtins(usage), "series": {}, "unseen": why})
            return
        usage = await self.call(manager.usage, cluster, only)
        series = await self.call(manager.usage_series, cluster, tasks, points) if tasks else {}
        columns = msgspec.to_builtins(series)
        if figures := set(self.get_query_arguments("figure")):
            columns = {
                task: {name: column for name, column in each.items() if name in figures}
                for task, each in columns.items()
            }
        told = {"usage": msgspec.to_builtins(usage), "series": columns}
        if graphs is not None:
            drawn = await self.call(manager.usage_graphs, cluster, graphs)
            told["graphs"] = msgspec.to_builtins(drawn)
        self.reply(told)

    def _points(self, name: str) -> int | None:
        """Return how many points are wanted; None if it is not said. Raises InvalidRequest."""
        text = self.get_query_argument(name, "")
        if not text:
            return None
        if text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= MOST_POINTS:
            return int(text)
        allowed = _("use a number from 1 to {most}").format(most=MOST_POINTS)
        raise InvalidRequest([Problem(name, text, allowed)])


class StacksHandler(TFClusterHandler):
    """`/clusters/{ref}/stacks`."""

    @guarded
    async def get(self, ref: str) -> None:
        """Answer with the stacks that were taken by themselves when tasks stalled, as text."""
        manager = self.service.manager
        cluster = await self.call(manager.status, ref)
        found = await self.call(manager.kept_stacks, cluster)
        self.reply({"tasks": [each.task for each in found.tasks], "text": stack_text(found)})


class ComparisonHandler(TFClusterHandler):
    """`/comparison`."""

    @guarded
    async def get(self) -> None:
        """Answer with a comparison of runs, including their progress."""
        names = self.get_query_arguments("run")
        manager, progress = self.service.manager, self.service.progress
        compared = await self.call(manager.compare, names, progress, within=COMPARE_WITHIN)
        self.reply(msgspec.to_builtins(compared))


class OutputsHandler(TFClusterHandler):
    """`/outputs`."""

    @guarded
    async def get(self) -> None:
        """Answer with notebook outputs of runs by name, each a MIME bundle."""
        names = self.get_query_arguments("run")
        self.reply({"outputs": await self.call(self.service.outputs, names)})


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
        except Exception:  # noqa: BLE001 - whatever it is: a part must not look like the whole
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
        """Return the selection of lines: `?search=`, `?around=`, or all.

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
        """Return a whole number of the query; None without it.

        Raises:
            InvalidRequest: it is not a whole number.
        """
        said = self.get_query_argument(name, "")
        if said and not _is_number(said):
            raise _refused(name, said, _("use {words}").format(words=_("a whole number >= 0")))
        return int(said) if said else None


def _is_number(said: str) -> bool:
    return said.isascii() and said.isdigit() and len(said) < 16


def _refused(name: str, said: str, why: str) -> InvalidRequest:
    return InvalidRequest([Problem(name, said, why)], _("the request was refused"))


def _launch_text(cluster: TFCluster) -> dict[str, Any]:
    """Return the commands and the YAML of a run. For a cell of 60 KB this takes half a second."""
    return {
        "line": notebook_cell(cluster),
        "command": shell_command(cluster),
        "yaml": to_yaml(cluster_file_of(cluster)),
        "tasks": task_names(cluster),
    }


def _encode_json(lines: list[LogLine]) -> bytes:
    return msgspec.json.encode({"lines": [_told(line) for line in lines]}) + b"\n"


def _told(line: LogLine) -> tuple[str | int | None, ...]:
    """Return a line's fields, with its time in milliseconds and, if it has one, its number."""
    at = None if line.at is None else round(line.at * 1000)
    number = (line.number,) if isinstance(line, NumberedLine) else ()
    return (line.task, line.text, at, *number)


def _encode_text(show: Prefixer) -> Encode:
    return lambda lines: "".join(f"{show(line)}\n" for line in lines).encode()


ROUTES = [
    (r"clusters/([^/]+)/logs", LogsHandler),
    (r"clusters/([^/]+)/usage", UsageHandler),
    (r"clusters/([^/]+)/stacks", StacksHandler),
    (r"clusters", RunsHandler),
    (r"comparison", ComparisonHandler),
    (r"outputs", OutputsHandler),
    (r"tasks", TasksHandler),
    (r"clusters/([^/]+)", RunHandler),
    *((rf"clusters/([^/]+)/{verb}", VerbHandler, {"verb": verb}) for verb in VERB_BODIES),
]
