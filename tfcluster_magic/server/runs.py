"""Routes of runs: list, status, usage, stacks, delete, and the verbs of `VERB_BODIES`. The routes
that start a run are in `launch.py`, and the route for logs is in `logs.py`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import InvalidRequest, NotFound, Problem, are_program_lines
from ..i18n import _
from ..launch.cluster_file import cluster_file_of
from ..launch.launch_as_command import notebook_cell, shell_command
from ..output.documents import to_yaml
from ..output.run_card import task_rows
from ..output.text import task_names
from ..spec import DISPLAY_NAME_LENGTH, MOST_TAGS, NOTE_LENGTH, TAG_LENGTH, Model, TFCluster
from ..usage.stacks import stack_text
from ..usage.summary import run_usage
from ..web import problem
from .base import TFClusterHandler, guarded

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
"""The models of the request bodies, by verb.

`POST /clusters/{ref}/<verb>` calls `ClusterManager.<verb>` with the fields of the body and answers
with the run. The OpenAPI document, docs/reference/api.md and the page's types are generated from
this table. The docstring of a body becomes the description of its verb there.
"""


class RunsHandler(TFClusterHandler):
    """`/clusters`."""

    @guarded
    async def get(self) -> None:
        """Answer with the runs, newest first, and the number of the last event whose change they
        already include.
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
        """Let this handler apply `verb`, a key of `VERB_BODIES`."""
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
                cluster, seen = await self.call(manager.tasks, name, counts=are_program_lines)
                found[name] = {"uid": cluster.metadata.uid, "tasks": task_rows(cluster, seen)}
        self.reply({"runs": found})


MOST_POINTS = 1000
"""Maximum points of a graph that a request may ask for."""


class UsageHandler(TFClusterHandler):
    """`/clusters/{ref}/usage`."""

    @guarded
    async def get(self, ref: str) -> None:
        """Answer with the usage of each task of a run. The answer also has the samples of the tasks
        that the query names, and, if the query requests them, graphs of all tasks.
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
            # The run's output folder cannot be read on this machine. The answer then has no
            # samples, so the page shows the tasks without graphs and does not request them again.
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
        """Return the number of points that the query requests as `name`; None if it requests none.
        Raises InvalidRequest.
        """
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
        """Answer with the stacks that were taken automatically when tasks stalled, as text."""
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


def _launch_text(cluster: TFCluster) -> dict[str, Any]:
    """Return the commands and the YAML that launch a run again. For a cell of 60 KB this takes half
    a second, so call it in a thread.
    """
    return {
        "line": notebook_cell(cluster),
        "command": shell_command(cluster),
        "yaml": to_yaml(cluster_file_of(cluster)),
        "tasks": task_names(cluster),
    }


ROUTES = [
    (r"clusters/([^/]+)/usage", UsageHandler),
    (r"clusters/([^/]+)/stacks", StacksHandler),
    (r"clusters", RunsHandler),
    (r"comparison", ComparisonHandler),
    (r"outputs", OutputsHandler),
    (r"tasks", TasksHandler),
    (r"clusters/([^/]+)", RunHandler),
    *((rf"clusters/([^/]+)/{verb}", VerbHandler, {"verb": verb}) for verb in VERB_BODIES),
]
