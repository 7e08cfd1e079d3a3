"""The Job that hands a user's claims to the console, and what its pod says of itself. Pure.

Promises a pod that Pod Security `restricted` and the user's quotas take: it has the place of a
notebook, which is stopped meanwhile; the claims are mounted read-only, and it has no token of
Kubernetes. k8s/hub/admission-console.yaml lets the console make no other Job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....i18n import _
from ....kube.api.decoding import condition
from ...spawning import pod_trouble
from ...spawning.identity import pod_security
from ...tenancy.grants import Pool
from ...tenancy.objects import ARCHIVE, HUB, MANAGED_BY, NOTEBOOKS
from ..pod_packer import MOUNT, PORT, TOKEN

Object = dict[str, Any]

MANAGER = "tfcluster-console"
BEGIN = "archive-"
OURS = f"{MANAGED_BY}={MANAGER},{ARCHIVE}=true"
CONTAINER = "archive"
LONGEST = 6 * 3600
"""Seconds that one archive may take."""
KEPT = 600
"""Seconds after which Kubernetes removes a Job that has ended and that no console removed."""


def job(name: str, image: str, claims: Sequence[str], token: str, home: str, pool: Pool) -> Object:
    """The Job; `pool` says on which nodes notebooks run."""
    marks = {
        "app.kubernetes.io/name": "tfcluster",
        MANAGED_BY: MANAGER,
        HUB: home,
        ARCHIVE: "true",
    }
    container = {
        "name": CONTAINER,
        "image": image,
        "args": ["python", "-I", "-m", "tfcluster_magic.hub.console.pod_packer"],
        "env": [{"name": TOKEN, "value": token}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
        "ports": [{"name": "archive", "containerPort": PORT}],
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": each, "mountPath": f"{MOUNT}/{each}", "readOnly": True} for each in claims
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": NOTEBOOKS,
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": dict(pool.node_selector),
        "tolerations": [dict(each) for each in pool.tolerations],
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [
            {"name": each, "persistentVolumeClaim": {"claimName": each, "readOnly": True}}
            for each in claims
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": marks},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": LONGEST,
            "ttlSecondsAfterFinished": KEPT,
            "template": {"metadata": {"labels": marks}, "spec": pod},
        },
    }


def bound(claims: Sequence[Object], names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Of a user's claims those with a volume; and why the others cannot be packed."""
    there = {each["metadata"]["name"]: each for each in claims}
    found, missed = [], {}
    for name in names:
        phase = (there[name].get("status") or {}).get("phase", "") if name in there else ""
        if phase == "Bound":
            found.append(name)
        elif phase == "Lost":
            missed[name] = _("the claim has lost its volume")
        elif name in there:
            missed[name] = _("the claim has no volume yet, and so holds nothing")
        else:
            missed[name] = _("there is no claim of this name")
    return found, missed


def waits(pod: Object, events: Sequence[Object], now: float) -> str:
    """What a pod waits for; nothing while it only needs its moment."""
    told = pod_trouble.of_pod(pod, pod_trouble.of_this(pod, events), {}, now)
    if told is not None:
        return told.text
    where = condition(pod, "PodScheduled")
    return str(where.get("message", "")) if where.get("status") == "False" else ""


def ended(pod: Object) -> str | None:
    """Why a pod has ended, in its own last words; None while it has not."""
    status = pod.get("status") or {}
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    for each in status.get("containerStatuses") or ():
        if state := (each.get("state") or {}).get("terminated"):
            said = str(state.get("message") or "").strip().rpartition("\n")[2]
            if said:
                return said
            text = _("its program ended with code {code} ({reason})")
            return text.format(code=state.get("exitCode"), reason=state.get("reason") or "-")
    return str(status.get("message") or status.get("reason") or _("nobody knows why"))


def refused(events: Sequence[Object], job_: Mapping[str, Any]) -> str:
    """Why Kubernetes makes no pod of a Job: a quota, a limit, Pod Security; nothing if it does."""
    mine = [one for one in pod_trouble.of_this(job_, events) if one.get("reason") == "FailedCreate"]
    return pod_trouble.of_refusal(_words(pod_trouble.newest_words(mine))).text if mine else ""


def _words(said: str) -> str:
    return said.removeprefix("Error creating: ")


def is_of(pod: Object, uid: str) -> bool:
    """Whether a pod is of the Job of this uid."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)
