"""A pod in a user's namespace that accepts the messages of webhooks."""

from __future__ import annotations

import json
from dataclasses import dataclass

from support.kube import workloads
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import SYSTEM, Tenant

TOKEN = "tok-1234567"
OPEN, CLOSED = 6443, 8080
"""Ports of the receiver: only the first is in the notifier's NetworkPolicy."""
RECEIVES = f"""
import http.server, os, threading

class Hooks(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        is_up = os.path.exists("/tmp/up")
        print("GOT " + body if is_up else "DOWN", flush=True)
        self.send_response(200 if is_up else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

servers = [http.server.ThreadingHTTPServer(("", port), Hooks) for port in ({OPEN}, {CLOSED})]
for server in servers:
    threading.Thread(target=server.serve_forever).start()
"""


@dataclass
class Receiver:
    """A receiver: a pod in the user's namespace that accepts messages, or answers 503."""

    kubectl: Kubectl
    address: str

    @property
    def url(self) -> str:
        return f"http://{self.address}:{OPEN}/hook/{TOKEN}"

    def set_up(self, is_up: bool) -> None:
        """Make the receiver accept messages, or refuse them."""
        words = ("touch", "/tmp/up") if is_up else ("rm", "-f", "/tmp/up")
        self.kubectl("exec", "receiver", "--", *words)

    def lines(self) -> list[str]:
        return self.kubectl("logs", "receiver").splitlines()

    def got(self) -> list[Object]:
        """Return the accepted messages."""
        found = (line.partition("GOT ")[2] for line in self.lines())
        return [json.loads(text) for text in found if text]


def start(home: Tenant) -> Receiver:
    """Start a receiver that the notifier may connect to; it answers 503 until it is set up."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}
    admitted: Object = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "receiver"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "receiver"}},
            "ingress": [{"from": [{"namespaceSelector": selector}]}],
        },
    }
    made = workloads.pod("receiver", home.image, "python3", "-c", RECEIVES)
    home.kubectl.apply(admitted, made)
    home.kubectl("wait", "pod/receiver", "--for=condition=Ready", "--timeout=60s")
    return Receiver(home.kubectl, home.kubectl.get("pod", "receiver")["status"]["podIP"])
