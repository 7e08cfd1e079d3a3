"""The rights of a user's account: every verb on every resource of the API is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.kube.operator import Tenant

from tfcluster_magic.kube.api import access
from tfcluster_magic.kube.api.client import Api

USER = "alice"
ALLOWED = {
    "tfclusters.tfcluster.dev": {"get", "list", "watch", "create", "delete", "patch"},
    "tfclusterschedules.tfcluster.dev": {"get", "list", "watch", "create", "delete", "patch"},
    "pods": {"get", "list", "watch"},
    "pods/log": {"get", "list", "watch"},
    "events": {"get", "list", "watch"},
}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
SPECIAL = ("impersonate", "bind", "escalate", "approve", "sign", "use")
ANYBODY = {
    *("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"),
    "localsubjectaccessreviews",
}
"""Resources that every account may create to ask about itself."""
ELSEWHERE = {"tfclusters", "pods", "pods/log", "pods/exec", "secrets", "configmaps", "events"}
"""Resources that are also checked in another namespace."""


@pytest.fixture
def alices(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A user's namespace."""
    tenant = new_tenant()
    tenant.let(USER)
    return tenant


@pytest.fixture
def api(alices: Tenant, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A client of the API with the tests' own account."""
    monkeypatch.setenv("KUBECONFIG", alices.kubectl.kubeconfig)
    connection, _namespace = access.connect()
    yield connection
    connection.close()


def every_resource(api: Api) -> list[tuple[str, str]]:
    """Return group and resource of everything on this API server, subresources included."""
    groups = api.get("/apis")["groups"]
    versions = ["/api/v1"] + [f"/apis/{v['groupVersion']}" for g in groups for v in g["versions"]]
    found = {
        (version.split("/")[2] if version.startswith("/apis") else "", each["name"])
        for version in versions
        for each in api.get(version)["resources"]
    }
    return sorted(found)


def test_a_user_may_do_what_the_role_says_and_nothing_else(alices: Tenant, api: Api) -> None:
    """A user's account may use its runs and read pods, logs and events in its own namespace, but
    nothing else of the API.
    """
    asked = [
        (group, resource, verb, namespace)
        for group, resource in every_resource(api)
        for verb in (*VERBS, *SPECIAL)
        for namespace in (alices.name, "default")
        if namespace == alices.name or resource in ELSEWHERE
    ]

    def may(question: tuple[str, str, str, str]) -> bool:
        group, resource, verb, namespace = question
        name, _slash, part = resource.partition("/")
        attributes = {
            "group": group,
            "resource": name,
            "subresource": part,
            "verb": verb,
            "namespace": namespace,
        }
        answer = api.create(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": USER,
                    "groups": ["system:authenticated"],
                    "resourceAttributes": attributes,
                },
            },
        )
        return bool(answer["status"]["allowed"])

    with ThreadPoolExecutor(8) as pool:
        allowed = [q for q, yes in zip(asked, pool.map(may, asked), strict=True) if yes]
    print(f"{len(asked)} questions, {len(allowed)} allowed")
    expected = {
        (f"{resource}.{group}".rstrip("."), verb, namespace)
        for group, resource, verb, namespace in allowed
        if resource not in ANYBODY
    }
    assert expected == {
        (what, verb, alices.name) for what, verbs in ALLOWED.items() for verb in verbs
    }
    assert len(asked) > 1000
