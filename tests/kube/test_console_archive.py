"""Archives of a user's data on Kubernetes, packed by a pod that mounts the user's claims. The
volume for archives holds only 24 MiB (`hub_installation.ROOM`), so that a test can fill it.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from kubenode.commands import NodeError, wait_until
from support.kube.console import CONSOLE, STAYS, Console, console
from support.kube.hub import Hub
from support.kube.hub_installation import ARCHIVES, ROOM, disk
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import Tenant, spec_of
from support.kube.operator_modes import Installed
from support.kube.tenant_namespaces import HOME, as_, move_in, of_user
from support.kube.under_test import UnderTest

from tfcluster_magic.hub.console.sites import kubernetes_archive
from tfcluster_magic.hub.tenancy.entitlements import Pool

__all__ = ["console"]  # a fixture used by the tests below
pytestmark = pytest.mark.needs("ingress", "rwx", "network-policy", "registry")

WRITES = """
cd /home/jovyan && echo 'accuracy 0.98' > results.txt && ln -s /etc/passwd linked && mkfifo pipe
head -c 1000000 /dev/urandom > /data/weights && echo log > /log/of-mine
sha256sum results.txt /data/weights /log/of-mine
"""
LARGE = "head -c 30000000 /dev/urandom > /data/large && sync"
REASON = "the term is over"
ELSEWHERE = {"name": "PYTHONPATH", "value": "/data"}
HOOK = {"postStart": {"exec": {"command": ["id"]}}}


def found(console: Console, file: str) -> Object:
    """Return an archive as the page shows it."""
    items = console.ask("GET", "archives").json()["items"]
    return next(one for one in items if one["file"] == file)


def archived(console: Console, user: str, **more: Any) -> Object:
    """Archive a user's data, and return the archive once packing has succeeded or failed."""
    body = {"user": user, "reason": REASON, **more}
    begun = console.ask("POST", "archives", json=body)
    assert begun.status_code == 202, begun.text
    file = str(begun.json()["file"])
    ended = lambda: found(console, file)["state"] != "packing"  # noqa: E731
    wait_until(ended, f"the archive of {user} succeeds or fails", seconds=300)
    return found(console, file)


def is_cleared(space: Kubectl) -> Callable[[], bool]:
    """Return a condition that is true when no Job of an archive and none of its pods are left."""
    return lambda: not any(space.every(kind, kubernetes_archive.OURS) for kind in ("jobs", "pods"))


def test_the_data_of_a_user_is_packed_and_the_user_removed(
    hub: Hub,
    console: Console,
    installed: Installed,
    cluster: UnderTest,
    tmp_path: Any,
) -> None:
    """Archiving a user ends the notebook and the cluster with the given reason, and keeps the
    namespace with its claims.

    The archive holds a checksum of every file. The administrator downloads and deletes it.
    """
    user = hub.new_user("arch")
    hub.spawn(user)
    hub.ready(user)
    space = hub.namespace(user)
    (pod,) = space.every("pods", "tfcluster.dev/notebook=true")
    sums = space.exec(pod["metadata"]["name"], "sh", "-ec", WRITES)
    (tmp_path / "stays.py").write_text(STAYS)
    tenant = Tenant(space, installed, cluster.description.images["notebook"])
    tenant.launch("stays-1", spec_of(tmp_path / "stays.py"))
    console.until(f"{user}/stays-1", "Running")

    made = archived(console, user, remove=True)
    assert (made["state"], made["detail"]) == ("done", ""), made
    message = space.get("tfcluster", "stays-1")["status"]["message"]
    assert message == f"Stopped by admin {console.visitor.name}: {REASON}."
    assert hub.api("GET", f"users/{user}").status_code == 404
    head = hub.kubectl.get("namespace", str(space.namespace))["metadata"]
    assert "tfcluster.dev/removed" in head["annotations"]
    wait_until(is_cleared(space), "the Job is removed", seconds=90)
    assert {one["metadata"]["name"] for one in space.every("pvc")} == {"workspace", "data", "log"}

    content = console.ask("GET", f"archives/{made['file']}").content
    assert hashlib.sha256(content).hexdigest() == made["sha256"]
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        told = json.loads(tar.extractfile("MANIFEST.json").read())  # type: ignore[union-attr]
        record = json.loads(tar.extractfile("runs/stays-1.json").read())  # type: ignore[union-attr]
        assert tar.getmember("workspace/linked").issym()
    packed = {one["path"]: one["sha256"] for one in told["files"]}
    of_pod = dict(reversed(line.split()) for line in sums.splitlines() if line)
    for path, name in (
        ("workspace/results.txt", "results.txt"),
        ("data/weights", "/data/weights"),
        ("log/of-mine", "/log/of-mine"),
    ):
        assert packed[path] == of_pod[name]
    assert record["status"]["phase"] == "Stopped"
    assert "workspace/pipe" in [one["path"] for one in told["missed"]]

    gone = console.ask("DELETE", f"archives/{made['file']}")
    assert gone.status_code == 200, gone.text
    assert console.ask("GET", f"archives/{made['file']}").status_code == 404
    lines = [json.loads(line) for line in console.ask("GET", "audit/export").text.splitlines()]
    done = [one["what"] for one in lines if made["file"] in one["target"] or one["owner"] == user]
    assert [one for one in done if "archive" in one] == [
        *["archive and remove"] * 2,
        *["download archive"] * 2,
        *["delete archive"] * 2,
    ]
    hub.kubectl("delete", "namespace", str(space.namespace), "--wait=false")


def test_a_failed_archive_says_why_and_can_be_repeated(
    hub: Hub, console: Console, cluster: UnderTest
) -> None:
    """A failed archive changes neither the data nor the user, and the next attempt starts afresh.

    The causes are a pod that the hub does not know, a full volume, and a console that is killed
    while it packs.
    """
    assert cluster.own
    ada = move_in(hub, hub.new_user("full"))
    space = ada.kubectl
    space.apply(of_user(cluster.description.images["notebook"], "holder"))
    space.running("holder")
    space.exec("holder", "sh", "-ec", LARGE)
    refused = archived(console, ada.user, remove=True)
    assert refused["state"] == "failed" and "the quota notebooks" in refused["detail"], refused
    space.delete("pod", "holder", "--grace-period=1")

    full = archived(console, ada.user, remove=True)
    assert full["state"] == "failed" and "no space for the archive" in full["detail"], full
    volume = cluster.own.first
    assert volume.run(["ls", "-A", disk(ARCHIVES)]).strip() == ""
    assert hub.api("GET", f"users/{ada.user}").status_code == 200
    volume.run(["mount", "-o", "remount,size=200m", disk(ARCHIVES)])
    try:
        hub.alone()
        body = {"user": ada.user, "reason": REASON}
        assert console.ask("POST", "archives", json=body).status_code == 202
        wait_until(
            lambda: any(space.every("jobs", kubernetes_archive.OURS)), "a Job is made", seconds=90
        )
        hub.kubectl("delete", "pod", "-l", "app=tfcluster-console", "--grace-period=0", "--force")
        hub.kubectl("rollout", "status", "deployment/console", "--timeout=90s")

        def answers() -> bool:
            console.__init__(console.visitor)  # type: ignore[misc]
            return console.ask("GET", "archives").status_code == 200

        wait_until(answers, "the console answers again", seconds=90)
        states = [one["state"] for one in console.ask("GET", "archives").json()["items"]]
        assert "packing" not in states
        again = archived(console, ada.user)
        assert again["state"] == "done", again
        assert again["files"] == 1
        wait_until(is_cleared(space), "all Jobs are removed", seconds=90)
        left = volume.run(["ls", "-A", disk(ARCHIVES)]).split()
        assert sorted(left) == [f"{again['file']}{end}" for end in ("", ".json", ".sha256")]
        assert console.ask("DELETE", f"archives/{again['file']}").status_code == 200
    finally:
        volume.run(["mount", "-o", f"remount,size={ROOM}", disk(ARCHIVES)])
        hub.kubectl("delete", "namespace", ada.name, "--wait=false")


def test_the_console_makes_no_other_job(hub: Hub) -> None:
    """The console's account can make only Jobs that read a user's claims, and can add nothing to
    their pods.
    """
    bob = move_in(hub, hub.new_user("other"))
    own = hub.kubectl("get", "deployment", "console", "-o", "json")
    image = json.loads(own)["spec"]["template"]["spec"]["containers"][0]["image"]
    good = kubernetes_archive.archive_job("archive-x", image, ["data"], "t", HOME, Pool())

    def tried(change: Callable[[Object], object], space: Kubectl = bob.kubectl) -> str:
        job = copy.deepcopy(good)
        change(job)
        words = ("create", "--dry-run=server", "-f", "-", as_(CONSOLE))
        try:
            space(*words, stdin=json.dumps(job))
        except NodeError as error:
            return str(error)
        return ""

    def pod(job: Object) -> Any:
        return job["spec"]["template"]["spec"]

    secret = {"name": "x", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}
    claim = {"claimName": "data"}
    changes: tuple[Callable[[Object], object], ...] = (
        lambda job: job["metadata"].update(name="mine"),
        lambda job: job["metadata"]["labels"].update({"tfcluster.dev/notebook": "true"}),
        lambda job: job["metadata"]["labels"].pop("tfcluster.dev/archive"),
        lambda job: job["spec"]["template"]["metadata"]["labels"].pop("tfcluster.dev/archive"),
        lambda job: job["spec"].pop("activeDeadlineSeconds"),
        lambda job: job["spec"].update(backoffLimit=3),
        lambda job: pod(job).update(serviceAccountName="notebook"),
        lambda job: pod(job).update(automountServiceAccountToken=True),
        lambda job: pod(job).pop("priorityClassName"),
        lambda job: pod(job)["containers"][0]["env"].append(secret),
        lambda job: pod(job)["containers"][0]["volumeMounts"][0].update(readOnly=False),
        lambda job: pod(job)["volumes"][0].update(persistentVolumeClaim=claim),
        lambda job: pod(job)["volumes"].append({"name": "s", "secret": {"secretName": "x"}}),
        lambda job: pod(job)["containers"][0].update(image="example.org/evil:1"),
        lambda job: pod(job)["containers"][0].update(image=f"{image}@sha256:{'0' * 64}"),
        lambda job: pod(job)["containers"][0].update(args=["sh", "-c", "id"]),
        lambda job: pod(job)["containers"][0].update(command=["sh"]),
        lambda job: pod(job)["containers"][0]["env"].append(
            {"name": "PYTHONPATH", "value": "/data"}
        ),
        lambda job: pod(job)["containers"][0]["volumeMounts"][0].update(mountPath="/usr/lib"),
        lambda job: pod(job)["containers"][0]["volumeMounts"][0].update(subPath="x"),
        lambda job: pod(job)["containers"][0].update(lifecycle=HOOK),
    )
    assert tried(lambda _job: None) == ""
    for number, change in enumerate(changes):
        said = tried(change)
        assert re.search("the console may only|of the console|console's Job", said), (number, said)
    assert "the console may only make Jobs" in tried(lambda _job: None, hub.kubectl)
    hub.kubectl("delete", "namespace", bob.name, "--wait=false")


def test_without_the_consoles_deployment_only_archives_are_refused(hub: Hub) -> None:
    """If the API server does not find the Deployment from which it takes the image of archives, it
    refuses Jobs of archives, but no other Jobs.
    """
    ann = move_in(hub, hub.new_user("ann"))
    own = json.loads(hub.kubectl("get", "deployment", "console", "-o", "json"))
    image = own["spec"]["template"]["spec"]["containers"][0]["image"]
    archive = kubernetes_archive.archive_job("archive-x", image, ["data"], "t", HOME, Pool())
    other = copy.deepcopy(archive)
    other["metadata"].update(name="other", labels={})
    other["spec"]["template"]["metadata"]["labels"] = {}

    def create(job: Object, *words: str) -> str:
        try:
            ann.kubectl("create", "--dry-run=server", "-f", "-", *words, stdin=json.dumps(job))
        except NodeError as error:
            return str(error)
        return ""

    def taken_from(name: str) -> None:
        binding = ("validatingadmissionpolicybinding", "tfcluster-console-archive-image")
        change = json.dumps({"spec": {"paramRef": {"name": name}}})
        hub.kubectl("patch", *binding, "--type=merge", "-p", change)

    taken_from("nowhere")
    try:
        refused = lambda: "no params found" in create(archive, as_(CONSOLE))  # noqa: E731
        wait_until(refused, "archives are refused", seconds=60)
        assert create(other) == ""
    finally:
        taken_from("console")
    wait_until(lambda: create(archive, as_(CONSOLE)) == "", "archives are allowed", seconds=60)
    hub.kubectl("delete", "namespace", ann.name, "--wait=false")
