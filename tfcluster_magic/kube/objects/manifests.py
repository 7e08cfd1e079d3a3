"""A run as manifests for kubectl, in one of two layouts or by somebody's own template. Pure.

Promises that what is printed can be applied as it is, in any namespace, and belongs to nobody: a
run on paper has no uid, no owner and no operator. Needs no cluster; only reads the template.
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
from ..api import labels
from . import pod, run_objects, templates
from .per_task import per_task
from .pod_files import files
from .policy import Policy

Object = dict[str, Any]


class Layout(str, enum.Enum):
    """How a run becomes objects."""

    NATIVE = "native"
    PER_TASK = "per-task"


def manifests(cluster: TFCluster, policy: Policy, layout: Layout) -> str:
    """A stream of YAML documents.

    Raises:
        InvalidRequest: the run's files are too large, or a large program has no workspace.
        TFClusterError: the program in the record was altered.
    """
    paper = on_paper(cluster)
    found = native(paper, policy)
    if layout is Layout.PER_TASK:
        found = per_task(paper, policy, namespace="")
    return templates.documents(found)


def native(paper: TFCluster, policy: Policy) -> list[Object]:
    """What the operator creates, the parameter servers' Job included."""
    ps = run_objects.ps_job(paper, policy, namespace="", owners=())
    return [*run_objects.objects(paper, policy, namespace=""), *([ps] if ps else [])]


def on_paper(cluster: TFCluster) -> TFCluster:
    """The same wish as nobody has made it yet."""
    head = replace(cluster.metadata, uid="", owner="", created_at=0.0)
    status = Status(phase=cluster.status.phase, reason=cluster.status.reason)
    return replace(cluster, metadata=head, spec=replace(cluster.spec, stop=None), status=status)


def by_template(cluster: TFCluster, policy: Policy, file: Path) -> str:
    """What the template in `file` makes of a run; docs/kubernetes-render.md has its names.

    Raises:
        InvalidRequest: it cannot be read or rendered; the message has file and line. As `manifests`
            for the run.
    """
    paper = on_paper(cluster)
    names = _names(paper, policy)
    made = templates.environment(FileSystemLoader(file.parent))
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
    except Exception as error:  # noqa: BLE001 - a template does what its author thought of
        raise _refused(_where(error, file), _said(error)) from None


def _refused(where: str, why: str) -> InvalidRequest:
    return InvalidRequest([Problem("--template", where, why)], _("the template cannot be used"))


def _said(error: Exception) -> str:
    text = str(error)
    return text if isinstance(error, TemplateError) else f"{type(error).__name__}: {text}"


def _where(error: Exception, file: Path) -> str:
    """The line of a template that failed: Jinja puts it into the traceback."""
    folder = str(file.parent)
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(folder)
    ]
    return lines[-1] if lines else str(file)


def _names(paper: TFCluster, policy: Policy) -> Object:
    """What a template can speak of: plain values only."""
    head, spec = paper.metadata, paper.spec
    content = files(paper, policy)
    found: Object = {
        "cluster": _plain(paper),
        "policy": _plain(policy),
        "name": head.name,
        "port": labels.PORT,
        "labels": labels.labels(head.name, ""),
        "selector": labels.selector(head.name, ""),
        "files": {
            "texts": dict(content.texts),
            "binaries": dict(content.binaries),
            "items": [*map(dict, content.items)],
        },
        "tasks": [],
        "objects": native(paper, policy),
    }
    for task_type, count in spec.replicas.counts.items():
        for index in range(count):
            found["tasks"].append(_task(paper, policy, task_type, index, content.items))
    return found


def _plain(value: Any) -> Any:
    """A model as JSON has it, with what has its default: a template may ask for it."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {each.encode_name: _plain(getattr(value, each.name)) for each in fields}
    return msgspec.to_builtins(value)


def _task(paper: TFCluster, policy: Policy, task_type: TaskType, index: int, items: Any) -> Object:
    serves = task_type is TaskType.PS or paper.spec.mode is Mode.IN_GRAPH
    host = labels.host_name(paper.metadata.name, task_type, index)
    return {
        "name": task_name(task_type, index),
        "type": task_type.value,
        "index": index,
        "host": host,
        "address": f"{host}:{labels.PORT}",
        "serves": serves,
        "pod": pod.template(paper, policy, task_type, items, index=index),
    }
