"""Runs that wait or fail, one for each cause, with Kubernetes' message and the run's message.
`follow` reads both and records the times, so that a test can compare them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubenode import registry
from msgspec.structs import replace
from support.kube.kubectl import Object
from support.kube.operator import Tenant, spec_of

from tfcluster_magic.kube.api.client import Api, path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import (
    Lifecycle,
    Phase,
    Pods,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    SecretUse,
    Spec,
    Status,
    Volume,
)

SMALL = Resources(memory="64Mi")  # without a CPU limit Python starts fast
NEVER = "(?!)"
SLEEP = "import time\ntime.sleep(600)\n"
SERVE = """import json, os, socket, time
mine = json.loads(os.environ["TF_CONFIG"])
address = mine["cluster"][mine["task"]["type"]][mine["task"]["index"]]
listener = socket.create_server(("", int(address.rpartition(":")[2])))
time.sleep(600)
"""
HOG = "held = bytearray(200 << 20)\nimport time\ntime.sleep(600)\n"
FLOW = "import tensorflow\n"


@dataclass
class Case:
    """A run that waits or fails, and two patterns: `known` for Kubernetes' message about the cause,
    `told` for the message in the run's status.
    """

    spec: Spec
    known: str
    told: str
    second: bool = False
    """Whether the run is in the namespace with limits."""
    final: str = ""
    """The final phase, if the run ends."""


@dataclass
class Seen:
    """The times at which messages appeared (monotonic seconds), and their texts, by run."""

    known: dict[str, float] = field(default_factory=dict)
    """The end of the first read that had Kubernetes' message about the cause."""
    not_told: dict[str, float] = field(default_factory=dict)
    """The start of the last read whose status lacked the run's own message."""
    told: set[str] = field(default_factory=set)
    said: dict[str, str] = field(default_factory=dict)


def wish(
    tmp_path: Path, image: str, text: str, *, serves: bool = False, **more: Any
) -> Callable[..., Spec]:
    """Return a function that makes specs of a program with small tasks."""
    file = tmp_path / "program.py"
    file.write_text(text)
    base = spec_of(file)
    assert base.program
    program = replace(base.program, serves=serves)

    def make(workers: int = 1, ps: int = 0, asks: Resources = SMALL, **other: Any) -> Spec:
        replicas = ReplicaSet(
            worker=Replicas(count=workers, resources=asks), ps=Replicas(count=ps, resources=SMALL)
        )
        return replace(
            base, program=program, replicas=replicas, **{"image": image, **more, **other}
        )

    return make


def admit(api: Api, tenant: Tenant, run: str, spec: Spec) -> None:
    """Create a run whose status says that it was admitted just now."""
    cluster, _dash, number = run.rpartition("-")
    api.create(path("tfclusters", tenant.name), custom_resource.write(cluster, int(number), spec))
    now = time.time()
    begun = Status(phase=Phase.STARTING, reason=Reason.STARTING, queued_at=now, started_at=now)
    status = custom_resource.write_status(begun)
    api.merge(path("tfclusters", tenant.name, run, "status"), {"status": status})


def look(api: Api, namespace: str) -> tuple[dict[str, str], dict[str, Object]]:
    """Read Kubernetes' messages on each run's objects, and each run's status."""
    runs = api.every(path("tfclusters", namespace)).items
    statuses = {each["metadata"]["name"]: each.get("status", {}) for each in runs}
    words = dict.fromkeys(statuses, "")
    for kind in ("pods", "jobs", "events"):
        for each in api.every(path(kind, namespace)).items:
            name = each.get("involvedObject", each["metadata"])["name"]
            for run in statuses:
                if name.startswith(f"{run}-"):
                    words[run] += json.dumps([each.get("status"), each.get("message")])
    return words, statuses


def words_of(status: Object) -> str:
    """Return all texts of a status that users can read."""
    tasks = [f"{each['name']}: {each.get('message', '')}" for each in status.get("attention", ())]
    events = [each["message"] for each in status.get("events", ())]
    return "\n".join([status.get("message", ""), *tasks, *events])


def follow(api: Api, namespace: str, cases: dict[str, Case], seen: Seen) -> bool:
    """Read all messages once, and record in `seen` when they were there; return whether the
    statuses have reported every cause.
    """
    before = time.monotonic()
    words, statuses = look(api, namespace)
    now = time.monotonic()
    for run, case in cases.items():
        if re.search(case.known, words.get(run, "")):
            seen.known.setdefault(run, now)
        seen.said[run] = words_of(statuses.get(run, {}))
        if re.search(case.told, seen.said[run]):
            seen.told.add(run)
        if run not in seen.told:
            seen.not_told[run] = before
    return all(run in seen.told for run in cases)


def cases(tmp_path: Path, image: str, busybox: str) -> dict[str, Case]:
    """Return a case for every cause, by its run's name; `image` has Python and no TensorFlow."""
    sleeps = wish(tmp_path, image, SLEEP)
    private = image.replace("registry:5000", registry.PRIVATE)
    volume = Pods(volumes=(Volume(claim="nowhere", path="/more"),))
    unbound = Pods(volumes=(Volume(claim="unbound", path="/more"),))
    return {
        "no-cpu-1": Case(
            sleeps(workers=3, asks=Resources(cpu=640)),
            "Insufficient cpu",
            r"3 workers wait: no node has 640 CPU; the largest has \d+ CPU: use --worker-cpu \d+",
        ),
        "no-memory-1": Case(
            sleeps(asks=Resources(memory="900Ti")),
            "Insufficient memory",
            r"worker-0 waits: no node has 900Ti of memory; .* use --worker-memory \d+",
        ),
        "no-gpu-1": Case(
            sleeps(asks=Resources(gpu=1)),
            "Insufficient nvidia.com/gpu",
            "worker-0 waits: no node has 1 GPU; the largest has none: use --worker-gpu 0",
        ),
        "no-image-1": Case(
            sleeps(image="registry:5000/nothing:1"),
            "registry:5000/nothing:1: not found",
            "worker-0 waits: there is no image registry:5000/nothing:1: check its name and tag",
        ),
        "too-long-1": Case(
            sleeps(image="registry:5000/nothing:2", lifecycle=Lifecycle(start_timeout=45)),
            NEVER,
            "did not come up within 45s: worker-0 waits: there is no image registry:5000/nothing:2",
        ),
        "private-1": Case(
            sleeps(image=private),
            "401 Unauthorized",
            f"the image {private} is private: use --image-pull-secret",
        ),
        "opened-1": Case(
            sleeps(image=private, pods=Pods(image_pull_secrets=("access",))),
            '"started": true',
            "1 task is running",
        ),
        "no-claim-1": Case(
            sleeps(pods=volume),
            'persistentvolumeclaim ."nowhere." not found',
            "worker-0 waits: there is no claim nowhere in this namespace: make it",
        ),
        "unbound-1": Case(
            sleeps(pods=unbound),
            "unbound immediate PersistentVolumeClaims",
            "the claim unbound asks for the storage class no-such-class, which does not exist",
        ),
        "no-secret-1": Case(
            sleeps(pods=Pods(secrets=(SecretUse(name="nothing"),))),
            "secret ..nothing.. not found",
            "worker-0 waits: there is no secret nothing in this namespace",
        ),
        "no-python-1": Case(
            sleeps(image=busybox),
            "StartError",
            f"worker-0 could not be started: its image {busybox} has no python3",
        ),
        "no-tensorflow-1": Case(
            wish(tmp_path, image, FLOW)(asks=Resources(memory="128Mi")),
            '"exitCode": 1,',
            "worker-0 failed .*No module named 'tensorflow'",
        ),
        "oom-1": Case(
            wish(tmp_path, image, HOG)(),
            "OOMKilled",
            "worker-0 ran out of memory at its limit of 64Mi.*--worker-memory 128Mi",
        ),
        "quota-1": Case(
            sleeps(asks=Resources(cpu=0.05, memory="64Mi")),
            "exceeded quota: small",
            "the quota small of this namespace is used up .*a worker needs 0.05 CPU",
            second=True,
        ),
        "limit-1": Case(
            sleeps(asks=Resources(cpu=2, memory="64Mi")),
            "maximum cpu usage",
            "a task may use at most 1 CPU .* 2 CPU is requested: use --worker-cpu 1",
            second=True,
        ),
        "webhook-1": Case(
            sleeps(),
            "failed calling webhook",
            "the admission webhook pods.policy.example.org, .* does not answer",
        ),
    }
