"""Conversion of a Kubeflow TFJob to a TFCluster, with a remark for every field that is lost.

The YAML is untrusted. Each field of the manifest is either converted, or reported with its path and
the reason why not. Values that a spec does not allow (`validation/`) are reported too. Nothing is
launched.

Ref: https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/ Ref:
https://github.com/kubeflow/trainer/tree/v1.9.0/pkg/apis/kubeflow.org/v1 Ref:
https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import InvalidRequest, Problem
from ..i18n import _, mark
from ..spec import ENV_NAME_PATTERN, Spec, SuccessPolicy, TaskType, names
from . import cluster_file, validation

TFJOB, API = "TFJob", "kubeflow.org/v1"
CONTAINER = "tensorflow"
"""The container of a TFJob's pod that runs the task; other containers are sidecars."""
TASK_PORT = 2222
"""The port of a task, both in a TFJob and a TFCluster."""
RETRIES = 6
"""Number of retries for a TFJob without a limit: the default of a Kubernetes Job."""
SCRIPT = "run.sh"
MOST_BYTES = 1024 * 1024
"""Maximum bytes of a manifest: the API server accepts no larger object."""
MOST_VALUES = 50_000
"""Maximum values in a manifest, each counted as often as YAML's aliases repeat it."""
DEEPEST = 100
T = TypeVar("T")


@dataclass(frozen=True)
class Remark:
    """A remark about a field of the manifest that is dropped, or, if `differs` is true, converted
    with a difference. A difference without a `value` is one of the default of an absent field. If
    `needed` is true, the program may not run as before without the field.
    """

    path: str
    value: object
    why: str
    needed: bool = False
    differs: bool = False

    def __str__(self) -> str:
        if self.needed:
            text = _("dropped: {path} (the program may need it): {why}")
        elif self.differs and self.value is None:
            text = _("not set: {path}: {why}")
        elif self.differs:
            text = _("differs: {path}: {why}")
        else:
            text = _("dropped: {path}: {why}")
        return text.format(path=self.path, why=self.why)


@dataclass(frozen=True)
class ImportedJob:
    """A TFJob, converted to a cluster; `remarks` are about fields that are dropped or changed."""

    name: str
    spec: Spec
    remarks: tuple[Remark, ...]

    @property
    def needed(self) -> tuple[Remark, ...]:
        """The remarks to which the user must consent before a launch."""
        return tuple(remark for remark in self.remarks if remark.needed)


def read_tfjobs(
    path: str, command: Sequence[str] = (), name: str | None = None
) -> tuple[list[ImportedJob], list[Remark]]:
    """Read the TFJobs of a file, or of standard input for `-`.

    Args:
        path: the file; it may have several YAML documents, or a `List`.
        command: the command of the image, for a manifest that does not name it.
        name: name of the cluster, instead of the TFJob's name.

    Returns:
        The jobs, and a remark for every other object of the file.

    Raises:
        InvalidRequest: the file, or a job in it, cannot be converted; the error has every reason.
    """
    try:
        text = cluster_file.read_text(path, path, MOST_BYTES)
        documents = cluster_file.read_documents(path, text, path)
    except InvalidRequest as error:
        raise InvalidRequest(error.problems, _("the import was refused")) from None
    _check_size(path, documents)
    jobs, others, notes = list[ImportedJob](), list[Remark](), _Notes()
    found = list(_objects(documents))
    several = sum(1 for document in found if document.get("kind") == TFJOB) > 1
    if several and name is not None:
        notes.problem("--name", name, _("the file has several TFJobs, each with its own name"))
    for document in found:
        kind, version = str(document.get("kind", "")), str(document.get("apiVersion", ""))
        called = f"{kind} {_name_of(document)}"
        if kind in _MISSING:
            notes.problem(
                called,
                version,
                _("jobs of this kind cannot be imported yet: {why}").format(why=_(_MISSING[kind])),
            )
        elif kind == TFJOB and version != API:
            allowed = _("only TFJobs of {version} can be imported: convert it first")
            notes.problem(f"{called}: apiVersion", version, allowed.format(version=API))
        elif kind == TFJOB:
            own = _Notes(f"{_name_of(document)}: " if several else "")
            jobs += _import_job(document, own, command, name)
            notes.problems += own.problems
        else:
            why = _("it is not part of the TFCluster; keep applying it with kubectl")
            others.append(Remark(called, version, why))
    if not jobs and not notes.problems:
        notes.problem(path, None, _("there is no TFJob of {version} in it").format(version=API))
    if command and not notes.problems and not any(_lacks_command(each) for each in found):
        allowed = _("every container has its own command: change it in the file")
        notes.problem(_("what follows --"), shlex.join(command), allowed)
    if notes.problems:
        raise InvalidRequest(notes.problems, _("the import was refused"))
    return jobs, others


_MISSING = {
    "PyTorchJob": mark(
        "a PyTorchJob needs MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE in every task, and a "
        "TFCluster gives its tasks TF_CONFIG"
    ),
    "XGBoostJob": mark(
        "an XGBoostJob needs a tracker at MASTER_ADDR, RANK and WORLD_SIZE in every task, and a "
        "TFCluster gives its tasks TF_CONFIG"
    ),
    "MPIJob": mark(
        "an MPIJob needs a launcher that starts its workers, with a file of their hosts, and a "
        "TFCluster has none"
    ),
    "MXJob": mark(
        "an MXJob needs a scheduler and DMLC_ROLE in every task, and a TFCluster gives its tasks "
        "TF_CONFIG"
    ),
    "PaddleJob": mark(
        "a PaddleJob needs PADDLE_TRAINER_ENDPOINTS and PADDLE_MASTER in every task, and a "
        "TFCluster gives its tasks TF_CONFIG"
    ),
    "JAXJob": mark(
        "a JAXJob needs COORDINATOR_ADDRESS, PROCESS_ID and NUM_PROCESSES in every task, and a "
        "TFCluster gives its tasks TF_CONFIG"
    ),
    "TrainJob": mark(
        "a TrainJob's pods are defined in a TrainingRuntime of its cluster, not in the file"
    ),
}
"""The kinds of jobs for other frameworks, each with a text that says what a TFCluster lacks for the
framework.
"""


def _objects(documents: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in the documents; a `List` is replaced by its items."""
    for document in documents:
        if isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List"):
            items = document.get("items")
            yield from _objects(items if isinstance(items, list) else [])
        elif isinstance(document, Mapping):
            yield document
        elif document is not None:
            allowed = _("each document of the file must be an object, such as a TFJob")
            raise InvalidRequest(
                [Problem(_("document"), document, allowed)], _("the import was refused")
            )


def _check_size(path: str, documents: object) -> None:
    """Refuse documents that are nested too deeply, or too large with YAML's aliases expanded."""
    todo, seen = [(documents, 0)], 0
    while todo:
        value, depth = todo.pop()
        seen += 1
        if seen > MOST_VALUES or depth > DEEPEST:
            allowed = _(
                "a manifest may have at most {most} values, nested at most {deepest} levels deep"
            ).format(most=MOST_VALUES, deepest=DEEPEST)
            raise InvalidRequest([Problem(path, None, allowed)], _("the import was refused"))
        if isinstance(value, Mapping):
            todo += [(each, depth + 1) for each in value.values()]
        elif isinstance(value, (list, tuple, set)):
            todo += [(each, depth + 1) for each in value]


def _name_of(document: Mapping[str, Any]) -> str:
    head = document.get("metadata")
    head = head if isinstance(head, Mapping) else {}
    return str(head.get("name") or head.get("generateName") or "?")


def _lacks_command(document: Mapping[str, Any]) -> bool:
    """Return whether a TFJob relies on the image's own command."""
    notes = _Notes()
    replicas = _Fields(notes, document, "").below("spec").below("tfReplicaSpecs")
    for key in replicas.keys():  # noqa: SIM118 - no mapping
        pod = replicas.below(key).below("template").below("spec")
        for container in pod.each("containers"):
            if container.take("name", str) == CONTAINER and not container.texts("command"):
                return True
    return False


# -- reading an object field by field --------------------------------------------------------------


@dataclass
class _Notes:
    """The problems of a manifest, and the remarks on fields that are not converted."""

    prefix: str = ""
    problems: list[Problem] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def problem(self, path: str, value: object, allowed: str) -> None:
        self.problems.append(Problem(f"{self.prefix}{path}", value, allowed))

    def remark(self, path: str, value: object, why: str, needed: bool = False) -> None:
        self.remarks.append(Remark(path, value, why, needed))

    def differs(self, path: str, value: object, why: str) -> None:
        self.remarks.append(Remark(path, value, why, differs=True))


_KINDS: Mapping[type, str] = {
    str: mark("text: put it into quotes"),
    int: mark("a whole number"),
    bool: mark("true or false"),
    list: mark("a list"),
}
Reasons = Mapping[str, tuple[str, bool]]
"""By the name of a field: the reason why the field is not converted, and whether the program may
need it.
"""


class _Fields:
    """The fields of one object of the manifest that are not converted yet. To take a field means to
    remove it from them; `finish` adds a remark for each field that is left.
    """

    def __init__(self, notes: _Notes, value: object, path: str) -> None:
        self.path, self.notes = path, notes
        if value is not None and not isinstance(value, Mapping):
            notes.problem(path, value, _("expected an object"))
            value = None
        self._left: dict[str, Any] = {str(key): each for key, each in (value or {}).items()}

    def at(self, key: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{key}" if self.path else key

    def keys(self) -> list[str]:
        """Return the fields that were not taken."""
        return list(self._left)

    def take(self, key: str, kind: type[T]) -> T | None:
        """Take a field; return None if it is absent or of another type."""
        value = self._left.pop(key, None)
        if value is None or (type(value) is kind and "\0" not in str(value)):
            return value  # `type`, not isinstance: a boolean is no number here
        self.notes.problem(self.at(key), value, _("use {words}").format(words=_(_KINDS[kind])))
        return None

    def below(self, key: str) -> _Fields:
        """Take a field whose value is an object, and return the fields of this object."""
        return _Fields(self.notes, self._left.pop(key, None), self.at(key))

    def each(self, key: str) -> list[_Fields]:
        """Take a field whose value is a list of objects, and return the fields of each object."""
        items = self.take(key, list) or []
        return [_Fields(self.notes, item, f"{self.at(key)}[{i}]") for i, item in enumerate(items)]

    def texts(self, key: str) -> list[str]:
        """Take a field whose value is a list of texts, and return the texts."""
        items = self.take(key, list) or []
        return [self._text(f"{self.at(key)}[{i}]", item) for i, item in enumerate(items)]

    def _text(self, path: str, value: object) -> str:
        if isinstance(value, str) and "\0" not in value:
            return value
        self.notes.problem(path, value, _("use {words}").format(words=_(_KINDS[str])))
        return ""

    def amount(self, key: str) -> str:
        """Take a quantity, and return it as text; "" if absent."""
        value = self._left.pop(key, None)
        if value is None or isinstance(value, (bool, list, Mapping)):
            return "" if value is None else self._text(self.at(key), value)
        return str(value)[:64]

    def pairs(self, key: str) -> dict[str, str]:
        """Take a field whose value is an object with texts, such as annotations, and return the
        texts by name.
        """
        inner = self.below(key)
        found = {name: inner.take(name, str) for name in inner.keys()}  # noqa: SIM118 - no mapping
        return {name: text for name, text in found.items() if text is not None}

    def leave(self, key: str, why: str, needed: bool = False) -> None:
        """Take a field that is not converted, and add a remark if it exists and is not empty."""
        value = self._left.pop(key, None)
        if value is not None and value not in ("", [], {}):
            self.notes.remark(self.at(key), value, why, needed)

    def drop(self, *keys: str) -> None:
        """Take fields that do not matter for a TFCluster."""
        for key in keys:
            self._left.pop(key, None)

    def finish(self, reasons: Reasons, otherwise: str) -> None:
        """Add a remark for every field that was not taken."""
        for key in self.keys():
            why, needed = reasons.get(key, (otherwise, False))
            if key in reasons and self._left[key] is False:
                self.drop(key)  # false is the default of such fields
            self.leave(key, _(why), needed)


# -- the job ---------------------------------------------------------------------------------------

_TYPES = {
    "chief": TaskType.CHIEF,
    "master": TaskType.CHIEF,
    "worker": TaskType.WORKER,
    "ps": TaskType.PS,
    "evaluator": TaskType.EVALUATOR,
}
_UNKNOWN = mark("a TFJob has no such field")
_POLICY = mark("the administrator's policy decides it for all tasks")
_OF_JOB: Reasons = {
    "enableDynamicWorker": (
        mark(
            "the number of workers does not change during a run, and a failed worker ends the run"
        ),
        True,
    ),
}
_OF_RUN: Reasons = {
    "suspend": (
        mark("a run starts as soon as its tasks fit: apply or launch it when it may start"),
        True,
    ),
    "managedBy": (mark("TFCluster's operator manages every run"), False),
}
_OF_SCHEDULING: Reasons = {
    "minAvailable": (mark("a run waits until all of its tasks fit"), False),
    "queue": (mark("the policy or the namespace names Volcano's queue"), False),
    "minResources": (mark("a run reserves what its tasks ask for"), False),
    "priorityClass": (_POLICY, False),
    "scheduleTimeoutSeconds": (
        mark("a run waits for room without limit, unless it sets a time limit for its queue"),
        False,
    ),
}


def _import_job(
    document: Mapping[str, Any], notes: _Notes, command: Sequence[str], name: str | None
) -> Iterator[ImportedJob]:
    """Yield the converted job; nothing if it is refused."""
    job = _Fields(notes, document, "")
    job.drop("apiVersion", "kind")
    draft = _Draft(notes, name or _cluster_name(job.below("metadata"), notes, name is None))
    said = job.below("spec")
    draft.types = list(_task_types(said.below("tfReplicaSpecs"), notes, command))
    draft.add_policy(said.below("runPolicy"))
    draft.add_success(said)
    said.finish(_OF_JOB, _UNKNOWN)
    job.leave("status", _("it is the state of the TFJob"))
    job.finish({}, _UNKNOWN)
    if not draft.types and not notes.problems:
        allowed = _("name at least a Worker or a Chief")
        notes.problem("spec.tfReplicaSpecs", None, allowed)
    if not notes.problems and (spec := draft.spec()) is not None:
        yield ImportedJob(draft.name, spec, tuple(notes.remarks))


def _cluster_name(head: _Fields, notes: _Notes, wanted: bool) -> str:
    """Return the cluster's name: the TFJob's name, if it is a valid name."""
    said = head.take("name", str) or head.take("generateName", str) or ""
    head.drop("generateName")
    head.leave("namespace", _("you name it when you apply or launch: `kubectl apply -n NAMESPACE`"))
    own = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
    for key in (*own, "deletionTimestamp", "deletionGracePeriodSeconds"):
        head.leave(key, _("the API server sets it"))
    head.leave("ownerReferences", _("TFClusters have no owner"))
    head.leave("finalizers", _("TFClusters have no finalizers"))
    for key in ("labels", "annotations"):
        head.leave(key, _("not copied to the tasks; add it to the TFCluster if you need it there"))
    head.finish({}, _UNKNOWN)
    name = said.rstrip("-")
    if wanted and not names.is_valid(name):
        name = names.derive(said)
        why = _("it becomes {name}: {rule}").format(name=name, rule=names.NAME_RULE)
        notes.differs("metadata.name", said, why)
    return name


@dataclass
class _Type:
    """The tasks of one type, as the manifest describes them."""

    task_type: TaskType
    path: str
    count: int
    restart: str = "Never"
    image: tuple[str, str] = ("", "")
    words: list[str] = field(default_factory=list)
    folder: str = ""
    env: dict[str, tuple[str, str]] = field(default_factory=dict)
    secrets: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    volumes: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    pull_secrets: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, tuple[str, str]] = field(default_factory=dict)
    resources: dict[str, tuple[Any, str]] = field(default_factory=dict)
    grace: tuple[int, str] | None = None
    """The grace period in seconds. In each tuple of this class, the second part is the path of the
    value in the manifest.
    """


def _task_types(replicas: _Fields, notes: _Notes, command: Sequence[str]) -> Iterator[_Type]:
    """Yield the task types that have tasks."""
    seen: dict[TaskType, str] = {}
    for key in replicas.keys():  # noqa: SIM118 - no mapping
        path = replicas.at(key)
        task_type = _TYPES.get(key.lower())
        if task_type is None:
            replicas.drop(key)
            notes.problem(path, key, _("use one of Chief, Master, PS, Worker and Evaluator"))
            continue
        if task_type in seen:
            notes.problem(path, key, _("{other} is the same type").format(other=seen[task_type]))
        seen[task_type] = key
        said = replicas.below(key)
        count = said.take("replicas", int)
        restart = said.take("restartPolicy", str) or "Never"
        made = _Type(task_type, path, 1 if count is None else count, restart)
        if key.lower() == "master":
            notes.differs(path, key, _("TF_CONFIG calls it chief, as TensorFlow 2 does"))
        if task_type is TaskType.EVALUATOR and made.count:
            notes.differs(path, key, _("an evaluator that fails does not end the run"))
        if task_type is TaskType.PS and made.count:
            why = _(
                "a run fails if a parameter server exits a minute before the workers; a "
                "TFJob continues"
            )
            notes.differs(path, key, why)
        _PodReader(notes, made).read(said.below("template"), command)
        said.finish({}, _UNKNOWN)
        if made.count:
            yield made


# -- a type's pod ----------------------------------------------------------------------------------

_ONLY_OTHERS = mark("a task has one container, the one that is called tensorflow")
_SECRET_IS_NEEDED = mark("a task waits until the secret exists")
_NO_SUCH_POD_FIELD = mark("tasks of a TFCluster do not support it")
_OF_POD: Reasons = {
    **dict.fromkeys(
        (
            "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "nodeName",
            "priorityClassName", "priority", "preemptionPolicy", "runtimeClassName", "dnsPolicy",
            "dnsConfig",
        ),
        (_POLICY, False),
    ),
    **dict.fromkeys(("serviceAccountName", "serviceAccount"), (_POLICY, True)),
    **dict.fromkeys(
        ("hostNetwork", "hostPID", "hostIPC", "hostAliases", "hostUsers"),
        (mark("tasks do not use the network, processes or names of their node"), True),
    ),
    "initContainers": (
        mark("no container runs before a task: do this in the program or image"),
        True,
    ),
    "restartPolicy": (mark("a TFJob ignores it and uses restartPolicy of the type"), False),
    "automountServiceAccountToken": (mark("tasks are given no token"), True),
    "activeDeadlineSeconds": (mark("use runPolicy.activeDeadlineSeconds, for the run"), False),
    "securityContext": (mark("tasks run as the user of the policy, without privileges"), False),
}  # fmt: skip
_OF_CONTAINER: Reasons = {
    "imagePullPolicy": (_POLICY, False),
    "securityContext": (mark("tasks run as the user of the policy, without privileges"), False),
    **dict.fromkeys(
        ("livenessProbe", "readinessProbe", "startupProbe"),
        (mark("instead of probes, TFCluster watches what the program does"), False),
    ),
    "lifecycle": (mark("only its program runs when a task starts or ends"), True),
    "volumeDevices": (mark("tasks have no block devices"), True),
    **dict.fromkeys(
        ("terminationMessagePath", "terminationMessagePolicy"),
        (mark("TFCluster reports the end of a task itself"), False),
    ),
}  # fmt: skip
_OF_VOLUMES: Reasons = {
    "emptyDir": (
        mark("tasks have no scratch volume: use $TFCLUSTER_OUTPUT_DIR, /tmp or a claim"), True
    ),
    "hostPath": (mark("tasks do not see the disk of their node: mount a claim"), True),
    "configMap": (mark("tasks do not mount ConfigMaps: put the files into the image"), True),
    "nfs": (mark("tasks mount claims and secrets only: ask for a claim on that server"), True),
}  # fmt: skip
_NO_SUCH_VOLUME = mark("tasks mount claims and secrets only")
_HARMLESS_MOUNTS = {
    "/tmp": mark("every task has a /tmp of its own"),  # noqa: S108 - no file is made here
    "/dev/shm": mark("tasks have the shared memory that every container has, 64 MiB by default"),  # noqa: S108
}
_OF_VARIABLES: Reasons = {
    "configMapKeyRef": (mark("tasks do not read ConfigMaps: write the values into env"), True),
    "fieldRef": (
        mark("use TFCLUSTER_TASK for the name of the task, TFCLUSTER_NAME for the run"), True
    ),
    "resourceFieldRef": (mark("write the value into env"), True),
}  # fmt: skip
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu")
_GANG_ANNOTATIONS = ("scheduling.k8s.io/", "scheduling.volcano.sh/", "volcano.sh/")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True)
class _Volume:
    """A volume of a pod: a claim, a secret, or an unsupported volume with the reason in `why`."""

    path: str
    claim: str = ""
    secret: str = ""
    read_only: bool = False
    why: str = ""
    needed: bool = True


class _PodReader:
    """Reads one pod template into a `_Type`."""

    def __init__(self, notes: _Notes, made: _Type) -> None:
        self.notes, self.made = notes, made

    def read(self, template: _Fields, command: Sequence[str]) -> None:
        """Take the fields that a TFCluster supports, and add remarks for the others."""
        head = template.below("metadata")
        where = head.at("annotations")
        for name, text in head.pairs("annotations").items():
            if name.startswith(_GANG_ANNOTATIONS):
                why = _("TFCluster decides which tasks start together")
                self.notes.remark(f"{where}.{name}", text, why)
            else:
                self.made.annotations[name] = (text, f"{where}.{name}")
        head.leave("labels", _("tasks have the labels of their run"))
        head.drop("name", "namespace", "creationTimestamp")
        head.finish({}, _NO_SUCH_POD_FIELD)
        pod = template.below("spec")
        template.finish({}, _UNKNOWN)
        self._read_pod(pod, command)

    def _read_pod(self, pod: _Fields, command: Sequence[str]) -> None:
        container = None
        for each in pod.each("containers"):
            name = each.take("name", str) or ""
            if name == CONTAINER and container is None:
                container = each
            else:
                self.notes.remark(each.path, name, _(_ONLY_OTHERS), needed=True)
        volumes = {each.take("name", str) or "": each for each in pod.each("volumes")}
        for secret in pod.each("imagePullSecrets"):
            if registry := secret.take("name", str):
                self.made.pull_secrets[registry] = secret.path
            secret.finish({}, _UNKNOWN)
        scheduler = pod.take("schedulerName", str)
        if scheduler not in (None, "", "default-scheduler"):
            why = _("the policy decides whether Volcano starts all tasks together (`gang`)")
            self.notes.remark(pod.at("schedulerName"), scheduler, why)
        grace = pod.take("terminationGracePeriodSeconds", int)
        if grace is not None:
            self.made.grace = (grace, pod.at("terminationGracePeriodSeconds"))
        if container is not None:
            self._read_container(container, volumes, command)
        else:
            allowed = _("a TFJob runs the container that is called {name}").format(name=CONTAINER)
            self.notes.problem(pod.at("containers"), None, allowed)
        pod.finish(_OF_POD, _NO_SUCH_POD_FIELD)

    def _read_container(
        self, container: _Fields, volumes: Mapping[str, _Fields], command: Sequence[str]
    ) -> None:
        made = self.made
        image = container.take("image", str)
        if not image:
            self.notes.problem(container.at("image"), image, _("name the image of the tasks"))
        made.image = (image or "", container.at("image"))
        for source in container.each("envFrom"):
            self._read_secret_variables(source)
        for variable in container.each("env"):
            self._read_variable(variable)
        words, arguments = container.texts("command") or list(command), container.texts("args")
        if not words:
            allowed = _(
                "only the registry knows the image's default command: give it, as in `tfcluster "
                "import job.yaml -- python /opt/train.py`"
            )
            bare = _("; if the image has no entry point and args are the whole command: `-- env`")
            told = allowed + bare if arguments else allowed
            self.notes.problem(container.at("command"), None, told)
        made.words = [self._expanded(word) for word in (*words, *arguments)]
        made.folder = container.take("workingDir", str) or ""
        known = {name: self._volume(volume) for name, volume in volumes.items()}
        mounted = {self._mount(mount, known) for mount in container.each("volumeMounts")}
        for unused in sorted(known.keys() - mounted):
            self.notes.remark(known[unused].path, unused, _("nothing mounts it"))
        self._read_resources(container.below("resources"))
        for port in container.each("ports"):
            number, name = port.take("containerPort", int), port.take("name", str)
            port.drop("protocol")
            port.finish({}, _NO_SUCH_POD_FIELD)
            if number != TASK_PORT:
                why = _("other tasks of the run reach port {port} only")
                told = why.format(port=TASK_PORT)
                self.notes.remark(port.path, name or number, told, needed=True)
        container.finish(_OF_CONTAINER, _NO_SUCH_POD_FIELD)

    def _expanded(self, text: str) -> str:
        """Expand `$(NAME)` as the kubelet does. A variable whose value is a secret is replaced by a
        mark: its name between two NULs.
        """

        def replaced(found: re.Match[str]) -> str:
            name = found[1]
            if name is None:
                return "$"
            if name in self.made.env:
                return self.made.env[name][0]
            secret = any(name in used.get("variables", ()) for used, _path in self.made.secrets)
            return f"\0{name}\0" if secret else found[0]

        return _REFERENCE.sub(replaced, text)

    def _read_variable(self, variable: _Fields) -> None:
        name = variable.take("name", str) or ""
        text = self._expanded(variable.take("value", str) or "")
        source = variable.below("valueFrom")
        if name.startswith(validation.RESERVED_ENV):
            why = _("TFCluster sets this variable itself")
            self.notes.remark(variable.path, name, why)
        elif not re.fullmatch(ENV_NAME_PATTERN, name) or "\0" in text:
            why = _("use letters, digits and '_' in a name, and no secret inside a value")
            self.notes.remark(variable.path, name, why, needed=True)
        elif source.keys():
            self._read_reference(name, source)
        else:
            self.made.env[name] = (text, variable.path)
        variable.finish({}, _UNKNOWN)

    def _read_reference(self, name: str, source: _Fields) -> None:
        """Read a variable whose value is a key of a secret; other sources are not supported."""
        key = source.below("secretKeyRef")
        if secret := key.take("name", str):
            used = {"name": secret, "variables": {name: key.take("key", str) or ""}}
            self.made.secrets.append((used, key.path))
        key.leave("optional", _(_SECRET_IS_NEEDED))
        key.finish({}, _UNKNOWN)
        for kind in source.keys():  # noqa: SIM118 - no mapping
            why, needed = _OF_VARIABLES.get(kind, (_UNKNOWN, True))
            source.leave(kind, f"{name}: {_(why)}", needed)

    def _read_secret_variables(self, source: _Fields) -> None:
        source.leave("prefix", _("name each key of the secret under `variables`"), needed=True)
        secret = source.below("secretRef")
        if name := secret.take("name", str):
            self.made.secrets.append(({"name": name}, secret.path))
        secret.leave("optional", _(_SECRET_IS_NEEDED))
        secret.finish({}, _UNKNOWN)
        why, needed = _OF_VARIABLES["configMapKeyRef"]
        source.leave("configMapRef", _(why), needed)
        source.finish({}, _UNKNOWN)

    def _volume(self, volume: _Fields) -> _Volume:
        claim = volume.below("persistentVolumeClaim")
        secret = volume.below("secret")
        if name := claim.take("claimName", str):
            read_only = claim.take("readOnly", bool) or False
            made = _Volume(volume.path, claim=name, read_only=read_only)
        elif name := secret.take("secretName", str):
            made = _Volume(volume.path, secret=name)
            secret.leave("items", _("each key becomes a file of its own name"), needed=True)
            secret.leave("optional", _(_SECRET_IS_NEEDED))
            secret.leave("defaultMode", _("user and group of the tasks may read its files"))
        else:
            kind = next(iter(volume.keys()), "emptyDir")
            why, needed = _OF_VOLUMES.get(kind, (_NO_SUCH_VOLUME, True))
            made = _Volume(volume.at(kind), why=_(why), needed=needed)
            volume.drop(*volume.keys())
        for each in (claim, secret, volume):
            each.finish({}, _UNKNOWN)
        return made

    def _mount(self, mount: _Fields, volumes: Mapping[str, _Volume]) -> str:
        """Take a mount, and return the name of its volume."""
        name, path = mount.take("name", str) or "", mount.take("mountPath", str) or ""
        path = path.rstrip("/") or path
        read_only = mount.take("readOnly", bool) or False
        sub_path = (mount.take("subPath", str) or "").strip("/")
        expression = mount.take("subPathExpr", str)
        mount.finish({}, _NO_SUCH_POD_FIELD)
        volume = volumes.get(name)
        if volume is None:
            self.notes.problem(mount.at("name"), name, _("there is no volume of this name"))
        elif expression is not None:
            why = _("all tasks mount the same folder: use subPath")
            self.notes.remark(mount.at("subPathExpr"), expression, why, needed=True)
        elif volume.claim:
            used: dict[str, Any] = {"claim": volume.claim, "path": path}
            used |= {"subPath": sub_path} if sub_path else {}
            used |= {"readOnly": True} if read_only or volume.read_only else {}
            self.made.volumes.append((used, mount.path))
        elif volume.secret and not sub_path:
            self.made.secrets.append(({"name": volume.secret, "path": path}, mount.path))
        elif volume.secret:
            why = _("the keys of a secret become files of one folder")
            self.notes.remark(mount.at("subPath"), sub_path, why, needed=True)
        elif path in _HARMLESS_MOUNTS:
            self.notes.remark(volume.path, path, _(_HARMLESS_MOUNTS[path]))
        else:
            self.notes.remark(volume.path, path, volume.why, volume.needed)
        return name

    def _read_resources(self, resources: _Fields) -> None:
        limits, requests = resources.below("limits"), resources.below("requests")
        for key, name in (("cpu", "cpu"), ("memory", "memory")):
            limit, request = limits.amount(key), requests.amount(key)
            value, path = (limit, limits.at(key)) if limit else (request, requests.at(key))
            if value and not limit:
                why = _("a task may use no more than this: the request becomes its limit")
                self.notes.differs(path, value, why)
            elif request and request != limit:
                self.notes.differs(
                    requests.at(key), request, _("a task reserves as much as its limit")
                )
            if value:
                self.made.resources[name] = (_cores(value) if key == "cpu" else value, path)
        for key in _GPUS:
            limit, request = limits.amount(key), requests.amount(key)
            if not (limit or request):
                continue
            path = limits.at(key) if limit else requests.at(key)
            count = limit or request
            self.made.resources["gpu"] = (int(count) if count.isdecimal() else count, path)
            if key != _GPUS[0]:
                why = _("the policy decides which resource a GPU is (`gpuResource`)")
                self.notes.differs(path, count, why)
        why = _("tasks ask for CPU, memory and GPUs only")
        for each in (limits, requests):
            for key in each.keys():  # noqa: SIM118 - no mapping
                each.leave(key, why, needed=key != "ephemeral-storage")
        resources.finish({}, _NO_SUCH_POD_FIELD)


def _cores(text: str) -> float | str:
    """Return a CPU quantity in cores; if the text is no quantity, return it unchanged."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(m?)", text)
    return float(found[1]) / (1000 if found[2] else 1) if found else text


# -- the whole job ---------------------------------------------------------------------------------

_CLEANED: Mapping[str, str] = {
    "None": mark("tasks that still run end with the run, and its pods are deleted an hour later"),
    "All": mark("pods are deleted an hour after the end of the run"),
    "Running": "",
}
_RESTARTING, _BY_EXIT_CODE = ("OnFailure", "Always"), "ExitCode"
_RESTARTS = ("Never", _BY_EXIT_CODE, *_RESTARTING)
_DECIDING = (TaskType.CHIEF, TaskType.WORKER)
_MOST_RETRIES = 100
_FOR_ALL = mark("every task of the run gets it")


@dataclass
class _Entry:
    """A value for the spec, with its paths in the spec (`at`) and in the manifest (`source`). If
    `listed` is true, the value is an item of a list. If `droppable` is false, the job cannot be
    converted without the value.
    """

    at: tuple[str, ...]
    value: Any
    source: str
    listed: bool = False
    droppable: bool = True
    needed: bool = False
    field: str = ""
    dropped: bool = False


@dataclass
class _Draft:
    """A spec under construction."""

    notes: _Notes
    name: str
    types: list[_Type] = field(default_factory=list)
    entries: list[_Entry] = field(default_factory=list)

    def add_policy(self, run: _Fields) -> None:
        """Convert `runPolicy`, and the restart policies of the task types."""
        path = run.at("activeDeadlineSeconds")
        deadline = run.take("activeDeadlineSeconds", int)
        if deadline is None:
            why = _(
                "a TFJob then has no limit; a run ends after 24 hours, unless it sets another limit"
            )
            self.notes.differs(path, None, why)
        else:
            self._put(("lifecycle", "maxDuration"), deadline, path)
        kept = run.take("ttlSecondsAfterFinished", int)
        if kept is not None:
            self._put(("lifecycle", "keepFor"), kept, run.at("ttlSecondsAfterFinished"))
        cleaned = run.take("cleanPodPolicy", str)
        why = _CLEANED.get(cleaned or "None", _UNKNOWN)
        if why and (cleaned is not None or self.tasks > 1):
            self.notes.differs(run.at("cleanPodPolicy"), cleaned, _(why))
        self._put_restarts(run.take("backoffLimit", int), run.at("backoffLimit"))
        scheduling = run.below("schedulingPolicy")
        if (least := scheduling.take("minAvailable", int)) is not None and least != self.tasks:
            why, needed = _OF_SCHEDULING["minAvailable"]
            self.notes.remark(scheduling.at("minAvailable"), least, _(why), needed)
        scheduling.finish(_OF_SCHEDULING, _UNKNOWN)
        run.finish(_OF_RUN, _UNKNOWN)
        waits = [each.grace for each in self.types if each.grace is not None]
        if waits:
            self._put(("lifecycle", "grace"), *max(waits))

    @property
    def tasks(self) -> int:
        """The number of tasks of all types."""
        return sum(each.count for each in self.types)

    def _put_restarts(self, limit: int | None, path: str) -> None:
        for each in self.types:
            if each.restart not in _RESTARTS:
                words = _("use one of {words}").format(words=", ".join(_RESTARTS))
                self.notes.problem(f"{each.path}.restartPolicy", each.restart, words)
        again = [each for each in self.types if each.restart in _RESTARTING]
        retried = any(each.task_type in _DECIDING for each in again)
        if retried:
            count = RETRIES if limit is None else min(limit, _MOST_RETRIES)
            self._put(("lifecycle", "restarts"), count, path)
            if limit is None:
                told = _("a TFJob is then retried without limit, the run at most {count} times")
            elif limit > count:
                told = _("the run is retried at most {count} times")
            else:
                told = _(
                    "the last retry may succeed; a TFJob fails as soon as its last retry begins"
                )
            if count:
                self.notes.differs(path, limit, told.format(count=count))
        by_exit_code = any(each.restart == _BY_EXIT_CODE for each in self.types)
        if by_exit_code and limit is not None:
            self._put(("lifecycle", "heals"), min(limit, _MOST_RETRIES), path)
        if limit and not (retried or by_exit_code):
            why = _("it has no effect: neither the chief nor the workers are retried")
            self.notes.remark(path, limit, why)
        for each in self.types:
            if why := _restart_remark(each, again, retried):
                self.notes.differs(f"{each.path}.restartPolicy", each.restart, why)
        if kept := [each for each in self.types if each.restart == "Never"]:
            why = _("a task that was killed or lost is started again, at most `heals` times")
            self.notes.differs(f"{kept[0].path}.restartPolicy", "Never", why)

    def add_success(self, said: _Fields) -> None:
        """Convert `successPolicy`."""
        policy = said.take("successPolicy", str) or ""
        counts = {each.task_type: each.count for each in self.types}
        path = said.at("successPolicy")
        if policy not in ("", "AllWorkers"):
            self.notes.remark(path, policy, _("use AllWorkers, or leave it out"))
        elif not policy and TaskType.CHIEF not in counts and counts.get(TaskType.WORKER, 0) > 1:
            # In a cluster without a chief, the success policy `chief` refers to worker 0, like a
            # TFJob without a success policy.
            self._put(("lifecycle", "successPolicy"), SuccessPolicy.CHIEF.value, path)

    def spec(self) -> Spec | None:
        """Return the spec. If the manifest cannot be converted, add a problem and return None.
        Values that are not allowed are dropped with a remark.
        """
        self._put_tasks()
        while not self.notes.problems:
            made = self._checked()
            if isinstance(made, Spec):
                return made
            for problem in made:
                self._leave_out(problem)
            self.entries = [entry for entry in self.entries if not entry.dropped]
        return None

    def _checked(self) -> Spec | tuple[Problem, ...]:
        try:
            return validation.validate(self._built())
        except InvalidRequest as error:
            return error.problems

    def _put(
        self,
        at: tuple[str, ...],
        value: object,
        source: str,
        *,
        listed: bool = False,
        droppable: bool = True,
        needed: bool = False,
    ) -> None:
        self.entries.append(_Entry(at, value, source, listed, droppable, needed))

    def _put_tasks(self) -> None:
        self._put(("replicas", "worker", "count"), 0, "spec.tfReplicaSpecs", droppable=False)
        first = self.types[0]
        for each in self.types:
            at = ("replicas", each.task_type.value)
            self._put((*at, "count"), each.count, f"{each.path}.replicas", droppable=False)
            for key, (value, path) in each.resources.items():
                self._put((*at, "resources", key), value, path)
            if each.image[0] != first.image[0]:
                allowed = _("all tasks of a TFCluster use one image, here {image}")
                told = allowed.format(image=first.image[0])
                self.notes.problem(each.image[1], each.image[0], told)
        self._put(("image",), *first.image, droppable=False)
        self._put(("program",), _program(self.types), f"{first.path}.template", droppable=False)
        for name, (value, path) in _common(self.types).items():
            self._put(("env", name), value, path, needed=True)
        self._put_pods()

    def _put_pods(self) -> None:
        """Add the settings of all pods of a run: the settings of all task types together."""
        for key, found in (
            ("volumes", [each.volumes for each in self.types]),
            ("secrets", [_merged(each.secrets) for each in self.types]),
            (
                "imagePullSecrets",
                [[*each.pull_secrets.items()] for each in self.types],
            ),
        ):
            seen: list[Any] = []
            for value, path in (item for items in found for item in items):
                if value in seen:
                    continue
                seen.append(value)
                self._put(("pods", key), value, path, listed=True, needed=True)
                if not all(any(value == other for other, _p in items) for items in found):
                    self.notes.differs(path, value, _(_FOR_ALL))
        for each in self.types:
            for name, (text, path) in each.annotations.items():
                at = ("pods", "annotations", name)
                if all(entry.at != at for entry in self.entries):
                    self._put(at, text, path)
                    why = _("the launch is refused unless the administrator's policy allows it")
                    self.notes.differs(path, text, why)
                elif any(entry.at == at and entry.value != text for entry in self.entries):
                    self.notes.differs(path, text, _("all tasks have the same annotations"))

    def _built(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for entry in self.entries:
            inner = spec
            for part in entry.at[:-1]:
                inner = inner.setdefault(part, {})
            entry.field = ".".join(("spec", *entry.at))
            if entry.listed:
                items = inner.setdefault(entry.at[-1], [])
                entry.field += f"[{len(items)}]"
                items.append(entry.value)
            else:
                inner[entry.at[-1]] = entry.value
        return spec

    def _leave_out(self, problem: Problem) -> None:
        """Drop the value that a problem concerns, with a remark; if the value is not droppable,
        keep the problem.
        """
        field, allowed = str(problem.field), str(problem.allowed)
        for entry in reversed(self.entries):
            if not re.match(rf"{re.escape(entry.field)}($|[.\[])", field):
                continue
            if not entry.droppable:
                self.notes.problem(entry.source, problem.value, allowed)
            elif not entry.dropped:
                self.notes.remark(entry.source, problem.value, allowed, entry.needed)
                entry.dropped = True
            return
        self.notes.problem("spec", problem.value, f"{field}: {allowed}")


def _restart_remark(each: _Type, again: Sequence[_Type], retried: bool) -> str:
    """Return a text that says how restarts of a task type will differ from the TFJob; empty if they
    will not.
    """
    if each.restart == _BY_EXIT_CODE:
        return _(
            "a task that was killed from outside is started again, at most `heals` times; a "
            "crash, too little memory and an exit code of 128 or more count as failures"
        )
    if each in again and not retried:
        return _("it is not retried, because the chief and the workers are not")
    if each.restart == "Always" and each.task_type is not TaskType.PS:
        return _("a task that succeeded is not started again")
    if retried and each not in again:
        return _("the whole run is retried, this type included")
    return ""


def _merged(secrets: Sequence[tuple[dict[str, Any], str]]) -> list[tuple[dict[str, Any], str]]:
    """Return the secrets of one task type; entries for variables of the same secret are merged."""
    found: list[tuple[dict[str, Any], str]] = []
    by_name: dict[str, dict[str, Any]] = {}
    for used, path in secrets:
        variables = used.get("variables")
        if variables and used["name"] in by_name:
            by_name[used["name"]]["variables"] |= variables
            continue
        made = {**used, "variables": dict(variables)} if variables else dict(used)
        if variables:
            by_name[used["name"]] = made
        found.append((made, path))
    return found


def _common(types: Sequence[_Type]) -> dict[str, tuple[str, str]]:
    """Return the environment variables that have the same value in all task types."""
    first, *others = types
    return {
        name: (value, path)
        for name, (value, path) in first.env.items()
        if all(each.env.get(name, ("\0",))[0] == value for each in others)
    }


# -- the command of the image ----------------------------------------------------------------------


def _program(types: Sequence[_Type]) -> dict[str, Any]:
    """Return the program: the command of the containers, or a shell script if the commands of the
    task types differ or contain a secret.
    """
    first, *others = types
    made = (first.words, first.folder, first.env.keys())
    same = all((each.words, each.folder, each.env.keys()) == made for each in others)
    if same and first.env.keys() == _common(types).keys() and "\0" not in "".join(first.words):
        folder = {"workingDir": first.folder} if first.folder else {}
        return {"command": first.words, **folder}
    return {"inline": _script(types), "entrypoint": SCRIPT}


def _script(types: Sequence[_Type]) -> str:
    """Return a shell script that starts the command of the task's type, with the variables that
    only this type has.
    """
    common = _common(types)
    steps = {each.task_type.value: _steps(each, common) for each in types}
    first = next(iter(steps.values()))
    lines = ["# The command of the image, as the TFJob has it."]
    if all(each == first for each in steps.values()):
        return "\n".join([*lines, *first, ""])
    lines.append('case "$TFCLUSTER_TASK_TYPE" in')
    for name, each in steps.items():
        lines += [f"{name})", *(f"  {line}" for line in each), "  ;;"]
    return "\n".join([*lines, "esac", ""])


def _steps(made: _Type, common: Mapping[str, object]) -> list[str]:
    # By default, a command starts in the image's working folder. The script finds this folder as
    # the working folder of its parent, the task's first process.
    folder = shlex.quote(made.folder) if made.folder else '"/proc/$PPID/cwd"'
    lines = [f"cd -P {folder} || exit"]
    for name, (value, _path) in made.env.items():
        if name not in common:
            lines.append(f"export {name}={shlex.quote(value)}")
    return [*lines, "exec " + " ".join(map(_shell_word, made.words))]


def _shell_word(word: str) -> str:
    """Return a word in the syntax of a shell. In `word`, a reference to a variable is its name
    between two NULs.
    """
    parts = word.split("\0")
    said = [shlex.quote(part) if part else "" for part in parts[::2]]
    names_in = [f'"${{{name}}}"' for name in parts[1::2]]
    text = "".join(a + b for a, b in zip(said, [*names_in, ""], strict=True))
    return text or "''"
