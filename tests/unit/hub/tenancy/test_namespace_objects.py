"""The objects of a tenant, and the rights of the hub's accounts, compared with golden files.

`pytest tests/unit/hub/tenancy/test_namespace_objects.py --rewrite` rewrites the files; Git shows
the differences.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from support.project import DATA, ROOT

from tfcluster_magic.hub.spawning.namespace_creation import PROVISIONED, TROUBLE
from tfcluster_magic.hub.tenancy import caches
from tfcluster_magic.hub.tenancy.namespace_objects import (
    ApiServerAddress,
    TenantContext,
    namespace_annotations,
    tenant_objects,
)
from tfcluster_magic.hub.tenancy.policy import entitlement_for_groups, parse_policy
from tfcluster_magic.kube.objects.templates import yaml_documents

GOLDEN = DATA / "golden" / "tenancy"
PLACE = TenantContext(
    "tfcluster-hub",
    (ApiServerAddress("10.96.0.1/32", 443), ApiServerAddress("192.0.2.10/32", 6443)),
)
POLICIES = {
    "default": "",
    "everything": """
default:
  namedServers: 2
  quota: {cpu: 8.5, memory: 64Gi, gpu: 2, pods: 40, runClaims: 5, runStorage: 100Gi}
  limits: {max: {cpu: 4, memory: 16Gi}, request: {ephemeralStorage: 1Gi}}
  storage: {class: nfs, workspace: 20Gi, data: 100Gi, log: 50Gi}
  sharedData:
    - {name: imagenet, path: /mnt/imagenet, volume: "imagenet-{namespace}", size: 1Ti}
    - {name: mnist, path: /mnt/mnist, class: mnist}
  imagePullSecrets: [registry]
  egress: [0.0.0.0/0, 10.1.2.3/8]
""",
}


def made(policy: str, removed: bool = False) -> list[dict[str, Any]]:
    """Return the objects in Alice's namespace under `policy`; `removed` means that she is no user
    of the hub any more.
    """
    entitlement = entitlement_for_groups(parse_policy(policy), ())
    return tenant_objects(entitlement, PLACE, namespace="tfcluster-u-alice", removed=removed)


def is_golden(name: str, text: str, config: pytest.Config) -> bool:
    """Return whether a text equals its golden file; `--rewrite` writes the file first."""
    file = GOLDEN / name
    if config.getoption("--rewrite"):
        file.write_text(text)
    return text == file.read_text()


@pytest.mark.parametrize("name", POLICIES)
def test_a_tenant_is_made_of_what_the_golden_file_says(
    name: str, pytestconfig: pytest.Config
) -> None:
    """A tenant's objects are equal to the reviewed golden file."""
    text = yaml_documents(made(POLICIES[name]))
    assert is_golden(f"{name}.yaml", text, pytestconfig), "read the difference; --rewrite accepts"


def test_a_removed_user_has_the_same_but_no_rights() -> None:
    """The objects of a removed user lack only the binding of the user's role."""
    names = [[(o["kind"], o["metadata"]["name"]) for o in made("", gone)] for gone in (False, True)]
    assert set(names[0]) - set(names[1]) == {("RoleBinding", "tfcluster-user")}
    assert set(names[1]) < set(names[0])


def test_every_policy_shows_a_notebook_as_little_as_it_needs() -> None:
    """No rule lets everybody in, or opens every port. Except for the general denial, every network
    policy applies only to notebooks, or to the pod that archives data.
    """
    policies = [o for o in made(POLICIES["everything"]) if o["kind"] == "NetworkPolicy"]
    for each in policies:
        chosen = each["spec"]["podSelector"]
        label = "archive" if each["metadata"]["name"] == "archive-to-console" else "notebook"
        one = {"matchLabels": {f"tfcluster.dev/{label}": "true"}}
        assert chosen == ({} if each["metadata"]["name"] == "default-deny" else one)
        for rule in each["spec"].get("ingress", ()):
            assert rule["from"], "an empty list would let everybody in"
            assert rule["ports"], "or to every port"


def test_what_is_there_is_compared_as_the_api_server_writes_it() -> None:
    """Equal amounts in other units and empty fields do not count as a difference; an additional
    rule or a missing label does.
    """
    quota = next(o for o in made(POLICIES["everything"]) if o["metadata"]["name"] == "tasks")
    found = copy.deepcopy(quota)
    found["spec"]["hard"] |= {"requests.cpu": "8500m", "requests.memory": "65536Mi"}
    found["status"] = {"hard": found["spec"]["hard"]}
    assert caches.is_as_wanted(quota, caches.trim_object(found))
    found["spec"]["hard"]["pods"] = "41"
    assert not caches.is_as_wanted(quota, caches.trim_object(found))
    policy = next(o for o in made("") if o["metadata"]["name"] == "default-deny")
    found = copy.deepcopy(policy)
    found["spec"]["ingress"] = []
    assert caches.is_as_wanted(policy, caches.trim_object(found))
    found["spec"]["ingress"] = [{}]
    assert not caches.is_as_wanted(policy, caches.trim_object(found))
    unlabelled = copy.deepcopy(policy)
    del unlabelled["metadata"]["labels"]["tfcluster.dev/hub"]
    assert not caches.is_as_wanted(policy, caches.trim_object(unlabelled))


def test_tenancy_may_write_all_that_it_marks_a_namespace_with() -> None:
    """The admission policy allows exactly the annotations that tenancy sets on a namespace."""
    found = yaml.safe_load_all((ROOT / "k8s" / "hub" / "admission.yaml").read_text())
    (policy,) = [
        each
        for each in found
        if each["kind"] == "ValidatingAdmissionPolicy"
        and each["metadata"]["name"] == "tfcluster-tenancy-namespaces"
    ]
    (own,) = [each for each in policy["spec"]["variables"] if each["name"] == "own"]
    written = {
        PROVISIONED,
        TROUBLE,
        *namespace_annotations(entitlement_for_groups(parse_policy(""), ())),
    }
    assert set(yaml.safe_load(own["expression"])) == written


def test_rights_do_not_grow(pytestconfig: pytest.Config) -> None:
    """The roles of operator, hub, tenancy, console and users, and the subjects of these roles, are
    equal to the reviewed golden file.
    """
    lines = []
    for file in (*(ROOT / "k8s" / "base").glob("*.yaml"), *(ROOT / "k8s" / "hub").glob("*.yaml")):
        for found in yaml.safe_load_all(file.read_text()):
            head = f"{found.get('kind')} {found.get('metadata', {}).get('name')}"
            if head.startswith(("Role ", "ClusterRole ")):
                lines += [f"{head}: {_rule(each)}" for each in found["rules"]]
            elif "RoleBinding" in head:
                who = ", ".join(
                    f"{s.get('namespace', s['kind'])}/{s['name']}" for s in found["subjects"]
                )
                lines.append(f"{head}: {found['roleRef']['kind']} to {who}")
    text = "\n".join(sorted(lines)) + "\n"
    assert is_golden("rights.txt", text, pytestconfig), "rights were changed: read the difference"


def _rule(rule: dict[str, Any]) -> str:
    what = ", ".join(f"{g or 'core'}/{r}" for g in rule["apiGroups"] for r in rule["resources"])
    names = f" named {', '.join(rule['resourceNames'])}" if rule.get("resourceNames") else ""
    return f"{what}{names}: {', '.join(rule['verbs'])}"
