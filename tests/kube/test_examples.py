"""The files of examples/kubernetes, and files with mistakes, applied by kubectl on a real node."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from kubenode.commands import say
from support.kube.operator import Tenant
from support.kube.under_test import UnderTest
from support.kube.workloads import USER, WEB, pod
from support.polling import wait_until
from support.project import ROOT

pytestmark = pytest.mark.needs("rwx", "network-policy")

EXAMPLES = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
}
TRAIN = "import os, sys\nprint('trained by', os.path.basename(__file__), *sys.argv[1:])\n"
PRINTED = {
    "inline": ("worker-0", "hello from worker 0"),
    "image-command": ("worker-0", "TensorFlow 2."),
    "workspace-path": ("worker-1", "trained by train.py --epochs 3"),
    "url": ("worker-1", "trained by train.py"),
    "parameter-servers": ("chief-0", "weight after 100 steps: 1.0"),
    "multi-worker-mirrored": ("worker-0", "replicas: 2 weight: 0.65"),
    "volumes-and-limits": ("chief-0", "chief-0 learns with 0.01"),
}
"""For each example, a task and words that this task prints. The In-Graph example prints nothing, so
it is missing here.
"""
NOTHING = "registry:5000/nothing:3"
WRONG: dict[str, dict[str, Any]] = {
    "image": {"image": NOTHING, "lifecycle": {"imageTimeoutSeconds": 5}},
    "checksum": {"program": {"path": "digits/train.py", "sha256": "0" * 64}},
    "text": {"program": {"inline": TRAIN, "sha256": "0" * 64}},
    "lost": {"program": {"path": "digits/none.py"}},
    "closed": {"program": {"url": "http://10.96.0.1/train.py"}},
}
"""Specs of runs that fail, by the name of the cluster."""


def filled_workspace(image: str) -> dict[str, Any]:
    """Return a pod that writes the program into the workspace, as a notebook would."""
    made = pod("filler", image, "sh", "-c", 'mkdir -p /w/digits && echo "$1" >/w/digits/train.py')
    spec = made["spec"]
    spec["containers"][0]["command"] += ["sh", TRAIN.removesuffix("\n")]
    spec["containers"][0]["volumeMounts"] = [{"name": "w", "mountPath": "/w"}]
    spec["volumes"] = [{"name": "w", "persistentVolumeClaim": {"claimName": "workspace"}}]
    spec["securityContext"]["fsGroup"] = 100
    return made


def site(image: str) -> list[dict[str, Any]]:
    """Return a pod that serves the program, and the NetworkPolicies that let tasks reach it."""
    shell = f'mkdir /tmp/w && echo "$1" >/tmp/w/train.py && exec httpd -f -p {WEB} -h /tmp/w'
    serving = pod("site", image, "sh", "-c", shell)
    serving["spec"]["containers"][0]["command"] += ["sh", TRAIN.removesuffix("\n")]
    ours, peer = {"app": "site"}, {"app.kubernetes.io/managed-by": "tfcluster-operator"}

    def policy(name: str, chosen: dict[str, str], **rules: Any) -> dict[str, Any]:
        spec = {"podSelector": {"matchLabels": chosen}, **rules}
        head = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
        return {**head, "metadata": {"name": name}, "spec": spec}

    others = [{"podSelector": {"matchLabels": peer}}]
    there = [{"podSelector": {"matchLabels": ours}}]
    return [
        serving,
        policy("site", ours, policyTypes=["Ingress"], ingress=[{"from": others}]),
        policy("to-site", peer, policyTypes=["Egress"], egress=[{"to": there}]),
    ]


@pytest.fixture(scope="module")
def applied(new_tenant: Callable[[], Tenant], cluster: UnderTest) -> Tenant:
    """A tenant in which all examples and all files with mistakes were applied."""
    tenant = new_tenant()
    kubectl = tenant.kubectl
    kubectl.apply(filled_workspace(cluster.busybox), *site(cluster.busybox))
    address = kubectl.running("site")["status"]["podIP"]
    done = {"Succeeded", "Failed"}
    kubectl.wait("pod", "filler", lambda p: p["status"]["phase"] in done, "the workspace is filled")
    things = []
    for name, example in EXAMPLES.items():
        thing = json.loads(json.dumps(example))
        if "image" in thing["spec"]:
            thing["spec"]["image"] = tenant.image
        if name == "url":
            thing["spec"]["program"]["url"] = f"http://{address}:{WEB}/train.py"
        things.append(thing)
    head = {key: EXAMPLES["inline"][key] for key in ("apiVersion", "kind")}
    program = {"inline": TRAIN}
    things += [
        {**head, "metadata": {"name": f"{name}-1"}, "spec": {"program": program, **spec}}
        for name, spec in WRONG.items()
    ]
    kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, things)))
    say(f"examples run in {tenant.name}, as uid {USER}")
    return tenant


def printed(tenant: Tenant, run: str, task: str) -> str:
    """Return what a task has printed so far."""
    found = [p for p in tenant.pods(run) if f"-{task}-" in f"{p['metadata']['name']}-"]
    return tenant.kubectl.logs(found[0]["metadata"]["name"]) if found else ""


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(applied: Tenant, name: str) -> None:
    """`kubectl apply` of the file is enough: the run succeeds, and its task prints the expected
    words.
    """
    run = EXAMPLES[name]["metadata"]["name"]
    status = applied.phase(run, "Succeeded", seconds=420)
    task, words = PRINTED[name]
    wait_until(lambda: words in printed(applied, run, task), words)
    codes = [each["code"] for each in status.get("inferred", ())]
    assert codes == (["ProgramNotPinned"] if name in ("workspace-path", "url") else [])


def test_the_in_graph_example_serves(applied: Tenant) -> None:
    """The servers start without a program, and a stop ends them."""
    applied.phase("ingraph-1", "Running", seconds=420)
    asked = '{"spec":{"stop":{"reason":"enough"}}}'
    applied.kubectl("patch", "tfcluster", "ingraph-1", "--type=merge", "-p", asked)
    assert "enough" in applied.phase("ingraph-1", "Stopped")["message"]


def test_a_missing_image_fails_the_run(applied: Tenant) -> None:
    """If the registry lacks the image, the run fails after imageTimeoutSeconds and names the image
    and the registry's answer.
    """
    status = applied.phase("image-1", "Failed", seconds=120)
    assert (status["reason"], status["messages"][0]["code"]) == ("StartFailed", "ImageTimeout")
    assert f"there is no image {NOTHING}" in status["message"]
    assert "the registry says: not found" in status["message"]
    applied.wait("image-1", lambda s: s.get("releasedAt"), "its resources are released")


@pytest.mark.parametrize(("name", "text"), [("checksum", TRAIN), ("text", TRAIN)])
def test_a_wrong_checksum_fails_at_once(applied: Tenant, name: str, text: str) -> None:
    """A wrong checksum fails the run at once with both checksums, and frees its quota."""
    status = applied.phase(f"{name}-1", "Failed")
    assert status["reason"] == "StartFailed"
    assert "0" * 64 in status["message"]
    assert hashlib.sha256(text.encode()).hexdigest() in status["message"]
    applied.wait(f"{name}-1", lambda s: s.get("releasedAt"), "its resources are released")


def test_a_missing_path_is_named(applied: Tenant) -> None:
    """If the workspace does not have the file, the run fails and names the path."""
    message = applied.phase("lost-1", "Failed")["message"]
    assert "there is no /home/jovyan/digits/none.py where the task runs" in message


def test_a_closed_network_names_its_setting(applied: Tenant) -> None:
    """If the network of a URL is closed, the run fails and names the setting that opens it."""
    message = applied.phase("closed-1", "Failed", seconds=240)["message"]
    assert "http://10.96.0.1/train.py cannot be fetched" in message
    assert "`egress` of the administrator's policy" in message
