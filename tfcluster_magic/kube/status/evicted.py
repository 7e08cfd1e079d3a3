"""Why Kubernetes ended a pod that did nothing wrong, or took too much of a disk: in words. Pure.

Ref: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
Ref: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

import re

from ...i18n import _
from .said import shortened

_PRESSURE = re.compile(r"The node was low on resource: ([\w.-]+)")
_VOLUME = re.compile(r'Usage of EmptyDir volume "([^"]+)" exceeds the limit "([^"]+)"')
_DISK = re.compile(r"ephemeral local storage usage exceeds the total limit of containers (\S+?)\.")


def words(reason: str, message: str, node: str) -> str:
    """Reason and message of a disruption, as what happened."""
    if found := _PRESSURE.search(message):
        text = _("node {node} was low on {resource}")
        return text.format(node=node, resource=found.group(1))
    if found := _VOLUME.search(message):
        text = _("it filled more than {limit} of {where}")
        return text.format(where=found.group(1), limit=found.group(2))
    if found := _DISK.search(message):
        text = _("it wrote more than {limit} to the disk of its node")
        return text.format(limit=found.group(1))
    if reason == "PreemptionByScheduler":
        text = _("a pod of higher priority took its place")
        return f"{text}: {shortened(message)}" if message else text  # which scheduler did it
    if reason == "EvictionByEvictionAPI":
        return _("somebody evicted it, as when a node is emptied")
    if reason == "DeletionByTaintManager":
        return _("a taint of its node made it leave")
    return shortened(f"{reason}: {message}").rstrip(": ")
