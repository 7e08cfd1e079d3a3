"""Tenancy as a process: start, leadership and shutdown."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from support.polling import wait_until
from support.tenancy_world import HOME, World

from tfcluster_magic.kube.api.client import path


def test_the_process_leads_furnishes_and_frees_its_lease(tmp_path: Path) -> None:
    """The process is ready once it leads and has read everything, and releases its Lease at
    SIGTERM.
    """
    world = World()
    cluster = {"name": "c", "cluster": {"server": world.server.api().server}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    kubeconfig.write_text(json.dumps(said))
    words = [sys.executable, "-m", "tfcluster_magic.hub.tenancy", f"--home={HOME}"]
    words += [f"--kubeconfig={kubeconfig}", "--health-port=0"]
    try:
        with log.open("wb") as to:
            process = subprocess.Popen(words, stderr=to, env={"PATH": "/usr/bin:/bin"})
        namespace = world.user("alice")
        world.furnished(namespace)
        port = log.read_text().partition("health on port ")[2].split()[0]
        for page in ("healthz", "readyz", "metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=120) as answer:
                assert answer.status == 200
        lease = path("leases", HOME, "tfcluster-tenancy")
        assert world.server.objects[lease]["spec"]["holderIdentity"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert world.server.objects[lease]["spec"]["holderIdentity"] == ""
    finally:
        wait_until(lambda: process.poll() is not None or process.kill() is None)
        world.close()
