"""Names of clusters, runs and tasks. All functions are pure; no other module has rules for names.

A run is `<cluster>-<n>`; a task is `<type>-<index>`. A cluster's name never ends in `-<digits>`, so
that `digits-2` can only mean run 2 of `digits`.
"""

from __future__ import annotations

import re

from . import NAME_PATTERN, TAG_LENGTH, Message, TaskType

MAX_NAME = 40
NAME_RULE = Message("ClusterName", {"most": MAX_NAME})
RUN_NAME_RULE = Message("RunName", {"rule": NAME_RULE})


def is_valid(name: str) -> bool:
    """Return whether `name` is allowed as the name of a cluster."""
    return re.fullmatch(NAME_PATTERN, name) is not None and re.search(r"-\d+$", name) is None


def is_tag(text: str) -> bool:
    """Return whether `text` may be a tag: letters and digits of any script, and `_.+=/-` between
    them.
    """
    return len(text) <= TAG_LENGTH and re.fullmatch(r"\w[\w.+=/-]*", text) is not None


def derive(text: str) -> str:
    """Return a valid cluster name for any text, such as a file's stem: `My_Train 2` gives
    `my-train2`.
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = re.sub(r"^[^a-z]+", "", name)
    while match := re.search(r"-(\d+)$", name):
        name = name[: match.start()] + match.group(1)
    return name[:MAX_NAME].rstrip("-") or "cluster"


def name_rule(name: str) -> Message:
    """Return the rule for cluster names, with a valid name that is similar to this one."""
    return Message("ClusterNameTry", {"close": derive(name), "most": MAX_NAME})


def run_name(cluster: str, run: int) -> str:
    """Return the name of a run: `digits`, 2 gives `digits-2`."""
    return f"{cluster}-{run}"


def parse_ref(ref: str) -> tuple[str, int | None]:
    """Split a user's reference: `digits-2` gives ("digits", 2); `digits` gives ("digits", None)."""
    match = re.fullmatch(r"(.*[^-])-([0-9]{1,9})", ref)
    return (match.group(1), int(match.group(2))) if match else (ref, None)


def task_name(task_type: TaskType | str, index: int) -> str:
    """Return the name of a task: `worker`, 3 gives `worker-3`."""
    return f"{TaskType(task_type).value}-{index}"


def parse_task(name: str) -> tuple[TaskType, int]:
    """Split a task's name: `worker-3` gives (TaskType.WORKER, 3). Raises ValueError for other
    texts.
    """
    kind, _dash, index = name.rpartition("-")
    return TaskType(kind), int(index)
