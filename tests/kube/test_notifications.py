"""Notifications on Kubernetes: the messages that arrive, and the limits of each account's
rights.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube import tenants, webhook_receiver
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import SYSTEM, Tenant, spec_of
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest
from support.kube.webhook_receiver import CLOSED, OPEN, TOKEN, Receiver

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.kube.api import access
from tfcluster_magic.kube.api.client import ApiError, path
from tfcluster_magic.kube.objects.notification_secret import RECORD
from tfcluster_magic.notifications.sending import NotDelivered

pytestmark = pytest.mark.needs("node-inside")

SECRET = "tfcluster-notifications"
APP = "app=tfcluster-notifier"
FAILS = 'print("the last words", flush=True)\nraise SystemExit(3)\n'


@pytest.fixture(scope="module")
def home(new_tenant: Callable[[], Tenant], installed: Installed | None) -> Tenant:
    """A user's namespace."""
    assert installed, "these tests are about the installed notifier"
    tenant = new_tenant()
    tenants.move_in(tenant.kubectl)
    options = "configmap/tfcluster-options"
    tenant.kubectl("wait", "--for=create", options, "--timeout=180s", seconds=200)
    return tenant


@pytest.fixture(scope="module")
def receiver(home: Tenant) -> Receiver:
    """A server that receives webhooks, to which the notifier may connect."""
    return webhook_receiver.start(home)


@pytest.fixture
def manager(
    home: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterManager]:
    """A ClusterManager with only the user's rights."""
    config = tenants.kubeconfig(home.kubectl, tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(config))
    backend = KubernetesBackend()
    yield ClusterManager(backend)
    backend.api.close()


@pytest.fixture(scope="module")
def thief(cluster: UnderTest, home: Tenant, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """A kubectl with a token of the notifier's account, in the user's namespace."""
    where = tmp_path_factory.mktemp("thief") / "kubeconfig"
    config = tenants.kubeconfig(cluster.kubectl.within(SYSTEM), where, account="notifier")
    return replace(home.kubectl, kubeconfig=str(config))


def refusal(kubectl: Kubectl, *words: str, stdin: str = "") -> str:
    """Run a command that must fail; return the error."""
    try:
        said = kubectl(*words, stdin=stdin)
    except NodeError as error:
        return str(error)
    raise AssertionError(f"{words} worked: {said}")


def until(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what, seconds=120, every=0.3)


def test_each_event_is_one_message_though_receiver_and_notifier_fail(
    cluster: UnderTest, home: Tenant, receiver: Receiver, manager: ClusterManager, tmp_path: Path
) -> None:
    """Two runs fail while the receiver is down, and the notifier is killed: each failure is one
    message, with the last lines of the failed task. The URL is in no record, event or log.
    """
    program = tmp_path / "fails.py"
    program.write_text(FAILS)
    manager.notifications.add("team", webhook=receiver.url, lab="https://hub.example/lab")
    with pytest.raises(NotDelivered, match="it answered 503"):
        manager.notifications.test("team")
    for name in ("told-1", "told-2"):
        home.launch(name, spec_of(program))
    for name in ("told-1", "told-2"):
        home.phase(name, "Failed")
    until(lambda: receiver.lines().count("DOWN") >= 3, "both were tried")
    system = cluster.kubectl.within(SYSTEM)
    log = system("logs", "-l", APP, "--tail=-1")
    system("delete", "pod", "-l", APP, "--grace-period=0", "--force")
    receiver.set_up(True)

    def states() -> dict[str, str]:
        return {each.about: each.state.value for each in manager.notifications.history()}

    until(lambda: list(states().values()).count("Sent") == 2, "both are sent")
    manager.notifications.test("team")
    about = [each["about"] for each in receiver.got()]
    assert sorted(about) == ["", "told-1", "told-2"]
    told = next(each for each in receiver.got() if each["about"] == "told-1")
    assert "the last words" in told["lines"]
    assert told["link"] == "https://hub.example/lab?tfcluster=run:told-1"
    run = home.kubectl.get("tfcluster", "told-1")
    until(lambda: '"Sent"' in recorded(home, "told-1"), "it is recorded")
    writers = [each["manager"] for each in run["metadata"]["managedFields"]]
    assert "tfcluster-notifier" in writers
    log += system("logs", "-l", APP, "--tail=-1") + home.operator.log()
    events = home.kubectl("get", "events", "-o", "json")
    for text in (json.dumps(run), events, log, recorded(home, "told-1")):
        assert TOKEN not in text
    assert (
        TOKEN in base64.b64decode(home.kubectl.get("secret", SECRET)["data"]["rules.json"]).decode()
    )


def recorded(home: Tenant, run: str) -> str:
    head = home.kubectl.get("tfcluster", run)["metadata"]
    return str((head.get("annotations") or {}).get(RECORD, ""))


def test_the_notifier_may_do_nothing_else(
    thief: Kubectl, home: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier's token cannot read pods, logs, or Secrets other than tfcluster-notifications.
    It can change only one key of that Secret, `deliveries.json`, and one annotation of runs.
    """
    monkeypatch.setenv("KUBECONFIG", thief.kubeconfig)
    api, _namespace = access.connect()
    home.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "theirs"},
            "stringData": {"a": "b"},
        }
    )
    for words in (
        ("get", "secrets"),
        ("get", "secrets", "-A"),
        ("get", "secret", "theirs"),
        ("get", "pods"),
        ("logs", "receiver"),
        ("get", "configmaps"),
        ("get", "events"),
        ("create", "configmap", "x"),
        ("create", "secret", "generic", "x"),
        ("delete", "secret", SECRET),
        ("delete", "tfcluster", "told-1"),
        ("create", "token", "default"),
        ("get", "secret", "-n", "kube-system", "x"),
    ):
        assert "cannot" in refusal(thief, *words), words
    encoded = base64.b64encode(b"{}").decode()
    for kind, name, change, why in (
        ("secrets", SECRET, {"data": {"rules.json": encoded}}, "only change deliveries.json"),
        ("secrets", SECRET, {"data": {"rules.json": None}}, "only change deliveries.json"),
        ("secrets", SECRET, {"metadata": {"labels": {"a": "b"}}}, "only change the annotation"),
        ("tfclusters", "told-1", {"spec": {"stop": {"reason": "x"}}}, "may not change the spec"),
        (
            "tfclusters",
            "told-1",
            {"metadata": {"labels": {"a": "b"}}},
            "only change the annotation",
        ),
        (
            *("tfclusters", "told-1"),
            {"metadata": {"annotations": {"tfcluster.dev/note": "x"}}},
            "only change the annotation",
        ),
    ):
        with pytest.raises(ApiError) as refused:  # not by kubectl, which would first read the run
            api.merge(path(kind, home.name, name), change)
        assert why in refused.value.message, refused.value.message
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "mine"}}
    system = thief.within(SYSTEM)
    assert "may only write its Lease" in refusal(
        system, "create", "-f", "-", stdin=json.dumps(lease)
    )
    assert SECRET in thief("get", "secret", SECRET, "-o", "name")


def test_a_user_writes_their_own_rules_and_no_deliveries(
    home: Tenant, new_tenant: Callable[[], Tenant]
) -> None:
    """The user's account can change the rules in its own namespace only. In the Secret of rules,
    only the notifier can write the states of messages, and the Secret has a maximum size.
    """
    other = new_tenant()
    home.let("ida")
    alice, there = ("--as=ida",), other.kubectl

    def patch(change: Object) -> tuple[str, ...]:
        return (*alice, "patch", "secret", SECRET, "--type=merge", "-p", json.dumps(change))

    encoded = base64.b64encode(b"{}").decode()
    assert "cannot" in refusal(there, *patch({"data": {"rules.json": encoded}}))
    assert "cannot" in refusal(there, *alice, "get", "secret", SECRET)
    assert "cannot" in refusal(home.kubectl, *alice, "create", "secret", "generic", "mine")
    assert "cannot" in refusal(home.kubectl, *alice, "get", "secrets")
    said = refusal(home.kubectl, *patch({"data": {"deliveries.json": encoded}}))
    assert "only the notifier writes" in said
    home.kubectl(*patch({"data": {"deliveries.json": ""}}))  # the documented repair of damaged data
    large = base64.b64encode(b"x" * 540_000).decode()
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    filled = json.dumps({**body, "data": {"test.json": large}})
    said = refusal(home.kubectl, *alice, *words, stdin=filled)
    assert "may have 700 KiB" in said
    assert "must stay mutable" in refusal(home.kubectl, *patch({"immutable": True}))
    home.kubectl(*patch({"data": {"test.json": encoded}}))


def test_the_notifier_connects_to_nothing_else(
    cluster: UnderTest, home: Tenant, receiver: Receiver
) -> None:
    """The notifier's NetworkPolicy allows connections only to the ports of https and mail, and no
    connections to the notifier.
    """
    system = cluster.kubectl.within(SYSTEM)

    def connects(port: int, address: str = receiver.address) -> bool:
        look = (
            "import socket,sys\n"
            "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)\n"
            "except OSError as error: print('no')\n"
            "else: print('yes')"
        )
        words = ("exec", "deployment/notifier", "--", "python", "-c", look, address, str(port))
        return system(*words).strip() == "yes"

    assert (connects(OPEN), connects(CLOSED)) == (True, False)
    (pod,) = system.every("pod", APP)
    probe = f"http://{pod['status']['podIP']}:8080/metrics"
    words = ("exec", "receiver", "--", "python3", "-c")
    fetch = f"import urllib.request; print(urllib.request.urlopen('{probe}', timeout=3).status)"
    assert "200" not in refusal(home.kubectl, *words, fetch)
