"""Plans of launches: from option values to a `LaunchRequest`, and the dry run of a form.

Program, name, counts and limits are checked together: one error has every problem, each with the
option that caused it. This module chooses the name and takes the program's snapshot. It writes
nothing, except the snapshot of a large program, which goes into the given workspace.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from .. import program as programs
from ..errors import Conflict, InvalidRequest, Problem
from ..i18n import _
from ..program.snapshots import unpinned_messages
from ..quota.preflight import Preflight
from ..spec import (
    FOLDER_FLAGS,
    AwaitedOutcome,
    Message,
    Metadata,
    Mode,
    Phase,
    Program,
    Reason,
    Spec,
    Status,
    TaskType,
    TFCluster,
    conversion,
    names,
)
from ..spec.record_size import payload_sizes
from . import PROJECT_FILE, LaunchRequest, ProjectUse, cluster_file, validation
from .options import (
    OptionValues,
    count_path,
    fill_in_defaults,
    read_options,
    split_schedule,
)
from .project import project_folder, read_project

IN_GRAPH_NAME = "in-graph"
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """A planned launch: the run as it would be, and the reasons that prevent it."""

    cluster: TFCluster
    preflight: Preflight

    def check(self) -> None:
        """Raise the errors of `Preflight.check` if the launch has problems."""
        self.preflight.check()


def plan_launch(request: LaunchRequest, number: int, preflight: Preflight) -> Plan:
    """Return the plan of the run `number` that `request` would create."""
    metadata = Metadata(
        name=names.run_name(request.cluster, number),
        cluster=request.cluster,
        run=number,
        uid=str(uuid.UUID(int=0)),
        created_at=time.time(),
    )
    warnings = (*request.warnings, *preflight.warnings)
    status = Status(
        phase=Phase.QUEUED, reason=Reason.QUEUED, warnings=warnings, inferred=request.inferred
    )
    return Plan(TFCluster(metadata=metadata, spec=request.spec, status=status), preflight)


@dataclass(frozen=True)
class ProgramSource:
    """The program of a launch: at most one of `path` and `cell`.

    `workspace` is the folder for a snapshot that is too large for the record. `folder` is the
    user's working folder; None means the working folder of this process. If `fetch` is false, no
    URL is read. `beside_bytes` is the maximum size of a program that is a single file, including
    the small files in the same folder, which the snapshot takes along. `entry` is the file to start
    if the program is a folder.
    """

    workspace: Path

    path: str | None = None
    cell: str | None = None
    sha256: str | None = None
    arguments: Sequence[str] = ()
    folder: Path | None = None
    fetch: bool = True
    beside_bytes: int | None = None
    entry: str | None = None

    @property
    def cwd(self) -> Path:
        """The folder to which paths are relative."""
        return self.folder or _working_folder()


KnownRuns = Callable[[], Sequence[TFCluster]]


@dataclass
class LaunchDraft:
    """A launch under construction. Its problems are collected, and raised together at the end.

    `runs` returns the existing runs. `use` has the settings from a project's file. `named` is the
    name to use if the user gives no name.
    """

    values: OptionValues
    runs: KnownRuns | None = None
    warnings: list[str] = field(default_factory=list)
    use: ProjectUse | None = None
    named: str | None = None

    def attempt(self, make: Callable[[], T]) -> T | None:
        """Return the result of `make`; if it raises InvalidRequest, add its problems to the draft
        and return None.
        """
        try:
            return make()
        except InvalidRequest as error:
            self.values.problems += error.problems
            return None


def request_launch(
    workspace: Path,
    program: str | None = None,
    arguments: Sequence[str] = (),
    *,
    cell: str | None = None,
    name: str | None = None,
    sha256: str | None = None,
    file: str | cluster_file.ClusterFile | None = None,
    folder: Path | None = None,
    beside_bytes: int | None = None,
    config: str | None = None,
    runs: KnownRuns | None = None,
    **options: object,
) -> LaunchRequest:
    """Return the request for a launch; the arguments are those of `ClusterManager.launch`.

    If `program` is a project (a folder with `tfcluster.yaml`), options that are not given come from
    the project's file. If `config` is given, they also come from the configuration of this name in
    the file.

    `workspace`, `folder` and `beside_bytes` are as in `ProgramSource`. `runs` returns the existing
    runs, in which the names in `after` are looked up.

    Raises:
        InvalidRequest: the launch has problems; the error has all of them.
    """
    source = ProgramSource(
        workspace, program, cell, sha256, arguments, folder, beside_bytes=beside_bytes
    )
    started = _started_project(source, name, config, runs, options)
    if started is not None:
        if file is not None:
            allowed = _("{program} is a project with options of its own: leave out --file")
            raise InvalidRequest([Problem("--file", file, allowed.format(program=program))])
        return request_from_source(*started)
    read = cluster_file.read(file) if isinstance(file, str) else file
    read = read or cluster_file.ClusterFile(None, {})
    draft = LaunchDraft(read_options(options, read.spec), runs)
    if source.path is None and source.cell is None and read.program is not None:
        arguments = source.arguments or read.arguments
        source = replace(source, path=read.program, arguments=arguments, entry=read.entry)
    return request_from_source(draft, source, name if name is not None else read.name)


def _started_project(
    source: ProgramSource,
    name: str | None,
    config: str | None,
    runs: KnownRuns | None,
    options: Mapping[str, object],
) -> tuple[LaunchDraft, ProgramSource, str | None] | None:
    """Return the draft, the program and the name of a launch of a project; None if `source` is no
    project.

    Raises:
        InvalidRequest: the project's file has problems (all are in the error), or has no
            configuration `config`.
    """
    folder = None
    if source.path is not None and source.cell is None:
        folder = project_folder(source.path, source.cwd)
    if folder is None:
        if config is None or _is_missing(source):  # a missing program is reported later
            return None
        allowed = _("only a project has configurations: a folder with {file}")
        raise InvalidRequest([Problem("--config", config, allowed.format(file=PROJECT_FILE))])
    beside = {"name": name, "arguments": tuple(source.arguments)}
    said = read_project(folder).words(config, {**options, **beside})
    draft = LaunchDraft(read_options(said.options, origins=said.origins), runs)
    read_options(options, onto=draft.values)
    arguments = source.arguments
    if not arguments and said.arguments:
        arguments = said.arguments
        draft.values.origin["program", "arguments"] = said.origins["arguments"]
    in_graph = draft.values.get(("mode",)) == Mode.IN_GRAPH.value
    path = None if in_graph and said.entry is None else str(folder)
    derived = said.name or programs.default_name(folder)
    draft.use, draft.named = said.use, derived
    source = replace(source, path=path, entry=said.entry, arguments=arguments)
    return draft, source, name if name is not None else said.name


def request_from_source(
    draft: LaunchDraft, source: ProgramSource, name: str | None
) -> LaunchRequest:
    """Return the request for the program of `source`. Raises InvalidRequest with every problem."""
    _put_interpreter(draft, source.folder)
    findings = _put_program(draft, source)
    _refuse_missing_chief(draft, findings)
    given = fill_in_defaults(draft.values, findings.wanted)
    newest = _resolve_after(draft)
    made = _finish(draft, name, lambda: draft.named or _derive_name(draft.values, source))
    inferred = (*inferred_messages(made.spec, findings, given), *newest)
    if draft.use is not None:
        inferred = (_used(draft.use, made.spec).message(), *inferred)
    return replace(made, inferred=inferred)


def _used(use: ProjectUse, spec: Spec) -> ProjectUse:
    """Return the project's settings; if its file names no program, add the program that was found
    in its folder.
    """
    found = spec.program is not None and "program" not in use.keys
    if spec.program is not None and found:
        return replace(use, settings=(f"program: {spec.program.entrypoint}", *use.settings))
    return use if use.settings else replace(use, settings=(f"mode: {spec.mode.value}",))


def placeholder_program(source: str) -> dict[str, object]:
    """Return a placeholder for a program whose name is known but whose text is not."""
    entry = "program.sh" if source.endswith(".sh") else "program.py"
    return {"kind": "url", "source": source, "entrypoint": entry, "sha256": "0" * 64}


def request_rerun(
    old: TFCluster,
    *,
    resume: bool = False,
    name: str | None = None,
    arguments: Sequence[str] | None = None,
    runs: KnownRuns | None = None,
    **options: object,
) -> LaunchRequest:
    """Return the request for another run of the same snapshot; the arguments are those of `rerun`.

    The new run waits for other runs only if `options` contain `after`, because the runs that `old`
    waited for have ended.

    Raises:
        InvalidRequest: the launch has problems; the error has all of them.
        Conflict: the record of `old` is damaged and does not say what the run was.
    """
    if old.status.reason is Reason.RECORD_DAMAGED:
        raise Conflict(old.status.message)
    spec: dict[str, Any] = msgspec.to_builtins(old.spec)
    spec.pop("stop", None)
    spec.pop("resumeFrom", None)
    spec.pop("after", None)
    draft = LaunchDraft(read_options(options, spec), runs)
    newest = _resolve_after(draft)
    if old.spec.after and options.get("after") is None:
        text = _("{name} waited for {runs}, and this run does not: add --after to wait again")
        waited = ", ".join(each.run for each in old.spec.after)
        draft.warnings.append(text.format(name=old.metadata.name, runs=waited))
    runs_program = old.spec.program is not None
    if resume:
        draft.values.put(("resumeFrom",), old.metadata.name)
        if not runs_program:
            allowed = _("in-graph, the notebook restores its own checkpoints")
            draft.values.problems.append(Problem("--resume", old.metadata.name, allowed))
    if arguments is not None:
        if runs_program:
            draft.values.put(("program", "arguments"), list(arguments))
        else:
            draft.values.problems.append(_no_program_for(arguments))
    _put_interpreter(draft, None)
    fill_in_defaults(draft.values)
    chosen = name if name is not None else old.metadata.cluster
    made = _finish(draft, chosen, lambda: chosen)
    inferred = (*_still_inferred(old, made.spec, options), *newest)
    scheduled = old.metadata.scheduled
    if scheduled is not None:
        # The usage of a rerun by hand must not change the resources that the schedule advises.
        scheduled = msgspec.structs.replace(scheduled, advised=None)
    return replace(made, inferred=inferred, scheduled=scheduled)


def _resolve_after(draft: LaunchDraft) -> list[Message]:
    """Replace the names in `after` with exact runs, and add a problem for each run that can no
    longer succeed or end as required. Return a message for each name that was replaced by a run
    with a different name.
    """
    after = draft.values.get(("after",))
    if not after or not isinstance(after, list) or draft.runs is None:
        return []
    known = draft.runs()
    told = []
    for each in after:
        ref = str(each.get("run", ""))
        run = _run_of(ref, known)
        wrong = (
            _unknown_run(ref, known)
            if run is None
            else _why_never(run, each.get("until") or AwaitedOutcome.SUCCESS.value)
        )
        if wrong:
            draft.values.problems.append(Problem("--after", ref, wrong))
        if run is not None and run.metadata.name != ref:
            told.append(_newest(ref, run))
        each["run"] = run.metadata.name if run is not None else names.run_name("unknown", 1)
    return told


def _newest(ref: str, run: TFCluster) -> Message:
    """Say which run `ref` means, and how to name another one."""
    of, schedule = split_schedule(ref)
    if not of:
        return Message("AwaitsNewest", {"run": run.metadata.name, "name": ref})
    values = {"run": run.metadata.name, "name": schedule, "cluster": run.metadata.cluster}
    return Message("AwaitsNewestOfSchedule", values)


def _run_of(ref: str, known: Sequence[TFCluster]) -> TFCluster | None:
    """Return the run `ref`, or the newest run of the cluster or schedule that `ref` names."""
    of, schedule = split_schedule(ref)
    if of:
        of_name = [run for run in known if (s := run.metadata.scheduled) and s.schedule == schedule]
    else:
        of_name = [run for run in known if ref in (run.metadata.name, run.metadata.cluster)]
    return max(of_name, key=lambda run: run.metadata.run, default=None)


def _unknown_run(ref: str, known: Sequence[TFCluster]) -> str:
    of, schedule = split_schedule(ref)
    if of:
        text = _("there is no run of a schedule {name}; `tfcluster schedule list` shows schedules")
        return text.format(name=schedule)
    there = dict.fromkeys(name for run in known for name in (run.metadata.name,))
    if close := difflib.get_close_matches(ref, there, 3):
        text = _("there is no run {ref}; did you mean {close}?")
        return text.format(ref=ref, close=_(" or ").join(close))
    return _("there is no run {ref}; `tfcluster list --all` shows all runs").format(ref=ref)


def _why_never(run: TFCluster, until: str) -> str:
    """Return why a run can never end as `until` requires; empty if it did so, or still can."""
    name, phase = run.metadata.name, run.status.phase
    if until != AwaitedOutcome.SUCCESS.value or phase is Phase.SUCCEEDED:
        return ""
    if phase.is_final or phase is Phase.STOPPING or run.spec.stop is not None:
        text = _("{name} has not succeeded ({phase}): leave this out, or write {name}:end")
        return text.format(name=name, phase=phase.value)
    if run.spec.mode is Mode.IN_GRAPH:
        return _("{name} is in-graph and is ended by you: write {name}:end").format(name=name)
    return ""


def _put_program(draft: LaunchDraft, source: ProgramSource) -> programs.Findings:
    """Take the snapshot, if there is a program; return the findings in the program's text."""
    nothing = programs.Findings()
    values = draft.values
    if source.sha256 is not None and source.path is None:
        allowed = _("it is the checksum of a program from a URL: name the URL")
        values.problems.append(Problem("--sha256", source.sha256, allowed))
    if source.path is not None and source.cell is not None:
        allowed = _(
            "the cell is the program here: leave out the file name, or run the file with %tfcluster"
        )
        values.problems.append(Problem("program", source.path, allowed))
        return nothing
    if source.path is None and source.cell is None:
        if source.arguments and values.get(("program",)) is None:
            values.problems.append(_no_program_for(source.arguments))
        elif source.arguments:
            values.put(("program", "arguments"), list(source.arguments))
        return nothing
    if (url := source.path) is not None and not source.fetch and programs.is_url(url):
        draft.attempt(lambda: programs.check_url(url, source.sha256))
        values.put(("program",), {**placeholder_program(url), "arguments": list(source.arguments)})
        return nothing
    python = values.get(("interpreter",))
    python = python if isinstance(python, str) else None
    others = _bytes_beside_program(values)
    taken = draft.attempt(lambda: _take_snapshot(source, python, others))
    if taken is None:
        values.put(("program",), None)
        return nothing
    snapshot, warnings = taken
    draft.warnings += (*warnings, *_object_store_warnings(source.arguments))
    values.put(("program",), msgspec.to_builtins(snapshot))
    return programs.find_out(snapshot, source.workspace)


_OBJECT_STORE = re.compile(r"(?:gs|s3|s3a|hdfs|viewfs|abfss?|oss|cos)://[^\s,;]+")


def _object_store_warnings(arguments: Sequence[str]) -> list[str]:
    """Return warnings about arguments with a URL in an object store, because event files there are
    not read.
    """
    found = dict.fromkeys(url for each in arguments for url in _OBJECT_STORE.findall(str(each)))
    text = _(
        "{url}: progress and `tfcluster tensorboard` do not read event files in an object store; "
        "open the curves with `tensorboard --logdir {url}`"
    )
    return [text.format(url=url) for url in list(found)[:3]]


def _put_interpreter(draft: LaunchDraft, folder: Path | None) -> None:
    """Set the Python of the tasks to a full path, because they start in other folders."""
    said = draft.values.get(("interpreter",))
    if not isinstance(said, str) or not said.strip():
        return
    path = os.path.expanduser(said)
    if os.sep in path:
        # do not resolve links: Python finds a virtual environment by the path of the link
        found = draft.attempt(
            lambda: os.path.abspath(os.path.join(folder or _working_folder(), path))
        )
    else:
        found = shutil.which(path)
    if found is None:
        allowed = _("there is no such program on the PATH: name a Python by its path")
        draft.values.problems.append(Problem("--python", said, allowed))
        found = os.path.abspath(sys.executable)
    draft.values.put(("interpreter",), found, draft.values.origin.get(("interpreter",)))


def _bytes_beside_program(values: OptionValues) -> int:
    """Return the bytes that options other than the program take in the record; invalid options
    count as 0.
    """
    beside = ("env", "pods", "interpreter")
    said = {key: values.spec[key] for key in beside if key in values.spec}
    with suppress(msgspec.ValidationError):
        return sum(payload_sizes(conversion.convert(said, Spec)).values())
    return 0


def _take_snapshot(
    source: ProgramSource, python: str | None, others: int
) -> tuple[Program, tuple[str, ...]]:
    place: dict[str, Any] = {
        "taken_bytes": others,
        "beside_bytes": source.beside_bytes,
        "workspace": source.workspace,
        "cwd": source.cwd,
        "python": python,
    }
    if source.cell is not None:
        return programs.snapshot_cell(source.cell, arguments=source.arguments, **place)
    assert source.path is not None
    place |= {"sha256": source.sha256, "entry": source.entry}
    return programs.snapshot(source.path, arguments=source.arguments, **place)


def _is_missing(source: ProgramSource) -> bool:
    """Return whether the program is a path at which nothing is."""
    if source.path is None or programs.is_url(source.path):
        return False
    try:
        return not os.path.lexists(source.cwd / os.path.expanduser(source.path))
    except (OSError, ValueError):  # the name is too long, or has a zero byte
        return True


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        allowed = _("the folder you are in was removed: change to another one")
        raise InvalidRequest([Problem("program", None, allowed)]) from None


def _no_program_for(arguments: Sequence[str]) -> Problem:
    return Problem(
        _("arguments after --"), " ".join(arguments), _("there is no program that takes them")
    )


def _derive_name(values: OptionValues, source: ProgramSource) -> str:
    """Return a name for a launch for which the user gave no name."""
    if source.path is not None:
        return programs.default_name(source.path, source.cwd)
    if source.cell is not None:
        return "cell"
    return IN_GRAPH_NAME if values.get(("mode",)) == Mode.IN_GRAPH.value else "cluster"


def _finish(draft: LaunchDraft, name: str | None, derive: Callable[[], str]) -> LaunchRequest:
    """Return the request, after checking all that can be checked; raise all problems together."""
    values = draft.values
    refused_program = any(p.field == "program" for p in values.problems)
    before = len(values.problems)
    spec = draft.attempt(lambda: validation.validate(values.spec))
    found = values.by_option(values.problems[before:])
    if refused_program:  # a program was named, so do not also report that it is missing
        found = [p for p in found if p.field != "spec.program"]
    values.problems[before:] = [
        replace(p, field="program") if p.field == "spec.program" else p for p in found
    ]
    if name is not None and not names.is_valid(name):
        values.problems.append(Problem("--name", name, names.name_rule(name)))
    if values.problems or spec is None:
        raise InvalidRequest(values.problems)
    return LaunchRequest(
        cluster=name if name is not None else derive(),
        spec=spec,
        name_given=name is not None,
        warnings=tuple(draft.warnings),
    )


# Messages about what was inferred from the program, each with the option that overrides it.

_INFERRED_COUNTS = {
    TaskType.PS: "InferredServer",
    TaskType.CHIEF: "InferredChief",
    TaskType.EVALUATOR: "InferredEvaluator",
}
_OVERRIDES = {
    **{code: task_type.value for task_type, code in _INFERRED_COUNTS.items()},
    "NeededChief": "chief",
    "StrategyUnclear": "ps",
}
"""For each message code: the key of the option that overrides the message's number of tasks."""
_LEFT_OUT = ("FlagUnclear", "FlagUnrelated", "FlagOfSubcommand")


def inferred_messages(
    spec: Spec, findings: programs.Findings, given: Collection[TaskType]
) -> tuple[Message, ...]:
    """Return messages about the parts of `spec` that were inferred from `findings`. `given` are the
    task types that have a task only because of the findings.
    """
    if spec.mode is not Mode.BETWEEN_GRAPH:
        return ()
    told: list[Message] = [*unpinned_messages(spec.program)]
    for task_type, code in _INFERRED_COUNTS.items():
        if task_type in given:
            evidence = findings.wanted[task_type]
            certain = task_type is TaskType.CHIEF and evidence.certain
            told.append(Message("NeededChief" if certain else code, {"why": evidence.message}))
    if findings.unclear is not None and not spec.replicas.ps.count:
        told.append(Message("StrategyUnclear", {"why": findings.unclear.message}))
    if findings.collective is not None and spec.replicas.ps.count:
        told.append(Message("ServersUnused", {"why": findings.collective.message}))
    alone, program = findings.trains_alone, spec.program
    if alone is not None and spec.replicas.ps.count and program and program.imports_tensorflow:
        told.append(Message("ServerTrains", {"why": alone.message}))
    passed = spec.passed_flags
    addresses = [f for f in findings.flags if f.name in passed and f.is_address]
    if addresses:
        shown = [f"--{flag.name}" for flag in addresses]
        line, file = addresses[0].line, addresses[0].path
        told.append(
            Message(
                "FlagsPassed", {"flags": shown, "count": len(shown), "file": file, "line": line}
            )
        )
    for flag in findings.flags:
        code = flag.left_out
        if flag.name in passed and not flag.is_address:
            is_data = flag.key == FOLDER_FLAGS[0]
            code = "DataFolderPassed" if is_data else "OutputFolderPassed"
        if code and not spec.gives_flag(flag.name):
            name = f"--{flag.name}"
            told.append(Message(code, {"flag": name, "file": flag.path, "line": flag.line}))
    return tuple(told)


def _still_inferred(
    old: TFCluster, spec: Spec, options: Mapping[str, object]
) -> tuple[Message, ...]:
    """Return the inferences from the launch of `old` that still apply to its rerun with `spec`."""
    kept = [*unpinned_messages(spec.program)]
    for told in old.status.inferred:
        if told.code == "ProgramNotPinned":
            continue
        if (use := ProjectUse.of([told])) is not None:
            kept.append(_without(use, options).message())
            continue
        if (key := _OVERRIDES.get(told.code)) is not None:
            if options.get(key) is None:
                kept.append(told)
            continue
        several = told.params.get("flags")
        names = several if isinstance(several, list | tuple) else [told.params.get("flag", "")]
        flags = [str(name).removeprefix("--") for name in names]
        passed = [f"--{flag}" for flag in flags if flag in spec.passed_flags]
        if told.code in _LEFT_OUT:
            kept += [] if spec.gives_flag(flags[0]) else [told]
        elif several and passed:
            values = {**told.params, "flags": passed, "count": len(passed)}
            kept.append(Message(told.code, values))
        elif passed:
            kept.append(told)
    return tuple(kept)


def _without(use: ProjectUse, options: Mapping[str, object]) -> ProjectUse:
    """Return the settings that a project gave to a run, without those that `options` of a rerun
    replace.
    """
    gone = {key.replace("_", "-") for key, value in options.items() if value not in (None, ())}
    of = {each: each.partition(":")[0] for each in use.settings}
    stays = tuple(each for each, key in of.items() if key not in gone)
    return replace(
        use, settings=stays, replaced=tuple(sorted({*use.replaced, *(gone & {*of.values()})}))
    )


def _refuse_missing_chief(draft: LaunchDraft, findings: programs.Findings) -> None:
    """Add a problem if the program needs a chief and the launch has none."""
    values, why = draft.values, findings.wanted.get(TaskType.CHIEF)
    if why is None or not why.certain or values.get(count_path(TaskType.CHIEF)) != 0:
        return
    allowed = _(
        "the program needs a chief, or nothing trains (line {line} of {file}: {name}): "
        "launch it with --chief"
    ).format(line=why.line, file=why.path, name=why.name)
    values.problems.append(Problem("--chief", "--no-chief", allowed))


# Dry runs: the check of a launch while a user fills in its form. A dry run reads no URL and creates
# no record.


class LaunchTarget(Protocol):
    """The part of a backend that a dry run of a launch needs."""

    def preflight(self, spec: Spec) -> Preflight:
        """Return the problems that prevent a launch of `spec` now. Creates nothing."""

    def list(self) -> list[TFCluster]:
        """Return all runs that have a record."""


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run: a launch whose form is being filled in, with its problems so far.

    `name` is the given or derived name. `spec` is None if the options are invalid; in `spec`, a
    placeholder replaces a program that cannot be read. `told` and `cautions` have the same meaning
    as in `Preflight`, and `inferred` as in `LaunchRequest`.
    """

    name: str | None
    given: bool
    spec: Spec | None
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    told: tuple[str, ...] = ()
    inferred: tuple[Message, ...] = ()
    cautions: tuple[Problem, ...] = ()

    def placed(self, target: LaunchTarget) -> DryRun:
        """Return this dry run together with the problems and warnings that `target` finds."""
        verdict = Preflight() if self.spec is None else target.preflight(self.spec)
        known = target.list() if self.given else []
        taken = [_name_taken(c) for c in known if c.active and c.metadata.cluster == self.name]
        problems = (*self.problems, *taken, *verdict.problems)
        warnings = (*self.warnings, *verdict.warnings)
        cautions = (*self.cautions, *verdict.cautions)
        return replace(
            self, problems=problems, warnings=warnings, told=verdict.told, cautions=cautions
        )


def dry_run(
    workspace: Path,
    program: str | None = None,
    arguments: Sequence[str] = (),
    *,
    cell: str | None = None,
    name: str | None = None,
    sha256: str | None = None,
    folder: Path | None = None,
    beside_bytes: int | None = None,
    config: str | None = None,
    runs: KnownRuns | None = None,
    **options: object,
) -> DryRun:
    """Check a launch whose form is being filled in, and return the result. The arguments are those
    of `request_launch`, with the values that the form has so far. No program is read from a URL.
    """
    source = ProgramSource(workspace, program, cell, sha256, arguments, folder, False, beside_bytes)
    draft = LaunchDraft(read_options(options), runs)
    try:
        started = _started_project(source, name, config, runs, options)
        draft, source, name = started or (draft, source, name)
        made = request_from_source(draft, source, name)
    except InvalidRequest as error:
        spec, warned = _outline_spec(draft.values), tuple(draft.warnings)
        cautions = _program_cautions(warned, source.arguments)
        return DryRun(name, name is not None, spec, error.problems, warned, cautions=cautions)
    return DryRun(
        made.cluster,
        name is not None,
        made.spec,
        (),
        made.warnings,
        inferred=made.inferred,
        cautions=_program_cautions(made.warnings, source.arguments),
    )


def _program_cautions(warned: Sequence[str], arguments: Sequence[str]) -> tuple[Problem, ...]:
    """Return the warnings in `warned` as problems of a form. A warning about the program's
    arguments is a problem of the form's field for arguments; any other warning is a problem of the
    field for the program.
    """
    of_arguments = _object_store_warnings(arguments)
    fields = [_("arguments after --") if w in of_arguments else "program" for w in warned]
    return tuple(Problem(f, None, w) for f, w in zip(fields, warned, strict=True))


def _outline_spec(values: OptionValues) -> Spec | None:
    """Return the spec, with a placeholder for a missing program; None if the spec is invalid."""
    spec = dict(values.spec)
    if spec.get("program") is None and spec.get("mode") != Mode.IN_GRAPH.value:
        spec["program"] = placeholder_program("")
    try:
        return validation.validate(spec)
    except InvalidRequest:
        return None


def _name_taken(run: TFCluster) -> Problem:
    name, phase = run.metadata.name, run.status.phase.value.lower()
    allowed = _(
        "{name} is still {phase}: "
        "choose another name, or end it first with `tfcluster stop {wanted}`"
    ).format(name=name, phase=phase, wanted=run.metadata.cluster)
    return Problem("--name", run.metadata.cluster, allowed)
