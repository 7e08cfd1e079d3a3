"""The admin console of the hub on Kubernetes: clusters of all users, leaks, and access. Two users
have namespaces and no notebooks: their runs are created as a notebook would create them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import requests
from kubenode.commands import NodeError, wait_until
from support.kube.console import CONSOLE, STAYS, Console, console, token
from support.kube.hub import Hub
from support.kube.kubectl import Object
from support.kube.operator import Tenant, spec_of
from support.kube.operator_modes import Installed
from support.kube.tenant_namespaces import Furnished, as_, move_in
from support.kube.under_test import UnderTest

__all__ = ["console"]  # a fixture used by the tests below

pytestmark = pytest.mark.needs("ingress", "rwx", "network-policy", "registry")

FAILS = 'print("<b>line</b> of ada", flush=True)\nraise SystemExit("this was the cause")\n'
REASON = "the <i>exam</i> begins"
MARKS = {
    "app.kubernetes.io/managed-by": "tfcluster-operator",
    "tfcluster.dev/name": "gone-1",
    "tfcluster.dev/uid": "of-no-run",
}
LEFT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "gone-1", "labels": MARKS},
}


@pytest.fixture(scope="module")
def tenants(hub: Hub) -> Iterator[tuple[Furnished, Furnished]]:
    """Two users with provisioned namespaces."""
    found = move_in(hub, hub.new_user("ada")), move_in(hub, hub.new_user("bob"))
    yield found
    for each in found:
        each.kubectl("delete", "tfclusters", "--all", "--wait=false")
        hub.kubectl("delete", "namespace", each.name, "--wait=false")


@pytest.fixture(scope="module")
def launched(
    tenants: tuple[Furnished, Furnished],
    installed: Installed,
    cluster: UnderTest,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, str]:
    """Create a run of each user; return both as owner/name. One run fails; the other continues."""
    folder, names = tmp_path_factory.mktemp("programs"), []
    for each, name, text in zip(tenants, ("fails", "stays"), (FAILS, STAYS), strict=True):
        (folder / f"{name}.py").write_text(text)
        tenant = Tenant(each.kubectl, installed, cluster.description.images["notebook"])
        tenant.launch(f"{name}-1", spec_of(folder / f"{name}.py"))
        names.append(f"{each.user}/{name}-1")
    return names[0], names[1]


def test_an_administrator_sees_stops_and_reads_what_everyone_runs(
    console: Console,
    tenants: tuple[Furnished, Furnished],
    launched: tuple[str, str],
) -> None:
    """An administrator sees, filters and stops the runs of all users. A stopped run's message shows
    its owner the administrator's reason. Each stop and each view of logs is in the audit log.
    """
    fails, stays = launched
    ada, bob = tenants
    runs = console.until(stays, "Running")
    failed = console.until(fails, "Failed")
    (pod,) = bob.kubectl.every("pods", "tfcluster.dev/name=stays-1")
    assert runs["nodes"] == [pod["spec"]["nodeName"]]
    assert failed["failed"] == ["worker-0"]
    assert fails not in console.rows(f"owner={bob.user}&phase=Running")
    assert set(console.rows(f"owner={bob.user}&phase=Running")) == {stays}

    said = console.ask("GET", f"clusters/{fails}/logs?task=worker-0&lines=20").json()["lines"]
    assert "<b>line</b> of ada" in said and any("this was the cause" in line for line in said)

    asked = [
        {"owner": bob.user, "name": "stays-1", "uid": "another"},
        {"owner": bob.user, "name": "stays-1", "uid": runs["uid"]},
        {"owner": ada.user, "name": "fails-1"},
    ]
    told = console.ask("POST", "clusters/stop", json={"runs": asked, "reason": REASON}).json()
    assert [one["ok"] for one in told["results"]] == [False, True, False], told
    console.until(stays, "Stopped")
    message = bob.kubectl.get("tfcluster", "stays-1")["status"]["message"]
    assert message == f"Stopped by admin {console.visitor.name}: {REASON}."

    lines = [json.loads(line) for line in console.ask("GET", "audit/export").text.splitlines()]
    ours = [one for one in lines if one["owner"] in (ada.user, bob.user)]
    assert [(one["what"], one["result"] == "asked") for one in ours] == [
        ("logs", True),
        ("logs", False),
        *[("stop", True)] * 3,
        *[("stop", False)] * 3,
    ]
    assert {one["who"] for one in ours} == {console.visitor.name}


def test_an_administrator_pauses_a_schedule_and_resumes_it(
    console: Console, tenants: tuple[Furnished, Furnished]
) -> None:
    """The console pauses a schedule and resumes it with its own account. The owner cannot resume
    it.
    """
    ada, _bob = tenants
    program = {"inline": "print('hello')"}
    spec = {"cron": "0 0 1 1 *", "template": {"spec": {"program": program}}}
    kind = {"apiVersion": "tfcluster.dev/v1beta1", "kind": "TFClusterSchedule"}
    ada.kubectl.apply({**kind, "metadata": {"name": "nightly"}, "spec": spec})
    chosen = {"schedules": [{"owner": ada.user, "name": "nightly"}], "reason": REASON}

    def row() -> Object:
        found = console.ask("GET", f"schedules?owner={ada.user}").json()["items"]
        return found[0] if found else {}

    wait_until(lambda: row().get("state") == "Active", "Active", seconds=60)
    told = console.ask("POST", "schedules/pause", json=chosen).json()
    assert told["results"][0]["ok"], told
    wait_until(lambda: row().get("state") == "Paused", "Paused", seconds=60)
    assert (row()["by"], row()["reason"]) == (f"admin {console.visitor.name}", REASON)
    resume = json.dumps({"spec": {"suspend": False, "suspension": None}})
    owner = as_(f"system:serviceaccount:{ada.name}:notebook")
    with pytest.raises(NodeError, match="only an administrator can resume it"):
        ada.kubectl("patch", "tfcs", "nightly", "--type=merge", "-p", resume, owner)
    told = console.ask("POST", "schedules/resume", json=chosen).json()
    assert told["results"][0]["ok"], told
    wait_until(lambda: row().get("state") == "Active", "Active", seconds=60)
    ada.kubectl("delete", "tfcs", "nightly")


def test_what_belongs_to_nobody_is_found_and_removed(
    hub: Hub, console: Console, tenants: tuple[Furnished, Furnished]
) -> None:
    """An object of a deleted run, and the namespace of a removed user, are found and deleted; the
    console's account can delete nothing else.
    """
    ada, bob = tenants
    ada.kubectl.apply(LEFT)
    carol = move_in(hub, hub.new_user("carol"))
    assert hub.api("DELETE", f"users/{carol.user}").status_code == 204

    def leaks() -> dict[str, Object]:
        told = console.ask("GET", "leaks").json()
        assert told["missed"] == [], told
        return {one["id"]: one for one in told["items"]}

    names = ("ConfigMap:gone-1", f"Namespace:{carol.name}")
    wait_until(lambda: leaks().keys() >= {*names}, "the leaks are found", seconds=180)
    found = leaks()
    assert found[names[0]]["owner"] == ada.user
    for name in names:
        body = {"owner": found[name]["owner"], "id": name}
        answer = console.ask("DELETE", "leaks", json=body)
        assert answer.status_code == 200, answer.text
    assert console.ask("DELETE", "leaks", json=body).status_code == 404
    wait_until(lambda: is_going(carol), "tenancy deletes the namespace", seconds=90)
    with pytest.raises(NodeError):
        ada.kubectl.get("configmap", "gone-1")

    done = (
        ("delete", "configmap", "tfcluster-options"),
        ("delete", "pvc", "workspace"),
        ("label", "tfcluster", "stays-1", "tests=altered"),
        ("delete", "tfcluster", "stays-1"),
        ("annotate", "namespace", bob.name, "tfcluster.dev/removed-data=true"),
        ("get", "secrets"),
        ("create", "configmap", "mine"),
    )
    for words in done:
        with pytest.raises(NodeError, match=r"the console may only|cannot"):
            bob.kubectl(*words, as_(CONSOLE))


def is_going(carol: Furnished) -> bool:
    """Return whether the namespace is being deleted, or is gone."""
    try:
        found = carol.kubectl.get("namespace", carol.name)
    except NodeError:
        return True
    return "deletionTimestamp" in found["metadata"]


def test_nobody_else_gets_in(hub: Hub, console: Console) -> None:
    """No user, no token of a user or a notebook, no forged request, and no request that bypasses
    the proxy gets access. A former administrator loses access at once.
    """
    guest = hub.newcomer("guest", "--admin")
    theirs = Console(guest)
    assert theirs.ask("GET", "clusters").status_code == 200
    scopes = {
        "admin": ["access:services!service=admin"],
        "user": ["read:users!user"],
        "notebook": ["users:activity!user", "access:servers!user"],
    }
    tokens = {kind: token(guest, said) for kind, said in scopes.items()}
    assert by_token(hub, tokens["admin"]) == 200
    deposed = {"json": {"admin": False}}
    answer = console.visitor.ask("PATCH", f"hub/api/users/{guest.name}", **deposed)
    assert answer.status_code == 200, answer.text

    assert theirs.ask("GET", "clusters").status_code == 403
    opened = guest.get("services/admin/")
    assert opened.status_code == 403 and "administrators of the hub" in opened.text
    assert {kind: by_token(hub, text) for kind, text in tokens.items()} == {
        "admin": 403,
        "user": 403,
        "notebook": 403,
    }
    assert by_token(hub, "made up") == 401
    for xsrf in ("forged", "a" * len(console.xsrf)):
        body = {"runs": [{"owner": "x", "name": "y-1"}], "reason": "forged"}
        assert console.ask("POST", "clusters/stop", xsrf=xsrf, json=body).status_code == 403
        assert console.ask("GET", "clusters", xsrf=xsrf).status_code == 403
    reach = "const s=require('net').connect(8090,'console');s.on('connect',()=>process.exit(0))"
    assert hub.kubectl.succeeds("deploy/proxy", "node", "-e", reach)
    tried = "import socket; socket.create_connection(('console', 8090), 3)"
    assert not hub.kubectl.succeeds("deploy/tenancy", "python", "-c", tried)


def by_token(hub: Hub, text: str) -> int:
    """Request the list of clusters with a token; return the HTTP status."""
    with requests.Session() as session:
        session.trust_env = False
        where = hub.url("services/admin/api/clusters")
        head = {"Authorization": f"Bearer {text}"}
        return session.get(where, headers=head, timeout=60).status_code
