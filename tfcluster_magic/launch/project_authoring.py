"""Writing and checking a project's file: the verbs `project init` and `project check`.

The comments of a new file explain what was found in the folder. An existing file is replaced only
on request. A check builds the request of each launch in the file, and reports every problem with
its line. Nothing is launched.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import Conflict, InvalidRequest, Problem, TFClusterError
from ..i18n import _
from ..program.sources import find_entry
from ..spec import TaskType
from . import PROJECT_FILE, LaunchRequest
from .options import fill_in_defaults, read_options
from .planning import LaunchDraft, ProgramSource, request_from_source, request_launch
from .project import (
    BY_NAME,
    Project,
    ProjectProblem,
    read_valid_part,
    schema_text,
    wrong_program,
)
from .validation import value_problems

# Checking


@dataclass(frozen=True)
class ProjectCheck:
    """The result of a check: every problem, and the request of each launch that would be accepted,
    by configuration (None for the launch without a configuration).
    """

    file: Path
    problems: tuple[Problem, ...]
    launches: dict[str | None, LaunchRequest]


def check_project(folder: Path, workspace: Path) -> ProjectCheck:
    """Check the project in `folder`, a full path. `workspace` is the folder for snapshots.

    If there are configurations, the common part need not be a valid launch by itself. A problem of
    the common part is then reported only if one of the lines of the file causes it.
    """
    try:
        project, wrong = read_valid_part(folder)
    except InvalidRequest as error:
        return ProjectCheck(folder / PROJECT_FILE, error.problems, {})
    found = {(str(each.field), str(each.allowed)): each for each in wrong}
    launches: dict[str | None, LaunchRequest] = {}
    for config in (None, *project.configurations):
        request, problems = (
            (None, _wrong_values(project, config))
            if wrong
            else _requested(project, config, workspace)
        )
        if request is not None:
            launches[config] = request
        for each in problems:
            if config is not None or not project.configurations or each.line:
                found.setdefault((str(each.field), str(each.allowed)), each)
    told = sorted(found.values(), key=lambda each: each.line)
    return ProjectCheck(folder / PROJECT_FILE, tuple(told), launches)


def _requested(
    project: Project, config: str | None, workspace: Path
) -> tuple[LaunchRequest | None, Sequence[ProjectProblem]]:
    """Return the request of a launch and no problems; if it is refused, None and the problems."""
    try:
        return request_launch(workspace, str(project.folder), config=config), ()
    except InvalidRequest as error:
        return None, [*_located(error.problems, project, config)]


def _wrong_values(project: Project, config: str | None) -> Sequence[ProjectProblem]:
    """Return the problems of single values in a file with invalid lines. Without these lines, a
    launch could have problems that the complete file does not have, so none is planned.
    """
    said = project.words(config, {})
    values = read_options(said.options, origins=said.origins)
    fill_in_defaults(values)
    problems = values.by_option(value_problems(values.spec))
    return [each for each in _located(problems, project, config) if each.line]


def _located(
    problems: Sequence[Problem], project: Project, config: str | None
) -> Iterator[ProjectProblem]:
    """Yield the problems of a launch, each with the number of its line in the file; 0 if the
    problem concerns no line.
    """
    lines = {project.origin(each): each.line for each in project.settings_of(config).values()}
    for each in problems:
        field = str(each.field)
        line = next((n for at, n in lines.items() if field == at or field.startswith(f"{at} ")), 0)
        yield ProjectProblem(field, each.value, each.allowed, each.fits, line, config or "")


# Writing

SCHEMA_FILE = Path(".tfcluster", "project.schema.json")
"""Path of the schema relative to a new project file. Snapshots leave out the folder of the schema.
"""


def project_programs(folder: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the file that a launch of the folder starts, and all programs in the folder. The first
    value is None if the folder has no such file, or if several files could be meant.

    Raises:
        InvalidRequest: the folder cannot be read.
    """
    try:
        here = sorted(e.name for e in os.scandir(folder) if e.is_file(follow_symlinks=False))
    except OSError as error:
        why = _("it cannot be read: {why}").format(why=error.strerror)
        raise InvalidRequest([Problem("folder", str(folder), why)], _headline()) from None
    programs = tuple(name for name in here if name.endswith((".py", ".sh")))
    with suppress(InvalidRequest):
        return find_entry(here, str(folder)), programs
    return None, programs


@dataclass(frozen=True)
class NewProject:
    """The result of `init_project`: the file that was written. `inferred` has a sentence for each
    fact that was inferred from the program.
    """

    file: Path
    program: str
    inferred: tuple[str, ...]


def init_project(
    folder: Path,
    workspace: Path,
    program: str | None = None,
    *,
    force: bool = False,
) -> NewProject:
    """Write `tfcluster.yaml` for the program in `folder`, and the schema for editors.

    `program` may be omitted if it is clear which file of the folder to start. The facts that a
    launch would infer from the program are written as comments, in the current language.

    Raises:
        InvalidRequest: no file or several files could be the program, or the program cannot be
            launched.
        Conflict: the file exists, and `force` is false.
        TFClusterError: the file cannot be written.
    """
    file = folder / PROJECT_FILE
    if not force and os.path.lexists(file):
        text = _(
            "{file} exists: check it with `tfcluster project check`, or replace it with --force"
        )
        raise Conflict(text.format(file=file))
    chosen, programs = project_programs(folder)
    program = program or chosen
    if program is None:
        allowed = (
            _("name the one to start: {programs}").format(programs=", ".join(programs))
            if programs
            else _(
                "there is no program in the folder: put your .py or .sh file there, then repeat "
                "the command"
            )
        )
        raise InvalidRequest([Problem("--program", None, allowed)], _headline())
    if (why := wrong_program(folder, program)) is not None:
        raise InvalidRequest([Problem("--program", program, why)], _headline())
    program = os.path.normpath(program)
    source = ProgramSource(workspace, str(folder), entry=program, folder=folder)
    made = request_from_source(LaunchDraft(read_options({})), source, None)
    inferred = tuple(str(each) for each in made.inferred)
    try:
        _write(folder / SCHEMA_FILE, schema_text(), force=True)
        _write(file, _new_text(folder, program, made, inferred), force=force)
    except FileExistsError:
        raise Conflict(_("{file} was written meanwhile").format(file=file)) from None
    except OSError as error:
        text = _("{file} cannot be written: {why}")
        raise TFClusterError(text.format(file=file, why=error.strerror)) from None
    return NewProject(file, program, inferred)


def _headline() -> str:
    return _("no project was written")


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write a file completely or not at all; without `force`, only if it does not exist."""
    if file.parent.is_symlink():
        raise FileExistsError
    file.parent.mkdir(exist_ok=True)
    handle, new = tempfile.mkstemp(prefix=".new-", dir=file.parent)
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(new, 0o644)
        if force:
            os.replace(new, file)
        else:
            os.link(new, file)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new)


def _new_text(folder: Path, program: str, made: LaunchRequest, inferred: Sequence[str]) -> str:
    """Return the text of a project file, with comments that explain the settings, in the current
    language.
    """
    name, replicas = shlex.quote(folder.name), made.spec.replicas
    head = _(
        "A project of TFCluster. `tfcluster launch {name}` runs it.\n"
        "Each key is an option of that command without its dashes: `--max-duration 2h` is\n"
        "`max-duration: 2h`. An option of the command overrides the line here.\n"
        "`tfcluster project check {name}` checks this file."
    )
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_FILE.as_posix()}",
        *_comment(head.format(name=name)),
        "",
        *_comment(_("The file of this folder that each task runs, and its own arguments")),
        f"program: {_scalar(program)}",
        "# arguments: [--epochs, 3]",
        "",
        *_comment(_("The tasks")),
        f"workers: {replicas.worker.count}",
    ]
    counts = {each: replicas.of(each).count for each in TaskType if each is not TaskType.WORKER}
    lines += [
        f"# {each.value}: {count if each is TaskType.PS else 'true'}"
        for each, count in counts.items()
        if count
    ]
    if inferred:
        lines += _comment(_("Inferred from the program; each launch infers them again:"))
        lines += [line for text in inferred for line in _comment(f"- {text}")]
    lines += ["", *_comment(_("Other options"))]
    for key, value in (("memory", "2Gi"), ("max-duration", "2h"), ("env", "{BATCH: 64}")):
        lines.append(f"# {key}: {value}  # {_(BY_NAME[key].help)}")
    lines += [
        "",
        *_comment(_("Named configurations: `--config quick` replaces lines above with these")),
        "configurations:",
        "  quick:",
        "    workers: 1",
        "    max-duration: 10m",
    ]
    return "\n".join([*lines, ""])


def _comment(text: str) -> list[str]:
    return [f"# {line}".rstrip() for line in text.splitlines()]


def _scalar(text: str) -> str:
    """Return a text as a YAML scalar that reads as the same text."""
    import yaml

    return str(yaml.safe_dump(text, allow_unicode=True, width=10_000)).splitlines()[0]
