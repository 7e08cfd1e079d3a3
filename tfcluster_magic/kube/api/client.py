"""A small client of the Kubernetes API: JSON requests and watches, with timeouts.

Every call has a timeout. An answer is the plain JSON object, and a refusal is an `ApiError` with
the API's own status and message; `access` explains errors to users. The official client handles
kubeconfig, tokens, TLS and proxies. Its typed models are not used, because building them for 600
pods costs more than everything else.

Ref: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
import urllib3

from .decoding import WHOLE_SHAPE, Shape

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration

API_PREFIXES = {
    "tfclusters": "/apis/tfcluster.dev/v1beta1",
    "tfclusterschedules": "/apis/tfcluster.dev/v1beta1",
    "jobs": "/apis/batch/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "storageclasses": "/apis/storage.k8s.io/v1",
    "podgroups": "/apis/scheduling.volcano.sh/v1beta1",
    "queues": "/apis/scheduling.volcano.sh/v1beta1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
    "selfsubjectaccessreviews": "/apis/authorization.k8s.io/v1",
}
"""The path of each resource's API group; a resource that is not listed belongs to the core group.
"""


def path(resource: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of a resource, of one object, or of its subresource. Example: `path("pods",
    "alice", "digits-2-ps-0", "log")`. Without a namespace the path is cluster-wide.
    """
    parts = [API_PREFIXES.get(resource, "/api/v1")]
    if namespace and resource != "namespaces":
        parts += ["namespaces", namespace]
    parts += [resource, name, subresource]
    return "/".join(filter(None, parts))


class StreamCloser:
    """Closes a stream that another thread reads; the reading thread gets an ApiError or the end of
    the stream.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._response: urllib3.BaseHTTPResponse | None = None
        self.made = False

    def __call__(self) -> None:
        """Close the stream that is read now; a stream that is opened later is closed at once."""
        with self._lock:
            self.made = True
            self._shut()

    def reach(self, response: urllib3.BaseHTTPResponse | None) -> None:
        """Register `response` as the stream that a call of this object closes. If the object was
        called before, close the stream at once.
        """
        with self._lock:
            self._response = response
            if self.made:
                self._shut()

    def _shut(self) -> None:
        if self._response is not None:
            with suppress(OSError, RuntimeError, ValueError):  # the stream has ended by itself
                self._response.shutdown()


Object = dict[str, Any]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
WATCH_SECONDS = 40
"""Seconds after which the server sends a bookmark and ends a watch, so that a dead watch is
noticed.
"""
SILENCE = 10.0
"""A watch counts as dead after WATCH_SECONDS plus this many seconds without a byte."""
FIRST_PAGE, PAGE = 50, 200
"""Number of objects in the first page of a list, and the maximum number in each later page.

Ref:
https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
"""
PAGE_BYTES = 8 * 1024 * 1024
"""Target size of a page: the number of objects is adapted so that a list of large objects is never
in memory as a whole.
"""


class ApiError(Exception):
    """The API server refused a request or did not answer it.

    `status` is the HTTP status; 0 if there was no answer. `reason` is a metav1.StatusReason such as
    `NotFound`, `AlreadyExists`, `Conflict` or `Forbidden`.
    """

    def __init__(
        self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.details = dict(details or {})

    @property
    def gone(self) -> bool:
        """Whether the requested object does not exist."""
        return self.status == 404

    @property
    def unanswered(self) -> bool:
        """Whether there was no usable answer, so that the same call may succeed later."""
        return self.status == 0 or self.status >= 500 or self.status == 429


@dataclass(frozen=True)
class Listing:
    """A whole list: the objects, and the version from which a watch continues."""

    items: list[Object]
    version: str


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch: `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`, and the object."""

    kind: str
    object: Object = field(default_factory=dict)


class Api:
    """A connection to one API server; thread-safe.

    Args:
        configuration: the official client's configuration: server, credentials, TLS.
    """

    def __init__(self, configuration: Configuration) -> None:
        from kubernetes.client.api_client import ApiClient
        from kubernetes.utils.keepalive import tcp_keepalive_socket_options

        configuration.socket_options = tcp_keepalive_socket_options(idle=10, interval=5, count=3)
        configuration.connection_pool_maxsize = 16
        self.server = str(configuration.host)
        self._client = ApiClient(configuration)
        self._pool: urllib3.PoolManager = self._client.rest_client.pool_manager

    # -- verbs -------------------------------------------------------------------------------------

    def get(self, where: str, *, seconds: float = ANSWER_SECONDS, **query: object) -> Object:
        """Return the object at the path `where`. Raises ApiError."""
        return self._json("GET", where, None, query, seconds)

    def dated(self, where: str, *, seconds: float = ANSWER_SECONDS) -> tuple[Object, float | None]:
        """Return one object, and the time of the answer by the server's clock. Raises ApiError."""
        response = self._send("GET", where, None, {}, seconds)
        answer = _read(response, json.loads)
        try:
            return answer, parsedate_to_datetime(response.headers["Date"]).timestamp()
        except (KeyError, ValueError):
            return answer, None

    def every(
        self,
        where: str,
        *,
        seconds: float = ANSWER_SECONDS,
        keep: Callable[[Object], Object] = lambda found: found,
        shape: Shape = WHOLE_SHAPE,
        **query: object,
    ) -> Listing:
        """Return all objects of a collection, as they were at one moment. They are read in pages of
        some megabytes, and only the results of `keep` stay in memory. Raises ApiError. Status 410
        means that the server no longer has the rest of the list; the caller must then read the
        whole list again.
        """
        items: list[Object] = []
        limit = min(FIRST_PAGE, PAGE)
        asked: dict[str, object] = {"limit": limit, **query}
        while True:
            answer = self._send("GET", where, None, asked, seconds)
            page: Any = _read(answer, shape.page.decode)
            found = page.items or []
            each = max(1, len(answer.data) // max(1, len(found)))
            items += map(keep, found)
            limit = asked["limit"] = max(1, min(PAGE, 4 * limit, PAGE_BYTES // each))
            head = page.metadata
            if not head.get("continue"):
                return Listing(items, str(head.get("resourceVersion", "")))
            asked["continue"] = head["continue"]

    def create(
        self, where: str, body: Object, *, seconds: float = ANSWER_SECONDS, **query: object
    ) -> Object:
        """Create an object in the collection `where`. Raises ApiError (409: AlreadyExists)."""
        return self._json("POST", where, body, query, seconds)

    def replace(
        self, where: str, body: Object, *, seconds: float = ANSWER_SECONDS, **query: object
    ) -> Object:
        """Replace an object; a resourceVersion in `body` must still be current."""
        return self._json("PUT", where, body, query, seconds)

    def merge(self, where: str, body: Object, **query: object) -> Object:
        """Merge `body` into an object (RFC 7386). Raises ApiError."""
        kind = "application/merge-patch+json"
        return self._json("PATCH", where, body, query, ANSWER_SECONDS, kind)

    def patch(self, where: str, operations: list[Object], **query: object) -> Object:
        """Change an object by a list of operations (RFC 6902), such as `test` and `add`. Raises
        ApiError.
        """
        kind = "application/json-patch+json"
        return self._json("PATCH", where, operations, query, ANSWER_SECONDS, kind)

    def apply(self, where: str, body: Object, manager: str) -> Object:
        """Apply `body` to an object; `manager` then owns the fields in `body`. Raises ApiError.

        Ref: https://kubernetes.io/docs/reference/using-api/server-side-apply/
        """
        kind, query = "application/apply-patch+yaml", {"fieldManager": manager, "force": "true"}
        return self._json("PATCH", where, body, query, ANSWER_SECONDS, kind)

    def delete(
        self, where: str, *, uid: str = "", propagation: str = "Background", **query: object
    ) -> Object:
        """Delete an object; with `uid`, only if the object has this uid (409: another object has
        the name now).
        """
        body: Object = {"propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        return self._json("DELETE", where, body, query, ANSWER_SECONDS)

    # -- streams -----------------------------------------------------------------------------------

    def watch(
        self,
        where: str,
        version: str,
        *,
        cut: StreamCloser | None = None,
        shape: Shape = WHOLE_SHAPE,
        **query: object,
    ) -> Iterator[WatchEvent]:
        """Yield changes after `version` until the server ends the watch after WATCH_SECONDS.

        Raises:
            ApiError: the status is 410 if `version` is too old, so that the caller must list the
                objects again, and 0 if the server sent nothing for too long.
        """
        asked = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
            **query,
        }
        for line in self.lines(where, silence=WATCH_SECONDS + SILENCE, cut=cut, **asked):
            event = shape.event.decode(line)
            if event.type == "ERROR":
                told = json.loads(line)["object"]
                raise _refusal(told.get("code") or 500, told)
            yield WatchEvent(event.type, event.object)

    def lines(
        self, where: str, *, silence: float, cut: StreamCloser | None = None, **query: object
    ) -> Iterator[bytes]:
        """Yield the lines of a streamed answer, without line breaks. `silence` is the maximum time
        between two bytes, in seconds.

        Closing the iterator closes the connection; `cut` does so from another thread. Raises
        ApiError.
        """
        response = self._send("GET", where, None, query, silence, stream=True)
        try:
            if cut is not None:
                cut.reach(response)
            if response.status >= 300:
                raise _refusal(response.status, response.read())
            rest = b""
            for chunk in response.stream(64 * 1024, decode_content=True):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
            if rest:
                yield rest
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, "NoAnswer", str(error)) from None
        finally:
            if cut is not None:
                cut.reach(None)
            response.close()  # not release_conn, which would reuse a connection with unread data

    def close(self) -> None:
        """Close every connection."""
        self._pool.clear()

    # -- HTTP --------------------------------------------------------------------------------------

    def _json(
        self,
        method: str,
        where: str,
        body: object,
        query: Mapping[str, object],
        seconds: float,
        kind: str = "application/json",
    ) -> Object:
        return _read(self._send(method, where, body, query, seconds, kind=kind), json.loads)

    def _send(
        self,
        method: str,
        where: str,
        body: object,
        query: Mapping[str, object],
        seconds: float,
        *,
        kind: str = "application/json",
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": self._client.user_agent}
        if body is not None:
            headers["Content-Type"] = kind
        content = None if body is None else json.dumps(body).encode()
        address = self.server.rstrip("/") + where
        if query:
            address += "?" + urlencode(dict(query))
        try:
            self._client.update_params_for_auth(
                headers, [], ["BearerToken"], where, method, content
            )
            return self._pool.request(
                method,
                address,
                body=content,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
                retries=False,
                preload_content=not stream,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, "NoAnswer", str(error)) from None


def _read(response: urllib3.BaseHTTPResponse, decode: Callable[[bytes], Any]) -> Object:
    """Return the decoded answer. Raises ApiError."""
    if response.status >= 300:
        raise _refusal(response.status, response.data)
    try:
        answer: Object = decode(response.data)
    except (ValueError, msgspec.DecodeError):
        text = "the answer is no JSON: something else stands at this address"
        raise ApiError(0, "NoAnswer", text) from None
    return answer


def _refusal(status: int, said: bytes | Object) -> ApiError:
    """Return the error for an answer: a metav1.Status, or the text of a proxy."""
    told: object = said
    if isinstance(said, bytes):
        try:
            told = json.loads(said)
        except ValueError:
            return ApiError(status, "", said.decode("utf-8", "replace")[:500])
    if not isinstance(told, dict):
        return ApiError(status, "", str(told)[:500])
    return ApiError(
        status, str(told.get("reason", "")), str(told.get("message", "")), told.get("details")
    )


# Reading and deleting objects that may be gone already: a missing object is not an error. A deleted
# object with finalizers stays, with a deletionTimestamp, until the last finalizer is removed.
# Ref: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/

COLLECTOR_FINALIZERS = ("foregroundDeletion", "orphan")
"""The finalizers of the garbage collector, which removes them itself."""


def is_deleted(found: Mapping[str, Any]) -> bool:
    """Return whether the object is deleted. Finalizers may still keep it."""
    return bool(found["metadata"].get("deletionTimestamp"))


def foreign_finalizers(found: Mapping[str, Any]) -> list[str]:
    """Return the object's finalizers, except those that Kubernetes removes itself."""
    return [
        each
        for each in found["metadata"].get("finalizers") or ()
        if each not in COLLECTOR_FINALIZERS
    ]


def find_object(api: Api, where: str) -> Object | None:
    """Return one object; None if it does not exist. Raises ApiError."""
    try:
        return api.get(where)
    except ApiError as error:
        if error.gone:
            return None
        raise


def may_create(api: Api, namespace: str, group: str, resource: str, **more: Any) -> bool | None:
    """Return whether this account may create objects of a kind in a namespace; None if the API does
    not say. `more` are further arguments of `Api.create`, such as a timeout. Raises ApiError.

    Ref: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
    """
    asked = {"namespace": namespace, "verb": "create", "group": group, "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    told = api.create(path("selfsubjectaccessreviews"), review, **more)
    allowed: bool | None = (told.get("status") or {}).get("allowed")
    return allowed


def discard_object(api: Api, where: str, uid: str) -> None:
    """Delete the object with this uid; another object of the same name stays. Raises ApiError."""
    try:
        api.delete(where, uid=uid)
    except ApiError as error:
        if not error.gone and error.status != 409:  # 409: another object has the name now
            raise
