"""Manifests of a run for kubectl, in one of two layouts or by a user's own template. Pure.

The output can be applied unchanged in any namespace. A run from such a manifest has no uid, no
owner and no operator. Rendering needs no cluster and reads only the template.
"""

from __future__ import annotations

import enum
import traceback
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import FileSystemLoader, TemplateError, TemplateNotFound, TemplateSyntaxError
from msgspec.structs import replace

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...spec import Mode, Status, TaskType, TFCluster
from ...spec.names import task_name
from ...spec.spec import fields_of
from ..api import labels
from . import pod_template, run_objects, templates
from .pod_template import task_files
from .policy import Policy

Object = dict[str, Any]

PER_TASK_ADDRESS_PATTERN = "{name}-{type}-{index}"
"""The host of a task in the layout with one workload for each task: the name of the task's own
Service.
"""


def objects_per_task(cluster: TFCluster, policy: Policy, *, namespace: str) -> list[Object]:
    """Return all objects of a run, with one workload for each task; tasks are in display order.
    Raises the same errors as `run_objects.objects_of_run`.
    """
    content = task_files(cluster, policy, PER_TASK_ADDRESS_PATTERN)
    found = run_objects.shared_objects(cluster, policy, content, namespace=namespace)
    for task_type, count in cluster.spec.replicas.counts.items():
        for index in range(count):
            found += _objects_of_task(cluster, policy, task_type, index, content.items, namespace)
    return found


def _objects_of_task(
    cluster: TFCluster,
    policy: Policy,
    task_type: TaskType,
    index: int,
    items: Any,
    namespace: str,
) -> list[Object]:
    run, spec = cluster.metadata.name, cluster.spec
    task = task_name(task_type, index)
    serves = task_type is TaskType.PS or spec.mode is Mode.IN_GRAPH
    selector = {**labels.run_selector(run, cluster.metadata.uid), labels.TASK: task}
    head = run_objects.object_metadata(cluster, namespace, f"{run}-{task}", (), task_type)
    pods = pod_template.build_pod_template(
        cluster, policy, task_type, items, index=index, restart="Always" if serves else "Never"
    )
    service = templates.render_object(
        "kubernetes/per-task/service.yaml.j2", metadata=head, selector=selector, port=labels.PORT
    )
    workload = templates.render_object(
        f"kubernetes/per-task/{'deployment' if serves else 'job'}.yaml.j2",
        metadata=head,
        selector=selector,
        retries=spec.lifecycle.restarts + spec.lifecycle.heals,
        pod=pods,
    )
    return [workload] if task_type is TaskType.EVALUATOR else [service, workload]


# The native layout, and users' own templates.


class ManifestLayout(str, enum.Enum):
    """The form in which a run is rendered as objects."""

    NATIVE = "native"
    PER_TASK = "per-task"


def render_manifests(cluster: TFCluster, policy: Policy, layout: ManifestLayout) -> str:
    """Return the manifests as a stream of YAML documents.

    Raises:
        InvalidRequest: the run's files are too large, or the program is so large that it needs a
            workspace, and the run has none.
        TFClusterError: the program in the record was altered.
    """
    paper = without_identity(cluster)
    found = native_objects(paper, policy)
    if layout is ManifestLayout.PER_TASK:
        found = objects_per_task(paper, policy, namespace="")
    return templates.yaml_documents(found)


def native_objects(paper: TFCluster, policy: Policy) -> list[Object]:
    """Return the objects that the operator creates, including the parameter servers' Job."""
    ps = run_objects.ps_job(paper, policy, namespace="", owners=())
    return [*run_objects.objects_of_run(paper, policy, namespace=""), *([ps] if ps else [])]


def without_identity(cluster: TFCluster) -> TFCluster:
    """Return the run without uid, owner, times and stop request."""
    head = replace(cluster.metadata, uid="", owner="", created_at=0.0)
    status = Status(phase=cluster.status.phase, reason=cluster.status.reason)
    return replace(cluster, metadata=head, spec=replace(cluster.spec, stop=None), status=status)


def render_template(cluster: TFCluster, policy: Policy, file: Path) -> str:
    """Render the user's template in `file`; docs/how-to/kubernetes-render.md lists its variables.

    Raises:
        InvalidRequest: the template cannot be read or rendered; the message has file and line.
            Other errors are those of `render_manifests`.
    """
    paper = without_identity(cluster)
    names = _template_names(paper, policy)
    made = templates.template_environment(FileSystemLoader(file.parent))
    try:
        return made.get_template(file.name).render(names)
    except TemplateNotFound as error:
        raise _refused(str(file.parent / str(error.name)), _("there is no such file")) from None
    except TemplateSyntaxError as error:
        raise _refused(f"{error.filename or file}:{error.lineno}", str(error.message)) from None
    except OSError as error:
        raise _refused(str(file), str(error.strerror)) from None
    except UnicodeDecodeError:
        raise _refused(str(file), _("it is not UTF-8 text")) from None
    except Exception as error:  # noqa: BLE001 - a user's template may raise any error
        raise _refused(_where(error, file), _said(error)) from None


def _refused(where: str, why: str) -> InvalidRequest:
    return InvalidRequest([Problem("--template", where, why)], _("the template cannot be used"))


def _said(error: Exception) -> str:
    text = str(error)
    return text if isinstance(error, TemplateError) else f"{type(error).__name__}: {text}"


def _where(error: Exception, file: Path) -> str:
    """Return file and line of the template's mistake, which Jinja puts into the traceback."""
    folder = str(file.parent)
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(folder)
    ]
    return lines[-1] if lines else str(file)


def _template_names(paper: TFCluster, policy: Policy) -> Object:
    """Return the variables that a template can use, as JSON-like data."""
    head, spec = paper.metadata, paper.spec
    content = task_files(paper, policy)
    found: Object = {
        "cluster": _plain(paper),
        "policy": _plain(policy),
        "name": head.name,
        "port": labels.PORT,
        "labels": labels.run_labels(head.name, ""),
        "selector": labels.run_selector(head.name, ""),
        "files": {
            "texts": dict(content.texts),
            "binaries": dict(content.binaries),
            "items": [*map(dict, content.items)],
        },
        "tasks": [],
        "objects": native_objects(paper, policy),
    }
    for task_type, count in spec.replicas.counts.items():
        for index in range(count):
            found["tasks"].append(_task_names(paper, policy, task_type, index, content.items))
    return found


def _plain(value: Any) -> Any:
    """Return a model as JSON with all defaults, so that a template may use every field."""
    if isinstance(value, msgspec.Struct):
        fields = fields_of(type(value))
        return {each.encode_name: _plain(getattr(value, each.name)) for each in fields}
    return msgspec.to_builtins(value)


def _task_names(
    paper: TFCluster, policy: Policy, task_type: TaskType, index: int, items: Any
) -> Object:
    serves = task_type is TaskType.PS or paper.spec.mode is Mode.IN_GRAPH
    host = labels.host_name(paper.metadata.name, task_type, index)
    return {
        "name": task_name(task_type, index),
        "type": task_type.value,
        "index": index,
        "host": host,
        "address": f"{host}:{labels.PORT}",
        "serves": serves,
        "pod": pod_template.build_pod_template(paper, policy, task_type, items, index=index),
    }
