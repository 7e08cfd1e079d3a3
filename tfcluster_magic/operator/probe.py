"""The two pods and the policy by which the operator tries whether policies are enforced. Pure."""

from __future__ import annotations

from ..kube.api.client import Object

SERVER, CLIENT = "server", "client"
OPEN, SHUT = "open", "shut"
"""What the client tells of the port that the policy shuts."""
ALLOWED, DENIED = 2222, 2223
DEADLINE = 270

_LISTEN = f"""
import socket, time
every = [socket.create_server(("", port)) for port in ({ALLOWED}, {DENIED})]
time.sleep({DEADLINE})
"""

# Policies reach the nodes a moment after the pods: only what stays so for a while is an answer.
_TRY = f"""
import socket, sys, time

def reached(port):
    try:
        socket.create_connection((sys.argv[1], port), timeout=1.5).close()
        return True
    except OSError:
        return False

told, shut, began = "unreachable", 0, time.monotonic()
while time.monotonic() - began < 60:
    if reached({ALLOWED}):
        shut = 0 if reached({DENIED}) else shut + 1
        told = "{SHUT}" if shut else "{OPEN}"
        if shut == 3 or (not shut and time.monotonic() - began > 15):
            break
    time.sleep(0.5)
open("/dev/termination-log", "w").write(told)
"""


def objects(
    name: str, image: str, owner: Object | None, pool: Object
) -> tuple[Object, Object, Object]:
    """The server, the client (the server's address is its missing argument), and the policy;
    `pool` are the pods' `nodeSelector` and `tolerations`.
    """
    server, client = (
        _pod(name, kind, image, program, owner)
        for kind, program in ((SERVER, _LISTEN), (CLIENT, _TRY))
    )
    for each in (server, client):
        each["spec"] |= pool
    return server, client, _policy(name, owner)


def _head(name: str, kind: str, owner: Object | None) -> Object:
    component = {"app.kubernetes.io/component": "tfcluster-enforcement"}
    head: Object = {"name": name, "labels": {**component, **_labels(name.rpartition("-")[0], kind)}}
    if owner is not None:
        head["ownerReferences"] = [owner]
    return head


def _labels(name: str, kind: str) -> dict[str, str]:
    return {"tfcluster.dev/check": name, "tfcluster.dev/check-role": kind}


def _pod(name: str, kind: str, image: str, program: str, owner: Object | None) -> Object:
    container = {
        "name": kind,
        "image": image,
        "command": ["python3", "-I", "-S", "-c", program],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "500m", "memory": "64Mi"},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if kind == SERVER:
        container["startupProbe"] = {"tcpSocket": {"port": DENIED}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _head(f"{name}-{kind}", kind, owner),
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    }


def _policy(name: str, owner: Object | None) -> Object:
    def selected(kind: str) -> Object:
        return {"podSelector": {"matchLabels": _labels(name, kind)}}

    allowed = {"port": ALLOWED, "protocol": "TCP"}
    both = [allowed, {"port": DENIED, "protocol": "TCP"}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {**_head(f"{name}-policy", "policy", owner), "name": name},
        "spec": {
            "podSelector": {"matchLabels": {"tfcluster.dev/check": name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [selected(CLIENT)], "ports": [allowed]}],
            "egress": [{"to": [selected(SERVER)], "ports": both}],
        },
    }
