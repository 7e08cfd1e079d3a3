"""One POST of a run, whose answer may be lost on the way.

Promises one run for one launch: each launch has a mark of its own in an annotation, so that what a
lost POST has made is found again by its name, and is not made twice. A field that the cluster's
TFCluster does not know is refused and not left out in silence.

Ref: https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation
"""

from __future__ import annotations

import re
import time
import uuid

from ...errors import BackendUnavailable, InvalidRequest, Problem
from ...i18n import _
from ...kube.api import access, labels
from ...kube.api.client import Api, ApiError, Object, path

LAUNCH = f"{labels.GROUP}/launch"
"""Annotation with the mark of the launch that made a run."""
PAUSES = (0.5, 1.0, 2.0)
"""Seconds before the POST that was not answered, and made nothing, is sent again."""
_UNKNOWN = re.compile(r'unknown field "([^"]+)"')


def post(api: Api, namespace: str, run: Object) -> Object | None:
    """The run as it was made; None where another one has its name.

    Raises:
        ApiError: the API refuses, or did not answer and nothing was made.
        BackendUnavailable: it does not answer, and whether the run was made is not known.
        InvalidRequest: the cluster's TFCluster does not know what was asked for.
    """
    head = run["metadata"]
    mark = uuid.uuid4().hex
    marked = {**(head.get("annotations") or {}), LAUNCH: mark}
    body = {**run, "metadata": {**head, "annotations": marked}}
    for pause in (*PAUSES, None):
        try:
            return api.create(path("tfclusters", namespace), body, fieldValidation="Strict")
        except ApiError as error:
            if fields := _UNKNOWN.findall(error.message) if error.status == 400 else []:
                raise InvalidRequest([_unknown(field) for field in fields]) from None
            if error.reason != "AlreadyExists" and not error.unanswered:
                raise
            refused = error
        found = _found(api, namespace, str(head["name"]), refused)
        if found is not None:
            marks = found["metadata"].get("annotations") or {}
            return found if marks.get(LAUNCH) == mark else None
        if not refused.unanswered:
            return None  # it has gone meanwhile
        if pause is None:
            raise refused
        time.sleep(pause)
    raise AssertionError


def _found(api: Api, namespace: str, name: str, refused: ApiError) -> Object | None:
    try:
        return api.get(path("tfclusters", namespace, name))
    except ApiError as error:
        if error.gone:
            return None
        why = access.explain(refused, server=api.server)
        raise BackendUnavailable(
            _("{why}. Whether {name} was launched is not known: look before you try again").format(
                why=why, name=name
            )
        ) from None


def _unknown(field: str) -> Problem:
    allowed = _(
        "the TFCluster that is installed on this cluster is older than this package and does not "
        "know it: leave it out, or have the administrator apply the newer one"
    )
    return Problem(field, None, allowed)
