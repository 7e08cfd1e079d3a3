"""A websocket through the ingress controller, which every notebook page needs."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl
from support.kube.under_test import UnderTest
from support.kube.workloads import WEB, ingress, pod, service

# A server as a shell script, which reads the request's lines, accepts the upgrade and echoes bytes.
ECHO = rf"""
cat >/tmp/echo <<'END'
while read -r line && [ "${{line%?}}" ]; do :; done
printf 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'
exec cat
END
exec nc -ll -p {WEB} -e sh /tmp/echo
"""
REQUEST = (
    "GET {path}/ HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.needs("ingress")
def test_a_websocket_goes_both_ways(cluster: UnderTest, kube: Kubectl) -> None:
    """A websocket through an Ingress works both ways: the pod gets each message and answers."""
    path = f"/{kube.namespace}"
    kube.apply(pod("web", cluster.busybox, "sh", "-c", ECHO), service("web", "web", 80))
    kube.apply(*ingress(path, cluster.description.ingress_class))
    kube.running("web")
    wait_until(lambda: _talk(cluster, path), "the pod answers through the Ingress", seconds=90)


def _talk(cluster: UnderTest, path: str) -> bool:
    """Return whether the upgrade is accepted; then each of three messages must come back."""
    address = urlsplit(cluster.description.ingress_address)
    assert address.hostname
    with socket.create_connection((address.hostname, address.port or 80), timeout=20) as connection:
        connection.sendall(REQUEST.format(path=path, host=address.hostname).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            if not (more := connection.recv(1000)):
                return False
            answer += more
        if not answer.startswith(b"HTTP/1.1 101"):
            return False  # the controller does not have the route yet
        for number in range(3):
            message = b"message %d" % number
            connection.sendall(message)
            assert connection.recv(1000) == message
    return True
