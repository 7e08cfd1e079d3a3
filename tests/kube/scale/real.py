"""A real pod among fake ones: it asks for names, or is one task of a run of 600."""

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
"""Seconds for the notebook's image, which a new node has to fetch."""


def asker(image: str) -> Object:
    """A pod with Python that waits to be told; its resolver is a task's."""
    made = workloads.pod("asker", image)
    made["spec"]["dnsConfig"] = {"options": [{"name": "ndots", "value": "2"}]}
    return made


def ask(kubectl: Kubectl, **words: Any) -> Object:
    """Let the asker ask; what it heard."""
    line = ("exec", "-i", "asker", "--", "python3", "-", json.dumps(words))
    found: Object = json.loads(kubectl(*line, stdin=PROGRAM.read_text(), seconds=900))
    return found


def task(job: Object, index: int) -> Object:
    """A task of a Job as a pod of its own, for a real node.

    It has the name of that task and the same files, and belongs to neither Job nor Service, which
    have the fake one.
    """
    spec = copy.deepcopy(job["spec"]["template"]["spec"])
    name = f"{job['metadata']['name']}-{index}"
    del spec["nodeSelector"], spec["tolerations"]
    spec["hostname"] = name
    (container,) = spec["containers"]
    container["env"].append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
    head = {"name": f"real-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}
