"""A server that stores objects like the Kubernetes API server, and does nothing else.

It supports create, get, list, watch, patch, replace and delete with versions and conflicts, keeps
objects that have finalizers, and removes the dependents of a deleted owner. No controller runs
behind it: a test provides the pods, and `logs` their output. `refuses`, `loses`, `stalls` and `cut`
make it fail as real servers and networks do.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.http_listener import Listener
from tfcluster_magic.kube.api.client import Api

Object = dict[str, Any]
Answer = tuple[int, Object]
KINDS = {"pods": "Pod", "jobs": "Job", "tfclusters": "TFCluster", "nodes": "Node"}


class Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str = "") -> None:
        super().__init__(message)
        body = {"kind": "Status", "code": status, "reason": reason, "message": message or reason}
        self.answer: Answer = (status, body)


class KubeServer:
    """Objects by path, such as /apis/batch/v1/namespaces/a/jobs/digits-1-worker."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.logs: dict[str, Callable[[Mapping[str, str]], bytes]] = {}
        """Return the nodes' answer to a request for the log of a pod, by its name."""
        self.calls: list[tuple[str, str]] = []
        self.lacks = {"podgroups"}
        """Kinds that the server does not serve, as without Volcano."""
        self.refuses: Callable[[str, str], Refusal | None] = lambda _method, _path: None
        self.loses: Callable[[str, str], bool] = lambda _method, _path: False
        """Whether the answer to a write never arrives."""
        self.stalls: Callable[[str], bool] = lambda _path: False
        """Whether the watches of a collection send no events for now; notify `changed` when this
        ends.
        """
        self.cut: set[int] = set()
        """Ports whose clients no longer get answers; see `open`."""
        self.asked = threading.local()
        """In the thread of a request: the `port` at which the request arrived."""
        self.queries: list[tuple[str, str, Mapping[str, list[str]]]] = []
        self.changed = threading.Condition(threading.RLock())
        self.may: Callable[[Mapping[str, str]], bool] = lambda _asked: True
        """Return whether an account has a right, by the attributes of its request."""
        self.clock: Callable[[], float] = time.time
        """Return the server's time, for its answers and the writes of a Lease."""
        self._version = 0
        self._history: list[tuple[int, str, str, Object]] = []
        self._closed = False
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # otherwise each answer waits 40 ms for its second half

            def _serve(self) -> None:
                path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                server.asked.port = self.server.server_address[1]
                if server.asked.port in server.cut:
                    self.close_connection = True
                    return
                server.queries.append((self.command, path, query))
                if "watch" in query:
                    selector = _selector(query)
                    server.watch(self, path, int(query["resourceVersion"][0]), selector)
                    return
                try:
                    if "/pods/" in path and path.endswith("/log"):
                        status, content = 200, server.printed(path, query)
                    else:
                        selector = _selector(query)
                        status, answer = server.answer(self.command, path, body, selector)
                        content = json.dumps(answer).encode()
                except Refusal as refusal:
                    status, answer = refusal.answer
                    content = json.dumps(answer).encode()
                if server.loses(self.command, path) or server.asked.port in server.cut:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                with suppress(OSError):  # the client may have closed the connection
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string(server.clock())

            def log_message(self, *words: object) -> None:
                pass

        self._handler = Handler
        self._http = Listener(Handler)
        self._ports: list[Listener] = []
        self.api = self._http.api
        """Return a connection to the server."""

    def open(self) -> tuple[Api, int]:
        """Return a connection, and a port that no other connection uses, so that `cut` can end just
        this one.
        """
        made = Listener(self._handler)
        self._ports.append(made)
        return made.api(), made.server_port

    def close(self) -> None:
        """Stop the server and its watches."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        for each in (self._http, *self._ports):
            each.end()

    def put(self, path: str, found: Object) -> Object:
        """Write an object as given, replacing any other, as controllers and kubelets do."""
        with self.changed:
            old = self.objects.get(path)
            self._version += 1
            head = found.setdefault("metadata", {})
            head["name"] = path.rpartition("/")[2]
            parts = path.split("/")
            if "namespaces" in parts[:-2]:
                head["namespace"] = parts[parts.index("namespaces") + 1]
            head["resourceVersion"] = str(self._version)
            head.setdefault("uid", uuid.uuid4().hex)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            head.setdefault("creationTimestamp", now)
            head.setdefault("generation", 1)
            if old is not None and old.get("spec") != found.get("spec"):
                head["generation"] += 1
            if "/leases/" in path:
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock()))
                head["managedFields"] = [{"manager": "operator", "time": at}]
            self.objects[path] = copy.deepcopy(found)
            self._tell("MODIFIED" if old is not None else "ADDED", path, self.objects[path])
            return copy.deepcopy(found)

    def remove(self, path: str) -> None:
        """Delete an object and its dependents."""
        with self.changed:
            gone = self.objects.pop(path)
            self._version += 1
            gone["metadata"]["resourceVersion"] = str(self._version)
            self._tell("DELETED", path, gone)
            uid = gone["metadata"]["uid"]
            for other, found in list(self.objects.items()):
                owners = found["metadata"].get("ownerReferences") or []
                if any(owner["uid"] == uid for owner in owners) and other in self.objects:
                    self.remove(other)

    def names(self, kind: str) -> list[str]:
        """Return the names of all objects of a kind, such as `jobs`."""
        return sorted(p.rpartition("/")[2] for p in self.objects if f"/{kind}/" in p)

    def answer(self, method: str, path: str, body: Any, selector: str = "") -> Answer:
        """Return the answer to a request."""
        with self.changed:
            self.calls.append((method, path))
            if refusal := self.refuses(method, path):
                raise refusal
            if self.lacks.intersection(path.split("/")):
                raise Refusal(404, "NotFound", "404 page not found")
            if path.endswith("/selfsubjectaccessreviews"):
                return 201, {
                    **body,
                    "status": {"allowed": self.may(body["spec"]["resourceAttributes"])},
                }
            if method == "POST":
                whole = f"{path}/{body['metadata']['name']}"
                if whole in self.objects:
                    raise Refusal(409, "AlreadyExists")
                return 201, self.put(whole, body)
            whole = path.removesuffix("/status")
            if method == "GET" and whole not in self.objects:
                return self._list(path, selector)
            if whole not in self.objects:
                raise Refusal(404, "NotFound")
            if method == "DELETE":
                wanted = ((body or {}).get("preconditions") or {}).get("uid")
                if wanted not in (None, self.objects[whole]["metadata"]["uid"]):
                    raise Refusal(409, "Conflict")
                return 200, self._delete(whole, (body or {}).get("propagationPolicy"))
            old = copy.deepcopy(self.objects[whole])
            if method == "GET":
                return 200, old
            version = old["metadata"]["resourceVersion"]
            new = body if method == "PUT" else _patched(old, body)
            if new["metadata"].get("resourceVersion") not in (None, version):
                raise Refusal(409, "Conflict")
            return 200, self._changed(whole, new)

    def _changed(self, path: str, new: Object) -> Object:
        """Write a changed object; remove it if it was deleted and has no finalizers left."""
        old, head = self.objects[path], new["metadata"]
        if new == old:
            return new
        was_kept = head.get("deletionTimestamp") and old["metadata"].get("finalizers")
        if was_kept and not head.get("finalizers"):
            self.remove(path)
            return new
        return self.put(path, new)

    def _delete(self, path: str, propagation: str | None) -> Object:
        """Delete an object, or mark it if finalizers keep it."""
        found = copy.deepcopy(self.objects[path])
        head = found["metadata"]
        if propagation == "Foreground":
            head["finalizers"] = [*head.get("finalizers", ()), "foregroundDeletion"]
        if not head.get("finalizers"):
            self.remove(path)
            return {"kind": "Status", "status": "Success"}
        if head.get("deletionTimestamp"):
            return found
        head["deletionTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head["generation"] = head.get("generation", 1) + 1
        return self.put(path, found)

    def printed(self, path: str, query: Mapping[str, list[str]]) -> bytes:
        """Return the output of a pod; requests run in parallel, as on nodes."""
        with self.changed:
            self.calls.append(("GET", path))
            refusal = self.refuses("GET", path)
            log = self.logs.get(path.split("/")[-2])
        if refusal or log is None:
            raise refusal or Refusal(404, "NotFound")
        return log({key: values[0] for key, values in query.items()})

    def watch(self, to: BaseHTTPRequestHandler, path: str, since: int, selector: str) -> None:
        """Send the changes after a version, until the server or the watch ends."""
        to.send_response(200)
        to.send_header("Transfer-Encoding", "chunked")
        to.end_headers()
        told = 0
        with self.changed:
            while not self._closed and self.asked.port not in self.cut:
                if self.stalls(path):
                    self.changed.wait()
                    continue
                for version, kind, where, found in self._history[told:]:
                    if version > since and _is_in(path, where) and _is_chosen(found, selector):
                        line = json.dumps({"type": kind, "object": found}).encode() + b"\n"
                        to.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                told = len(self._history)
                to.wfile.flush()
                self.changed.wait()

    def _list(self, path: str, selector: str) -> Answer:
        inside = path.split("/")[3 if path.startswith("/api/") else 4 :]
        if inside[0] == "namespaces" and len(inside) > 2:
            inside = inside[2:]
        if len(inside) > 1:
            raise Refusal(404, "NotFound")
        items = [
            found
            for where, found in self.objects.items()
            if _is_in(path, where) and _is_chosen(found, selector)
        ]
        return 200, {"items": items, "metadata": {"resourceVersion": str(self._version)}}

    def _tell(self, kind: str, path: str, found: Object) -> None:
        self._history.append((self._version, kind, path, copy.deepcopy(found)))
        self.changed.notify_all()


def _is_in(collection: str, path: str) -> bool:
    """Return whether an object is in a collection, which is that of one namespace or of all
    namespaces.
    """
    group, _slash, plural = collection.rpartition("/")
    folder, _slash, _name = path.rpartition("/")
    if folder == collection:
        return True
    return "/namespaces/" not in collection and (
        folder.startswith(f"{group}/namespaces/") and folder.endswith(f"/{plural}")
    )


def _selector(query: Mapping[str, list[str]]) -> str:
    """Return the label selector of a request; if the request selects a name, `metadata.name=NAME`
    is a part of it.
    """
    parts = query.get("labelSelector", [""])
    names = [each for each in query.get("fieldSelector", ()) if each.startswith("metadata.name=")]
    return ",".join(filter(None, [*parts, *names]))


def _is_chosen(found: Object, selector: str) -> bool:
    """Return whether an object's labels match a selector with `=` and `!=`. Tests never change
    labels, so watches need not handle an object that stops matching.
    """
    if "," in selector:
        return all(_is_chosen(found, each) for each in selector.split(","))
    key, _equals, value = selector.partition("=")
    other, key = key.endswith("!"), key.removesuffix("!")
    head = found["metadata"]
    there = head["name"] if key == "metadata.name" else (head.get("labels") or {}).get(key)
    return not key or (there == value) != other


def _patched(old: Object, change: Any) -> Object:
    """Return an object after a JSON patch or a merge patch."""
    new = copy.deepcopy(old)
    if isinstance(change, dict):
        return _merged(new, change)
    for operation in change:
        *parents, last = operation["path"].strip("/").split("/")
        at: Any = new
        for each in parents:
            at = at.setdefault(each, {})
        if last == "-":
            if not isinstance(at, list):
                raise Refusal(422, "Invalid", f"there is no list at {operation['path']}")
            at.append(operation["value"])
        else:
            at[last] = operation["value"]
    return new


def _merged(old: Object, change: Object) -> Object:
    for key, value in change.items():
        if value is None:
            old.pop(key, None)
        elif isinstance(value, dict):
            old[key] = _merged(old.get(key) or {}, value)
        else:
            old[key] = value
    return old
