"""The pod that sends the contents of a user's claims to the console, and its failures."""

from __future__ import annotations

import json
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from support.archived_files import workspace
from support.kube_server import KubeServer, Object
from support.project import ROOT

from tfcluster_magic.errors import BackendUnavailable, Conflict, NotFound
from tfcluster_magic.hub.console.pod_packer import TOKEN, Giver, listening
from tfcluster_magic.hub.console.sites import kubernetes_archive
from tfcluster_magic.hub.tenancy import namespace_objects
from tfcluster_magic.hub.tenancy.entitlements import Pool
from tfcluster_magic.kube.api.client import path

__all__ = ["workspace"]  # a fixture used by the tests below
HOME, SPACE = "tfcluster-hub", "tfcluster-u-ada"
IMAGE = "example.org/hub:1"
JOBS, PODS = path("jobs", SPACE), path("pods", SPACE)
POLICY = ROOT / "k8s" / "hub" / "admission-console.yaml"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    """Yield the API server of a cluster with the console and Ada's claims; one claim has no
    volume.
    """
    monkeypatch.setattr(kubernetes_archive, "EVERY", 0.02)
    monkeypatch.setattr(kubernetes_archive, "QUOTA_SECONDS", 0.5)
    running = KubeServer()
    for name, phase in (("workspace", "Bound"), ("data", "Bound"), ("log", "Pending")):
        where = path("persistentvolumeclaims", SPACE, name)
        running.put(where, {"status": {"phase": phase}})
    marks = {"labels": {"app": "tfcluster-console"}}
    spec = {"containers": [{"image": IMAGE}]}
    running.put(path("pods", HOME, "console-1"), {"metadata": marks, "spec": spec})
    running.put(path("tfclusters", SPACE, "digits-2"), {"spec": {"mode": "in-graph"}})
    yield running
    running.close()


class Controller(threading.Thread):
    """A stand-in for the Job controller: it creates the pod of each Job. The pod serves the files
    in `mount`. If `status` is given, the pod has this status and serves nothing.
    """

    def __init__(self, server: KubeServer, mount: Path, status: Object | None = None) -> None:
        super().__init__(daemon=True)
        self.listening = listening(0)
        self.port = self.listening.getsockname()[1]
        self._server, self._mount, self._status = server, mount, status
        self.jobs: list[Object] = []
        self.start()

    def run(self) -> None:
        while (job := self._job()) is None:
            time.sleep(0.01)
        self.jobs.append(job)
        template = job["spec"]["template"]
        owners = [{"uid": job["metadata"]["uid"], "kind": "Job"}]
        head = {**template["metadata"], "ownerReferences": owners}
        running = {"phase": "Running", "podIP": "127.0.0.1"}
        self._server.put(
            f"{PODS}/{job['metadata']['name']}-x",
            {"metadata": head, "spec": template["spec"], "status": self._status or running},
        )
        if self._status is None:
            (container,) = template["spec"]["containers"]
            env = {one["name"]: one["value"] for one in container["env"]}
            giver = Giver(self.listening, env[TOKEN], self._mount)
            giver.handle_request()
            if not giver.given:
                ended = {"terminated": {"exitCode": 1, "message": giver.why}}
                status = {"phase": "Failed", "containerStatuses": [{"state": ended}]}
                pod = {"metadata": head, "spec": template["spec"], "status": status}
                self._server.put(f"{PODS}/{job['metadata']['name']}-x", pod)
        self.listening.close()

    def _job(self) -> Object | None:
        with self._server.changed:
            every = self._server.objects.items()
            found = [o for p, o in every if p.startswith(f"{JOBS}/archive-") and "spec" in o]
            return found[0] if found else None


def fetched(server: KubeServer, port: int, out: Path, told: list[str] | None = None) -> None:
    """Pack Ada's data into the file `out`."""
    pool = Pool(node_selector={"pool": "notebooks"}, tolerations=({"key": "notebooks"},))
    tell = ([] if told is None else told).append
    with out.open("wb") as file:
        kubernetes_archive.pack_claims(server.api(), HOME, SPACE, pool, file.fileno(), tell, port)


def test_the_claims_come_from_a_pod_beside_them(
    server: KubeServer, tmp_path: Path, workspace: Path
) -> None:
    """The archive has the claims, the runs' records, and a list of what is missing. No Job is left,
    not even the Job of an earlier archive.
    """
    server.put(
        f"{JOBS}/archive-0",
        {
            "metadata": {
                "labels": {
                    namespace_objects.ARCHIVE: "true",
                    namespace_objects.MANAGED_BY: kubernetes_archive.MANAGER,
                }
            }
        },
    )
    server.put(f"{JOBS}/digits-2-worker", {"metadata": {"labels": {"tfcluster.dev/uid": "u"}}})
    controller = Controller(server, workspace.parent)
    deleted = threading.Event()

    def refuses(method: str, where: str) -> None:
        if method == "POST" and where == JOBS:
            assert server.names("jobs") == ["digits-2-worker"]
            deleted.set()

    server.refuses = refuses  # type: ignore[assignment]
    fetched(server, controller.port, tmp_path / "out.tar.gz")
    assert deleted.is_set() and server.names("jobs") == ["digits-2-worker"]
    with tarfile.open(tmp_path / "out.tar.gz") as tar:
        told = json.loads(tar.extractfile("MANIFEST.json").read())  # type: ignore[union-attr]
        record = json.loads(tar.extractfile("runs/digits-2.json").read())  # type: ignore[union-attr]
    assert {one["path"] for one in told["files"]} == {
        "workspace/notes.txt",
        "workspace/weights",
        "runs/digits-2.json",
    }
    assert record["spec"] == {"mode": "in-graph"}
    assert [one["path"] for one in told["missed"]] == ["log"]


def test_a_pod_that_cannot_come_up_is_given_up_with_its_reason(
    server: KubeServer, tmp_path: Path
) -> None:
    """A used-up quota, a failed pod and missing claims are errors with reasons; the Job is deleted
    each time.
    """
    words = 'pods "archive-1-x" is forbidden: exceeded quota: notebooks, requested: pods=1, '

    def told(method: str, where: str) -> None:
        if method == "GET" and where == path("events", SPACE):
            job = next(o for p, o in server.objects.items() if p.startswith(f"{JOBS}/archive-"))
            event = {
                "involvedObject": {"uid": job["metadata"]["uid"]},
                "reason": "FailedCreate",
                "message": f"Error creating: {words}used: pods=1, limited: pods=1",
            }
            server.put(path("events", SPACE, "e"), event)

    server.refuses = told  # type: ignore[assignment]
    waited: list[str] = []
    with pytest.raises(Conflict, match="the quota notebooks of your namespace is used up"):
        fetched(server, 1, tmp_path / "a", waited)
    assert any("is used up" in one for one in waited) and server.names("jobs") == []

    server.refuses = lambda _method, _path: None
    ended = {"terminated": {"exitCode": 1, "message": "Traceback\nPermissionError: /archive"}}
    status = {"phase": "Failed", "containerStatuses": [{"state": ended}]}
    Controller(server, tmp_path, status)
    with pytest.raises(Conflict, match="has ended: PermissionError: /archive"):
        fetched(server, 1, tmp_path / "a")
    assert server.names("jobs") == []

    for name in ("workspace", "data"):
        server.remove(path("persistentvolumeclaims", SPACE, name))
    with pytest.raises(
        NotFound, match=r"there is nothing to pack in .*log: the claim has no volume"
    ):
        fetched(server, 1, tmp_path / "a")


def test_half_an_answer_is_no_archive(server: KubeServer, tmp_path: Path) -> None:
    """If the pod dies while sending, the incomplete data is an error."""
    controller = Controller(server, tmp_path / "is-not-there")
    with pytest.raises(BackendUnavailable, match=r"did not send all of it: .*is-not-there"):
        fetched(server, controller.port, tmp_path / "a")
    assert server.names("jobs") == []


def test_only_who_has_the_token_gets_the_data(workspace: Path) -> None:
    """A wrong token is refused; afterwards, the right token still gets the data."""
    socket = listening(0)
    address = f"http://127.0.0.1:{socket.getsockname()[1]}/"
    giver = Giver(socket, "right", workspace.parent)

    def asked(token: str) -> requests.Response:
        serving = threading.Thread(target=giver.handle_request)
        serving.start()
        body = {"records": {}, "missed": {}}
        with requests.Session() as session:
            session.trust_env = False
            head = {"Authorization": f"token {token}"}
            answer = session.post(address, json=body, headers=head, timeout=60)
        serving.join(60)
        return answer

    assert asked("wrong").status_code == 403 and not giver.given
    assert asked("right").status_code == 200 and giver.given
    giver.server_close()


def test_a_policy_that_lacks_its_parameter_refuses_only_our_own_objects() -> None:
    """The API server refuses all requests that such a policy matches, whoever sends them. So the
    policy matches only objects with a label of ours.
    """
    files = (path.read_text() for path in sorted((ROOT / "k8s").rglob("*.yaml")))
    found = [one for text in files for one in yaml.safe_load_all(text) if one]
    named = {
        (one["kind"], one["metadata"]["name"]): one["spec"]
        for one in found
        if "spec" in one and "kind" in one
    }
    denied = [
        named["ValidatingAdmissionPolicy", spec["policyName"]]
        for (kind, _name), spec in named.items()
        if kind == "ValidatingAdmissionPolicyBinding"
        and spec.get("paramRef", {}).get("parameterNotFoundAction") == "Deny"
    ]
    assert denied
    for policy in denied:
        labels = policy["matchConstraints"]["objectSelector"]["matchLabels"]
        assert all(label.startswith("tfcluster.dev/") for label in labels)


def test_the_job_is_what_its_admission_policy_lets_through() -> None:
    """The admission policy for this Job names its labels, its priority class and its mounts. Only
    tests/kube evaluates the policy's expressions.
    """
    job = kubernetes_archive.archive_job("archive-1", IMAGE, ["workspace"], "secret", HOME, Pool())
    text = POLICY.read_text()
    (policy,) = [
        one
        for one in yaml.safe_load_all(text)
        if one["kind"] == "ValidatingAdmissionPolicy"
        and one["metadata"]["name"] == "tfcluster-console-archives"
    ]
    said = " ".join(one["expression"] for one in policy["spec"]["validations"])
    pod = job["spec"]["template"]["spec"]
    assert all(f"'{mark}'" in said for mark in job["metadata"]["labels"])
    assert f"'{pod['priorityClassName']}'" in said
    assert pod["automountServiceAccountToken"] is False
    assert all(one["persistentVolumeClaim"]["readOnly"] for one in pod["volumes"])
    assert all(one["readOnly"] for one in pod["containers"][0]["volumeMounts"])
    assert namespace_objects.ARCHIVE_PORT == kubernetes_archive.PORT
    (container,) = pod["containers"]
    assert f"c.?args.orValue([]) == {container['args']!r}" in said
    assert f"e.name in {[each['name'] for each in container['env']]!r}" in said
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    assert mounts == ["/archive/workspace"] and "'/archive/' + m.name" in said
    allowed = {"name", "image", "args", "env", "ports", "resources", "securityContext"}
    assert set(container) - allowed == {"terminationMessagePolicy", "volumeMounts"}
