"""Records of v1alpha1, which are converted by the commands in docs/how-to/install-kubernetes.md."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support.invalid_specs import CELL
from support.project import ROOT

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.launch.validation import validate
from tfcluster_magic.spec import Phase

SPEC = {
    "program": CELL,
    "replicas": {"worker": {"count": 2, "resources": {"cpu": 0.5, "memory": "1Gi"}}},
    "lifecycle": {"maxDuration": 3600.0},
    "pods": {"volumes": [{"claim": "images", "path": "/mnt/images"}]},
}


def old(name: str, **status: Any) -> dict[str, Any]:
    """Return an object of v1alpha1 as kubectl prints it."""
    notes = {
        "tfcluster.dev/note": "learning rate 0.1",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    head = {"name": name, "namespace": "alice", "uid": "7f0e", "annotations": notes}
    made = {"apiVersion": "tfcluster.dev/v1alpha1", "kind": "TFCluster", "metadata": head}
    return {**made, "spec": SPEC, "status": {"ready": "0/2", **status}}


def test_records_of_the_version_before_are_created_again() -> None:
    """An ended run stays ended and keeps its history and note; a run that was active starts
    again.
    """
    usage = {"at": 9.0, "days": {"2026-11-22": {"worker": 3600.5}}}
    over = old("digits-1", phase="Failed", reason="ProgramFailed", releasedAt=9.5, usage=usage)
    large = old("large-1")
    large["spec"] = {**SPEC, "env": {"A": "x" * 70_000}}
    every = [over, old("digits-2", startedAt=5.0), large]
    listing = {"apiVersion": "v1", "kind": "List", "items": every}
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "convert_records.py"],
        input=json.dumps(listing),
        capture_output=True,
        text=True,
        check=True,
    )
    ended, runs, _large = json.loads(made.stdout)["items"]
    assert [line[:23] for line in made.stderr.splitlines()] == ["refused: alice/large-1:"]
    record = custom_resource.read(ended)

    assert record.spec == custom_resource.read(runs).spec == validate(SPEC)
    assert (record.status.phase, record.status.released_at) == (Phase.FAILED, 9.5)
    assert (record.status.usage, record.metadata.note) == (None, "learning rate 0.1")
    assert ended["spec"]["lifecycle"] == {"maxDurationSeconds": 3600}
    assert {each["type"]: each["status"] for each in ended["status"]["conditions"]} == {
        "Admitted": "False",
        "Running": "False",
        "Complete": "False",
        "Failed": "True",
    }
    assert "status" not in runs and "uid" not in runs["metadata"]
    assert list(runs["metadata"]["annotations"]) == ["tfcluster.dev/note"]
