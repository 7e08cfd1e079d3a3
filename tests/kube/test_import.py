"""Kubeflow's TFJobs imported as TFClusters on a real cluster, and rendered manifests in a tenant's
namespace.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.kube import tenants
from support.kube.kubectl import Object
from support.kube.operator import Tenant

FOR_TASKS = {"tfcluster.dev/for-tasks": "true"}
TELL = """
import json, os, sys, time
kind = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
names = ("GREETING", "AWS_ACCESS_KEY_ID", "HIDDEN", "TOKEN")
told = {name: os.environ[name] for name in names if name in os.environ}
print(json.dumps([kind, sys.argv[1:], os.getcwd(), told]), flush=True)
time.sleep(3600 if kind == "ps" else 1)
"""
"""A program that prints its task's type, arguments, folder and variables; in a parameter server, it
then keeps running.
"""


def secret(name: str, **keys: str) -> Object:
    """A Secret that tasks may use."""
    head = {"name": name, "labels": FOR_TASKS}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": head, "stringData": keys}


def types_of(image: str) -> Object:
    """Return a chief, a worker and a parameter server with different commands, folders and
    variables.
    """
    key = {"secretKeyRef": {"name": "minio", "key": "access-key"}}
    env = [
        {"name": "GREETING", "value": "good day"},
        {"name": "AWS_ACCESS_KEY_ID", "valueFrom": key},
    ]
    container = {"name": "tensorflow", "image": image, "command": ["python3", "-c", TELL]}
    container["resources"] = {"limits": {"memory": "256Mi"}}
    chief = {**container, "env": env, "args": ["$(GREETING)", "it's $HOME", "$(AWS_ACCESS_KEY_ID)"]}
    worker = {**container, "env": env, "workingDir": "/usr/lib"}
    server = {**container, "env": [*env, {"name": "HIDDEN", "value": "1"}]}
    found = (("Chief", chief), ("Worker", worker), ("PS", server))
    return {
        kind: {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [each]}}}
        for kind, each in found
    }


@pytest.fixture(scope="module")
def user(
    new_tenant: Callable[[], Tenant], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tenant, Path]:
    """A tenant's namespace, and the kubeconfig of its user."""
    tenant = new_tenant()
    tenants.move_in(tenant.kubectl)
    tenant.kubectl.apply(secret("minio", **{"access-key": "minio-user"}))
    file = tmp_path_factory.mktemp("user") / "kubeconfig"
    return tenant, tenants.kubeconfig(tenant.kubectl, file)


def tfcluster(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `tfcluster` with a kubeconfig."""
    command = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()", *words]
    env = {
        "PATH": "/usr/bin:/bin",
        "KUBECONFIG": str(kubeconfig),
        "TFCLUSTER_BACKEND": "kubernetes",
    }
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_tfjob_is_launched_and_its_tasks_get_what_it_says(
    user: tuple[Tenant, Path], tmp_path: Path
) -> None:
    """Each task type of an imported TFJob gets its command, folder and variables, including
    variables from a Secret with other key names.

    The run succeeds when the chief is done, and its parameter server ends after the chief.
    """
    tenant, kubeconfig = user
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "greets"},
        "spec": {"tfReplicaSpecs": types_of(tenant.image)},
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(manifest))
    launched = tfcluster(kubeconfig, "import", str(file), "--launch", "-o", "name")
    assert (launched.returncode, launched.stdout) == (0, "greets-1\n"), launched.stderr
    tenant.phase("greets-1", "Succeeded")

    shared = {"GREETING": "good day", "AWS_ACCESS_KEY_ID": "minio-user"}
    for task, words, folder, told in (
        ("chief", ["good day", "it's $HOME", "minio-user"], None, shared),
        ("worker", [], "/usr/lib", shared),
        ("ps", [], None, {**shared, "HIDDEN": "1"}),
    ):
        (pod,) = tenant.pods("greets-1", task)
        said = tenant.kubectl("logs", pod["metadata"]["name"]).splitlines()
        (line,) = (json.loads(text) for text in said if text.startswith("["))
        assert line[:2] == [task, words]
        assert line[3] == told
        if folder is not None:
            assert line[2] == folder

    printed = tfcluster(kubeconfig, "import", str(file), "--name", "applied")
    tenant.kubectl("create", "-f", "-", stdin=printed.stdout)
    tenant.phase("applied-1", "Succeeded")


def test_render_warns_about_missing_rights(user: tuple[Tenant, Path], tmp_path: Path) -> None:
    """`tfcluster render` warns a user without the rights to create Jobs.

    An administrator can apply the same manifests: their pods have the priority class that the
    namespace's policy names, and run in the tenant's namespace.
    """
    tenant, kubeconfig = user
    program = tmp_path / "hello.py"
    program.write_text("print('hello')\n")
    words = ("render", "--layout", "native", "--workers", "1", str(program))
    printed = tfcluster(kubeconfig, *words)
    assert printed.returncode == 0, printed.stderr
    assert "may not create configmaps, services, networkpolicies, jobs" in printed.stderr
    assert f"the policy of namespace {tenant.name}" in printed.stderr
    tenant.kubectl("apply", "-f", "-", stdin=printed.stdout)
    tenant.kubectl(
        "wait", "--for=condition=Complete", "job/hello-1-worker", "--timeout=180s", seconds=200
    )
    (pod,) = tenant.kubectl.every("pod", "tfcluster.dev/name=hello-1")
    assert pod["spec"]["priorityClassName"] == "tfcluster-task"
    tenant.kubectl("delete", "-f", "-", "--wait=false", stdin=printed.stdout)

    whole = tfcluster(kubeconfig, "render", "--layout", "tfcluster", "--name", "kept", str(program))
    tenant.kubectl("apply", "-f", "-", stdin=whole.stdout)
    tenant.phase("kept-1", "Succeeded")
