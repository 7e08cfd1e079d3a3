"""Conversion between a run's record and its custom resource, with conditions. Pure.

`read` returns the same record as every other backend, whether the object was written by a launch,
by kubectl or by a newer version. Unknown fields are dropped with a warning. Run number, owner,
addresses and folders follow from the name and are not stored. Conditions follow from the status.
`spec.resource_form` defines names and units of fields.

Ref: https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/custom-resources/
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from ...errors import MOST_PROBLEMS, InvalidRequest, Problem, one_line, with_few_problems
from ...i18n import _
from ...launch import validation
from ...launch.validation.schema import element_type, model_type
from ...lifecycle import messages
from ...program import snapshots
from ...spec import (
    API_VERSION,
    DISPLAY_NAME_LENGTH,
    KIND,
    MOST_TAGS,
    NOTE_LENGTH,
    Annotations,
    Message,
    Metadata,
    Model,
    Phase,
    Program,
    Reason,
    ScheduledRun,
    Spec,
    Status,
    Stop,
    TaskFailure,
    TaskType,
    TFCluster,
    Usage,
    conversion,
    names,
    resource_form,
)
from ...spec.record_size import STATUS_BYTES, json_bytes
from ...spec.spec import ASKER_LENGTH, fields_of
from ..api.client import Object, foreign_finalizers, is_deleted
from ..api.decoding import epoch_seconds
from ..api.labels import GROUP, PORT, RUN_PATTERN, host_name

LOG_PATH = "/log"
"""Mount path of claims for logs if the status names no folder."""
NOTE, DISPLAY_NAME, TAGS = f"{GROUP}/note", f"{GROUP}/display-name", f"{GROUP}/tags"
"""Annotations with the note, display name and tags of a run; tags are separated by commas."""
WARNINGS = f"{GROUP}/warnings"
"""Annotation with the warnings of a launch, as a JSON list. They are not in the status, because
only the operator may write the status.
"""
INFERRED = f"{GROUP}/inferred"
"""Annotation with the inferences of a launch from the program, as a JSON list of messages."""
SCHEDULED = f"{GROUP}/scheduled"
"""Annotation with the schedule and the due time of a run, `ScheduledRun` as JSON."""


def read(thing: Mapping[str, Any]) -> TFCluster:
    """Return the record of an object of kind TFCluster.

    Sizes are not checked if the object has a status, because an operator has then accepted it.

    Raises:
        InvalidRequest: the object's name or spec is invalid; the message lists every problem.
    """
    head, told = thing.get("metadata") or {}, list[str]()
    problems: list[Problem] = []
    name = str(head.get("name", ""))
    cluster, run = split_name(name)
    if not cluster:
        problems.append(Problem("metadata.name", name, names.RUN_NAME_RULE))
    spec = Spec()
    try:
        spec = _spec(thing.get("spec") or {}, told, is_launch=not thing.get("status"))
    except InvalidRequest as error:
        problems += [
            changed(each, field=resource_form.field_path(str(each.field)))
            for each in error.problems
        ]
    if problems:
        raise InvalidRequest(problems, Message("RecordWrong", {"name": name}))
    status = _status(thing.get("status") or {}, told)
    output = f"{LOG_PATH}/{cluster}/{run}"
    warned = [*status.warnings, *_warned(head), *_newer(told)]
    return TFCluster(
        metadata=Metadata(
            name=name,
            cluster=cluster,
            run=run,
            uid=str(head.get("uid", "")),
            created_at=epoch_seconds(head.get("creationTimestamp")) or 0.0,
            owner=str(head.get("namespace", "")),
            scheduled=read_scheduled(head),
            **asdict(read_annotations(head)),
        ),
        spec=_ending(spec, head),
        status=replace(
            status,
            addresses=task_addresses(name, spec),
            paths=status.paths or {"output": output, "logs": output},
            warnings=tuple(dict.fromkeys(warned)),
            inferred=_with_unpinned(status.inferred or _inferred(head), spec),
        ),
    )


def read_annotations(head: Mapping[str, Any]) -> Annotations:
    """Return the note, display name and tags of a run. Invalid tags, which kubectl can write, are
    skipped.
    """
    texts: Mapping[str, str] = head.get("annotations") or {}
    tags = (text.strip() for text in texts.get(TAGS, "").split(","))
    return Annotations(
        note=one_line(texts.get(NOTE, ""))[:NOTE_LENGTH],
        display_name=one_line(texts.get(DISPLAY_NAME, ""))[:DISPLAY_NAME_LENGTH],
        tags=tuple(dict.fromkeys(filter(names.is_tag, tags)))[:MOST_TAGS],
    )


def write_annotations(before: Annotations, now: Annotations) -> dict[str, str | None]:
    """Return the changes as a merge patch of an object's annotations; the value None removes an
    annotation.
    """
    texts = {
        NOTE: (before.note, now.note),
        DISPLAY_NAME: (before.display_name, now.display_name),
        TAGS: (",".join(before.tags), ",".join(now.tags)),
    }
    return {name: new or None for name, (old, new) in texts.items() if new != old}


def read_scheduled(head: Mapping[str, Any]) -> ScheduledRun | None:
    """Return the schedule and due time of a run; None if they are missing or unreadable."""
    try:
        said = str((head.get("annotations") or {})[SCHEDULED])
        found = conversion.decode(said, ScheduledRun)
    except (KeyError, msgspec.MsgspecError, RecursionError):
        return None
    return found if "\0" not in found.local else None


def read_launch_notes(head: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[Message, ...]]:
    """Return the warnings and inferences of a launch. Anybody may have written these annotations,
    so values of an unexpected type are ignored.
    """
    return tuple(_warned(head)), _inferred(head)


def read_spec(content: Mapping[str, Any]) -> Spec:
    """Return the spec of a launch from `content`, the same spec in the form of the custom resource.

    Raises:
        InvalidRequest: the spec is invalid; problems name the fields as the resource does.
    """
    try:
        return _spec(content, [], is_launch=True)
    except InvalidRequest as error:
        named = [
            changed(each, field=resource_form.field_path(str(each.field)))
            for each in error.problems
        ]
        raise InvalidRequest(named) from None


def read_status(thing: Mapping[str, Any]) -> Status:
    """Return the status of a run, even if its spec is invalid."""
    return _status(thing.get("status") or {}, [])


def write(
    cluster: str,
    run: int,
    spec: Spec,
    *,
    warnings: Sequence[str] = (),
    inferred: Sequence[Message] = (),
    scheduled: ScheduledRun | None = None,
) -> Object:
    """Return the object that a launch creates, with the warnings and inferences of the launch."""
    head: Object = {"name": names.run_name(cluster, run)}
    told = write_launch_notes(warnings, inferred)
    if scheduled is not None:
        told[SCHEDULED] = msgspec.json.encode(scheduled).decode()
    if told:
        head["annotations"] = told
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": head,
        "spec": resource_form.write(Spec, msgspec.to_builtins(spec)),
    }


def write_launch_notes(warnings: Sequence[str], inferred: Sequence[Message]) -> dict[str, str]:
    """Return the annotations with the warnings and inferences of a launch."""
    told: dict[str, str] = {}
    if warnings:
        told[WARNINGS] = json.dumps(list(warnings), ensure_ascii=False)
    if inferred:
        told[INFERRED] = msgspec.json.encode(inferred).decode()
    return told


def write_by_hand(cluster: str, run: int, spec: Spec) -> Object:
    """Return the object as a person would write it: the program's text is not in base64."""
    made = write(cluster, run, spec)
    if spec.program is not None:
        written = snapshots.readable_program(spec.program)
        made["spec"]["program"] = resource_form.write(Program, written)
    return made


def program_without_texts(spec: Spec) -> Object | None:
    """Return a spec's program in the form of the custom resource, without the texts that have no
    limit of length. The result is still a valid program: a command keeps the start of its first
    word.
    """
    program = spec.program
    if program is None:
        return None
    command = program.command and (program.command[0][:_LONGEST_WORD],)
    source = program.source[:_LONGEST_WORD]
    short = replace(
        program,
        source=source,
        command=command,
        files=None,
        **dict.fromkeys(("arguments", "executables", "flags"), ()),
    )
    return resource_form.write(Program, msgspec.to_builtins(short))


_LONGEST_WORD = 100


def write_stop(stop: Stop) -> Object:
    """Return the change of a run's spec, as a merge patch, that stops the run."""
    return {"stop": resource_form.write(Stop, msgspec.to_builtins(stop))}


def write_status(status: Status, generation: int = 0, before: Mapping[str, Any] = {}) -> Object:
    """Return the status in the form that the operator writes to the resource.

    The result lacks addresses, which follow from the name. It has conditions, the observed
    generation, and `ready` for `kubectl get`, which cannot sum counts. It takes at most
    STATUS_BYTES in etcd: the least important parts of a larger status are dropped.

    Args:
        status: the run's status.
        generation: `metadata.generation` of the spec that the status describes; 0 to leave it out.
        before: the status in the resource; its conditions keep their times.
    """
    written = _written(status, generation, before, status.message)
    for shorter in _SHORTER:
        if json_bytes(written) <= STATUS_BYTES:
            break
        status = shorter(status)
        written = _written(status, generation, before, _first_line(status.message))
    return written


def _written(status: Status, generation: int, before: Mapping[str, Any], words: str) -> Object:
    """Return a status with its conditions, whose message is `words`."""
    told = resource_form.write(Status, msgspec.to_builtins(replace(status, addresses={})))
    counts = status.counts.values()
    ready = sum(c.running + c.succeeded for c in counts)
    observed = {"observedGeneration": generation} if generation else {}
    return {
        **told,
        "ready": f"{ready}/{sum(c.desired for c in counts)}",
        **observed,
        "conditions": _conditions(status, words, observed, before.get("conditions") or ()),
    }


# -- a status that is too large --------------------------------------------------------------------
# The last output lines of twenty failed tasks can make a status too large. Texts of little
# importance, and texts that are also in logs or annotations, are removed first. Every field that
# decides about the run stays.

_FEW, _SHORT, _LINE, _SENTENCES = 10, 80, 200, 1000
"""Limits in a shortened status. The first is the number of events and of warnings. The others are
numbers of characters: of a text, of the first line of a message, and of the whole message.
"""


def _told_once(status: Status) -> Status:
    """Return the status without repetitions: an event with the message of the status keeps only the
    first line.
    """
    events = (
        replace(each, message=_first_line(each.message), messages=())
        if each.message == status.message
        else each
        for each in status.events
    )
    return replace(status, events=tuple(events))


def _first_line(text: str) -> str:
    return text[:_LINE].partition("\n")[0].removesuffix(":")


def _without_lines_of_others(status: Status) -> Status:
    return replace(
        status,
        failures=(*status.failures[:1], *map(_without_lines, status.failures[1:])),
        evaluator=status.evaluator and _without_lines(status.evaluator),
        attention=tuple(replace(each, exit=None) for each in status.attention),
    )


def _with_few_events(status: Status) -> Status:
    return replace(status, events=status.events[-_FEW:], warnings=status.warnings[:_FEW])


def _in_few_words_of_others(status: Status) -> Status:
    others = (_short(_in_few_words(each)) for each in status.failures[1:])
    return replace(
        status,
        failures=(*status.failures[:1], *others),
        evaluator=status.evaluator and _short(_in_few_words(status.evaluator)),
        attention=tuple(_short(replace(each, messages=())) for each in status.attention),
    )


def _with_problems(most: int) -> Callable[[Status], Status]:
    """Return a function that limits the problems in a status's message to `most`."""

    def shorter(status: Status) -> Status:
        parts = tuple(
            each
            for part in status.messages
            if isinstance(each := with_few_problems(part, most), Message)
        )
        return status if parts == status.messages else messages.with_messages(status, *parts)

    return shorter


def _in_short(status: Status) -> Status:
    told = replace(
        status,
        messages=(),
        failures=tuple(map(_in_few_words, status.failures[:1])),
        evaluator=status.evaluator and _in_few_words(status.evaluator),
        attention=(),
        events=tuple(replace(each, messages=()) for each in status.events[-1:]),
        reclaimed=status.reclaimed and replace(status.reclaimed, tasks=()),
        warnings=(),
        inferred=(),
    )
    words = status.message[:_SENTENCES]
    return replace(_short(replace(told, message="")), paths=status.paths, message=words)


def _in_one_line(status: Status) -> Status:
    return replace(status, message=_cut(status.message))


_SHORTER = (
    _told_once,
    _without_lines_of_others,
    _with_few_events,
    _in_few_words_of_others,
    *map(_with_problems, MOST_PROBLEMS),
    _in_short,
    _in_one_line,
)


def _without_lines(failure: TaskFailure) -> TaskFailure:
    return replace(failure, exit=replace(failure.exit, last_lines=()))


def _in_few_words(failure: TaskFailure) -> TaskFailure:
    few = replace(
        failure.exit, last_lines=(), detail_message=None, wrote=(), lost=(), found=None, uncopied=""
    )
    return replace(failure, exit=few)


_M = TypeVar("_M", bound=Model)


def _short(told: _M) -> _M:
    """Return a model with every text in it shortened."""
    return conversion.convert(_cut(msgspec.to_builtins(told)), type(told))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _SHORT else value[: _SHORT - 1] + "…"
    if isinstance(value, Mapping):
        return {key: _cut(each) for key, each in value.items()}
    return [_cut(each) for each in value] if isinstance(value, (list, tuple)) else value


def is_released(found: Mapping[str, Any]) -> bool:
    """Return whether an object's run has released all its resources."""
    return (found.get("status") or {}).get("releasedTime") is not None


def ended_at(found: Mapping[str, Any]) -> float | None:
    """Return the time at which an object's run ended, in seconds since the epoch; None if it has
    not ended.
    """
    status = found.get("status") or {}
    return epoch_seconds(status.get("completionTime") or status.get("releasedTime"))


def seconds_of(found: Mapping[str, Any], name: str) -> float | None:
    """Return a duration of the spec's lifecycle, such as `keepForSeconds`; None if it is missing or
    not a number.
    """
    said = ((found.get("spec") or {}).get("lifecycle") or {}).get(name)
    return float(said) if isinstance(said, (int, float)) else None


def usage_of(found: Mapping[str, Any]) -> Usage | None:
    """Return the time for which the tasks of an object's run have used resources; None if they
    never used resources.
    """
    said = (found.get("status") or {}).get("usage")
    try:
        return conversion.convert(resource_form.read(Usage, said), Usage) if said else None
    except (AttributeError, msgspec.ValidationError):
        return read_status(found).usage  # written by another release


# -- conditions ------------------------------------------------------------------------------------
# Ref: https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#Condition

_ADMITTED = "Admitted"
_UNSUCCESSFUL = (Phase.FAILED, Phase.STOPPED)


def _conditions(
    status: Status, words: str, observed: Mapping[str, int], before: Sequence[Mapping[str, Any]]
) -> list[Object]:
    """Return the conditions of a run; `words` explain them."""
    admitted, phase = status.started_at is not None, status.phase
    why = status.reason.value
    told = (
        (
            _ADMITTED,
            admitted,
            status.started_at,
            _ADMITTED if admitted else why,
            "" if admitted else words,
        ),
        ("Running", phase is Phase.RUNNING, status.running_at, why, words),
        ("Complete", phase is Phase.SUCCEEDED, status.finished_at, why, words),
        ("Failed", phase in _UNSUCCESSFUL, status.finished_at, why, words),
    )
    known = {each.get("type"): each for each in before}
    made = []
    for kind, holds, since, reason, message in told:
        last = known.get(kind) or {}
        changed_at = last.get("lastTransitionTime") if last.get("status") == str(holds) else None
        made.append(
            {
                "type": kind,
                "status": str(holds),
                **observed,
                "lastTransitionTime": changed_at or _second(since if holds else None),
                "reason": reason,
                "message": message if holds or kind in (_ADMITTED, "Running") else "",
            }
        )
    return made


def _second(at: float | None) -> str:
    """Return a time as `metav1.Time`; None means now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if at is None else at))


def task_addresses(name: str, spec: Spec) -> dict[str, tuple[str, ...]]:
    """Return the addresses of a run's tasks by type; evaluators have none."""
    return {
        t.value: tuple(f"{host_name(name, t, i)}:{PORT}" for i in range(count))
        for t, count in spec.replicas.counts.items()
        if t is not TaskType.EVALUATOR
    }


def split_name(name: str) -> tuple[str, int]:
    """Split an object's name into cluster and run: `digits-2` gives ("digits", 2). Any other name
    gives ("", 0).
    """
    cluster, run = names.parse_ref(name)
    if not re.fullmatch(RUN_PATTERN, name) or run is None or not names.is_valid(cluster):
        return "", 0
    return cluster, run


# -- fields of other versions ----------------------------------------------------------------------


def _spec(found: Mapping[str, Any], told: list[str], *, is_launch: bool) -> Spec:
    content = resource_form.read(Spec, found)
    stop = content.get("stop")
    if isinstance(stop, Mapping) and isinstance(by := stop.get("by"), str):
        content["stop"] = {**stop, "by": by[:ASKER_LENGTH]}  # earlier releases allowed longer names
    try:
        spec = conversion.convert(content, Spec)  # fast, because lists have thousands of runs
    except msgspec.ValidationError:
        known = _known(content, Spec, "spec", told)
        return validation.validate(known, is_launch=is_launch)
    if problems := validation.check_rules(spec, is_launch=is_launch):
        raise InvalidRequest(problems)
    return replace(spec, program=snapshots.completed(spec.program))


def _known(content: object, kind: type[Model], path: str, told: list[str]) -> Any:
    """Return `content` without fields unknown to `kind`, whose paths are added to `told`."""
    if not isinstance(content, Mapping):
        return content
    known = {field.encode_name: field for field in fields_of(kind)}
    kept: dict[str, object] = {}
    for key, value in content.items():
        where = f"{path}.{key}"
        if key not in known:
            told.append(where)
        elif value is None:  # the API server drops null, too
            continue
        elif model := model_type(known[key].type):
            kept[key] = _known(value, model, where, told)
        elif (element := element_type(known[key].type)) and isinstance(value, (list, tuple)):
            kept[key] = [_known(v, element, f"{where}[{i}]", told) for i, v in enumerate(value)]
        else:
            kept[key] = value
    return kept


def _status(content: Mapping[str, Any], told: list[str]) -> Status:
    """Return the status; values that this version does not know are dropped."""
    content = resource_form.read(Status, {k: v for k, v in content.items() if k not in _SHOWN})
    known = _known(content, Status, "status", told)
    kept: dict[str, Any] = {}
    for field in fields_of(Status):
        if field.encode_name in known:
            try:
                kept[field.name] = conversion.convert(known[field.encode_name], field.type)
            except msgspec.ValidationError:
                told.append(f"status.{field.encode_name}={known[field.encode_name]}")
    passed = next((phase for seen, phase in _PHASES if seen in kept), Phase.QUEUED)
    phase = kept.setdefault("phase", passed)
    kept.setdefault("reason", _REASONS[phase])
    return Status(**kept)


_SHOWN = ("ready", "observedGeneration", "conditions")
"""Status fields that exist only for other tools, such as kubectl."""
_PHASES = (
    ("finished_at", Phase.FAILED),
    ("running_at", Phase.RUNNING),
    ("started_at", Phase.STARTING),
)
"""If a status has a phase that this release does not know, the first field of this list that is
set in the status decides which phase replaces the unknown one.
"""
_REASONS = {
    Phase.QUEUED: Reason.QUEUED,
    Phase.STARTING: Reason.STARTING,
    Phase.RUNNING: Reason.RUNNING,
    Phase.STOPPING: Reason.STOP_REQUESTED,
    Phase.SUCCEEDED: Reason.COMPLETED,
    Phase.FAILED: Reason.START_FAILED,
    Phase.STOPPED: Reason.STOP_REQUESTED,
}


def _ending(spec: Spec, head: Mapping[str, Any]) -> Spec:
    """Return the spec; add a stop request if the record is being deleted. A finalizer may keep the
    record for ever, but the run's tasks must end.
    """
    if spec.stop is not None or not is_deleted({"metadata": head}):
        return spec
    reason = ""
    if names := foreign_finalizers({"metadata": head}):
        reason = _("the finalizer {names} keeps the record").format(names=", ".join(names))
    at = epoch_seconds(head["deletionTimestamp"]) or 0.0
    return replace(spec, stop=Stop(reason=reason, by=_("the deletion of its record"), at=at))


def _newer(told: Sequence[str]) -> list[str]:
    if not told:
        return []
    text = _("a newer version of TFCluster wrote fields that this version does not know: {fields}")
    return [text.format(fields=", ".join(sorted(told)[:10]))]


def _warned(head: Mapping[str, Any]) -> list[str]:
    """Return the warnings of the launch. Anybody may write the annotation, so a value of an
    unexpected type is ignored.
    """
    try:
        said = json.loads((head.get("annotations") or {}).get(WARNINGS, "[]"))
    except (ValueError, RecursionError):
        return []
    return [text for text in said if isinstance(text, str)] if isinstance(said, list) else []


def _with_unpinned(told: tuple[Message, ...], spec: Spec) -> tuple[Message, ...]:
    """Return the messages; if the program is not a snapshot, add messages that say why."""
    more = snapshots.unpinned_messages(spec.program)
    return (*told, *(each for each in more if each not in told))


def _inferred(head: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the inferences of the launch; empty if the annotation holds something else."""
    said = str((head.get("annotations") or {}).get(INFERRED, "[]"))
    try:
        return conversion.decode(said, tuple[Message, ...])
    except (msgspec.DecodeError, RecursionError):
        return ()
