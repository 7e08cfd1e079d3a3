"""Recorded pods that wait, and the messages about them."""

from __future__ import annotations

import json
from typing import Any

from support.project import DATA
from tfcluster_magic.kube.status import waiting_reasons
from tfcluster_magic.kube.status.pod_problems import event_time

RECORDED = DATA / "waiting"
LATER = 2e9


def recorded(cause: str) -> dict[str, Any]:
    """Return Kubernetes' messages recorded for this cause."""
    found: dict[str, Any] = json.loads((RECORDED / f"{cause}.json").read_text())
    return found


def facts(seen: dict[str, Any]) -> waiting_reasons.WaitingFacts:
    """Return the recorded nodes, and the claims, each with the message of its last event."""
    claims = {}
    for claim in seen["claims"]:
        events = sorted(seen["events"].get(claim["metadata"]["uid"], ()), key=event_time)
        words = events[-1]["message"] if events else ""
        claims[claim["metadata"]["name"]] = {**claim, "said": words}
    return waiting_reasons.WaitingFacts(nodes=seen["nodes"], claims=claims)


def told(seen: dict[str, Any]) -> list[waiting_reasons.WaitingReason]:
    return waiting_reasons.explain_waiting(seen["pods"], seen["jobs"], seen["events"], facts(seen))
