"""Rows for the table of runs in the hub's console for administrators."""

from __future__ import annotations

from tfcluster_magic.hub.console.sites.base import SiteRun


def row(owner: str, number: int, **more: object) -> SiteRun:
    words = {
        "owner": owner,
        "name": f"digits-{number}",
        "cluster": "digits",
        "run": number,
        "uid": f"{owner}-{number}",
        "phase": "Running",
        "reason": "Running",
        "message": "",
        "created_at": float(number),
        "finished_at": None,
        "active": True,
        "mode": "between-graph",
        "tasks": {"worker": number},
        "cpu": 1.0,
        "memory": 0,
        "gpu": 0,
    }
    return SiteRun(**{**words, **more})  # type: ignore[arg-type]
