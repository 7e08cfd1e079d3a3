"""A user's claims as one archive: a Job beside them gives them to the console, which asks for them.

Promises that a pod which does not come up is given up with its reason, that a Job of an earlier
try is gone before another is made, that its own is removed however it ends, and that an answer
without its end is an error. What was read is written into the file that is handed in, and is for
`archives` to verify. All of it waits, and belongs into a thread.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from ....errors import BackendUnavailable, Conflict, NotFound, TFClusterError
from ....i18n import _
from ....kube.api.client import Api, ApiError, path
from ....kube.api.gone import discard
from ....quota.storage import NAMES
from ...tenancy.grants import Pool
from ..pod_packer import PORT, SILENCE
from . import archive_job

Object = dict[str, Any]
Tell = Callable[[str], None]

EVERY = 0.5
"""Seconds between two looks at a pod."""
PATIENCE = 300.0
"""Seconds in which a pod has come up, or one of before is gone."""
REFUSED = 30.0
"""Seconds in which a quota that the ending notebook still takes is free."""
ANSWERS = 30.0
"""Seconds in which a pod that runs answers."""
_CONNECT = 10.0
_BLOCK = 1024 * 1024
CONSOLE = "app=tfcluster-console"


def pack(
    api: Api, home: str, namespace: str, pool: Pool, out: int, tell: Tell, port: int = PORT
) -> None:
    """Write the archive of what lies in a user's namespace; `tell` is told what is waited for.

    Raises:
        NotFound: there is nothing to pack.
        Conflict: a pod is refused, or does not come up, with the reason.
        BackendUnavailable: the pod ended, or the connection to it.
        ApiError: the API does not let us.
        OSError: `out` takes no more.
    """
    claims = api.every(path("persistentvolumeclaims", namespace)).items
    found, missed = archive_job.bound(claims, NAMES)
    if not found:
        why = "; ".join(f"{name}: {text}" for name, text in missed.items())
        text = _("there is nothing to pack in {name}: {why}")
        raise NotFound(text.format(name=namespace, why=why))
    runs = api.every(path("tfclusters", namespace)).items
    records = {f"runs/{one['metadata']['name']}.json": json.dumps(one, indent=1) for one in runs}
    asked = msgspec.json.encode({"records": records, "missed": missed})
    _clear(api, namespace)
    token = secrets.token_urlsafe(32)
    name = f"{archive_job.BEGIN}{secrets.token_hex(4)}"
    wanted = archive_job.job(name, image(api, home), found, token, home, pool)
    job = api.create(path("jobs", namespace), wanted)
    try:
        pod = _up(api, namespace, job, tell)
        tell("")
        try:
            _fetch(pod, port, token, asked, out)
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            why = _last_words(api, namespace, job) or str(error) or type(error).__name__
            text = _("the pod that packs the data did not give all of it: {why}")
            raise BackendUnavailable(text.format(why=why)) from None
    finally:
        with suppress(ApiError):  # Kubernetes removes it by itself, later
            discard(api, path("jobs", namespace, name), job["metadata"]["uid"])


def image(api: Api, home: str) -> str:
    """The image of this console, whose packer is of the same version. Raises TFClusterError."""
    pods = api.every(path("pods", home), labelSelector=CONSOLE).items
    pods.sort(key=lambda pod: pod["metadata"]["name"] != os.environ.get("HOSTNAME"))
    for pod in pods:
        return str(pod["spec"]["containers"][0]["image"])
    raise TFClusterError(_("the console's own pod is not found, so its image is not known"))


def _clear(api: Api, namespace: str) -> None:
    """Remove Jobs of earlier tries, of a console that was killed, and wait until all are gone."""
    deadline = time.monotonic() + PATIENCE
    while True:
        jobs = api.every(path("jobs", namespace), labelSelector=archive_job.OURS).items
        for each in jobs:
            if not each["metadata"].get("deletionTimestamp"):
                where = path("jobs", namespace, each["metadata"]["name"])
                discard(api, where, each["metadata"]["uid"])
        if (
            not jobs
            and not api.every(path("pods", namespace), labelSelector=archive_job.OURS).items
        ):
            return
        if time.monotonic() > deadline:
            raise Conflict(_("the pod of an earlier archive does not end: look at its node"))
        time.sleep(EVERY)


def _up(api: Api, namespace: str, job: Object, tell: Tell) -> Object:
    """The pod of a Job once it runs. Raises Conflict."""
    began, told = time.monotonic(), ""
    while True:
        pod = _pod(api, namespace, job)
        events = api.every(path("events", namespace)).items
        late = time.monotonic() - began
        if pod is None:
            told, patience = archive_job.refused(events, job) or told, REFUSED if told else PATIENCE
        else:
            if (why := archive_job.ended(pod)) is not None:
                text = _("the pod that packs the data has ended: {why}")
                raise Conflict(text.format(why=why))
            status = pod.get("status") or {}
            if status.get("phase") == "Running" and status.get("podIP"):
                return pod
            told, patience = archive_job.waits(pod, events, time.time()) or told, PATIENCE
        tell(told)
        if late > patience:
            text = _("the pod that packs the data does not come up: {why}")
            raise Conflict(text.format(why=told or _("Kubernetes does not say why")))
        time.sleep(EVERY)


def _pod(api: Api, namespace: str, job: Object) -> Object | None:
    pods = api.every(path("pods", namespace), labelSelector=archive_job.OURS).items
    uid = job["metadata"]["uid"]
    return next((pod for pod in pods if archive_job.is_of(pod, uid)), None)


def _last_words(api: Api, namespace: str, job: Object) -> str:
    """Why the pod has ended, once its kubelet has told so."""
    deadline = time.monotonic() + 10
    with suppress(ApiError):
        while time.monotonic() < deadline:
            pod = _pod(api, namespace, job)
            if pod is None:
                return _("the pod is gone")
            if (why := archive_job.ended(pod)) is not None:
                return why
            time.sleep(EVERY)
    return ""


def _fetch(pod: Object, port: int, token: str, asked: bytes, out: int) -> None:
    """Write what the pod gives away. Raises HTTPException, OSError."""
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
    """A connection, once the program in the pod listens. Raises OSError."""
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
