"""Ingress and HTTPRoute on this cluster: both lead to a pod by the first part of the path."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.kube.workloads import ingress, service, web


def route(path: str, kind: str) -> list[Object]:
    """Return an HTTPRoute for a path, and its Gateway."""
    api = {"apiVersion": "gateway.networking.k8s.io/v1", "metadata": {"name": "web"}}
    listener = {"name": "web", "port": 80, "protocol": "HTTP"}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [{"name": "web", "port": 80}],
    }
    return [
        {**api, "kind": "Gateway", "spec": {"gatewayClassName": kind, "listeners": [listener]}},
        {**api, "kind": "HTTPRoute", "spec": {"parentRefs": [{"name": "web"}], "rules": [rule]}},
    ]


@pytest.mark.needs("ingress")
def test_an_ingress_reaches_a_pod(cluster: UnderTest, kube: Kubectl) -> None:
    """An Ingress with a path leads to its pod, which receives the full path."""
    path = f"/{kube.namespace}/by-ingress"
    _leads_to_its_pod(cluster, kube, path, ingress(path, cluster.description.ingress_class))


@pytest.mark.needs("gateway")
def test_an_http_route_reaches_a_pod(cluster: UnderTest, kube: Kubectl) -> None:
    """An HTTPRoute with a path leads to its pod, which receives the full path."""
    path = f"/{kube.namespace}/by-route"
    _leads_to_its_pod(cluster, kube, path, route(path, cluster.description.gateway_class))


def _leads_to_its_pod(cluster: UnderTest, kube: Kubectl, path: str, way: list[Object]) -> None:
    """Check that the controller returns the pod's answer once the route exists, and not before."""
    url = f"{cluster.description.ingress_address}{path}/"
    assert _get(url) != "here"
    kube.apply(web("web", cluster.busybox, path, "here"), service("web", "web", 80), *way)
    kube.running("web")
    wait_until(lambda: _get(url) == "here", f"{url} leads to the pod", seconds=90)


def _get(url: str) -> str:
    """Return the text at a URL, without this machine's proxies, which cannot reach the cluster."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=10) as answer:
            return str(answer.read().decode().strip())
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code}"
