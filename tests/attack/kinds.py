"""All kinds of attack with their cases."""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    accounts,
    archives,
    full_disk,
    hostile_requests,
    kills,
    on_kubernetes,
    other_accounts,
    races,
    state_files,
)
from .cases import Attempt

KINDS: Mapping[str, Mapping[str, Attempt]] = {
    "requests": hostile_requests.CASES,
    "archives": archives.CASES,
    "accounts": accounts.CASES,
    "loopback": other_accounts.CASES,
    "state": state_files.CASES,
    "disk": full_disk.CASES,
    "races": races.CASES,
    "kills": kills.CASES,
    "kubernetes": on_kubernetes.CASES,
}
WITHOUT_HUB = (
    *KINDS["archives"],
    *("sent-and-reset", "unbound-port"),
    *("damaged-run", "damaged-state", "full-disk", "verbs-at-once", "runs"),
)
"""Cases that are quick and need no hub."""
