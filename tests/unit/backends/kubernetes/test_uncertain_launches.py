"""Launches on Kubernetes with a lost answer, an old cluster, or a missing right: a launch creates
exactly one run or fails with a message.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.kube_server import KubeServer, Refusal
from support.kubernetes_backend import NAMESPACE, backend, publish

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import (
    BackendUnavailable,
    Conflict,
    InvalidRequest,
    NameTaken,
    NotAllowed,
    PreflightRefused,
)
from tfcluster_magic.kube.api import access, labels
from tfcluster_magic.kube.api.client import API_PREFIXES, path
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.launch_checks.kubernetes import LaunchFacts
from tfcluster_magic.quota.preflight import Limit
from tfcluster_magic.spec import Annotations, Mode, Replicas, ReplicaSet, Resources, Spec

SPEC = Spec(mode=Mode.IN_GRAPH)
RUNS = path("tfclusters", NAMESPACE)
NOW = "2026-01-31T12:00:00Z"


@pytest.fixture
def server() -> Iterator[KubeServer]:
    running = KubeServer()
    publish(running)
    yield running
    running.close()


@pytest.fixture
def laptop(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KubernetesBackend:
    """Return a user's backend that repeats requests after short pauses."""
    monkeypatch.setattr("tfcluster_magic.backends.kubernetes.backend.RETRY_PAUSES", (0.01, 0.01))
    return backend(server, tmp_path, monkeypatch)


def launch(laptop: KubernetesBackend, name: str = "digits") -> str:
    return laptop.create(LaunchRequest(cluster=name, spec=SPEC)).metadata.name


def test_what_people_write_is_in_annotations(server: KubeServer, laptop: KubernetesBackend) -> None:
    """Note, display name and tags are merged into the object's annotations, which kubectl may write
    as well; invalid annotations are ignored and stay until changed.
    """
    where = path("tfclusters", NAMESPACE, launch(laptop))
    before = server.api().get(where)
    wish = Annotations("rate 0.1", "First try", ("baseline", "学习率"))
    assert laptop.annotate("digits", lambda _now: wish).metadata.annotations == wish
    after = server.api().get(where)
    written = after["metadata"]["annotations"]
    assert {name: written.pop(f"tfcluster.dev/{name}") for name in WRITTEN} == {
        "note": "rate 0.1",
        "display-name": "First try",
        "tags": "baseline,学习率",
    }
    assert (written, after["spec"]) == (before["metadata"]["annotations"], before["spec"])

    odd = {
        "note": "a\nb" * 500,
        "display-name": "\x1b[2Jx" * 99,
        "tags": " b, a b,-x,,b," + "c" * 41,
    }
    told = {f"tfcluster.dev/{name}": text for name, text in odd.items()}
    server.api().merge(where, {"metadata": {"annotations": told}})
    read = Annotations(("a b" * 500)[:500], "x" * 99, ("b",))
    assert laptop.get("digits").metadata.annotations == read
    laptop.annotate("digits", lambda now: replace(now, tags=("b", "d")))
    written = server.api().get(where)["metadata"]["annotations"]
    assert written["tfcluster.dev/tags"] == "b,d"
    assert written["tfcluster.dev/note"] == odd["note"]
    assert laptop.annotate("digits", lambda _: Annotations()).metadata.annotations == Annotations()
    assert not {f"tfcluster.dev/{name}" for name in WRITTEN} & written_names(server, where)


WRITTEN = ("note", "display-name", "tags")


def written_names(server: KubeServer, where: str) -> set[str]:
    """Return the names of the annotations of an object."""
    return set(server.api().get(where)["metadata"]["annotations"])


def test_a_tag_is_added_to_a_record_that_changes(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """A change of an annotation does not undo concurrent changes by other clients; after too many
    conflicts, the change is refused with a message.
    """
    where = path("tfclusters", NAMESPACE, launch(laptop))
    tried = []

    def add(now: Annotations) -> Annotations:
        tried.append(now.tags)
        if len(tried) < 3:  # another client adds a tag between read and write
            told = {"tfcluster.dev/tags": ",".join((*now.tags, f"t{len(tried)}"))}
            server.api().merge(where, {"metadata": {"annotations": told}})
        return replace(now, tags=(*now.tags, "mine"))

    assert laptop.annotate("digits", add).metadata.tags == ("t1", "t2", "mine")
    assert tried == [(), ("t1",), ("t1", "t2")]

    def never(now: Annotations) -> Annotations:
        server.api().merge(where, {"metadata": {"annotations": {"x": str(time.monotonic_ns())}}})
        return replace(now, tags=("other",))

    with pytest.raises(Conflict):
        laptop.annotate("digits", never)


def posts(server: KubeServer) -> int:
    return sum(method == "POST" for method, _path in server.calls)


def test_a_lost_answer_makes_no_second_run(server: KubeServer, laptop: KubernetesBackend) -> None:
    """If the connection is cut after the POST was carried out, the launch returns the run that the
    POST created, and creates no second run.
    """
    server.loses = lambda method, _path: method == "POST"
    assert launch(laptop) == "digits-1"
    assert server.names("tfclusters") == ["digits-1"]


def test_a_post_that_never_arrived_is_sent_again(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """A POST that was refused for a moment is repeated by the same launch, under the same name."""
    server.refuses = lambda method, _path: (
        Refusal(503, "ServiceUnavailable") if method == "POST" and posts(server) < 3 else None
    )
    assert launch(laptop) == "digits-1"
    assert server.names("tfclusters") == ["digits-1"]


def test_whether_it_was_launched_is_not_known(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """If the server goes down during the POST, the error says that the run may exist."""
    server.loses = lambda _method, _path: posts(server) > 0
    with pytest.raises(BackendUnavailable, match="digits-1 may have been launched"):
        launch(laptop)


def test_a_name_that_somebody_else_was_faster_to_take(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """A launch never returns the run of another launch with the same name."""
    other = {"metadata": {"name": "digits-1"}, "spec": {"mode": "in-graph"}}
    added = False

    def meanwhile(method: str, _path: str) -> Refusal | None:
        nonlocal added
        if method == "POST" and not added:
            added = True
            server.put(f"{RUNS}/digits-1", other)
        return None

    server.refuses = meanwhile
    with pytest.raises(NameTaken):
        launch(laptop)
    assert server.names("tfclusters") == ["digits-1"]


def test_a_field_that_the_cluster_does_not_know_is_refused(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """A launch requests strict validation, and a field that an older TFCluster does not know is
    named.
    """
    words = 'strict decoding error: unknown field "spec.pods.dataClaim"'
    server.refuses = lambda method, _path: (
        Refusal(400, "BadRequest", words) if method == "POST" else None
    )
    with pytest.raises(InvalidRequest, match=r"older than this package") as refused:
        launch(laptop)
    assert [problem.field for problem in refused.value.problems] == ["spec.pods.dataClaim"]
    ((_method, _path, query),) = (each for each in server.queries if each[0] == "POST")
    assert query["fieldValidation"] == ["Strict"]


@pytest.fixture
def pod(server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look like a pod with a service account, and write a kubeconfig for the
    server.
    """
    backend(server, tmp_path, monkeypatch)
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("token")
    (folder / "namespace").write_text(NAMESPACE)
    monkeypatch.setattr(access, "SERVICE_ACCOUNT_FOLDER", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")


def forbid(server: KubeServer, installed: bool) -> None:
    """Deny the pod's account all reads; `installed` says whether the cluster has TFCluster."""
    words = (
        'configmaps "tfcluster-options" is forbidden: User "system:serviceaccount:alice:default" '
        'cannot get resource "configmaps" in API group "" in the namespace "alice"'
    )

    def refuse(_method: str, where: str) -> Refusal | None:
        if where.startswith("/api/v1/namespaces/"):
            return Refusal(403, "Forbidden", words)
        return None if installed else Refusal(404, "NotFound")

    server.objects[API_PREFIXES["tfclusters"]] = {"kind": "APIResourceList"}
    server.refuses = refuse


@pytest.mark.usefixtures("pod")
def test_a_pod_that_may_not_ask_is_told_which_right_it_lacks(server: KubeServer, pod: Path) -> None:
    """If TFCluster is installed and the pod's account has no rights, nothing runs in the pod by
    mistake. The error names the missing right and the ClusterRole that has it, and says how to run
    clusters in the pod without this right.
    """
    forbid(server, installed=True)
    with pytest.raises(NotAllowed, match="may not get configmaps in namespace alice") as told:
        ClusterManager().list()
    assert "ClusterRole tfcluster-user" in str(told.value)
    assert "TFCLUSTER_BACKEND=local" in str(told.value)


@pytest.mark.usefixtures("pod")
def test_a_pod_of_a_cluster_without_tfcluster_runs_clusters_itself(
    server: KubeServer,
) -> None:
    """If TFCluster is not installed in the cluster, a pod without rights runs clusters itself, like
    any machine.
    """
    forbid(server, installed=False)
    assert isinstance(ClusterManager().backend, LocalBackend)


@pytest.mark.usefixtures("pod")
def test_a_pod_whose_namespace_nobody_serves_runs_clusters_itself(
    server: KubeServer,
) -> None:
    """A pod in a namespace without the operator's options runs clusters itself."""
    assert isinstance(ClusterManager().backend, KubernetesBackend)
    server.remove(path("configmaps", NAMESPACE, labels.OPTIONS))
    assert isinstance(ClusterManager().backend, LocalBackend)


def test_boards_ask_for_the_log_folder_once(
    server: KubeServer, laptop: KubernetesBackend, tmp_path: Path
) -> None:
    """However many TensorBoards are opened, the path of the log folder is requested from the
    cluster only once.
    """
    publish(server, log_dir=str(tmp_path))
    boards = ClusterManager(laptop).boards
    assert {boards.log_root for _ in range(5)} == {str(tmp_path)}
    where = path("configmaps", NAMESPACE, labels.OPTIONS)
    assert [each for each in server.calls if each == ("GET", where)] == [("GET", where)]


def test_files_of_another_machine_are_not_read_for_progress(
    server: KubeServer, laptop: KubernetesBackend, tmp_path: Path
) -> None:
    """A folder of this machine with the same path as a run's output is not read for the run's
    progress.
    """
    log = tmp_path / "worker-0.log"
    log.write_text("old\n")
    launch(laptop)
    now = server.objects[f"{RUNS}/digits-1"]
    paths = {"output": str(tmp_path), "logs": str(tmp_path)}
    server.put(f"{RUNS}/digits-1", {**now, "status": {"phase": "Running", "paths": paths}})
    manager = ClusterManager(laptop)
    run = manager.status("digits")
    assert manager.progress(run) is None
    assert not manager.notes(run)
    assert manager._observer._readers == {}


def told(server: KubeServer, laptop: KubernetesBackend, spec: Spec, **options: object) -> list[str]:
    """Return the warnings of a launch of `spec`. The operator has published `options`, such as
    `cpu`: how many cores there are in total, and how many are free.
    """
    publish(server, LaunchFacts(policy=Policy(nodes_are_fixed=False)), **options)
    verdict = laptop.preflight(spec)
    assert verdict.problems == ()
    return list(verdict.warnings)


def workers(count: int, **asked: object) -> Spec:
    resources = Resources(**asked)  # type: ignore[arg-type]
    worker = Replicas(count=count, resources=resources)
    return Spec(mode=Mode.IN_GRAPH, replicas=ReplicaSet(worker=worker))


def test_warnings_of_room_count_what_kubernetes_counts(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """If the requested CPU and memory may not be free now, the launch warns, also if tasks get the
    administrator's defaults. The warning says "about" before the free amount, because other
    launches may change it.
    """
    (cpu,) = told(server, laptop, workers(8, cpu=2.0), cpu=Limit(total=16, free=12))
    assert cpu == (
        "it may have to wait: it asks for 16 CPU in total, and about 12 CPU of 16 CPU is free"
    )
    assert told(server, laptop, workers(6, cpu=2.0), cpu=Limit(total=16, free=12)) == []
    (memory,) = told(server, laptop, workers(4), memory=Limit(total=2**33, free=2**31))
    assert memory.endswith("4Gi in total, and about 2Gi of 8Gi is free")


def test_what_may_have_to_wait_is_said_at_launch_and_not_kept(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """The launch warns that the run may wait. The record does not keep that warning, because the
    run's status says so while the run waits.
    """
    spec = workers(8, cpu=2.0)
    publish(server, LaunchFacts(policy=Policy(nodes_are_fixed=False)), cpu=Limit(total=16, free=12))
    made = laptop.create(LaunchRequest(cluster="big", name_given=True, spec=spec))
    assert any("may have to wait" in text for text in made.status.warnings)
    assert laptop.get(made.metadata.name).status.warnings == ()


def test_gpus_that_no_node_has_yet(server: KubeServer, laptop: KubernetesBackend) -> None:
    """If nodes are added on demand, a run waits for a missing GPU, and no message mentions this
    machine or its driver.
    """
    nothing = Limit(total=0, free=0)
    (gpu,) = told(server, laptop, workers(2, gpu=1), gpu=nothing)
    assert gpu == "it may have to wait: it asks for 2 GPUs, and no node has nvidia.com/gpu now"


def test_a_record_that_stays_is_not_said_to_be_deleted(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """`delete` names the finalizer that keeps a run's record, and says how to remove it. Once the
    finalizer is removed, the record is deleted.
    """
    name = launch(laptop)
    where = f"{RUNS}/{name}"
    kept = {"metadata": {"finalizers": ["example.com/hold"]}}
    server.api().merge(where, {**kept, "status": {"phase": "Stopped", "releasedTime": NOW}})
    with pytest.raises(Conflict, match=r"example\.com/hold.*kubectl -n .* patch tfcluster") as told:
        laptop.delete(name)
    assert '{"metadata":{"finalizers":null}}' in str(told.value)
    assert laptop.get(name).spec.stop is not None
    server.api().merge(where, {"metadata": {"finalizers": None}})
    assert laptop.list() == []


def too_many(name: str) -> Refusal:
    """Return Kubernetes' answer when a quota counts TFClusters and is used up."""
    key = "count/tfclusters.tfcluster.dev"
    words = f"requested: {key}=1, used: {key}=3, limited: {key}=3"
    said = f'tfclusters.tfcluster.dev "{name}" is forbidden: exceeded quota: records, {words}'
    return Refusal(403, "Forbidden", said)


def test_a_namespace_that_is_full_names_what_counts(
    server: KubeServer, laptop: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch in a full namespace says how many runs are on record, which of them are active, and
    which run to delete. If one of these runs has ended, the launch first waits for the operator to
    delete that run.
    """
    monkeypatch.setattr("tfcluster_magic.backends.kubernetes.backend.ROOM_PATIENCE", 0.5)
    names = [launch(laptop, name) for name in ("first", "second", "third")]
    full = too_many("digits-1")
    server.refuses = lambda method, where: full if (method, where) == ("POST", RUNS) else None
    with pytest.raises(PreflightRefused) as refused:
        launch(laptop)
    said = str(refused.value)
    assert "3 clusters on record" in said
    assert all(name in said for name in names)
    assert "All of them run or wait: end one with `tfcluster delete" in said

    ended = "2026-01-31T12:00:00Z"
    over = {"phase": "Succeeded", "reason": "Completed", "releasedTime": ended}
    server.put(f"{RUNS}/first-1", {**server.objects[f"{RUNS}/first-1"], "status": over})
    with pytest.raises(PreflightRefused, match="Delete one that has ended: `tfcluster delete fir"):
        launch(laptop)

    monkeypatch.setattr("tfcluster_magic.backends.kubernetes.backend.ROOM_PATIENCE", 90.0)
    server.refuses = lambda method, where: (
        full if (method, where) == ("POST", RUNS) and f"{RUNS}/first-1" in server.objects else None
    )
    monkeypatch.setattr(
        "tfcluster_magic.backends.kubernetes.backend.time.sleep",
        lambda _seconds: server.objects.pop(f"{RUNS}/first-1", None),
    )
    assert launch(laptop) == "digits-1"
