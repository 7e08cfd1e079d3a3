"""Runs whose Kubernetes objects are stored in tests/data/golden/kubernetes, one file for each.

`pytest tests/unit/kube/objects/test_run_objects.py --rewrite` writes the files again, so that Git
shows the differences.
"""

from __future__ import annotations

import base64
from typing import Any

from support.project import DATA
from tfcluster_magic.kube.objects import run_objects
from tfcluster_magic.kube.objects.pod_template import RUNTIME_FILE
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.kube.objects.templates import yaml_documents
from tfcluster_magic.program.tree import File, checksum
from tfcluster_magic.spec import (
    Lifecycle,
    Metadata,
    Mode,
    Pods,
    Program,
    ProgramKind,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    SuccessPolicy,
    TFCluster,
)
from tfcluster_magic.spec.spec import DataClaim, SecretUse, Volume

FOLDER = DATA / "golden" / "kubernetes"
NAMESPACE = "alice"
UID = "0f5a54d6-5d4c-4dfd-9c8c-8f3c1a0d1c11"
JOB_UID = "4d3f3e1e-0d8c-4a52-a6a2-53a1b2f6d0aa"


def inline(files: dict[str, bytes], *executables: str, **more: Any) -> Program:
    """Return a program that is stored in the record."""
    tree = {path: File(content, path in executables) for path, content in files.items()}
    said: dict[str, Any] = {"kind": ProgramKind.FILE, "entrypoint": next(iter(files)), **more}
    return Program(
        source=said["entrypoint"],
        sha256=checksum(tree),
        files={path: base64.b64encode(content).decode() for path, content in files.items()},
        executables=executables,
        **said,
    )


def run(spec: Spec, name: str = "digits", number: int = 2) -> TFCluster:
    """Return a run with this spec."""
    head = Metadata(name=f"{name}-{number}", cluster=name, run=number, uid=UID, created_at=0.0)
    return TFCluster(metadata=head, spec=spec)


TRAIN = inline(
    {"train.py": b"print('trained')\n"},
    arguments=("--steps=600",),
    flags=("ps_hosts", "worker_hosts", "job_name", "task_index", "log_path"),
    serves=True,
    working_dir="/home/jovyan/digits",
)
CHEAP = Replicas(count=1, resources=Resources(cpu=0.25, memory="512Mi"))

BETWEEN_GRAPH = Spec(
    replicas=ReplicaSet(
        worker=Replicas(count=2, resources=Resources(cpu=1.5, memory="2Gi")), ps=Replicas(count=1)
    ),
    program=TRAIN,
)
IN_GRAPH = Spec(
    mode=Mode.IN_GRAPH, replicas=ReplicaSet(worker=Replicas(count=2), ps=Replicas(count=1))
)
COLLECTIVE = Spec(
    replicas=ReplicaSet(worker=Replicas(count=2)), program=TRAIN, resume_from="digits-1"
)
EVERYTHING = Spec(
    replicas=ReplicaSet(
        chief=CHEAP,
        worker=Replicas(count=3, resources=Resources(memory="4Gi", gpu=2)),
        ps=CHEAP,
        evaluator=CHEAP,
    ),
    program=inline(
        {"run.sh": b'./train "$@"\n', "train": b"\x7fELF\x00\xff", "my data.csv": b"1,2\n"},
        "train",
        kind=ProgramKind.FOLDER,
        serves=True,
        working_dir=".",
    ),
    image="registry.example.com/team/train:3",
    interpreter="/opt/conda/bin/python",
    env={"COLOUR": 'red "dark": {x}', "EMPTY": ""},
    lifecycle=Lifecycle(success_policy=SuccessPolicy.CHIEF, grace=4.5),
    pods=Pods(
        image_pull_secrets=("registry",),
        volumes=(
            Volume(claim="corpus", path="/corpus", read_only=True),
            Volume(claim="corpus", path="/models", sub_path="models/digits"),
            Volume(claim="team.share", path="/share"),
        ),
        secrets=(
            SecretUse(name="s3-keys"),
            SecretUse(name="token", path="/secrets/token"),
            SecretUse(name="minio", variables={"AWS_ACCESS_KEY_ID": "user"}),
        ),
        annotations={"example.com/cost-centre": "4711"},
        data_claim=DataClaim(size="10Gi", storage_class="fast"),
    ),
)
LARGE = Spec(
    replicas=ReplicaSet(worker=Replicas(count=1)),
    program=Program(
        kind=ProgramKind.FOLDER, source="big", entrypoint="run.sh", sha256="ab" * 32, files=None
    ),
)
STRICT = Policy(
    default_image="registry.example.com/tfcluster/notebook:0.1.0",
    priority_class="tfcluster-task",
    node_selector={"pool": "tasks"},
    tolerations=({"key": "tasks", "operator": "Exists"},),
    egress=("0.0.0.0/0", "10.1.0.0/16"),
)

RUNS: dict[str, tuple[TFCluster, Policy]] = {
    "between-graph": (run(BETWEEN_GRAPH), Policy()),
    "in-graph": (run(IN_GRAPH, "in-graph", 1), Policy()),
    "collective": (run(COLLECTIVE), Policy()),
    "gang": (run(COLLECTIVE), Policy(gang=True)),
    "everything": (run(EVERYTHING, "everything-it-can"), STRICT),
    "large-program": (run(LARGE, "big", 1), Policy()),
}


def made(cluster: TFCluster, policy: Policy) -> list[dict[str, Any]]:
    """Return the objects of a run, including the Job of its parameter servers, which the operator
    creates later than the others.
    """
    found = run_objects.objects_of_run(cluster, policy, namespace=NAMESPACE)
    served = run_objects.types_served_by_ps(cluster)
    mains = {f"{cluster.metadata.name}-{each.value}" for each in served}
    created = [
        {**each, "metadata": {**each["metadata"], "uid": JOB_UID}}
        for each in found
        if each["kind"] == "Job" and each["metadata"]["name"] in mains
    ]
    ps = run_objects.ps_job(cluster, policy, namespace=NAMESPACE, owners=created)
    return [*found, ps] if ps else found


def golden(found: list[dict[str, Any]]) -> str:
    """Return the objects as in a golden file, without the content of the runtime."""
    head, *others = found
    named = base64.b64encode(b"the runtime").decode()  # the API accepts only base64
    binaries = {**head["binaryData"], RUNTIME_FILE: named}
    return yaml_documents([{**head, "binaryData": binaries}, *others])
