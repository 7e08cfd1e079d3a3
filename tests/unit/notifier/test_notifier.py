"""The notifier, with a server that stores objects and a real receiver."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.kube_server import KubeServer, Object, Refusal
from support.message_receiver import LOOPBACK, Receiver, receiver
from support.polling import wait_until

from tfcluster_magic.backends.kubernetes.notification_store import KubernetesNotifications
from tfcluster_magic.errors import BackendUnavailable, NameTaken, TFClusterError
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.objects import custom_resource, notification_secret
from tfcluster_magic.notifications import (
    Deliveries,
    NotificationPolicy,
    NotificationRule,
    Occasion,
    TestRequest,
    Webhook,
)
from tfcluster_magic.notifications.sending import NotDelivered
from tfcluster_magic.notifier.controller import Notifier
from tfcluster_magic.quota.budgets import Budget
from tfcluster_magic.quota.ledger import Hours, HoursAccount
from tfcluster_magic.spec import (
    Cause,
    Phase,
    Reason,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    TaskExit,
    TaskFailure,
)

__all__ = ["receiver"]  # a fixture used by the tests below
SECRET = path("secrets", "a", "tfcluster-notifications")
TOKEN = "tok-1234567"


class World:
    """An API server with a user's Secret for notification rules, and notifiers that the test can
    start and kill.
    """

    def __init__(self, receiver: Receiver) -> None:
        self.server, self.receiver = KubeServer(), receiver
        self.base, self.speed = time.time(), 1.0
        self.leaders: list[dict[str, bool]] = []
        self.notifiers: list[Notifier] = []
        self.server.put(SECRET, notification_secret.empty_secret({}))
        self.store = KubernetesNotifications(self.server.api(), "a")

    def now(self) -> float:
        return self.base + (time.time() - self.base) * self.speed

    def start(self, policy: NotificationPolicy = LOOPBACK) -> None:
        """Start a notifier that leads."""
        alive = {"leads": True}
        made = Notifier(self.server.api(), "", lambda: alive["leads"], policy, self.now, self.speed)
        made.follow()
        wait_until(lambda: all(each.synced.is_set() for each in made.caches.all))
        made.begin()
        self.leaders.append(alive)
        self.notifiers.append(made)

    def kill(self) -> None:
        """Kill the newest notifier: it writes nothing more."""
        self.leaders[-1]["leads"] = False

    def add(self, name: str = "team", *on: Occasion, **more: Any) -> NotificationRule:
        words = {"uid": f"uid-{name}", "created_at": self.base - 5, "on": on or (Occasion.FAILED,)}
        hook = Webhook(url=self.receiver.url)
        rule = NotificationRule(**{"name": name, "webhook": hook, **words, **more})
        self.store.add(rule)
        return rule

    def put(self, name: str, phase: Phase, namespace: str = "a", **more: Any) -> None:
        """Write a run with a status, as the operator does."""
        cluster, _dash, number = name.rpartition("-")
        body = custom_resource.write(cluster, int(number), Spec(replicas=WORKERS))
        reason = Reason.PROGRAM_FAILED if phase is Phase.FAILED else Reason.COMPLETED
        status = Status(phase=phase, reason=more.pop("reason", reason), message="why", **more)
        body["status"] = custom_resource.write_status(status)
        self.server.put(path("tfclusters", namespace, name), body)

    def fail(self, name: str, *lines: str) -> None:
        exit_ = TaskExit(cause=Cause.ERROR, exit_code=1, last_lines=lines, finished_at=self.now())
        failure = TaskFailure(task="worker-0", attempt=1, exit=exit_)
        words = {"failures": (failure,), "culprit": "worker-0"}
        self.put(name, Phase.FAILED, finished_at=self.now(), **words)

    def states(self) -> list[str]:
        return [each.state.value for each in self.store.deliveries()]

    def wait_for(self, *states: str) -> None:
        wait_until(lambda: self.states() == list(states), f"{states}", 30)

    def close(self) -> None:
        for alive, each in zip(self.leaders, self.notifiers, strict=True):
            alive["leads"] = False
            each.end(0.0)
        self.server.close()


WORKERS = ReplicaSet(worker=Replicas(count=1))


@pytest.fixture
def world(receiver: Receiver) -> Iterator[World]:
    """Yield a World that sends to `receiver`."""
    found = World(receiver)
    yield found
    found.close()


def test_a_failed_run_is_reported_once_and_recorded(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The message has the reason and the last lines, but no log lines of TensorFlow. The state of
    the message is recorded at the run, and the URL is only in the Secret.
    """
    caplog.set_level(logging.DEBUG)
    world.add(lab="https://hub.example/user/me/lab")
    world.start()
    noise = "I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] noise"
    world.fail("digits-1", noise, "no such column")
    world.put("digits-2", Phase.SUCCEEDED, finished_at=world.now())
    world.wait_for("Sent")
    (told,) = world.receiver.bodies
    assert (told["occasion"], told["about"], told["lines"]) == (
        *("failed", "digits-1"),
        ["no such column"],
    )
    assert told["link"] == "https://hub.example/user/me/lab?tfcluster=run:digits-1"
    run = path("tfclusters", "a", "digits-1")

    def recorded() -> Any:
        notes = world.server.objects[run]["metadata"].get("annotations") or {}
        return json.loads(notes.get(notification_secret.RECORD, "[{}]"))[0].get("state")

    wait_until(lambda: recorded() == "Sent")
    hidden = base64.b64encode(TOKEN.encode())[:8].decode()
    for where, found in world.server.objects.items():
        assert where == SECRET or TOKEN not in json.dumps(found)
    assert hidden not in caplog.text and TOKEN not in caplog.text


def test_a_receiver_that_is_down_gets_one_message_for_each_event(world: World) -> None:
    """If the receiver is down for ten minutes while notifiers are killed, each event still arrives
    once.
    """
    world.speed, world.receiver.status = 100.0, 503
    world.add()
    world.start()
    world.fail("one-1")
    world.fail("two-1")
    for _kill in range(3):
        before = len(world.receiver.paths)
        wait_until(lambda before=before: len(world.receiver.paths) > before)
        world.kill()
        world.start()
    began = world.now()
    wait_until(lambda: world.now() > began + 600)
    assert world.receiver.bodies == []
    world.receiver.status = 200
    world.wait_for("Sent", "Sent")
    world.kill()
    world.start()
    world.fail("three-1")
    world.wait_for("Sent", "Sent", "Sent")
    assert sorted(each["about"] for each in world.receiver.bodies) == ["one-1", "three-1", "two-1"]


def test_a_deleted_run_is_still_reported(world: World) -> None:
    """A due message is sent even if its run is deleted."""
    world.receiver.status, world.speed = 503, 50.0
    world.add()
    world.start()
    world.fail("digits-1", "the last words")
    world.wait_for("Pending")
    world.server.remove(path("tfclusters", "a", "digits-1"))
    world.receiver.status = 200
    world.wait_for("Sent")
    assert world.receiver.bodies[0]["lines"] == ["the last words"]


def test_rules_change_while_messages_are_sent(world: World) -> None:
    """The user and the notifier write the Secret and keep each other's changes; a removed rule
    sends nothing more.
    """
    world.receiver.status = 503
    world.add()
    world.start()
    for number in range(5):
        world.fail(f"digits-{number + 1}")
        world.add(f"other-{number}", Occasion.BUDGET)
    wait_until(lambda: len(world.states()) == 5)
    with pytest.raises(NameTaken):
        world.add()
    world.store.remove("team")
    world.wait_for(*["GivenUp"] * 5)
    assert [each.name for each in world.store.rules()] == [f"other-{n}" for n in range(5)]


def test_a_test_is_sent_by_the_notifier(world: World) -> None:
    """For `notify test`, the notifier makes only one attempt to send, and the command waits for the
    result.
    """
    rule = world.add()
    world.start()
    request = TestRequest(id="t1", rule=rule.uid, at=time.time())
    world.store.test(rule, request)
    assert world.receiver.bodies[0]["occasion"] == "test"
    world.receiver.status = 500
    with pytest.raises(NotDelivered, match="it answered 500"):
        world.store.test(rule, TestRequest(id="t2", rule=rule.uid, at=time.time()))
    assert world.states() == ["Sent", "GivenUp"]


def test_what_may_not_be_reached_is_not(world: World) -> None:
    """A private address gets nothing unless the policy names its network, and the reason is
    recorded.
    """
    world.add()
    world.start(NotificationPolicy())
    world.fail("digits-1")
    wait_until(lambda: [each.problem for each in world.store.deliveries() if each.problem])
    assert "not a public address" in world.store.deliveries()[0].problem
    assert world.receiver.paths == []


def test_waits_pauses_and_budgets_are_reported(world: World) -> None:
    """A run that is queued for long, a schedule that an administrator paused, a due time without a
    launch, and a budget that is nearly used up cause one message each.
    """
    world.add("all", Occasion.QUEUED, Occasion.SCHEDULE_PAUSED, Occasion.NOT_LAUNCHED,
              Occasion.BUDGET, queued_longer_than=1.0)  # fmt: skip
    world.start()
    world.put("waits-1", Phase.QUEUED, reason=Reason.QUEUED, queued_at=world.now())
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(world.now() + 1))
    paused = {"time": at, "by": "root", "reason": "maintenance", "locked": True}
    schedule = {"spec": {"cron": "* * * * *"}, "status": {"paused": paused}}
    world.server.put(path("tfclusterschedules", "a", "nightly"), schedule)
    refused = {"code": "ScheduleNotLaunched", "params": {"why": "the quota is used up"}}
    due = {"dueTime": at, "state": "Failed", "reason": refused, "changedTime": at}
    hourly = {"spec": {"cron": "@hourly"}, "status": {"occurrences": [due]}}
    world.server.put(path("tfclusterschedules", "a", "hourly"), hourly)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    days = {day: {"": {"digits": Hours(cpu=9.0)}}}
    account = HoursAccount(days=days, budget=Budget(cpu_hours=10.0), numbers={})
    hours = {"hours.json": msgspec.json.encode(account).decode()}
    world.server.put(path("configmaps", "a", "tfcluster-options"), {"data": hours})
    wait_until(lambda: world.states() == ["Sent"] * 4, "four messages", 30)
    told = {each["about"]: each["title"] for each in world.receiver.bodies}
    assert told == {
        "waits-1": "waits-1 is still queued",
        "nightly": "the schedule nightly was paused by root",
        "hourly": f"hourly was not launched at its due time {at[:10]} {at[11:16]} (UTC)",
        "CPU·h": "9 of 10 CPU·h are used",
    }
    commands = {each["about"]: each["command"] for each in world.receiver.bodies}
    assert commands["nightly"] == "tfcluster schedule show nightly"
    assert commands["hourly"] == "tfcluster schedule history hourly"


def test_a_silent_receiver_delays_nobody_else(world: World, receiver: Receiver) -> None:
    """A receiver that never answers does not delay other users' messages."""
    other = Receiver()
    try:
        other.silent = True
        world.add(webhook=Webhook(url=other.url))
        there = KubernetesNotifications(world.server.api(), "b")
        secret = path("secrets", "b", "tfcluster-notifications")
        world.server.put(secret, notification_secret.empty_secret({}))
        rule = world.store.rules()[0]
        there.add(msgspec.structs.replace(rule, uid="b", webhook=Webhook(url=receiver.url)))
        world.start()
        world.fail("digits-1")
        wait_until(lambda: world.states() == ["Pending"])
        world.put("mine-1", Phase.FAILED, "b", finished_at=world.now())
        wait_until(lambda: [each["about"] for each in receiver.bodies] == ["mine-1"])
        assert world.states() == ["Pending"]
    finally:
        other.close()


def test_one_damaged_secret_stops_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """If a user's rules cannot be read, this user gets no messages, other users still do, and the
    log does not contain the damaged text. The error has the command with which the user can repair
    the Secret.
    """
    world.add()
    found: Object = world.server.objects[SECRET]
    broken = base64.b64encode(f'{{"rules": "{TOKEN}"}}'.encode()).decode()
    secret = path("secrets", "b", "tfcluster-notifications")
    world.server.put(
        secret, {**notification_secret.empty_secret({}), "data": {"rules.json": broken}}
    )
    world.start()
    world.fail("digits-1")
    world.wait_for("Sent")
    assert "rules.json is damaged" in caplog.text and TOKEN not in caplog.text
    assert found["metadata"]["name"] == "tfcluster-notifications"
    with pytest.raises(Exception, match="kubectl patch secret") as refused:
        KubernetesNotifications(world.server.api(), "b").rules()
    assert TOKEN not in str(refused.value)


def test_emptied_deliveries_send_nothing_again(world: World) -> None:
    """After the command that is shown for damaged deliveries, no old message is sent again, but
    later events are reported.
    """
    world.add()
    world.start()
    world.fail("digits-1")
    world.wait_for("Sent")
    world.kill()
    secret: Object = world.server.objects[SECRET]
    damaged = {**secret, "data": {**secret["data"], "deliveries.json": "e30K" * 3}}
    world.server.put(SECRET, damaged)
    with pytest.raises(TFClusterError, match="not sent again") as refused:
        world.store.deliveries()
    change = re.search(r"-p '(.*)'`", str(refused.value))
    assert change is not None
    world.server.api().merge(SECRET, json.loads(change[1]))
    world.start()
    wait_until(lambda: world.server.objects[SECRET]["data"]["deliveries.json"])
    world.fail("digits-2")
    world.wait_for("Sent")
    assert [each["about"] for each in world.receiver.bodies] == ["digits-1", "digits-2"]


def test_a_test_does_not_wait_for_due_messages(world: World) -> None:
    """A test is sent before older messages of its rule."""
    rule = world.add()
    for number in range(5):
        world.fail(f"digits-{number + 1}")
    request = TestRequest(id="t1", rule=rule.uid, at=time.time())
    found = world.server.objects[SECRET]
    world.server.api().merge(SECRET, notification_secret.write_test(found, request))
    world.start()
    world.wait_for(*["Sent"] * 6)
    assert world.receiver.bodies[0]["about"] == ""


def test_what_is_missing_is_said(world: World) -> None:
    """If the Secret for notification rules is missing, or the user may not read it, the error has
    the command that an administrator must run.
    """
    for refusal in (
        Refusal(404, "NotFound"),
        Refusal(403, "Forbidden", 'User "x" cannot get resource "secrets"'),
    ):
        world.server.refuses = lambda _method, _path, refusal=refusal: refusal
        with pytest.raises(BackendUnavailable, match="kubectl -n a create secret generic"):
            world.store.rules()


def test_only_its_secret_is_watched(world: World) -> None:
    """The notifier reads no Secrets and ConfigMaps except those named `tfcluster-notifications` and
    `tfcluster-options`.
    """
    world.start()
    asked = {
        (where.rpartition("/")[2], query.get("fieldSelector", [""])[0])
        for _method, where, query in world.server.queries
    }
    assert asked == {
        ("secrets", "metadata.name=tfcluster-notifications"),
        ("configmaps", "metadata.name=tfcluster-options"),
        ("tfclusters", ""),
        ("tfclusterschedules", ""),
    }


def test_a_run_that_takes_no_annotation_is_reported(world: World) -> None:
    """A message is sent even if its state cannot be recorded at the run, because the record is full
    or a right is missing.
    """
    world.server.refuses = lambda method, where: (
        Refusal(422, "Invalid", "labels and annotations have 40000 bytes")
        if method == "PATCH" and "/tfclusters/" in where
        else None
    )
    world.add()
    world.start()
    world.fail("digits-1")
    world.wait_for("Sent")


def test_the_end_waits_for_attempts(world: World) -> None:
    """A notifier that receives SIGTERM records the results of its current attempts."""
    world.add()
    world.start()
    world.fail("digits-1")
    wait_until(lambda: world.receiver.bodies)
    world.notifiers[-1].end()
    assert world.states() == ["Sent"]
    assert isinstance(notification_secret.read_deliveries(world.server.objects[SECRET]), Deliveries)
