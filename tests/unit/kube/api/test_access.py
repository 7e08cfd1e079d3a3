"""The errors that users get for answers of an API server; the answers were recorded on a real
server.
"""

from __future__ import annotations

import pytest

from tfcluster_magic.errors import (
    BackendUnavailable,
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    TFClusterError,
)
from tfcluster_magic.kube.api.access import explain_api_error
from tfcluster_magic.kube.api.client import ApiError

SERVER = "https://10.0.0.1:6443"
USER = "system:serviceaccount:alice:notebook"
FORBIDDEN = (
    f'tfclusters.tfcluster.dev is forbidden: User "{USER}" cannot create resource "tfclusters" in '
    'API group "tfcluster.dev" in the namespace "bob"'
)
ANSWERS: list[tuple[ApiError, type[TFClusterError], str]] = [
    (ApiError(401, "Unauthorized", "Unauthorized"), BackendUnavailable, "Sign in to the cluster"),
    (
        ApiError(403, "Forbidden", 'User "system:anonymous" cannot list resource "tfclusters"'),
        BackendUnavailable,
        "does not accept these credentials",
    ),
    (
        ApiError(403, "Forbidden", FORBIDDEN),
        NotAllowed,
        f"{USER} may not create tfclusters in namespace bob: ask an administrator",
    ),
    (
        ApiError(403, "Forbidden", "exceeded quota: runs, requested: count/tfclusters=1"),
        NotAllowed,
        "exceeded quota: runs",
    ),
    (ApiError(404, "", "404 page not found\n"), BackendUnavailable, "TFCluster is not installed"),
    (
        ApiError(404, "NotFound", "", {"name": "bob", "kind": "namespaces"}),
        NotFound,
        "no namespace bob on this cluster",
    ),
    (ApiError(404, "NotFound", "", {"name": "digits-1"}), NotFound, "there is no digits-1"),
    (ApiError(409, "Conflict", "the UID does not match"), Conflict, "the UID does not match"),
    (ApiError(429, "TooManyRequests", "try later"), BackendUnavailable, "is overloaded"),
    (ApiError(503, "", "overloaded"), BackendUnavailable, f"{SERVER} answers 503 (overloaded)"),
    (
        ApiError(0, "NoAnswer", "HTTPSConnection(host='x'): [Errno 111] Connection refused"),
        BackendUnavailable,
        f"{SERVER} does not answer (Connection refused): running tasks continue",
    ),
    (ApiError(418, "Teapot", "I am"), TFClusterError, f"{SERVER} refuses (418): I am"),
]


@pytest.mark.parametrize(("error", "kind", "words"), ANSWERS)
def test_each_refusal_says_what_to_do(
    error: ApiError, kind: type[TFClusterError], words: str
) -> None:
    """Every refusal becomes one TFClusterError that names the refused object and the server."""
    told = explain_api_error(error, "digits-1", server=SERVER)
    assert type(told) is kind
    assert words in str(told)


def test_a_refused_spec_comes_with_its_fields() -> None:
    """Refusals by the schema and its rules are reported like the problems of a launch."""
    causes = [
        {
            "field": "spec.server",
            "message": 'Unsupported value: "java": supported values: "native"',
        },
        {"field": "spec", "message": 'Invalid value: "object": only stop may change'},
        {"field": "spec", "message": 'Invalid value: "object": only stop may change'},
        {"field": "<nil>", "message": "Required value"},
    ]
    told = explain_api_error(ApiError(422, "Invalid", "is invalid", {"causes": causes}))
    assert isinstance(told, InvalidRequest)
    assert [(p.field, p.value, p.allowed) for p in told.problems] == [
        ("spec.server", "java", 'supported values: "native"'),
        ("spec", None, "only stop may change"),
        ("spec", None, "Required value"),
    ]
