"""Real pods among fake ones: a pod that looks up names, and one task of a run of 600."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from support.kube import workloads
from support.kube.kubectl import Kubectl

from tfcluster_magic.kube.api.client import Object

PROGRAM = Path(__file__).with_name("name_lookups.py")
METRICS = 9153
IMAGE_PULL = 600.0
"""Seconds for pulling the notebook's image, which a new node lacks."""


def asker(image: str) -> Object:
    """Return a pod with Python and a task's DNS options, which waits for commands."""
    made = workloads.pod("asker", image)
    made["spec"]["dnsConfig"] = {"options": [{"name": "ndots", "value": "2"}]}
    return made


def ask(kubectl: Kubectl, **words: Any) -> Object:
    """Run a lookup in the pod "asker"; return its result."""
    line = ("exec", "-i", "asker", "--", "python3", "-", json.dumps(words))
    found: Object = json.loads(kubectl(*line, stdin=PROGRAM.read_text(), seconds=900))
    return found


def task(job: Object, index: int) -> Object:
    """Return a task of a Job as a separate pod for a real node. The pod has the task's name and
    files. It belongs neither to the Job nor to the Service, because these have a fake pod for the
    same task.
    """
    spec = copy.deepcopy(job["spec"]["template"]["spec"])
    name = f"{job['metadata']['name']}-{index}"
    del spec["nodeSelector"], spec["tolerations"]
    spec["hostname"] = name
    (container,) = spec["containers"]
    container["env"].append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
    head = {"name": f"real-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}
