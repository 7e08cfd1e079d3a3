"""The CustomResourceDefinition of TFClusterSchedule, generated from the models. Pure.

The template of a schedule has the schema and the rules of a TFCluster's spec. CEL cannot check the
cron expression and the time zone; the operator reports mistakes in them in the condition Ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...schedules import ScheduleStatus
from ...spec import NAME_PATTERN, Mode, Spec, resource_form
from ...spec.names import MAX_NAME, NAME_RULE
from ...spec.resource_form import constant
from ..api.client import Object
from .crd import (
    GENERATION,
    VALIDATIONS,
    WHOLE,
    CelRule,
    Column,
    add_spec_rules,
    at_path,
    cel_matches,
    condition_schema,
    definition,
    structural_schema,
    tell_defaults,
    whole_object,
)
from .schedule_resource import KIND, ScheduleSpec

PLURAL = "tfclusterschedules"
COLUMNS: tuple[Column, ...] = (
    ("Cron", "string", ".spec.cron", "The cron expression.", 0),
    ("Zone", "string", ".spec.timeZone", "The time zone of the cron expression.", 1),
    ("Next", "string", ".status.nextTime", "The next due time.", 0),
    ("Last", "date", ".status.lastTime", "Time since the due time of the newest run.", 0),
    ("Run", "string", ".status.lastRun", "The newest run.", 0),
    ("State", "string", ".status.state", "Active, Paused or Invalid.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was created.", 0),
    ("Why", "string", ".status.conditions[?(@.message!='')].message", "The reason.", 1),
)
NAME_RULES = (
    CelRule("", f"{cel_matches('self', NAME_PATTERN)} && !self.matches(r'-[0-9]+$')", NAME_RULE),
)
_IN_GRAPH = constant(Mode.IN_GRAPH.value)
TEMPLATE_RULES = (
    CelRule(
        "",
        f"self.mode != '{_IN_GRAPH}'",
        "a schedule runs a program, and an in-graph cluster has none: a notebook is its client",
        "mode",
    ),
    CelRule(
        "",
        "!has(self.after) || size(self.after) == 0",
        "a template cannot have this field: remove it",
        "after",
    ),
    CelRule("", "!has(self.stop)", "a template cannot have this field: remove it", "stop"),
)
"""Validation rules of `spec.template.spec` that the spec of a TFCluster does not have."""
SPEC_RULES = (
    CelRule(
        "",
        "!(has(self.suspension) && has(self.suspension.locked) && self.suspension.locked) || "
        "(has(self.suspend) && self.suspend)",
        "leave it out of a schedule that is not suspended",
        "suspension",
    ),
    CelRule("cron", "self.trim() != ''", "say when, such as `0 2 * * *`"),
    CelRule(
        "backfills",
        "self.all(b, self.exists_one(c, c.number == b.number))",
        "two backfills have the same number",
    ),
    CelRule(
        "backfills[]", "self.startTime <= self.endTime", "use a time before endTime", "startTime"
    ),
)
"""Validation rules of the spec of a schedule, besides those of its template."""


def schedule_crd() -> Object:
    """Return the CustomResourceDefinition that an administrator applies."""
    return definition(KIND, PLURAL, "tfcs", COLUMNS, object_schema())


def object_schema() -> Object:
    """Return the schema of a whole TFClusterSchedule: metadata, spec and status."""
    models = resource_form.models_of(ScheduleSpec, ScheduleStatus, Spec)
    whole: Mapping[str, Any] = msgspec.json.schema(_BOTH)
    spec = structural_schema(whole, "ScheduleSpec", models=models)
    template = at_path(spec, "template.spec")
    tell_defaults(spec)
    add_spec_rules(template, is_template=True)
    for rule in TEMPLATE_RULES:
        template.setdefault(VALIDATIONS, []).append(rule.as_object())
    for rule in SPEC_RULES:
        at_path(spec, rule.at).setdefault(VALIDATIONS, []).append(rule.as_object())
    status = structural_schema(whole, "ScheduleStatus", strict=False, models=models)
    status["properties"] |= _STATUS_OF_THE_RESOURCE
    del status["required"]  # an invalid schedule lacks required fields, such as the cursor
    status["x-kubernetes-map-type"] = "atomic"
    for where in WHOLE:
        if where.startswith("spec."):
            found = at_path(template, where.removeprefix("spec."))
            found["x-kubernetes-map-type"] = "atomic"
    name = {
        "description": "The name of the schedule; its runs are called <name>-1 and so on.",
        "type": "string",
        "maxLength": MAX_NAME,
        VALIDATIONS: [rule.as_object() for rule in NAME_RULES],
    }
    return whole_object(KIND, "A TFCluster that is launched again and again.", name, spec, status)


_BOTH = tuple[ScheduleSpec, ScheduleStatus]


def _text(description: str) -> Object:
    return {"description": description, "type": "string"}


def _time(description: str) -> Object:
    return {**_text(f"{description} In RFC 3339."), "format": "date-time"}


_STATUS_OF_THE_RESOURCE: Mapping[str, Object] = {
    "observedGeneration": GENERATION,
    "observedCron": _text("The cron expression that cursorTime belongs to."),
    "observedTimeZone": _text("The time zone that cursorTime belongs to."),
    "nextTime": _time("The next due time, while the schedule is active."),
    "lastTime": _time("The due time of the newest run."),
    "lastRun": _text("The newest run."),
    "state": _text("Active, Paused or Invalid."),
    "takenRunTime": _time("The newest of spec.runTimes that was handled."),
    "takenBackfill": {
        "description": "The highest number of spec.backfills that was handled.",
        "type": "integer",
        "format": "int64",
    },
    "conditions": {
        "description": "States that other tools can wait for: Ready, Paused.",
        **condition_schema(
            "Ready: the schedule is valid, and the operator follows it. "
            "Paused: the schedule launches nothing."
        ),
    },
}
"""Status fields of the custom resource that `ScheduleStatus` lacks;
`schedule_resource.write_status` writes them.
"""
