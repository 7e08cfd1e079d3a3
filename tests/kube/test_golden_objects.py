"""Golden files of tests/data/golden/kubernetes before a real API server, which creates nothing."""

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
    """What the API server says about these objects, warnings included; it has to accept them."""
    text = yaml.safe_dump_all(
        {**each, "metadata": {**each["metadata"], "namespace": kube.namespace}} for each in found
    )
    words = kube.words("create", "--dry-run=server", "-f", "-")
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_api_server_accepts_what_a_run_is_made_of(kube: Kubectl, file: Path) -> None:
    """Every object of a golden file is accepted without a warning, and every pod of its Jobs."""
    found = list(yaml.safe_load_all(file.read_text()))
    assert tried(kube, *found) == ""
    for job in found:
        if job["kind"] != "Job":
            continue
        template = job["spec"]["template"]
        # Priority classes are the administrator's: that of the golden policy is not made here.
        spec = {k: v for k, v in template["spec"].items() if k != "priorityClassName"}
        head = {**template["metadata"], "name": f"{job['metadata']['name']}-0"}
        assert (
            tried(kube, {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}) == ""
        )
