"""Packs a user's claims into an archive, by a Job in the user's namespace that sends the data.

The pod meets Pod Security `restricted` and the user's quotas. The user's notebook has been stopped,
so the pod can use the notebook's quota. The pod mounts the claims read-only and has no API token.
k8s/hub/admission-console.yaml lets the console create only such Jobs. If the pod does not start,
the error has the reason. The Job is always deleted at the end. It is an error if the pod does not
send all data; `archives` verifies the content. The functions block, so call them in a thread.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ....errors import BackendUnavailable, Conflict, NotFound, TFClusterError
from ....i18n import _
from ....kube.api.client import Api, ApiError, discard_object, path
from ....kube.api.decoding import condition
from ....quota.storage import FOLDER_NAMES
from ...spawning import startup_problems
from ...spawning.pod_settings import pod_security
from ...tenancy.entitlements import Pool
from ...tenancy.namespace_objects import ARCHIVE, HUB, MANAGED_BY, NOTEBOOKS
from ..pod_packer import MOUNT, PORT, SILENCE, TOKEN

Object = dict[str, Any]

MANAGER = "tfcluster-console"
BEGIN = "archive-"
OURS = f"{MANAGED_BY}={MANAGER},{ARCHIVE}=true"
CONTAINER = "archive"
LONGEST = 6 * 3600
"""Maximum seconds for one archive."""
KEPT = 600
"""Seconds after which Kubernetes deletes an ended Job that no console has deleted."""


def archive_job(
    name: str, image: str, claims: Sequence[str], token: str, home: str, pool: Pool
) -> Object:
    """Return the Job that packs `claims`; `pool` selects the nodes of notebooks."""
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


def bound_claims(
    claims: Sequence[Object], names: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return which of a user's claims are bound, and why the others cannot be packed."""
    there = {each["metadata"]["name"]: each for each in claims}
    found, missed = [], {}
    for name in names:
        phase = (there[name].get("status") or {}).get("phase", "") if name in there else ""
        if phase == "Bound":
            found.append(name)
        elif phase == "Lost":
            missed[name] = _("the claim has lost its volume")
        elif name in there:
            missed[name] = _("the claim has no volume yet, so it is empty")
        else:
            missed[name] = _("there is no claim of this name")
    return found, missed


def waiting_message(pod: Object, events: Sequence[Object], now: float) -> str:
    """Return what a pod waits for; empty if it is only starting."""
    told = startup_problems.problem_of_pod(pod, startup_problems.events_of(pod, events), {}, now)
    if told is not None:
        return told.text
    where = condition(pod, "PodScheduled")
    return str(where.get("message", "")) if where.get("status") == "False" else ""


def end_message(pod: Object) -> str | None:
    """Return why a pod has ended, from its last log line; None if it has not ended."""
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
    return str(status.get("message") or status.get("reason") or _("the reason is unknown"))


def refusal(events: Sequence[Object], job_: Mapping[str, Any]) -> str:
    """Return why Kubernetes failed to create the pod of a Job, for example because of a quota;
    empty if there was no such failure.
    """
    mine = [
        one
        for one in startup_problems.events_of(job_, events)
        if one.get("reason") == "FailedCreate"
    ]
    if not mine:
        return ""
    said = startup_problems.newest_message(mine).removeprefix("Error creating: ")
    return startup_problems.problem_of_refusal(said).text


def is_of(pod: Object, uid: str) -> bool:
    """Return whether the owner of a pod is the Job with this uid."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


# -- download

Tell = Callable[[str], None]

EVERY = 0.5
"""Seconds between two checks of the pod of an archive."""
PATIENCE = 300.0
"""Maximum seconds to wait until the pod of an archive starts; also the maximum to wait until the
pod of an earlier archive has ended.
"""
QUOTA_SECONDS = 30.0
"""Maximum seconds to wait while a quota refuses the pod: a notebook that is ending still uses the
quota.
"""
ANSWERS = 30.0
"""Maximum seconds until the program in a running pod accepts connections."""
_CONNECT = 10.0
_BLOCK = 1024 * 1024
CONSOLE = "app=tfcluster-console"


def pack_claims(
    api: Api, home: str, namespace: str, pool: Pool, out: int, tell: Tell, port: int = PORT
) -> None:
    """Write an archive of a user's claims to `out`; call `tell` with each message about what the
    packing waits for.

    Raises:
        NotFound: there is nothing to pack.
        Conflict: a pod is refused or does not start; the message has the reason.
        BackendUnavailable: the pod or the connection ended early.
        ApiError: the API server refuses or does not answer.
        OSError: `out` cannot be written.
    """
    claims = api.every(path("persistentvolumeclaims", namespace)).items
    found, missed = bound_claims(claims, FOLDER_NAMES)
    if not found:
        why = "; ".join(f"{name}: {text}" for name, text in missed.items())
        text = _("there is nothing to pack in {name}: {why}")
        raise NotFound(text.format(name=namespace, why=why))
    runs = api.every(path("tfclusters", namespace)).items
    records = {f"runs/{one['metadata']['name']}.json": json.dumps(one, indent=1) for one in runs}
    asked = msgspec.json.encode({"records": records, "missed": missed})
    _clear(api, namespace)
    token = secrets.token_urlsafe(32)
    name = f"{BEGIN}{secrets.token_hex(4)}"
    wanted = archive_job(name, image(api, home), found, token, home, pool)
    job = api.create(path("jobs", namespace), wanted)
    try:
        pod = _up(api, namespace, job, tell)
        tell("")
        try:
            _fetch(pod, port, token, asked, out)
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            why = _last_words(api, namespace, job) or str(error) or type(error).__name__
            text = _("the pod that packs the data did not send all of it: {why}")
            raise BackendUnavailable(text.format(why=why)) from None
    finally:
        with suppress(ApiError):  # Kubernetes deletes it later by itself
            discard_object(api, path("jobs", namespace, name), job["metadata"]["uid"])


def image(api: Api, home: str) -> str:
    """Return this console's image, which has the same version of the packer. Raises
    TFClusterError.
    """
    pods = api.every(path("pods", home), labelSelector=CONSOLE).items
    pods.sort(key=lambda pod: pod["metadata"]["name"] != os.environ.get("HOSTNAME"))
    for pod in pods:
        return str(pod["spec"]["containers"][0]["image"])
    raise TFClusterError(_("the console's own pod was not found, so its image is unknown"))


def _clear(api: Api, namespace: str) -> None:
    """Delete Jobs left by a killed console, and wait until they and their pods are gone."""
    deadline = time.monotonic() + PATIENCE
    while True:
        jobs = api.every(path("jobs", namespace), labelSelector=OURS).items
        for each in jobs:
            if not each["metadata"].get("deletionTimestamp"):
                where = path("jobs", namespace, each["metadata"]["name"])
                discard_object(api, where, each["metadata"]["uid"])
        if not jobs and not api.every(path("pods", namespace), labelSelector=OURS).items:
            return
        if time.monotonic() > deadline:
            raise Conflict(_("the pod of an earlier archive does not end: check its node"))
        time.sleep(EVERY)


def _up(api: Api, namespace: str, job: Object, tell: Tell) -> Object:
    """Wait until the pod of a Job runs, and return it. Raises Conflict."""
    began, told = time.monotonic(), ""
    while True:
        pod = _pod(api, namespace, job)
        events = api.every(path("events", namespace)).items
        late = time.monotonic() - began
        if pod is None:
            told, patience = refusal(events, job) or told, QUOTA_SECONDS if told else PATIENCE
        else:
            if (why := end_message(pod)) is not None:
                text = _("the pod that packs the data has ended: {why}")
                raise Conflict(text.format(why=why))
            status = pod.get("status") or {}
            if status.get("phase") == "Running" and status.get("podIP"):
                return pod
            told, patience = waiting_message(pod, events, time.time()) or told, PATIENCE
        tell(told)
        if late > patience:
            text = _("the pod that packs the data did not start: {why}")
            raise Conflict(text.format(why=told or _("Kubernetes gives no reason")))
        time.sleep(EVERY)


def _pod(api: Api, namespace: str, job: Object) -> Object | None:
    pods = api.every(path("pods", namespace), labelSelector=OURS).items
    uid = job["metadata"]["uid"]
    return next((pod for pod in pods if is_of(pod, uid)), None)


def _last_words(api: Api, namespace: str, job: Object) -> str:
    """Wait until the kubelet reports why the pod has ended, and return the reason; empty if
    unknown.
    """
    deadline = time.monotonic() + 10
    with suppress(ApiError):
        while time.monotonic() < deadline:
            pod = _pod(api, namespace, job)
            if pod is None:
                return _("the pod is gone")
            if (why := end_message(pod)) is not None:
                return why
            time.sleep(EVERY)
    return ""


def _fetch(pod: Object, port: int, token: str, asked: bytes, out: int) -> None:
    """Write the pod's answer to `out`. Raises HTTPException or OSError."""
    link = _connected(str(pod["status"]["podIP"]), port)
    try:
        link.request("POST", "/", asked, {"Authorization": f"token {token}"})
        if link.sock is not None:
            link.sock.settimeout(SILENCE)
        answer = link.getresponse()
        if answer.status != 200:
            raise http.client.HTTPException(f"{answer.status} {answer.reason}")
        while block := answer.read(_BLOCK):
            _write(out, block)
    finally:
        link.close()


def _write(out: int, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(out, left) :]


def _connected(address: str, port: int) -> http.client.HTTPConnection:
    """Wait until the program in the pod listens, and return a connection. Raises HTTPException."""
    deadline = time.monotonic() + ANSWERS
    while True:
        link = http.client.HTTPConnection(address, port, timeout=_CONNECT)
        try:
            link.connect()
        except OSError as error:
            link.close()
            if time.monotonic() > deadline:
                raise http.client.HTTPException(str(error)) from None
            time.sleep(EVERY)
        else:
            return link
