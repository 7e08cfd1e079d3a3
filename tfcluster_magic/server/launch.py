"""Routes that start runs: launch, rerun, dry run, and the data of the launch form.

Paths in requests and answers are relative to the root of the file browser. A launch fails within
three seconds if the backend does not answer. A dry run creates and fetches nothing. This module
defines the JSON of a launch. A program runs in its own folder, and a cell in the folder of its
notebook.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from jupyter_core.utils import ensure_async
from msgspec.structs import replace

from ..backends.base import Options
from ..errors import Conflict, InvalidRequest, Problem, TFClusterError
from ..i18n import _
from ..launch import ProjectUse, form_fields
from ..launch.launch_as_command import cell_text, launch_argv, magic_line, portable_source
from ..launch.options import BY_KEY, unknown_options
from ..launch.project import project_folder, read_project, sets_python, setting_lines
from ..lifecycle.messages import sentences
from ..program import is_url, snapshots
from ..runs.manager import last_runs
from ..schedules.options import SCHEDULE_OPTIONS
from ..spec import Model, Program, ProgramKind, Reason, TFCluster
from .base import TFClusterHandler, guarded
from .runs import RunHandler, RunsHandler
from .service import Service, browsed_file, browsed_path, files_root
from .worker import LAUNCH_WITHIN

if TYPE_CHECKING:
    # At run time, this module is imported only when the manager plans its first launch.
    from ..launch.planning import DryRun

_LOCAL_PROVISIONERS = ("", "local-provisioner")
_SERVER_PYTHONS = (
    "python",
    f"python{sys.version_info[0]}",
    "python{}.{}".format(*sys.version_info[:2]),
)
"""Names in a kernelspec that Jupyter replaces by its own Python."""


@dataclass(frozen=True)
class Kernel:
    """A kernelspec and its `python`; if tasks cannot use this Python, `why` has the reason."""

    name: str
    title: str
    python: str | None
    why: str | None = None


async def list_kernels(service: Service) -> list[Kernel]:
    """Return every kernel of the server, Python kernels first. Return an empty list if tasks run on
    other machines.
    """
    if not (await service.backend()).is_here:
        return []
    manager = service.serverapp.kernel_spec_manager
    # a kernel manager reads files, or asks a gateway in a coroutine
    specs: Mapping[str, Any] = await ensure_async(await service.worker.call(manager.get_all_specs))
    remote = _is_gateway(manager)
    found = [_kernel_from_spec(name, entry["spec"], remote) for name, entry in specs.items()]
    return sorted(found, key=lambda kernel: (kernel.python is None, kernel.name))


def default_kernel(serverapp: Any) -> str:
    """Return the name of the kernel that new notebooks get by default."""
    return str(serverapp.kernel_manager.default_kernel_name)


async def kernel_python(service: Service, name: str | None) -> str | None:
    """Return the Python of the kernel `name` or of the default kernel; None for the server's own
    Python.

    Raises:
        InvalidRequest: there is no such kernel, or tasks cannot use its Python.
    """
    known = {kernel.name: kernel for kernel in await list_kernels(service)}
    chosen = known.get(default_kernel(service.serverapp) if name is None else name)
    if name is not None and chosen is None:
        allowed = _("there is no such kernel; use one of {names}").format(
            names=", ".join(known) or _("none")
        )
        raise InvalidRequest([Problem("kernelspec", name, allowed)])
    if name is not None and chosen is not None and chosen.why is not None:
        raise InvalidRequest([Problem("kernelspec", name, chosen.why)])
    python = chosen.python if chosen is not None else None
    return None if python is None or _is_server_python(python) else python


def _kernel_from_spec(name: str, spec: Mapping[str, Any], remote: bool) -> Kernel:
    title = str(spec.get("display_name") or name)
    metadata = spec.get("metadata") or {}
    provisioner = (metadata.get("kernel_provisioner") or {}).get("provisioner_name", "")
    argv = spec.get("argv") or []
    if remote or provisioner not in _LOCAL_PROVISIONERS:
        why = _("this kernel runs elsewhere, but tasks run here: choose another kernel")
        return Kernel(name, title, None, why)
    command = str(argv[0]) if argv else ""
    if not re.fullmatch(r"(python|pypy)[\d.]*", os.path.basename(command)):
        why = _("this is not a Python kernel: choose another one, or set the Python")
        return Kernel(name, title, None, why)
    if command in _SERVER_PYTHONS:
        return Kernel(name, title, sys.executable)
    path = command if os.path.isabs(command) else shutil.which(command)
    if path is None:
        why = _("there is no {command} on the PATH: choose another kernel").format(command=command)
        return Kernel(name, title, None, why)
    return Kernel(name, title, path)


def _is_gateway(manager: Any) -> bool:
    return any(kind.__name__ == "GatewayKernelSpecManager" for kind in type(manager).__mro__)


def _is_server_python(python: str) -> bool:
    """Return whether a path is this server's Python, under any name in the same folder."""
    same_folder = os.path.dirname(python) == os.path.dirname(sys.executable)
    return same_folder and os.path.realpath(python) == os.path.realpath(sys.executable)


# -- routes


class LaunchBody(Model, frozen=True):
    """A launch. Paths are those of the file browser; `options` has the keys of `GET /options`.

    `folder` is where the program runs; the default is the program's own folder. If the program is a
    project, its file gives what is not said here, and `config` names one of its configurations.
    """

    program: str | None = None
    cell: str | None = None
    folder: str | None = None
    name: str | None = None
    arguments: tuple[str, ...] = ()
    sha256: str | None = None
    kernelspec: str | None = None
    config: str | None = None
    options: dict[str, Any] = {}


class RerunBody(Model, frozen=True):
    """Changes of a rerun. `resume` stops the run first if it is active; `advised` changes the
    options that advice on the run changes, unless `options` has them.
    """

    resume: bool = False
    advised: bool = False
    name: str | None = None
    arguments: tuple[str, ...] | None = None
    options: dict[str, Any] = {}


@dataclass(frozen=True)
class ResolvedLaunch:
    """A launch as arguments of `ClusterManager.launch`, and the problems found so far."""

    program: str | None
    words: dict[str, Any]
    problems: tuple[Problem, ...]

    @property
    def folder(self) -> Path:
        """The folder in which the program runs."""
        folder: Path = self.words["folder"]
        return folder


class LaunchRoute(TFClusterHandler):
    """The base class of routes whose request body describes a launch."""

    async def resolve(self, body: LaunchBody) -> ResolvedLaunch:
        """Return `body` as arguments of `ClusterManager.launch`."""
        problems: list[Problem] = []
        said = {key: value for key, value in body.options.items() if value not in (None, "")}
        options = {key: value for key, value in said.items() if key in BY_KEY}
        problems += unknown_options(said)
        root = files_root(self.service.serverapp)
        folder = Path.cwd() if root is None else root
        program = body.program or None
        try:
            if program is not None and not is_url(program):
                path = browsed_file(root, program, "program")
                folder = path if path == root else path.parent
            if body.folder is not None:
                folder = browsed_file(root, body.folder, "folder")
            if program is not None and not is_url(program):
                program = _relative_program(folder, path)
        except InvalidRequest as error:
            problems += error.problems
            program = None
        has_own = await self.call(sets_python, program, folder, body.config or None)
        if "python" not in options and (body.kernelspec is not None or not has_own):
            try:
                python = await kernel_python(self.service, body.kernelspec)
            except InvalidRequest as error:
                problems += error.problems
            else:
                if has_own and python is None:
                    python = sys.executable
                options |= {"python": python} if python else {}
        words = {
            "arguments": body.arguments,
            "cell": body.cell,
            "name": body.name or None,
            "sha256": body.sha256 or None,
            "folder": folder,
            "config": body.config or None,
            **options,
        }
        return ResolvedLaunch(program, words, tuple(problems))

    def argv(self, asked: ResolvedLaunch, body: LaunchBody, name: str | None) -> list[str]:
        """Return the arguments of the launch, as a user would type them in the folder
        `asked.folder`.
        """
        return launch_argv(
            asked.program or body.program or None,
            body.arguments,
            name,
            _options_of(asked),
            asked.words["sha256"],
            asked.words["config"],
        )

    async def plan_view(
        self,
        asked: ResolvedLaunch,
        made: DryRun,
        line: str,
        inputs: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Return what a form shows about a launch while the user fills it in. `inputs` is passed on
        to `form_problems`.
        """
        said = _options_of(asked)
        named = {str(problem.field) for problem in asked.problems}
        problems = [*asked.problems, *(p for p in made.problems if str(p.field) not in named)]
        return {
            "name": made.name,
            "problems": form_fields.form_problems(problems, said, inputs),
            "warnings": list(made.warnings),
            "cautions": form_fields.form_problems(made.cautions, said, inputs),
            "told": list(made.told),
            "inferred": [sentences([each]) for each in made.inferred],
            "line": line,
            "folder": self._as_browsed(asked.folder),
            "project": await self.call(_project_view, asked, asked.words["config"]),
        }

    def _as_browsed(self, folder: Path) -> str:
        """Return a folder's path in the file browser; empty for the root."""
        root = files_root(self.service.serverapp)
        path = "." if root is None else os.path.relpath(folder, root)
        return "" if path == "." else path


def _options_of(asked: ResolvedLaunch) -> dict[str, Any]:
    return {key: value for key, value in asked.words.items() if key in BY_KEY}


class LaunchHandler(RunsHandler, LaunchRoute):
    """`/clusters`: list runs, and launch one."""

    @guarded
    async def post(self) -> None:
        """Launch."""
        asked = await self.resolve(self.read(LaunchBody))
        if asked.problems:
            raise InvalidRequest(asked.problems)
        manager = self.service.manager
        # fails early if the backend does not answer; a launch itself may take long
        await self.call(manager.list)
        cluster = await self.call(
            manager.launch, asked.program, within=LAUNCH_WITHIN, **asked.words
        )
        self.service.watcher.learn(cluster)
        self.reply(self.service.view(cluster), 201)


class PlanHandler(RunHandler, LaunchRoute):
    """`/clusters/plan`: POST describes a planned launch. Any other HTTP method treats `plan` as the
    name of a cluster.
    """

    @guarded
    async def post(self, _name: str) -> None:
        """Answer with all problems of a launch, and with the command line for it."""
        body = self.read(LaunchBody)
        asked = await self.resolve(body)
        made = await self.call(self.service.manager.sketch, asked.program, **asked.words)
        words = self.argv(asked, body, asked.words["name"])
        line = magic_line(words, cell=body.cell is not None)
        self.reply(await self.plan_view(asked, made, line))


class RerunHandler(TFClusterHandler):
    """`/clusters/{ref}/rerun`."""

    @guarded
    async def post(self, ref: str) -> None:
        """Launch the snapshot of a run again."""
        body = self.read(RerunBody)
        manager = self.service.manager
        old = await self.call(manager.status, ref)
        if problems := unknown_options(body.options):
            raise InvalidRequest(problems)
        cluster = await self.call(
            manager.rerun,
            old.metadata.name,
            resume=body.resume,
            advised=body.advised,
            name=body.name,
            arguments=body.arguments,
            within=LAUNCH_WITHIN,
            **body.options,
        )
        self.service.watcher.learn(cluster)
        self.reply(self.service.view(cluster), 201)


# Conversion of a run into the values of a launch form. Notes list what the form cannot express, so
# that users know what the new run will lack.


def _left_out_of_form(cluster: TFCluster) -> list[str]:
    """Return notes about other runs to which the run refers, because the form leaves these out."""
    name, notes = cluster.metadata.name, []
    if cluster.spec.resume_from:
        text = _(
            "{name} resumed from the checkpoints of {other}; the new run starts from scratch. "
            "To resume, use “Rerun, Resuming”."
        )
        notes.append(text.format(name=name, other=cluster.spec.resume_from))
    if cluster.spec.after:
        waited = ", ".join(each.run for each in cluster.spec.after)
        text = _("{name} waited for {runs}; the new run does not wait.")
        notes.append(text.format(name=name, runs=waited))
    return notes


class FormHandler(TFClusterHandler):
    """`/clusters/{ref}/form`."""

    @guarded
    async def get(self, ref: str) -> None:
        """Answer with the form's values for launching this run again, and with notes about what
        these values do not include.
        """
        cluster = await self.call(self.service.manager.status, ref)
        if cluster.status.reason is Reason.RECORD_DAMAGED:
            raise Conflict(cluster.status.message)
        words, notes = await self.call(self._program_words, cluster)
        use = ProjectUse.of(cluster.status.inferred) if cluster.spec.program else None
        options = form_fields.form_values(replace(cluster.spec, after=()), use.keys if use else ())
        kernel = await self.kernel_of(cluster.spec.interpreter)
        if kernel is not None:
            options.pop("python", None)
        elif (await self.service.backend()).is_here:
            options.setdefault("python", sys.executable)
        config = use.config if use else None
        launch = LaunchBody(kernelspec=kernel, options=options, config=config, **words)
        self.reply(
            {
                "name": cluster.metadata.name,
                "launch": msgspec.to_builtins(launch),
                "notes": notes,
            }
        )

    async def kernel_of(self, python: str | None) -> str | None:
        """Return the kernel whose Python is `python`, preferably the default kernel; None if there
        is no such kernel.
        """
        default = default_kernel(self.service.serverapp)
        is_server = python is None or _is_server_python(python)
        kernels = await list_kernels(self.service)
        for kernel in sorted(kernels, key=lambda kernel: kernel.name != default):
            if kernel.python is not None and (
                _is_server_python(kernel.python) if is_server else kernel.python == python
            ):
                return kernel.name
        return None

    def _program_words(self, cluster: TFCluster) -> tuple[dict[str, Any], list[str]]:
        """Return the form's values for a launch like this run, without its options; and notes about
        what these values do not include.
        """
        name, program = cluster.metadata.name, cluster.spec.program
        words: dict[str, Any] = {"name": cluster.metadata.cluster}
        notes = []
        if cluster.active:
            # The new run cannot have this name, because the cluster's name is taken until the
            # active run ends.
            del words["name"]
            notes.append(
                _("{name} is still active, so the new run gets another name.").format(name=name)
            )
        notes += _left_out_of_form(cluster)
        if program is None:
            return words, [*notes, _("After the launch, connect your notebook to the new run.")]
        words["arguments"] = program.arguments
        if program.kind in (ProgramKind.CELL, ProgramKind.INLINE, ProgramKind.COMMAND):
            words["cell"] = self._text_of(program)
            if words["cell"] is None:
                notes.append(_lost_text(program).format(name=name))
        else:
            words["program"] = self._browsed_program(program)
            if not os.path.isabs(words["program"]) and portable_source(program) is None:
                text = _(
                    "The record of {name} does not say in which folder {source} was: check the "
                    "path."
                )
                notes.append(text.format(name=name, source=program.source))
            if program.kind is ProgramKind.LINK:
                words["sha256"] = program.sha256 or None
            if not program.by_hand:
                text = _(
                    "This launch uses the current version of the program. “Rerun” "
                    "uses the copy that {name} ran."
                )
                notes.append(text.format(name=name))
        folder = program.working_dir
        if folder is not None and os.path.isabs(folder):
            shown = browsed_path(self._root, folder, hidden=True)
            if shown is None:
                text = _(
                    "{name} ran in {folder}, which the file browser does not show: "
                    "the new run starts in another folder."
                )
                notes.append(text.format(name=name, folder=folder))
            elif "program" not in words or shown != os.path.dirname(words["program"]):
                words["folder"] = shown
        return words, notes

    def _text_of(self, program: Program) -> str | None:
        """Return the text of a cell from the record or the snapshot; None if the program is not a
        cell.
        """
        if program.kind is ProgramKind.COMMAND or not program.entrypoint.endswith(".py"):
            return None
        try:
            stored = self.service.manager.backend.workspace() if program.is_stored else None
            tree = snapshots.load(program, stored or Path(os.devnull))
        except TFClusterError:
            return None
        file = tree.get(program.entrypoint)
        return None if file is None else cell_text(file.content)

    def _browsed_program(self, program: Program) -> str:
        """Return the program's path in the file browser; if it has none, its path as given, or its
        URL.
        """
        path = portable_source(program)
        if path is None or is_url(path):
            return program.source
        path = os.path.expanduser(path)
        return browsed_path(self._root, path, hidden=True) or path

    @property
    def _root(self) -> Path | None:
        return files_root(self.service.serverapp)


def _lost_text(program: Program) -> str:
    if program.kind is ProgramKind.CELL:
        return _("The text of the cell is gone. Copy it from its notebook.")
    return _(
        "The form has no field for what {name} runs: use “Copy as YAML”, then "
        "`tfcluster launch --file`."
    )


async def form_description(service: Service, here: Options) -> dict[str, Any]:
    """Return the part of the answer to `GET /options` that describes the launch form: fields,
    kernels and defaults.
    """
    kernels = await list_kernels(service)
    backend = await service.backend()
    default = default_kernel(service.serverapp)
    usable = [kernel.name for kernel in kernels if kernel.python is not None]
    return {
        "form": form_fields.form_fields(backend.is_here, here.max_tasks),
        "schedule": [each.form_field() for each in SCHEDULE_OPTIONS],
        "kernelspecs": [msgspec.to_builtins(kernel) for kernel in kernels],
        "defaults": {"kernelspec": default if default in usable else None},
    }


class OptionsHandler(TFClusterHandler):
    """`/options`."""

    @guarded
    async def get(self) -> None:
        """Answer with the available options and free resources."""
        here = await self.call(self.service.manager.options)
        form = await form_description(self.service, here)
        self.reply({"options": msgspec.to_builtins(here), **form})


def _relative_program(folder: Path, path: Path) -> str:
    """Return the path relative to `folder`, in a form that cannot be mistaken for an option or
    URL.
    """
    text = os.path.relpath(path, folder)
    return f"./{text}" if text.startswith(("-", "~")) or is_url(text) else text


# Projects


def _project_view(asked: ResolvedLaunch, config: str | None) -> dict[str, Any] | None:
    """Return what a form shows of a project: the names of its configurations, and the values that
    the project gives to empty fields, by field and as a user types them. None if the program is not
    a project.
    """
    folder = project_folder(asked.program, asked.folder) if asked.program else None
    if folder is None:
        return None
    try:
        project = read_project(folder)
    except InvalidRequest:  # the plan reports the project's problems
        return {"config": config, "configurations": [], "values": {}}
    said = project.settings_of(config if config in project.configurations else None)
    return {
        "config": config,
        "configurations": list(project.configurations),
        "values": {each.option_key: setting_lines(each) for each in said.values()},
    }


class ProjectsHandler(TFClusterHandler):
    """`/projects`."""

    @guarded
    async def get(self) -> None:
        """Answer with the projects below the folder of the file browser, each with its last run."""
        root = files_root(self.service.serverapp)
        if root is None:
            self.reply({"projects": [], "complete": True})
            return
        found = await self.call(self.service.projects(root).find, self.flag("refresh"))
        known = self.service.watcher.known()
        folders = [each.folder for each in found.projects]
        runs = await self.call(last_runs, folders, [each.cluster for each in known.values()])
        projects = [
            {
                "path": str(each.folder.relative_to(root)),
                "configurations": list(each.configurations),
                "problems": [str(problem) for problem in each.problems],
                "lastRun": runs[each.folder].metadata.name if each.folder in runs else None,
            }
            for each in found.projects
        ]
        self.reply({"projects": projects, "complete": found.complete})


ROUTES = [
    (r"options", OptionsHandler),
    (r"projects", ProjectsHandler),
    (r"clusters", LaunchHandler),
    (r"clusters/(plan)", PlanHandler),
    (r"clusters/([^/]+)/form", FormHandler),
    (r"clusters/([^/]+)/rerun", RerunHandler),
]
