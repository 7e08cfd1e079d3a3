"""The reach of a spec: none of its fields can set what a user may not choose, such as the service
account, the node, privileges or the namespace of a pod.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.kube.objects import run_objects
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.program.tree import File, checksum
from tfcluster_magic.spec import (
    DataClaim,
    Metadata,
    Mode,
    Pods,
    Program,
    ProgramKind,
    Replicas,
    ReplicaSet,
    Resources,
    SecretUse,
    Spec,
    TFCluster,
    Volume,
)

HOSTILE = (
    "default\nserviceAccountName: admin\nhostNetwork: true\n",
    '"} , "nodeName": "node-1", "x": {"y": "',
    "{{ policy.__class__ }}{% raw %}",
    "../../etc",
    "/",
)
FILES = {"train.py": base64.b64encode(b"print(1)\n").decode()}
PROGRAM = Program(
    kind=ProgramKind.FILE,
    source="train.py",
    entrypoint="train.py",
    sha256=checksum({"train.py": File(b"print(1)\n")}),
    files=FILES,
    arguments=("--epochs", "3"),
    flags=("ps_hosts",),
    serves=True,
    working_dir="sub",
)
FULL = Spec(
    mode=Mode.BETWEEN_GRAPH,
    replicas=ReplicaSet(
        worker=Replicas(count=2, resources=Resources(cpu=1, memory="1Gi", gpu=1)),
        ps=Replicas(count=1, resources=Resources(memory="1Gi")),
        chief=Replicas(count=1),
        evaluator=Replicas(count=1),
    ),
    program=PROGRAM,
    image="hub/notebook:1",
    interpreter="python3",
    env={"KEY": "value"},
    resume_from="digits-1",
    pods=Pods(
        image_pull_secrets=("registry",),
        volumes=(Volume(claim="images", path="/mnt/images", sub_path="cats"),),
        secrets=(
            SecretUse(name="s3"),
            SecretUse(name="keys", path="/mnt/keys"),
            SecretUse(name="minio", variables={"KEY_ID": "user"}),
        ),
        annotations={"a/b": "c"},
        data_claim=DataClaim(size="1Gi", storage_class="shared"),
    ),
)
POLICY = Policy(service_account="tasks", priority_class="tfcluster-task")


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all texts in a model; a key of a mapping is ("key", name)."""
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            yield from texts(getattr(value, field.name), (*path, field.name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, ("key", key))
            yield from texts(inner, (*path, key))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from texts(inner, (*path, index))
    elif type(value) is str:
        yield path


def altered(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """Return the model with `text` at `path`, as if no schema had checked it."""
    if not path:
        return text
    step, rest = path[0], path[1:]
    if isinstance(value, msgspec.Struct):
        return replace(value, **{step: altered(getattr(value, step), rest, text)})
    if isinstance(value, tuple):
        return (*value[:step], altered(value[step], rest, text), *value[step + 1 :])
    if isinstance(step, tuple):
        return {text if key == step[1] else key: inner for key, inner in value.items()}
    return {**value, step: altered(value[step], rest, text)}


GUARDED = {
    *("serviceAccountName", "serviceAccount", "automountServiceAccountToken", "nodeName"),
    *("nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName"),
    *("hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostAliases", "hostPort", "hostPath"),
    *("securityContext", "shareProcessNamespace", "runtimeClassName", "initContainers"),
    *("ephemeralContainers", "ports", "lifecycle", "volumeDevices", "ownerReferences"),
    *("kind", "apiVersion", "namespace", "podSelector", "ingress", "egress"),
}
KINDS_OF_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}


def guarded(value: Any, path: str = "") -> dict[str, Any]:
    """Return, by path, the fields within `value` that no user may set."""
    found: dict[str, Any] = {}
    steps = enumerate(value) if isinstance(value, list) else value.items()
    for step, inner in steps:
        here = f"{path}/{step}"
        if step in GUARDED:
            found[here] = inner
        elif isinstance(inner, (dict, list)):
            found |= guarded(inner, here)
    return found


def made(spec: Spec) -> list[dict[str, Any]]:
    """Return the objects of a run with this spec."""
    head = Metadata(name="digits-2", cluster="digits", run=2, uid="u", created_at=0.0)
    run = TFCluster(metadata=head, spec=spec)
    found = run_objects.objects_of_run(run, POLICY, namespace="alice")
    servers = run_objects.ps_job(run, POLICY, namespace="alice", owners=())
    assert servers is not None
    return [*found, servers]


@pytest.mark.parametrize("path", list(texts(FULL)), ids=str)
def test_no_text_of_a_spec_reaches_what_it_may_not(path: tuple[Any, ...]) -> None:
    """Whatever a text in a spec is, the spec is refused, or the objects have the same service
    account, node, privileges, kinds of volumes and namespaces.
    """
    expected = guarded(made(FULL))
    assert "/4/spec/template/spec/serviceAccountName" in expected
    for text in HOSTILE:
        spec = altered(FULL, path, text)
        assert spec != FULL
        try:
            found = made(spec)
        except (TFClusterError, ValueError):
            continue
        assert guarded(found) == expected
        for job in (each for each in found if each["kind"] == "Job"):
            for volume in job["spec"]["template"]["spec"]["volumes"]:
                assert volume.keys() - {"name"} <= KINDS_OF_VOLUMES
