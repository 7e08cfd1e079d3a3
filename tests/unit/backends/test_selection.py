"""The default backend of a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.kube_server import KubeServer
from support.kubernetes_backend import NAMESPACE, backend

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.kubernetes import namespace_access
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.backends.selection import make_backend
from tfcluster_magic.errors import BackendUnavailable, Conflict, InvalidRequest
from tfcluster_magic.kube.api import access
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import Metadata, Phase, Reason, Spec, Status, TFCluster, resource_form


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make this process look like a pod with a service account; the API server does not answer."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("token")
    (folder / "namespace").write_text("alice\n")
    monkeypatch.setattr(access, "SERVICE_ACCOUNT_FOLDER", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    return folder


@pytest.fixture(autouse=True)
def no_kubeconfig(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remove every kubeconfig."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return own_folders


def test_this_machine_without_a_word() -> None:
    """Outside of pods, clusters run on this machine, whatever kubeconfig exists."""
    kubeconfig = Path.home() / ".kube" / "config"
    kubeconfig.parent.mkdir()
    kubeconfig.write_text("{}")
    assert isinstance(ClusterManager().backend, LocalBackend)


def test_what_was_said_counts(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A given backend overrides the environment variable, and the variable overrides the
    default.
    """
    assert pod
    assert isinstance(make_backend("local", {}, "", ""), LocalBackend)
    monkeypatch.setenv("TFCLUSTER_BACKEND", "local")
    assert isinstance(ClusterManager().backend, LocalBackend)
    assert isinstance(ClusterManager(backend_name="kubernetes").backend, KubernetesBackend)
    monkeypatch.setenv("TFCLUSTER_BACKEND", "kubernetes")
    assert isinstance(ClusterManager().backend, KubernetesBackend)


def test_a_pod_without_the_servers_certificate_is_none_of_ours(pod: Path) -> None:
    """If a pod's account cannot be used, clusters run in the notebook's pod."""
    assert pod
    assert isinstance(ClusterManager().backend, LocalBackend)


def test_an_unknown_backend_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the environment variable names no backend, the refusal lists the existing backends."""
    monkeypatch.setenv("TFCLUSTER_BACKEND", "cloud")
    with pytest.raises(BackendUnavailable, match=r"TFCLUSTER_BACKEND is cloud.*local, kubernetes"):
        ClusterManager().list()


def test_no_kubeconfig_says_where_it_was_looked_for() -> None:
    """If there are no credentials for Kubernetes, the error names the file, the variable and the
    remedy.
    """
    with pytest.raises(BackendUnavailable, match=r"kube/config.*KUBECONFIG.*--backend local"):
        make_backend("kubernetes", {}, "", "").list()


def test_an_unknown_context_is_refused_with_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the kubeconfig lacks the context, the refusal lists the existing contexts."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: here, users: [],"
        " clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}],"
        " contexts: [{name: here, context: {cluster: c, namespace: alice}}]}"
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with pytest.raises(BackendUnavailable, match="no context there; it has here"):
        make_backend("kubernetes", {}, "there", "").list()
    backend = KubernetesBackend()
    assert backend.namespace == "alice"
    monkeypatch.setenv("TFCLUSTER_NAMESPACE", "bob")
    assert KubernetesBackend().namespace == "bob"
    assert KubernetesBackend(namespace="carol").namespace == "carol"
    with pytest.raises(
        BackendUnavailable, match=r"127\.0\.0\.1:1 does not answer.*running tasks continue"
    ):
        backend.list()


def test_the_missing_package_is_named() -> None:
    """Without Kubernetes' official Python client, the message has the command that installs it."""
    script = (
        "import sys; sys.modules['kubernetes'] = None; sys.modules['urllib3'] = None\n"
        "from tfcluster_magic.cli import main; sys.argv = ['tfcluster', 'list', '--backend',"
        " 'kubernetes']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == BackendUnavailable.exit_code
    assert "in the clone of TFCluster, `pip install '.[kubernetes]'`" in done.stderr


def test_the_volumes_of_another_namespace_are_not_those_here(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook has only the volumes of its own namespace: for another namespace or cluster, it
    reads and deletes no output and stores no program.
    """
    assert pod
    own = namespace_access.mounts_volumes("", "alice")
    foreign = namespace_access.mounts_volumes("", "bob")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    assert (own, foreign, namespace_access.mounts_volumes("", "alice")) == (True, False, False)
    log = tmp_path / "log"
    (log / "digits" / "2").mkdir(parents=True)
    paths = {"output": str(log / "digits" / "2")}
    head = Metadata(name="digits-2", cluster="digits", run=2, uid="1", created_at=0.0)
    status = Status(phase=Phase.SUCCEEDED, reason=Reason.COMPLETED, paths=paths)
    run = TFCluster(metadata=head, spec=Spec(), status=status)
    assert namespace_access.output_folder(own, run) == log / "digits" / "2"
    assert namespace_access.output_folder(foreign, run) is None
    assert namespace_access.logs_folder(foreign, str(log)) is None
    assert namespace_access.why_not_mounted(own, str(log)) is None
    assert "not mounted here" in str(namespace_access.why_not_mounted(foreign, str(log)))
    assert "not mounted here" in str(namespace_access.why_not_mounted(own, ""))
    with pytest.raises(InvalidRequest):
        namespace_access.workspace_folder(foreign)


def test_a_deletion_of_what_lies_elsewhere_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop mounts no volume, so it could not delete a run's output. Such a deletion is refused
    before the run is stopped.
    """
    server = KubeServer()
    try:
        where = path("tfclusters", NAMESPACE, "digits-1")
        status = resource_form.write(Status, {"phase": "Running"})
        server.put(where, custom_resource.write("digits", 1, Spec()) | {"status": status})
        manager = ClusterManager(backend(server, tmp_path, monkeypatch))
        with pytest.raises(Conflict, match="not mounted here"):
            manager.delete("digits-1", with_logs=True)
        assert "stop" not in server.objects[where]["spec"]
    finally:
        server.close()
