"""Conversion between a schedule and its custom resource, TFClusterSchedule. Pure.

The owner writes the spec: rules, template, and requests (pause, runs, backfills). Only the operator
writes the status: `read` adds open requests to the status, and `write_status` records which
requests were carried out. So users need no right to write the status, and kubectl can do everything
that the verbs do.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta
from msgspec.structs import fields, replace

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...schedules import (
    MOST_BACKFILL,
    MOST_WAITING,
    Backfill,
    LaunchWords,
    Occurrence,
    OccurrenceKind,
    OccurrenceState,
    Pause,
    Schedule,
    ScheduledLaunch,
    ScheduleRules,
    ScheduleStatus,
    placeholders,
)
from ...schedules.cron import CronTimes
from ...schedules.due import MOST_BACKFILLS, kept
from ...spec import API_VERSION, Message, Mode, Model, ReplicaSet, Spec, conversion, resource_form
from ...spec.record_size import json_bytes
from ...spec.resource_form import Form, format_time, parse_time, time_form
from ...spec.spec import ASKER_LENGTH, STOP_LENGTH
from ..api.client import Object
from ..api.decoding import epoch_seconds
from ..api.labels import GROUP
from . import custom_resource

log = logging.getLogger(__name__)

KIND = "TFClusterSchedule"
MOST_SETTLED = 100
"""Maximum settled occurrences in a status; each write of a status contains all of them."""
STATUS_BYTES = 64 * 1024
"""Maximum bytes of a status. If a status would be larger, the reasons of its oldest occurrences are
left out.
"""
FUTURE = 3600.0
"""Maximum seconds by which the time of a request may lie in the future, because the requester's
clock may be ahead. A request with a later time waits.
"""
MOST_REQUESTS = 20
"""Maximum number of open requests for runs; the same limit applies to requests for backfills."""
WORDS_LENGTH = 64 * 1024
TAKEN_AT = f"{GROUP}/snapshot-time"
"""Annotation with the time at which the template's snapshot was taken."""


class Suspension(Model, frozen=True, kw_only=True):
    """The suspension of a schedule: by whom, when and why. It applies while `suspend` is true."""

    by: Annotated[str, Meta(max_length=ASKER_LENGTH, description="the person who suspended it")] = (
        ""
    )
    reason: Annotated[str, Meta(max_length=STOP_LENGTH, description="why")] = ""
    at: Annotated[float, Meta(description="time of the suspension")] | None = None
    locked: Annotated[
        bool,
        Meta(
            description=(
                "only accounts with the right `lock` on tfclusterschedules may set, change "
                "or lift it"
            )
        ),
    ] = False


class BackfillRequest(Model, frozen=True, kw_only=True):
    """A request to run earlier due times."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "requestedAt": time_form("requestTime"),
        "start": time_form("startTime"),
        "end": time_form("endTime"),
    }

    number: Annotated[
        int, Meta(ge=1, le=2**31 - 1, description="a number above those of all earlier backfills")
    ]
    requested_at: Annotated[
        float,
        Meta(
            description=(
                "time of the request: write the current time. A request from before the "
                "schedule's creation is ignored"
            )
        ),
    ]
    start: Annotated[float, Meta(description="first time of the range, included")]
    end: Annotated[float, Meta(description="last time of the range, included")]
    parallel: Annotated[
        int, Meta(ge=1, le=100, description="maximum number of its runs at the same time")
    ] = 1


class RunTemplate(Model, frozen=True, kw_only=True):
    """The template of the runs."""

    spec: Annotated[Spec, Meta(description="the spec of the TFClusters that the schedule launches")]


def _write_times(times: Sequence[float]) -> list[str]:
    return [format_time(each) for each in times]


def _read_times(times: Sequence[str]) -> list[float]:
    return [parse_time(each) for each in times]


def _times_schema(node: Object) -> Object:
    item = {"description": "Time of one request.", "type": "string", "format": "date-time"}
    return {**node, "description": f"{node['description']} In RFC 3339.", "items": item}


class ScheduleSpec(ScheduleRules, frozen=True, kw_only=True):
    """The spec of a TFClusterSchedule."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        **ScheduleRules.resource_forms,
        "runTimes": Form("runTimes", _write_times, _read_times, _times_schema),
    }

    suspend: Annotated[bool, Meta(description="launch nothing more; current runs continue")] = False
    suspension: Annotated[Suspension, Meta(description="who suspended it, and why")] | None = None
    resume_at: (
        Annotated[
            float,
            Meta(
                description=(
                    "time at which the schedule was resumed after it had suspended itself "
                    "(`pauseAfter`)"
                )
            ),
        ]
        | None
    ) = None
    run_times: Annotated[
        tuple[float, ...],
        Meta(
            max_length=MOST_REQUESTS,
            description=(
                "times at which a run besides the due times was requested: to request one, add "
                "the current time. A request from before the schedule's creation, as in a "
                "copied manifest, is ignored"
            ),
        ),
    ] = ()
    backfills: Annotated[
        tuple[BackfillRequest, ...],
        Meta(
            max_length=MOST_REQUESTS, description="ranges of earlier due times to run, oldest first"
        ),
    ] = ()
    launch_words: Annotated[
        str,
        Meta(
            max_length=WORDS_LENGTH,
            description=(
                "the launch as the user typed it, as JSON; `tfcluster schedule update` makes a new "
                "snapshot from it"
            ),
        ),
    ] = ""
    template: Annotated[RunTemplate, Meta(description="what is launched at each due time")]


_RULES = tuple(fields(ScheduleRules))
_NAMES = resource_form.other_names(ScheduleRules)
_KNOWN_OF_SPEC = frozenset(each.encode_name for each in fields(ScheduleSpec))
_KNOWN_OF_STATUS = frozenset(each.encode_name for each in fields(ScheduleStatus))
_OWN_STATUS = (
    *("conditions", "observedGeneration", "observedCron", "observedTimeZone", "nextTime"),
    *("lastTime", "lastRun", "state", "takenRunTime", "takenBackfill"),
)
"""Status fields of the custom resource that `ScheduleStatus` lacks."""
PROBLEM = "problem"
"""Key that `trim` adds to a schedule in the cache. Its value is the mistake in the schedule, or
empty. The template is checked for mistakes before it is left out of the cache.
"""


# -- reading ---------------------------------------------------------------------------------------


def read(found: Mapping[str, Any], now: float) -> Schedule:
    """Return the schedule that an object of the kind TFClusterSchedule stores. The status of the
    schedule includes the requests in the object's spec that the operator has not carried out yet.

    An invalid schedule is returned too, with the mistake in `status.problem`. If the object's
    status is unreadable, the schedule's cursor is far in the future, so that no due time runs
    twice.
    """
    head = found["metadata"]
    created = epoch_seconds(head.get("creationTimestamp")) or now
    spec, problems = read_spec(found)
    status, told = _read_status(found.get("status") or {}, created)
    if told:
        problems = [*problems, told]
    launched = Spec()
    if PROBLEM in found:
        problems = [found[PROBLEM]] if found[PROBLEM] else []
    else:
        launched, wrong = read_template(found)
        problems = [*problems, *wrong]
    if not problems:
        status = _with_requests(spec, found.get("status") or {}, status, created, now)
    warnings, inferred = custom_resource.read_launch_notes(head)
    return Schedule(
        name=str(head["name"]),
        uid=str(head.get("uid", "")),
        created_at=created,
        rules=rules_of(spec),
        launch=ScheduledLaunch(
            cluster=str(head["name"]),
            spec=launched,
            words=_read_words(spec.launch_words),
            taken_at=_taken_at(head),
            warnings=warnings,
            inferred=inferred,
        ),
        status=replace(status, problem="; ".join(problems)),
    )


def rules_of(spec: ScheduleRules) -> ScheduleRules:
    """Return the rules in a spec."""
    return ScheduleRules(**{each.name: getattr(spec, each.name) for each in _RULES})


def read_spec(found: Mapping[str, Any]) -> tuple[ScheduleSpec, list[str]]:
    """Return the spec without its template, and the mistakes in its rules."""
    said = {**(found.get("spec") or {}), "template": {"spec": {}}}
    content = resource_form.read(ScheduleSpec, said)
    content = {k: v for k, v in content.items() if k in _KNOWN_OF_SPEC and v is not None}
    try:
        spec = conversion.convert(content, ScheduleSpec)
    except msgspec.ValidationError as error:
        empty = RunTemplate(spec=Spec())
        cron = str(content.get("cron", ""))[:256]
        return ScheduleSpec(cron=cron, template=empty), [_words_of(error)]
    try:
        CronTimes(spec.cron, "UTC")
        CronTimes("@daily", spec.time_zone)
    except InvalidRequest as error:
        return spec, [_words_of(error)]
    return spec, []


_FIELDS = {"--cron": "spec.cron", "--time-zone": "spec.timeZone"}


def _words_of(error: Exception) -> str:
    """Return the mistakes in `error` as one sentence, with field names as in the resource."""
    if not isinstance(error, InvalidRequest):
        return f"spec: {error}"
    told = [replace_field(each) for each in error.problems]
    return "; ".join(map(str, told)) or str(error)


def replace_field(problem: Problem) -> Problem:
    """Return a problem that names the resource's field instead of the option."""
    field = str(problem.field)
    if field.startswith("spec.") and field not in _FIELDS.values():
        field = f"spec.template.{field}"
    return Problem(_FIELDS.get(field, field), problem.value, problem.allowed)


def read_template(found: Mapping[str, Any]) -> tuple[Spec, list[str]]:
    """Return the spec of the runs, and the mistakes in it."""
    template = (found.get("spec") or {}).get("template") or {}
    try:
        spec = custom_resource.read_spec(template.get("spec") or {})
    except InvalidRequest as error:
        return Spec(), [_words_of(error)]
    told = []
    if spec.mode is Mode.IN_GRAPH:
        allowed = _(
            "a schedule runs a program, and an in-graph cluster has none: a notebook is its client"
        )
        told.append(Problem("spec.mode", spec.mode.value, allowed))
    if spec.after or spec.stop:
        field = "spec.after" if spec.after else "spec.stop"
        told.append(Problem(field, "…", _("a template cannot have this field: remove it")))
    arguments = spec.program.arguments if spec.program else ()
    told += placeholders.problems(arguments, spec.env)
    return spec, [_words_of(InvalidRequest(told))] if told else []


def _read_status(said: Mapping[str, Any], created: float) -> tuple[ScheduleStatus, str]:
    if not said.get("cursorTime"):
        return ScheduleStatus(cursor=created), ""
    kept_fields = {key: value for key, value in said.items() if key not in _OWN_STATUS}
    content = resource_form.read(ScheduleStatus, kept_fields)
    try:
        status = conversion.convert(
            {k: v for k, v in content.items() if k in _KNOWN_OF_STATUS and v is not None},
            ScheduleStatus,
        )
    except msgspec.ValidationError as error:
        # Without a readable status, we cannot know which due times were launched. A cursor at the
        # creation time would launch all of them again, so the cursor is far in the future.
        text = _("its status cannot be read: {why}").format(why=error)
        return ScheduleStatus(cursor=float(1 << 37)), text
    return status, ""


def _read_words(text: str) -> LaunchWords:
    try:
        return conversion.decode(text, LaunchWords)
    except (msgspec.MsgspecError, RecursionError):
        return LaunchWords(folder="")


def _taken_at(head: Mapping[str, Any]) -> float:
    try:
        return parse_time(str((head.get("annotations") or {})[TAKEN_AT]))
    except (KeyError, ValueError):
        return 0.0


# -- requests in the spec --------------------------------------------------------------------------


def _with_requests(
    spec: ScheduleSpec,
    told: Mapping[str, Any],
    status: ScheduleStatus,
    created: float,
    now: float,
) -> ScheduleStatus:
    """Return the status with the spec's requests that the operator has not carried out yet.

    Requests from before the creation belong to another schedule, of which this schedule is a copy.

    Args:
        spec: the spec of the resource, which contains the requests.
        told: the status of the resource, with the requests that were carried out.
        status: the same status as a model.
        created: the time at which the schedule was created.
        now: the current time.
    """
    observed = told.get("observedCron"), told.get("observedTimeZone")
    if any(observed) and observed != (spec.cron, spec.time_zone):
        # The cron expression was changed: its due times in the past do not count as missed.
        status = replace(status, cursor=now)
    status = _paused_as_asked(spec, status, now)
    if status.paused is None:
        asked = list(_asked_runs(spec, told, status, created, now))
        status = replace(status, occurrences=(*status.occurrences, *asked))
    taken = int(told.get("takenBackfill") or 0)
    room = MOST_BACKFILLS - sum(each.finished_at is None for each in status.backfills)
    asked_for = sorted(spec.backfills, key=lambda each: each.number)
    new = [each for each in asked_for if each.number > taken and each.requested_at >= created]
    begun = [_begun(spec, each, now) for each in new[: max(0, room)]]
    return replace(status, backfills=(*status.backfills, *begun))


def _paused_as_asked(spec: ScheduleSpec, status: ScheduleStatus, now: float) -> ScheduleStatus:
    paused = status.paused
    by_itself = paused is not None and isinstance(paused.reason, Message)
    if spec.suspend:
        said = spec.suspension or Suspension()
        since = paused.at if paused is not None and not by_itself else now
        at = since if said.at is None else said.at
        return replace(
            status, paused=Pause(at=at, by=said.by, reason=said.reason, locked=said.locked)
        )
    if paused is None or (by_itself and (spec.resume_at or 0.0) <= paused.at):
        return status
    # due times during the pause are skipped; no run is launched for them later
    return replace(status, paused=None, failures=0, cursor=now)


def _asked_runs(
    spec: ScheduleSpec,
    told: Mapping[str, Any],
    status: ScheduleStatus,
    created: float,
    now: float,
) -> Iterator[Occurrence]:
    """Yield an occurrence for each run that was requested since the creation and not launched
    yet.
    """
    taken = epoch_seconds(told.get("takenRunTime")) or 0.0
    known = {each.key for each in status.occurrences}
    waiting = sum(
        each.kind is OccurrenceKind.MANUAL and not each.state.is_settled
        for each in status.occurrences
    )
    for at in sorted(set(spec.run_times)):
        if at < created or not taken < at <= now + FUTURE or waiting >= MOST_WAITING:
            continue
        waiting += 1
        due = _stored(min(at, now))
        made = Occurrence(due=due, kind=OccurrenceKind.MANUAL, changed_at=now)
        while made.key in known:
            made = replace(made, due=_stored(made.due + 2e-6))
        known.add(made.key)
        yield made


def _stored(at: float) -> float:
    """Return a time rounded as it would be after it was written to an object and read again."""
    return parse_time(format_time(at))


def _begun(spec: ScheduleSpec, asked: BackfillRequest, now: float) -> Backfill:
    """Return the backfill that carries out the request `asked`. A backfill with too many due times,
    or with none, ends at once.
    """
    times = CronTimes(spec.cron, spec.time_zone)
    end = min(asked.end, now)
    total = times.count(asked.start - 1, end, MOST_BACKFILL + 1)
    is_over = not 0 < total <= MOST_BACKFILL
    return Backfill(
        number=asked.number,
        start=asked.start,
        end=end,
        parallel=asked.parallel,
        cursor=asked.start - 1,
        total=total,
        created_at=now,
        failed=total if is_over else 0,
        finished_at=now if is_over else None,
    )


# -- writing by the owner --------------------------------------------------------------------------


def write(schedule: Schedule) -> Object:
    """Return the object of a new schedule."""
    notes = custom_resource.write_launch_notes(schedule.launch.warnings, schedule.launch.inferred)
    notes[TAKEN_AT] = format_time(schedule.launch.taken_at)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": schedule.name, "annotations": notes},
        "spec": {
            **_rules_written(schedule.rules),
            "template": {"spec": _spec_written(schedule.launch.spec)},
            "launchWords": _words_written(schedule.launch.words),
        },
    }


def _rules_written(rules: ScheduleRules) -> Object:
    return resource_form.write(ScheduleRules, msgspec.to_builtins(rules))


def _spec_written(spec: Spec) -> Object:
    return resource_form.write(Spec, msgspec.to_builtins(spec))


def _words_written(words: LaunchWords) -> str:
    return msgspec.json.encode(words).decode()


def write_change(found: Object, before: Schedule, after: Schedule) -> list[Object]:
    """Return the JSON patch that changes an object from `before`, which was read from it, to
    `after`.

    The status is not written: a change there, such as a pause, becomes a request in the spec.
    """
    spec: Object = copy.deepcopy(found["spec"])
    if after.rules != before.rules:
        for each in _RULES:
            spec.pop(_NAMES.get(each.encode_name, each.encode_name), None)
        spec |= _rules_written(after.rules)
    operations: list[Object] = [
        {
            "op": "add",
            "path": "/metadata/resourceVersion",
            "value": found["metadata"]["resourceVersion"],
        },
    ]
    if after.launch != before.launch:
        spec["template"] = {**spec["template"], "spec": _spec_written(after.launch.spec)}
        spec["launchWords"] = _words_written(after.launch.words)
        old = found["metadata"].get("annotations") or {}
        ours = (custom_resource.WARNINGS, custom_resource.INFERRED, TAKEN_AT)
        notes = {key: text for key, text in old.items() if key not in ours}
        notes |= write(after)["metadata"]["annotations"]
        operations.append({"op": "add", "path": "/metadata/annotations", "value": notes})
    _ask(spec, before, after, found.get("status") or {})
    return [*operations, {"op": "add", "path": "/spec", "value": spec}]


def _ask(spec: Object, old: Schedule, new: Schedule, told: Mapping[str, Any]) -> None:
    """Add requests to the spec for the changes from the status of `old` to that of `new`. If the
    client's clock is slow, a request for a run still gets a time after the schedule's creation and
    after the requests that were carried out before.
    """
    before, after, created = old.status, new.status, old.created_at
    if after.paused is not None and before.paused is None:
        spec["suspend"] = True
        spec["suspension"] = suspension_of(after.paused)
    elif after.paused is None and before.paused is not None:
        spec.pop("suspend", None)
        spec.pop("suspension", None)
        spec["resumeTime"] = format_time(max(after.cursor, before.paused.at + 1e-6))
    known = {each.key for each in before.occurrences}
    asked = [
        each.due
        for each in after.occurrences
        if each.kind is OccurrenceKind.MANUAL and each.key not in known
    ]
    if asked:
        taken = epoch_seconds(told.get("takenRunTime")) or 0.0
        open_ones = [
            each
            for each in spec.get("runTimes") or ()
            if taken < parse_time(each) and parse_time(each) >= created
        ]
        first = max(taken + 1e-6, created)
        spec["runTimes"] = [*open_ones, *(format_time(max(each, first)) for each in asked)]
    numbers = {each.number for each in before.backfills}
    more = [each for each in after.backfills if each.number not in numbers]
    if more:
        done = int(told.get("takenBackfill") or 0)
        requested = spec.get("backfills") or ()
        left = [
            each
            for each in requested
            if each["number"] > done and parse_time(each["requestTime"]) >= created
        ]
        highest = max([done, *(each["number"] for each in requested)])
        requests = [
            BackfillRequest(
                number=max(each.number, highest + place),
                requested_at=max(each.created_at, created),
                start=each.start,
                end=each.end,
                parallel=each.parallel,
            )
            for place, each in enumerate(more, 1)
        ]
        forms = [resource_form.write(BackfillRequest, msgspec.to_builtins(r)) for r in requests]
        spec["backfills"] = [*left, *forms]


def suspension_of(pause: Pause) -> Object:
    """Return the suspension in the spec that requests a pause."""
    said = Suspension(by=pause.by, reason=str(pause.reason), at=pause.at, locked=pause.locked)
    return resource_form.write(Suspension, msgspec.to_builtins(said))


# -- writing by the operator -----------------------------------------------------------------------


def write_status(found: Mapping[str, Any], schedule: Schedule, now: float) -> Object:
    """Return the status that the operator writes for `schedule`, which was read from `found`."""
    spec, _problems = read_spec(found)
    before: Mapping[str, Any] = found.get("status") or {}
    status = replace(
        schedule.status, occurrences=tuple(kept(schedule.status.occurrences, now, MOST_SETTLED))
    )
    if status.problem:  # keep the earlier occurrences: no request was carried out
        same = {k: v for k, v in before.items() if k not in ("conditions", "nextTime", "state")}
        same.setdefault(
            "observedCron", spec.cron
        )  # due times before a correction of the expression do not count as missed
        same.setdefault("observedTimeZone", spec.time_zone)
        return {**same, **_shown(found, schedule, before, now), "problem": status.problem[:4000]}
    made = _lean(resource_form.write(ScheduleStatus, msgspec.to_builtins(status)))
    made |= {"observedCron": spec.cron, "observedTimeZone": spec.time_zone}
    runs = [at for at in spec.run_times if status.paused is None and at <= now + FUTURE]
    # A schedule that paused itself in this turn carried out the requests for runs first, so these
    # requests count as carried out too.
    runs += [each.due for each in status.occurrences if each.kind is OccurrenceKind.MANUAL]
    if newest := max([epoch_seconds(before.get("takenRunTime")) or 0.0, *runs]):
        made["takenRunTime"] = format_time(newest)
    numbers = [int(before.get("takenBackfill") or 0), *(each.number for each in status.backfills)]
    if numbers := [each for each in numbers if each]:
        made["takenBackfill"] = max(numbers)
    made |= _shown(found, schedule, before, now)
    return _bounded(json.loads(json.dumps(made)))  # tuples become lists, as in `found`


def _shown(
    found: Mapping[str, Any], schedule: Schedule, before: Mapping[str, Any], now: float
) -> Object:
    """Return the fields of the status that people and other tools read."""
    status, generation = schedule.status, found["metadata"].get("generation")
    made: Object = {"observedGeneration": generation} if generation else {}
    ran = [each for each in status.occurrences if each.run]
    newest = max(ran, key=lambda each: (each.changed_at, each.due), default=None)
    if newest is not None:
        made |= {"lastTime": format_time(newest.due), "lastRun": newest.run}
    elif "lastTime" in before:
        made |= {key: before[key] for key in ("lastTime", "lastRun") if key in before}
    paused, words = status.paused, ""
    if status.problem:
        made["state"] = "Invalid"
    elif paused is not None:
        made["state"] = "Paused"
        words = str(paused.reason)
        words = f"{paused.by}: {words}" if paused.by and words else words or paused.by
    else:
        made["state"] = "Active"
        times = CronTimes(schedule.rules.cron, schedule.rules.time_zone)
        if (coming := times.next(max(now, status.cursor))) is not None:
            made["nextTime"] = format_time(coming).replace(".000000", "")
    told = (
        (
            "Ready",
            not status.problem,
            "InvalidSchedule" if status.problem else "Scheduled",
            status.problem,
        ),
        ("Paused", paused is not None, "Suspended" if paused else "NotSuspended", words),
    )
    made["conditions"] = list(_conditions(told, generation, before, now))
    return made


def _conditions(
    told: Sequence[tuple[str, bool, str, str]],
    generation: object,
    before: Mapping[str, Any],
    now: float,
) -> Iterator[Object]:
    known = {each.get("type"): each for each in before.get("conditions") or ()}
    for kind, holds, reason, message in told:
        last = known.get(kind) or {}
        same = last.get("status") == str(holds)
        since = last.get("lastTransitionTime") if same else None
        yield {
            "type": kind,
            "status": str(holds),
            **({"observedGeneration": generation} if generation else {}),
            "lastTransitionTime": since or f"{format_time(now)[:19]}Z",
            "reason": reason,
            "message": message[:1000],
        }


_LEFT_OUT: tuple[object, ...] = (None, "", 0, [], ())


def _lean(status: Object) -> Object:
    """Return a status without empty fields and default values."""
    made = {key: value for key, value in status.items() if value not in _LEFT_OUT}
    for key in ("occurrences", "backfills"):
        if key in made:
            made[key] = [
                {
                    name: value
                    for name, value in each.items()
                    if value not in _LEFT_OUT and (name, value) != ("attempt", 1)
                }
                for each in made[key]
            ]
    return made


def _bounded(made: Object) -> Object:
    """Return a status of at most STATUS_BYTES; reasons of the oldest occurrences are removed
    first.
    """
    told: list[Object] = made.get("occurrences") or []
    for share in (0.5, 0.9, 1.0):
        if json_bytes(made) <= STATUS_BYTES:
            break
        for each in told[: round(len(told) * share)]:
            if OccurrenceState(each["state"]).is_settled:
                each.pop("reason", None)
                each.pop("advice", None)
    return made


# -- a run of a schedule ---------------------------------------------------------------------------


def run_spec(
    found: Mapping[str, Any], times: Mapping[str, Any], replicas: ReplicaSet | None = None
) -> Object:
    """Return the spec of a run in the resource's form, with its placeholders filled in. `replicas`
    replaces the replicas of the template. All other text of the template stays unchanged and is
    checked as in any run.
    """
    spec: Object = copy.deepcopy(found["spec"]["template"].get("spec") or {})
    if replicas is not None:
        spec["replicas"] = _spec_written(Spec(replicas=replicas))["replicas"]
    if spec.get("env"):
        spec["env"] = {k: placeholders.substitute(v, times) for k, v in spec["env"].items()}
    program = spec.get("program")
    if program and program.get("arguments"):
        words = [placeholders.substitute(word, times) for word in program["arguments"]]
        spec["program"] = {**program, "arguments": words}
    return spec


def trim(found: Object, known: Object | None) -> Object:
    """Return a schedule in the form in which it is cached: its template is checked for mistakes and
    left out. The rest of the schedule is kept as JSON text, which takes a tenth of the memory that
    Python objects take. `known` is the schedule's previous state in the cache.
    """
    head = found["metadata"]
    made: Object = {"metadata": {key: head[key] for key in _CACHED if key in head}}
    if known is not None and _identity(known) == _identity(found):
        made[PROBLEM] = known[PROBLEM]
    else:
        try:
            made[PROBLEM] = "; ".join([*read_spec(found)[1], *read_template(found)[1]])
        except Exception as error:
            # A broken schedule of one tenant must not prevent reading all others.
            log.exception("%s/%s cannot be read", head.get("namespace", ""), head["name"])
            made[PROBLEM] = f"it cannot be read: {type(error).__name__}"
    spec = found.get("spec") or {}
    rules = {key: each for key, each in spec.items() if key not in ("template", "launchWords")}
    content = {"spec": rules, "status": found.get("status") or {}}
    return {**made, "content": json.dumps(content).encode()}


_CACHED = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    "deletionTimestamp",
)


def _identity(found: Mapping[str, Any]) -> tuple[object, object]:
    """Return a value that changes whenever the spec does."""
    return found["metadata"].get("uid"), found["metadata"].get("generation")


def whole(cached: Object) -> Object:
    """Return an object that `trim` cached, with its JSON text decoded and without a template."""
    return {
        "metadata": cached["metadata"],
        PROBLEM: cached[PROBLEM],
        **json.loads(cached["content"]),
    }


def with_status(schedule: Schedule, status: ScheduleStatus) -> Schedule:
    """Return the schedule with `status` as its status."""
    return schedule if schedule.status == status else replace(schedule, status=status)
