"""The operator as a process on a cluster that lacks something the operator requires."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.kube_server import KubeServer, Refusal
from support.polling import wait_until


def test_what_it_lacks_stands_in_its_log(tmp_path: Path) -> None:
    """Without the custom resource, or without a right, the log says what to apply; once both exist,
    the operator starts without a restart.
    """
    server = KubeServer()
    lacking = {"/tfclusters": Refusal(404, "", "404 page not found\n")}
    lacking["/jobs"] = Refusal(403, "Forbidden", "jobs.batch is forbidden")

    def refuses(_method: str, path: str) -> Refusal | None:
        return next((each for end, each in lacking.items() if path.endswith(end)), None)

    server.refuses = refuses
    address = {"server": server.api().server}
    context = {"cluster": "c", "user": "u"}
    config = {
        "clusters": [{"name": "c", "cluster": address}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": context}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    words = [sys.executable, "-m", "tfcluster_magic.operator", "--namespace=a", "--health-port=0"]
    log = tmp_path / "log"
    with log.open("wb") as to:
        environment = {**os.environ, "KUBECONFIG": str(tmp_path / "config")}
        operator = subprocess.Popen(words, stderr=to, env=environment)

    def says(what: str) -> None:
        wait_until(lambda: operator.poll() is not None or what in log.read_text(), log.read_text)
        assert operator.poll() is None, log.read_text()

    try:
        says("the custom resource is not installed: `kubectl apply -k k8s/crds`")
        says("jobs.batch is forbidden: `kubectl apply -k k8s/overlays/default` gives the operator")
        lacking.clear()
        says("ready after")
    finally:
        operator.terminate()
        operator.wait(30)
        server.close()
