"""Manifests of small pods and Jobs that Pod Security "restricted" accepts."""

from __future__ import annotations

from typing import Any

from support.kube.kubectl import Object

USER = 1000
SLEEP = ("sleep", "3600")
WEB = 8080  # the port of httpd below


def spec(image: str, *command: str, **more: Any) -> Object:
    """Return the spec of a pod with one container; `more` are other fields of the container."""
    container = {
        "name": "main",
        "image": image,
        "command": list(command or SLEEP),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **more,
    }
    return {
        "containers": [container],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": 100,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def pod(name: str, image: str, *command: str, **more: Any) -> Object:
    """Return a pod labelled `app=<name>`; it sleeps unless a command is given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": spec(image, *command, **more),
    }


def web(name: str, image: str, path: str = "", text: str = "hello") -> Object:
    """Return a pod that answers `text` at `/<path>/` of its port WEB."""
    serve = f'mkdir -p "/tmp/w/{path}" && echo "{text}" >"/tmp/w/{path}/index.html" && '
    return pod(name, image, "sh", "-c", f"{serve} exec httpd -f -p {WEB} -h /tmp/w")


def fetch(host: str) -> list[str]:
    """Return the command that requests another pod's port WEB; it times out after two seconds."""
    return ["timeout", "2", "wget", "-qO-", f"http://{host}:{WEB}/"]


def claim(name: str, storage_class: str, storage: str) -> Object:
    """Return a claim that pods on any node read and write."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": storage}},
        },
    }


def job(name: str, template: Object, count: int = 1, **more: Any) -> Object:
    """Return an Indexed Job whose pods all run at once; `more` are other fields of its spec."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"app": name}}, "spec": template},
            **more,
        },
    }


def service(name: str, app: str, port: int, **more: Any) -> Object:
    """Return a Service for the pods labelled `app`; `more` are other fields of its spec."""
    ports = [{"name": "main", "port": port, "targetPort": WEB}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": ports, **more},
    }


def ingress(path: str, kind: str) -> list[Object]:
    """Return an Ingress for a path."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule = {"http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "web"},
            "spec": {"ingressClassName": kind, "rules": [rule]},
        }
    ]
