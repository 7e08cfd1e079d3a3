"""A small server with lists and watches of the Kubernetes API, for pods that a test puts there. On
demand it does what a real server rarely does: forget a version, cut a watch, or stay silent.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.http_listener import Listener

Object = dict[str, Any]
PATH = "/api/v1/pods"


class WatchServer:
    """Pods by name, and every watch on them."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.version = 100
        self.history: list[tuple[int, str, Object]] = []
        self.forgotten = 0
        """The newest forgotten version: a watch from it or an earlier version gets 410."""
        self.cuts = 0
        self.silent = False
        self.closes_at_once = False
        self.refusal: tuple[int, Object] | None = None
        self.asked: list[dict[str, str]] = []
        self.condition = threading.Condition()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
                server.asked.append({**query, "at": str(time.monotonic())})
                if server.refusal is not None:
                    self._answer(*server.refusal)
                elif "watch" in query:
                    server.watch(self, int(query["resourceVersion"]))
                else:
                    self._answer(200, server.page(query))

            def _answer(self, status: int, body: Object) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                pass

        self._http = Listener(Handler)
        self.api = self._http.api
        """Return a connection to the server."""

    def put(self, name: str, quietly: bool = False, **more: object) -> None:
        """Add or change a pod; `quietly` keeps the change out of the history."""
        with self.condition:
            self.version += 1
            kind = "MODIFIED" if name in self.objects else "ADDED"
            head = {"name": name, "namespace": "a", "uid": name, **more}
            self.objects[name] = {"metadata": {**head, "resourceVersion": str(self.version)}}
            self._tell(kind, self.objects[name], quietly)

    def remove(self, name: str, quietly: bool = False) -> None:
        """Delete a pod."""
        with self.condition:
            self.version += 1
            gone = self.objects.pop(name)
            gone = {"metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
            self._tell("DELETED", gone, quietly)

    def bookmark(self) -> None:
        """Send every watch a bookmark: the current version without a change."""
        with self.condition:
            self.version += 1
            self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}, False)

    def cut(self) -> None:
        """End every watch."""
        with self.condition:
            self.cuts += 1
            self.condition.notify_all()

    def watches(self) -> list[dict[str, str]]:
        """Return the queries of all watches so far."""
        return [each for each in self.asked if "watch" in each]

    def lists(self) -> list[dict[str, str]]:
        """Return the queries of all lists so far."""
        return [each for each in self.asked if "watch" not in each]

    def close(self) -> None:
        """Stop the server and its watches."""
        self.cut()
        self._http.end()

    def page(self, query: dict[str, str]) -> Object:
        """Return one page of a list."""
        with self.condition:
            items = [self.objects[name] for name in sorted(self.objects)]
            first, limit = int(query.get("continue", 0)), int(query["limit"])
            head = {"resourceVersion": str(self.version)}
            if first + limit < len(items):
                head["continue"] = str(first + limit)
            return {"items": items[first : first + limit], "metadata": head}

    def watch(self, to: BaseHTTPRequestHandler, since: int) -> None:
        """Send the changes after a version, until the watch is cut."""
        to.send_response(200)
        to.send_header("Transfer-Encoding", "chunked")
        to.end_headers()
        with self.condition:
            cuts = self.cuts
            if since <= self.forgotten:
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                self._send(to, "ERROR", status)
                cuts = -1
            while cuts == self.cuts and not self.closes_at_once:
                for version, kind, found in [h for h in self.history if h[0] > since]:
                    if not self.silent:
                        self._send(to, kind, found)
                    since = version
                self.condition.wait()
        to.wfile.write(b"0\r\n\r\n")

    def _tell(self, kind: str, found: Object, quietly: bool) -> None:
        if not quietly:
            self.history.append((self.version, kind, found))
        self.condition.notify_all()

    def _send(self, to: BaseHTTPRequestHandler, kind: str, found: Object) -> None:
        line = json.dumps({"type": kind, "object": found}).encode() + b"\n"
        to.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        to.wfile.flush()
