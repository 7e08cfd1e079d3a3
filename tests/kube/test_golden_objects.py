"""Dry runs of the golden files of tests/data/golden/kubernetes on a real API server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubenode.paths import ROOT
from support.kube.kubectl import Kubectl

GOLDEN = ROOT / "tests" / "data" / "golden" / "kubernetes"
FILES = [
    pytest.param(file, marks=pytest.mark.needs("volcano") if file.stem == "gang" else ())
    for file in sorted(GOLDEN.glob("*.yaml"))
]


def tried(kube: Kubectl, *found: dict[str, Any]) -> str:
    """Create objects in a dry run, which must succeed; return the API server's warnings."""
    text = yaml.safe_dump_all(
        {**each, "metadata": {**each["metadata"], "namespace": kube.namespace}} for each in found
    )
    words = kube.words("create", "--dry-run=server", "-f", "-")
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_api_server_accepts_the_objects_of_a_run(kube: Kubectl, file: Path) -> None:
    """The API server accepts every object of a golden file, and every pod of its Jobs, without a
    warning.
    """
    found = list(yaml.safe_load_all(file.read_text()))
    assert tried(kube, *found) == ""
    for job in found:
        if job["kind"] != "Job":
            continue
        template = job["spec"]["template"]
        # The golden policy's priority class does not exist on this cluster.
        spec = {k: v for k, v in template["spec"].items() if k != "priorityClassName"}
        head = {**template["metadata"], "name": f"{job['metadata']['name']}-0"}
        assert (
            tried(kube, {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}) == ""
        )
