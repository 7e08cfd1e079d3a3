"""`project`: write, check and list projects, which are folders with `tfcluster.yaml`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ..errors import InvalidRequest, Problem
from ..i18n import _
from ..output.documents import json_text
from ..output.text import age, table
from . import grammar
from .group import Command, VerbGroup
from .terminal import Terminal

FORMS = ("table", "json")


@click.group("project", cls=VerbGroup)
def project_command() -> None:
    """Write, check and list projects: folders with tfcluster.yaml, the options of their launch.

    `tfcluster launch FOLDER` launches a project; --config NAME selects a configuration.
    """


def _folder(said: str) -> Path:
    """Return the folder that the user named.

    Raises:
        InvalidRequest: there is no such folder.
    """
    folder = Path(said).expanduser().absolute()
    if folder.name == "tfcluster.yaml" and not folder.is_dir():
        folder = folder.parent
    if not folder.is_dir():
        allowed = _(
            "there is no such folder: create it with your program in it, such as train.py, or name "
            "another one"
        )
        raise InvalidRequest([Problem("FOLDER", said, allowed)], _("the request was refused"))
    return folder


def _folder_argument(command: grammar.F) -> grammar.F:
    where = click.Path(file_okay=False)
    return click.argument("folder", metavar="[FOLDER]", default=".", type=where)(command)


@click.command("init", cls=Command)
@_folder_argument
@click.option(
    "--program",
    metavar="FILE",
    type=click.Path(),
    help="file in the folder for each task to run [run.sh, main.py, __main__.py or the only .py "
    "file]",
)
@click.option("--force", is_flag=True, help="replace an existing file")
@click.pass_obj
def init_command(terminal: Terminal, folder: str, program: str | None, force: bool) -> None:
    """Write tfcluster.yaml for the program in FOLDER, with comments that explain it.

    You are asked only if several files could be the program.
    """
    where, manager = _folder(folder), terminal.manager
    if program is None and terminal.can_ask:
        from ..launch.project_authoring import project_programs

        chosen, programs = project_programs(where)
        if chosen is None and len(programs) > 1:
            question = _("Which file does each task run?")
            program = click.prompt(question, type=click.Choice(programs), err=True)
    made = manager.init_project(where, program, force=force)
    terminal.say(
        _("{file} was written: it runs {program}").format(file=made.file, program=made.program)
    )
    for text in made.inferred:
        terminal.note(text)
    terminal.note(terminal.words(_("launch it: `tfcluster launch {folder}`").format(folder=folder)))


@click.command("check", cls=Command)
@_folder_argument
@grammar.output_option(FORMS)
@click.pass_obj
def check_command(terminal: Terminal, folder: str, form: str) -> None:
    """Check the tfcluster.yaml of FOLDER: every problem with its line and what is allowed.

    Each launch in the file is planned and shown with its values; nothing is launched.
    """
    found = terminal.manager.check_project(_folder(folder))
    if form == "json":
        terminal.emit(json_text({"file": str(found.file), **_as_json(found)}))
        terminal.exit_code = InvalidRequest.exit_code if found.problems else 0
        return
    if found.problems:
        text = _("{file} was refused")
        raise InvalidRequest(found.problems, text.format(file=found.file))
    terminal.say(_("{file} has no problem").format(file=found.file))
    for config, request in found.launches.items():
        flag = "" if config is None else f" --config {config}"
        terminal.emit(f"  tfcluster launch {folder}{flag}")
        for told in request.inferred:
            terminal.emit(f"    {told}")


def _as_json(found: Any) -> dict[str, object]:
    return {
        "problems": [
            {
                "line": getattr(problem, "line", 0),
                "configuration": getattr(problem, "configuration", ""),
                "field": str(problem.field),
                "value": problem.value if isinstance(problem.value, str | int) else None,
                "allowed": str(problem.allowed),
            }
            for problem in found.problems
        ],
        "launches": [
            {
                "configuration": config or "",
                "name": request.cluster,
                "inferred": [str(told) for told in request.inferred],
            }
            for config, request in found.launches.items()
        ],
    }


@click.command("list", cls=Command)
@_folder_argument
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def list_command(terminal: Terminal, folder: str, form: str) -> None:
    """List the projects below FOLDER with their configurations and their last run.

    Links are not followed, and the search is bounded.
    """
    root, manager = _folder(folder), terminal.manager
    found = manager.projects(root)
    runs = manager.last_runs([each.folder for each in found.projects])
    if form == "json":
        rows = [
            {
                "folder": str(each.folder),
                "configurations": list(each.configurations),
                "problems": [str(problem) for problem in each.problems],
                "lastRun": runs[each.folder].metadata.name if each.folder in runs else None,
            }
            for each in found.projects
        ]
        terminal.emit(json_text({"projects": rows, "complete": found.complete}))
        return
    if not found.projects:
        text = _("No projects below {folder}. `tfcluster project init FOLDER` makes one.")
        terminal.say(text.format(folder=root))
    else:
        head = (_("PROJECT"), _("CONFIGURATIONS"), _("LAST RUN"), _("PHASE"), _("AGE"))
        cells = []
        for each in found.projects:
            run = runs.get(each.folder)
            last = ("", "", "")
            if run is not None:
                since = age(time.time() - run.metadata.created_at)
                last = (run.metadata.name, terminal.paint.phase(run.status), since)
            told = _("see `project check`") if each.problems else " ".join(each.configurations)
            cells.append((str(each.folder.relative_to(root)), told, *last))
        terminal.say(table(head, cells, terminal.paint, terminal.columns))
    if not found.complete:
        terminal.note(_("the search ended at its limit: name a subfolder"))


for _command in (init_command, check_command, list_command):
    project_command.add_command(_command)
