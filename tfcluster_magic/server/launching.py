"""Routes that start runs: launch, rerun, and what a form asks while it is filled in.

Promises that a path means what it means in the file browser, that a dead backend is told within
three seconds also to a launch, and that a plan creates and fetches nothing. Owns what a launch is
in JSON. A program runs in its own folder, as a notebook does; a cell in that of its notebook.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidRequest, Problem
from ..launch import form
from ..launch.command_line import magic, of_launch
from ..launch.options import BY_KEY, unknown
from ..program import is_url
from ..spec import Model
from . import kernelspecs
from .base import TFClusterHandler, guarded
from .files import files_root, inside
from .runs import RunHandler, RunsHandler
from .service import Service
from .worker import LAUNCH_WITHIN


class LaunchBody(Model, frozen=True):
    """A launch. Paths are those of the file browser; `options` have the keys of `GET /options`.

    `folder` is where the program runs; without it, a program's own folder.
    """

    program: str | None = None
    cell: str | None = None
    folder: str | None = None
    name: str | None = None
    arguments: tuple[str, ...] = ()
    sha256: str | None = None
    kernelspec: str | None = None
    options: dict[str, Any] = {}


class RerunBody(Model, frozen=True):
    """What a rerun changes."""

    resume: bool = False
    name: str | None = None
    arguments: tuple[str, ...] | None = None
    options: dict[str, Any] = {}


@dataclass(frozen=True)
class Asked:
    """A launch in the manager's words, and what is wrong with it before the manager is asked."""

    program: str | None
    words: dict[str, Any]
    problems: tuple[Problem, ...]

    @property
    def folder(self) -> Path:
        """Where the program runs."""
        folder: Path = self.words["folder"]
        return folder


class Launching(TFClusterHandler):
    """What the routes of this module share."""

    async def resolve(self, body: LaunchBody) -> Asked:
        """`body` in the words of `ClusterManager.launch`."""
        problems: list[Problem] = []
        said = {key: value for key, value in body.options.items() if value not in (None, "")}
        options = {key: value for key, value in said.items() if key in BY_KEY}
        problems += unknown(said)
        if "python" not in options:
            try:
                python = await kernelspecs.python_of(self.service, body.kernelspec)
            except InvalidRequest as error:
                problems += error.problems
            else:
                options |= {"python": python} if python else {}
        root = files_root(self.service.serverapp)
        folder = Path.cwd() if root is None else root
        program = body.program or None
        try:
            if program is not None and not is_url(program):
                path = inside(root, program, "program")
                folder = path if path == root else path.parent
            if body.folder is not None:
                folder = inside(root, body.folder, "folder")
            if program is not None and not is_url(program):
                program = _from(folder, path)
        except InvalidRequest as error:
            problems += error.problems
            program = None
        words = {
            "arguments": body.arguments,
            "cell": body.cell,
            "name": body.name or None,
            "sha256": body.sha256 or None,
            "folder": folder,
            **options,
        }
        return Asked(program, words, tuple(problems))


class LaunchHandler(RunsHandler, Launching):
    """`/clusters`: the runs, and one more."""

    @guarded
    async def post(self) -> None:
        """Launch."""
        asked = await self.resolve(self.read(LaunchBody))
        if asked.problems:
            raise InvalidRequest(asked.problems)
        manager = self.service.manager
        await self.call(manager.list)  # a launch may take long: whether anybody is there, may not
        cluster = await self.call(
            manager.launch, asked.program, within=LAUNCH_WITHIN, **asked.words
        )
        self.service.feed.learn(cluster)
        self.reply(self.service.view(cluster), 201)


class PlanHandler(RunHandler, Launching):
    """`/clusters/plan`: for what does not plan, a cluster of that name."""

    @guarded
    async def post(self, _name: str) -> None:
        """Everything that stands against a launch, and the line that says the same."""
        body = self.read(LaunchBody)
        asked = await self.resolve(body)
        made = await self.call(self.service.manager.sketch, asked.program, **asked.words)
        named = {problem.field for problem in asked.problems}
        problems = [*asked.problems, *(p for p in made.problems if p.field not in named)]
        said = {key: value for key, value in asked.words.items() if key in BY_KEY}
        words = of_launch(
            asked.program or body.program or None,
            body.arguments,
            asked.words["name"],
            said,
            asked.words["sha256"],
        )
        self.reply(
            {
                "name": made.name,
                "problems": form.told(problems, said),
                "warnings": list(made.warnings),
                "told": list(made.told),
                "line": magic(words, cell=body.cell is not None),
                "folder": self._as_browsed(asked.folder),
            }
        )

    def _as_browsed(self, folder: Path) -> str:
        """A folder as the file browser names it; the root is empty."""
        root = files_root(self.service.serverapp)
        path = "." if root is None else os.path.relpath(folder, root)
        return "" if path == "." else path


class RerunHandler(TFClusterHandler):
    """`/clusters/{ref}/rerun`."""

    @guarded
    async def post(self, ref: str) -> None:
        """Launch the snapshot of a run again."""
        body = self.read(RerunBody)
        manager = self.service.manager
        old = await self.call(manager.status, ref)
        if problems := unknown(body.options):
            raise InvalidRequest(problems)
        cluster = await self.call(
            manager.rerun,
            old.metadata.name,
            resume=body.resume,
            name=body.name,
            arguments=body.arguments,
            within=LAUNCH_WITHIN,
            **body.options,
        )
        self.service.feed.learn(cluster)
        self.reply(self.service.view(cluster), 201)


async def offer(service: Service) -> dict[str, Any]:
    """What `GET /options` says for a form: its fields, the kernels, and what is chosen at first."""
    kernels = await kernelspecs.kernels(service)
    backend = await service.backend()
    default = kernelspecs.default_name(service.serverapp)
    usable = [kernel.name for kernel in kernels if kernel.python is not None]
    return {
        "form": form.fields(backend.is_here),
        "kernelspecs": [msgspec.to_builtins(kernel) for kernel in kernels],
        "defaults": {"kernelspec": default if default in usable else None},
    }


class OptionsHandler(TFClusterHandler):
    """`/options`."""

    @guarded
    async def get(self) -> None:
        """What there is and how much of it is free."""
        here = await self.call(self.service.manager.options)
        form = await offer(self.service)
        self.reply({"options": msgspec.to_builtins(here), **form})


def _from(folder: Path, path: Path) -> str:
    """The path as it is said in `folder`, so that it is taken for nothing else."""
    text = os.path.relpath(path, folder)
    return f"./{text}" if text.startswith(("-", "~")) or is_url(text) else text


ROUTES = [
    (r"options", OptionsHandler),
    (r"clusters", LaunchHandler),
    (r"clusters/(plan)", PlanHandler),
    (r"clusters/([^/]+)/rerun", RerunHandler),
]
