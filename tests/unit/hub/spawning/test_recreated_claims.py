"""Messages about a notebook whose claims are created again while the notebook waits."""

from __future__ import annotations

from typing import Any

import pytest

from tfcluster_magic.hub.spawning import startup_problems
from tfcluster_magic.kube.api.decoding import epoch_seconds

MADE = "2027-01-15T08:00:00Z"
NOW = (epoch_seconds(MADE) or 0.0) + 1.0


def why(message: str, *claims: Any) -> startup_problems.StartupProblem | None:
    """Return the reason that the hub gives for a waiting pod, if the scheduler's message and the
    claims are these.
    """
    told = {"type": "PodScheduled", "status": "False", "message": message}
    spec = {"containers": [{"name": "notebook"}]}
    pod = {"metadata": {"uid": "1"}, "spec": spec, "status": {"conditions": [told]}}
    return startup_problems.problem_of_pod(
        pod, (), {each["metadata"]["name"]: each for each in claims}, NOW
    )


def claim(name: str, phase: str, **more: str) -> Any:
    """Return a claim that was created a second ago."""
    head = {"name": name, "creationTimestamp": MADE, **more}
    return {"metadata": head, "spec": {}, "status": {"phase": phase}, "said": ""}


@pytest.mark.parametrize("gone", ["not found", "is being deleted"])
def test_a_claim_that_was_made_again_is_not_missed(gone: str) -> None:
    """A claim that was created again is reported as being created, although the scheduler still
    reports it as missing for some seconds. Only a claim that is really missing ends the start.
    """
    words = f'0/2 nodes are available: persistentvolumeclaim "data" {gone}. not found'
    missed = why(words)
    assert missed
    assert missed.for_good
    leaving = why(words, claim("data", "Bound", deletionTimestamp=MADE))
    assert leaving
    assert leaving.for_good
    new = why(words, claim("data", "Pending"), claim("log", "Bound"))
    assert new
    assert new.waits == "Your server is waiting: its volumes are being created: data."
    assert not new.for_good
    assert why(words, claim("data", "Bound")) is None
