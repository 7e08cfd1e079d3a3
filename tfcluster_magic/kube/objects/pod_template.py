"""The pod template of a run's tasks, and the files that pods find below /tfcluster.

The template has volumes, environment, resources and probes; the Job's controller adds the index.
Other modules have already checked the run's claims, secrets and annotations. The files (our
runtime, `task.json`, the program) fit into one ConfigMap; otherwise an error names the file that is
too large. A program too large for the record stays in the workspace. The module reads the files of
the package, and has no other side effects.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ Ref:
https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted Ref:
https://kubernetes.io/docs/concepts/configuration/configmap/
"""

from __future__ import annotations

import base64
import io
import json
import math
import posixpath
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import InvalidRequest, Problem
from ...program import snapshots
from ...spec import Message, Metadata, Mode, Pods, Spec, TaskType, TFCluster, task_file
from ...spec.names import parse_ref
from ...spec.quantities import format_bytes
from ..api import labels
from . import images
from .policy import Policy, SharedClaim, uses_gangs

FILES_ROOT = "/tfcluster"
RUNTIME_FILE = "runtime.zip"
TASK_FILE = "task.json"
CONFIG_MAP_LIMIT = 1 << 20
"""The maximum size of a ConfigMap in bytes. Ref: concepts/configuration/configmap, "Motivation"."""
ADDRESS_PATTERN = "{name}-{type}-{index}.{name}"
BEACON_PORT = 2224
"""Port that process 1 of a pod opens to show the kubelet's probes that the In-Graph server is in
use, or that the program has started.
"""
HOLD_OFF = 7.0
"""If all workers must start together, a pod that replaces a failed one waits for this many seconds
before it starts the program.

The Job's controller replaces a failed pod after 10 to 12 s. Until 15 s after the failure, the
operator collects further failures; then it ends the attempt. If the new pod started its program
before that, the program would connect to tasks of the attempt that is about to end.
"""


@dataclass(frozen=True)
class TaskFiles:
    """The content of a ConfigMap by key, and for each key its path in a pod, below FILES_ROOT."""

    texts: Mapping[str, str]
    binaries: Mapping[str, str]
    items: tuple[Mapping[str, object], ...]


def task_files(cluster: TFCluster, policy: Policy, addresses: str = ADDRESS_PATTERN) -> TaskFiles:
    """Return the content of a run's ConfigMap.

    Args:
        cluster: the run.
        policy: the administrator's policy.
        addresses: the host of each task, with `{name}`, `{type}` and `{index}`.

    Raises:
        InvalidRequest: the content is too large for a ConfigMap, or the program is so large that it
            needs a workspace, and the run has none.
        TFClusterError: the program in the record was altered.
    """
    texts: dict[str, str] = {}
    binaries: dict[str, str] = {}
    items: list[dict[str, object]] = []

    def put(path: str, content: bytes, executable: bool = False) -> None:
        key = _key(path, len(items))
        try:
            texts[key] = content.decode()
        except UnicodeDecodeError:
            binaries[key] = base64.b64encode(content).decode()
        mode = {"mode": 0o555} if executable else {}
        items.append({"key": key, "path": path, **mode})

    put(TASK_FILE, _described(cluster, policy, addresses))
    binaries[RUNTIME_FILE] = runtime_archive()
    items.append({"key": RUNTIME_FILE, "path": RUNTIME_FILE})
    program = cluster.spec.program
    if program is not None and program.files is not None:
        for path, file in snapshots.load(program, Path()).items():
            put(f"program/{path}", file.content, file.executable)
    _check_size(cluster.spec, texts, binaries)
    return TaskFiles(texts, binaries, tuple(items))


@cache
def runtime_archive() -> str:
    """Return the runtime's sources as a zip that Python can run, in base64.

    A pod lists each file of a ConfigMap, so a single file makes pods smaller. A zip also takes only
    a third of the space. Ref: https://docs.python.org/3/library/zipapp.html
    """
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as packed:
        for path in sorted(task_file.RUNTIME.rglob("*.py")):
            # no date, so that the same sources give the same bytes
            head = zipfile.ZipInfo(path.relative_to(task_file.RUNTIME).as_posix())
            packed.writestr(head, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return base64.b64encode(found.getvalue()).decode()


def output_dir(metadata: Metadata, policy: Policy) -> str:
    """Return the run's folder on the log volume."""
    return posixpath.join(policy.log_path, metadata.cluster, str(metadata.run))


def program_dir(spec: Spec, policy: Policy) -> str:
    """Return the folder of the program's files; empty if the task finds the folder itself.

    Raises:
        InvalidRequest: the program is in a workspace, but the run has none.
    """
    program = spec.program
    if program is None or program.files is not None:
        return f"{FILES_ROOT}/program"
    if program.path and not posixpath.isabs(program.path) and not policy.workspace_claim:
        rule = Message("NoWorkspaceForPath")
        raise InvalidRequest([Problem("spec.program.path", program.path, rule)])
    if not program.is_stored:
        return ""
    if not policy.workspace_claim:
        rule = Message("NoWorkspaceForProgram", {"limit": format_bytes(snapshots.INLINE_BYTES)})
        raise InvalidRequest([Problem("spec.program", program.source, rule)])
    return str(snapshots.stored_folder(Path(policy.workspace_path), program.sha256))


def _described(cluster: TFCluster, policy: Policy, addresses: str) -> bytes:
    metadata, spec = cluster.metadata, cluster.spec
    resume_from = None
    if spec.resume_from is not None:
        name, run = parse_ref(spec.resume_from)
        resume_from = posixpath.join(policy.log_path, name, str(run))
    described = task_file.task_description(
        metadata,
        spec,
        program_dir=program_dir(spec, policy),
        data_dir=policy.data_path,
        output_dir=output_dir(metadata, policy),
        resume_from=resume_from,
        workspace=policy.workspace_path,
    )
    described |= {
        "addressTemplate": addresses,
        "port": labels.PORT,
        "beacon": BEACON_PORT,
        "ownFolder": True,
        "holdOff": HOLD_OFF,
        "interpreter": spec.interpreter,
        "home": policy.workspace_path if policy.workspace_claim else None,
    }
    if metadata.scheduled is not None and metadata.scheduled.advised is not None:
        # The operator does not read the volume with the usage samples, so tasks report the samples.
        described["reportsUsage"] = True
    return (json.dumps(described, ensure_ascii=False, indent=1) + "\n").encode()


def _key(path: str, number: int) -> str:
    """Return a valid key of a ConfigMap: the path if possible, else the file's number."""
    key = path.replace("/", "--")
    plain = re.fullmatch(r"[A-Za-z0-9._-]{1,253}", key) and "--" not in path
    return key if plain else f"file-{number:05}"


def _check_size(spec: Spec, texts: Mapping[str, str], binaries: Mapping[str, str]) -> None:
    sizes = {key: len(text.encode()) for key, text in texts.items()}
    sizes |= {key: len(text) * 3 // 4 for key, text in binaries.items()}
    size = sum(sizes.values())
    if size <= CONFIG_MAP_LIMIT:
        return
    of_task = sizes[TASK_FILE]
    what = "spec.env" if of_task > CONFIG_MAP_LIMIT // 2 else "spec.program"
    shown = len(spec.env) if what == "spec.env" else (spec.program and spec.program.source)
    values = {"limit": format_bytes(CONFIG_MAP_LIMIT), "size": format_bytes(size)}
    raise InvalidRequest([Problem(what, shown, Message("RunFilesTooLarge", values))])


Object = dict[str, Any]

FILES_VOLUME = "files"
"""Name of the volume with the files of the run's ConfigMap."""
INDEX_REFERENCE = "$(JOB_COMPLETION_INDEX)"
"""Variable with the task's index, which the Job's controller sets."""
PATIENCE = 2**31 - 1
HEADROOM = 2
"""Seconds between the end of a task's own grace period and SIGKILL by the kubelet."""
NODE_LOST_SECONDS = 30
"""Seconds for which a pod stays on a node that does not answer."""
NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
VOLCANO = "volcano"
GROUP_NAME = "scheduling.k8s.io/group-name"


@dataclass(frozen=True)
class Mount:
    """A mount: the source of a volume, and its path in the container."""

    source: Mapping[str, object]
    path: str
    read_only: bool = False
    sub_path: str = ""


def build_pod_template(
    cluster: TFCluster,
    policy: Policy,
    task_type: TaskType,
    items: Sequence[Mapping[str, object]],
    *,
    index: int | None = None,
    restart: str = "Never",
) -> Object:
    """Return the pod template of an Indexed Job, or of the single task with this `index`."""
    from . import templates  # jinja2 is slow to import, and most commands render nothing

    metadata, spec = cluster.metadata, cluster.spec
    asked = spec.pods or Pods()
    mounts = _mounts(cluster, policy, items)
    requests, limits = task_resources(spec, policy, task_type)
    opens = opens_port(cluster, task_type)
    gang = {GROUP_NAME: metadata.name} if uses_gangs(policy) else {}
    name = labels.job_name(metadata.name, task_type)
    task = f"{task_type.value}-{INDEX_REFERENCE if index is None else index}"
    return templates.render_object(
        "kubernetes/pod.yaml.j2",
        policy=policy,
        run=metadata.name,
        hostname=None if index is None else f"{name}-{index}",
        restart=restart,
        labels={
            **labels.pod_labels(metadata.name, metadata.uid, task_type),
            **({} if index is None else {labels.TASK: task}),
        },
        annotations={**asked.annotations, **gang},
        scheduler=VOLCANO if uses_gangs(policy) else None,
        grace=math.ceil(spec.lifecycle.grace) + HEADROOM,
        tolerations=_tolerations(policy),
        near=_near(cluster, task_type),
        pull_secrets=[{"name": each} for each in asked.image_pull_secrets],
        container=labels.CONTAINER,
        image=spec.image or policy.default_image,
        always_pull=_always_pulls(spec, policy),
        command=[
            *(policy.python, "-S", "-E", f"{FILES_ROOT}/{RUNTIME_FILE}"),
            *("task", f"{FILES_ROOT}/{TASK_FILE}", task),
        ],
        env=[*(_counted(cluster) if index is None else []), *_from_secrets(asked)],
        env_from=[{"secretRef": {"name": s.name}} for s in asked.secrets if s.is_environment],
        requests=requests,
        limits=limits,
        port=_start_port(spec) if opens else None,
        beacon=BEACON_PORT if spec.mode is Mode.IN_GRAPH else None,
        patience=PATIENCE,
        volumes=_volumes(mounts),
        mounts=_volume_mounts(mounts),
    )


def _start_port(spec: Spec) -> int:
    """Return the port that is open after a task has started.

    For a server it is the server's own port. For a program it is the supervisor's port, because a
    program may have started although its own port is closed (`runtime/activity.py`).
    """
    return labels.PORT if spec.mode is Mode.IN_GRAPH else BEACON_PORT


def _always_pulls(spec: Spec, policy: Policy) -> bool:
    """Return whether each pod asks the registry for its image even if the node already has the
    image. If pods did not ask, anybody who knows an image's name could run an image that the node
    pulled with another user's secret.
    """
    if spec.pods is not None and spec.pods.image_pull_secrets:
        return True
    own = spec.image is not None and not images.is_same_image(spec.image, policy.default_image)
    return own and policy.always_pull


def opens_port(cluster: TFCluster, task_type: TaskType) -> bool:
    """Return whether a task counts as started only when its port accepts connections or its program
    works.

    `runtime/task_config.py` follows the same rule. If the program was not inspected, each task
    decides for itself whether to wait, and opens the port at once if it does not wait.
    """
    spec, program = cluster.spec, cluster.spec.program
    peers = spec.replicas.total - spec.replicas.evaluator.count
    serves = program is not None and (program.serves or program.by_hand) and peers > 1
    return task_type is not TaskType.EVALUATOR and (spec.mode is Mode.IN_GRAPH or serves)


def task_resources(
    spec: Spec, policy: Policy, task_type: TaskType
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the requests and limits of a task. There is a CPU limit only if the user set one.

    Ref: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
    """
    said = spec.replicas.of(task_type).resources
    limits = {"memory": said.memory or policy.default_memory}
    if said.cpu:
        limits = {"cpu": cpu_quantity(said.cpu), **limits}
    if said.gpu:
        limits[policy.gpu_resource] = str(said.gpu)
    return {"cpu": cpu_quantity(policy.default_cpu), **limits}, limits


def cpu_quantity(cpu: float) -> str:
    """Return cores as a quantity, rounded up to whole millicores: 0.5 gives "500m"."""
    milli = math.ceil(round(cpu * 1000, 6))
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def counts_disruptions_apart(cluster: TFCluster) -> bool:
    """Return whether Jobs count disruptions apart from failures.

    The Jobs of a run with parameter servers do not. This saves their pods an environment variable:
    each variable adds 4 % to the API server's work for a pod.
    """
    return TaskType.PS not in cluster.spec.replicas.counts


def _counted(cluster: TFCluster) -> list[Object]:
    """Return the environment variables that say how many earlier pods of the same task the Job has
    replaced. Their values come from annotations of the pod.
    """
    said = [("TFCLUSTER_INDEX_FAILURES", labels.INDEX_FAILURES)]
    if counts_disruptions_apart(cluster):
        said.append(("TFCLUSTER_INDEX_IGNORED", labels.INDEX_IGNORED_FAILURES))
    return [
        {
            "name": name,
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}},
        }
        for name, annotation in said
    ]


def _from_secrets(asked: Pods) -> list[Object]:
    """Return the environment variables that hold single keys of secrets."""
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": key}}}
        for secret in asked.secrets
        for name, key in secret.variables.items()
    ]


def _mounts(
    cluster: TFCluster, policy: Policy, items: Sequence[Mapping[str, object]]
) -> dict[str, list[Mount]]:
    """Return the mounts by volume name. A pod has each volume once, even if it mounts it at several
    paths.
    """
    name = labels.files_name(cluster.metadata.name, cluster.metadata.uid)
    asked = cluster.spec.pods or Pods()
    own = {"name": name, "items": list(items), "defaultMode": 0o444}
    # /tmp gets no volume of its own: that would add a tenth to the API server's work for a task.
    found = {FILES_VOLUME: [Mount({"configMap": own}, FILES_ROOT, read_only=True)]}
    for each in _shared(cluster, policy):
        # The volume is read-only too, so that the kubelet does not change the owners of its files.
        source = {"persistentVolumeClaim": {"claimName": each.claim, "readOnly": True}}
        found.setdefault(f"claim-{each.claim}", []).append(Mount(source, each.path, True))
    data_claim = data_claim_name(cluster) if asked.data_claim else policy.data_claim
    read_only = policy.data_read_only and not asked.data_claim
    for claim, path, reads in (
        (data_claim, policy.data_path, read_only),
        (policy.log_claim, policy.log_path, False),
        (policy.workspace_claim, policy.workspace_path, True),
        *((v.claim, v.path, v.read_only) for v in asked.volumes if not v.sub_path),
    ):
        if claim:
            found.setdefault(f"claim-{claim}", []).append(Mount(_claim(claim), path, reads))
    if not policy.log_claim:
        # Tasks need the run's folder even if no claim keeps it after the end of the pod.
        found["log"] = [Mount({"emptyDir": {"sizeLimit": policy.log_size}}, policy.log_path)]
    for volume in asked.volumes:
        if volume.sub_path:
            mount = Mount(_claim(volume.claim), volume.path, volume.read_only, volume.sub_path)
            found.setdefault(f"claim-{volume.claim}", []).append(mount)
    for secret in asked.secrets:
        if secret.path:
            source = {"secret": {"secretName": secret.name, "defaultMode": 0o440}}
            found.setdefault(f"secret-{secret.name}", []).append(Mount(source, secret.path, True))
    return found


def _shared(cluster: TFCluster, policy: Policy) -> list[SharedClaim]:
    """Return the shared claims that the run mounts. A shared claim is left out if the run mounts a
    volume or secret of its own at the same path, or if the run mounts the claim to write to it.
    """
    asked = cluster.spec.pods or Pods()
    taken = {policy.data_path, policy.log_path, policy.workspace_path}
    taken |= {v.path for v in asked.volumes} | {s.path for s in asked.secrets}
    writes = {v.claim for v in asked.volumes if not v.read_only}
    every = [s for s in policy.shared_data if s.path not in taken and s.claim not in writes]
    return list({each.path: each for each in every}.values())


def data_claim_name(cluster: TFCluster) -> str:
    """Return the name of the run's own data claim."""
    return f"{cluster.metadata.name}-data"


def _claim(name: str) -> Object:
    return {"persistentVolumeClaim": {"claimName": name}}


def _volumes(mounts: Mapping[str, Sequence[Mount]]) -> list[Object]:
    names = _volume_names(mounts)
    return [{"name": names[key], **each[0].source} for key, each in mounts.items()]


def _volume_mounts(mounts: Mapping[str, Sequence[Mount]]) -> list[Object]:
    names = _volume_names(mounts)
    found = []
    for key, every in mounts.items():
        for mount in every:
            said: Object = {"name": names[key], "mountPath": mount.path}
            if mount.sub_path:
                said["subPath"] = mount.sub_path
            if mount.read_only:
                said["readOnly"] = True
            found.append(said)
    return found


def _volume_names(mounts: Mapping[str, Sequence[Mount]]) -> dict[str, str]:
    """Return a volume's name for each key of `mounts`. A claim's name may have dots and up to 253
    characters; a volume's name has no dots and at most 63 characters. The volume of a claim with a
    longer or dotted name gets a number as its name.
    """
    found = {}
    for number, key in enumerate(mounts):
        short = len(key) <= 63 and "." not in key
        found[key] = key if short else f"volume-{number}"
    return found


def _tolerations(policy: Policy) -> list[Object]:
    lost = [
        {
            "key": taint,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": NODE_LOST_SECONDS,
        }
        for taint in NODE_TAINTS
    ]
    return [*lost, *policy.tolerations]


def _near(cluster: TFCluster, task_type: TaskType) -> Object | None:
    """Return the affinity term that makes the pods of a run with parameter servers prefer nodes
    with other pods of the run. Return None for evaluators, and for runs without parameter servers.

    The term selects all pods of the run, not only the parameter servers: workers that are placed
    before any parameter server would otherwise be spread over the nodes. It has a single label,
    because every pod of a large run carries the term, and the scheduler reads it in each pod. So it
    selects evaluators too, but they prefer no node themselves.
    """
    if task_type is TaskType.EVALUATOR or TaskType.PS not in cluster.spec.replicas.counts:
        return None
    head = cluster.metadata
    return {"matchLabels": {labels.UID: head.uid} if head.uid else {labels.NAME: head.name}}
