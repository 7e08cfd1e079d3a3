"""Who notebooks, and pods in their place, run as: what Pod Security `restricted` asks of a pod."""

from __future__ import annotations

from typing import Any

USER, GROUP = 1000, 100
"""Who owns what lies in claims: as of notebooks and tasks."""


def pod_security() -> dict[str, Any]:
    """A pod's `securityContext`."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": GROUP,
        "fsGroup": GROUP,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
