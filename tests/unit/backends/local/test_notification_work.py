"""Notifications of the clock process with damaged files and unusual runs."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfcluster_magic.backends.local.clock import Clock
from tfcluster_magic.backends.local.notification_store import (
    DeliveryFile,
    LocalNotifications,
)
from tfcluster_magic.backends.local.notification_work import NotificationWatch
from tfcluster_magic.backends.local.run_store import Store
from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.hub.tenancy.entitlements import Entitlement, Grant
from tfcluster_magic.hub.tenancy.policy import limits_of, parse_policy
from tfcluster_magic.notifications import (
    Deliveries,
    DeliveryState,
    NotificationRule,
    Occasion,
    Webhook,
    attempts,
)
from tfcluster_magic.quota.policy_file import InvalidPolicy
from tfcluster_magic.spec import Message, Metadata, Phase, Reason, Spec, Status, TFCluster, to_json

RULE = NotificationRule(
    name="team",
    uid="u1",
    created_at=1.0,
    on=(Occasion.FAILED,),
    webhook=Webhook(url="https://hooks.example.com/a/tok-1234567"),
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state folder with a rule and a failed run."""
    (tmp_path / "notifications").mkdir(mode=0o700)
    LocalNotifications(tmp_path).add(RULE)
    status = Status(
        phase=Phase.FAILED, reason=Reason.PROGRAM_FAILED, message="it failed", finished_at=5.0
    )
    write_run(tmp_path, 1, status)
    return tmp_path


def write_run(state: Path, number: int, status: Status) -> None:
    """Write the record of an ended run."""
    folder = Store(state).folder("digits", number)
    folder.path.mkdir(parents=True)
    head = Metadata(
        name=f"digits-{number}", uid=f"r{number}", cluster="digits", run=number, created_at=2.0
    )
    folder.record_file.write_bytes(to_json(TFCluster(metadata=head, spec=Spec())))
    folder.status_file.write_bytes(to_json(status))


def test_a_status_that_cannot_be_told_ends_no_clock(state: Path) -> None:
    """A notification about a run is sent even if this version cannot describe the run's status."""
    odd = (Message("QueueTimeout", {"time": "x", "what": "y"}),)
    status = Status(phase=Phase.FAILED, reason=Reason.PROGRAM_FAILED, messages=odd, finished_at=5.0)
    write_run(state, 2, status)
    assert NotificationWatch(state).look([])[0] == ["team"]


@pytest.fixture
def signals_kept() -> Iterator[None]:
    """Restore the process's signal handlers, which a clock replaces."""
    numbers = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_kept")
def test_a_fault_of_notifications_leaves_schedules_alone(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error in notifications, the clock process continues, and tries the notifications
    again after a while.
    """

    def fails(_self: object, _schedules: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(NotificationWatch, "look", fails)
    (state / "schedules").mkdir()
    wake_at = Clock(state, lambda: 100.0).look()
    assert wake_at is not None and wake_at > 100.0


def test_damaged_deliveries_send_nothing_again(state: Path) -> None:
    """Events from before the damage to the file count as handled; later events are sent."""
    watch = NotificationWatch(state)
    assert watch.look([])[0] == ["team"]
    DeliveryFile(state).path.write_text('{"deliv')
    assert NotificationWatch(state).look([])[0] == []
    status = Status(
        phase=Phase.FAILED, reason=Reason.PROGRAM_FAILED, finished_at=time.time() + 1, message="m"
    )
    write_run(state, 2, status)
    assert NotificationWatch(state).look([])[0] == ["team"]


def test_what_a_newer_version_wrote_is_neither_sent_again_nor_overwritten(state: Path) -> None:
    """Rules and deliveries that this version cannot read are not changed."""
    watch = NotificationWatch(state)
    assert watch.look([])[0] == ["team"]
    file = DeliveryFile(state)
    (key,) = (each.key for each in file.load().deliveries)
    file.change(lambda before: attempts.sent(before, key, 7.0))
    told = json.loads(file.path.read_text())
    newer = json.dumps({**told, "later": 1})
    file.path.write_text(newer)
    assert watch.look([])[0] == []
    assert file.path.read_text() == newer
    rules = state / "notifications" / "rules.json"
    text = json.dumps({**json.loads(rules.read_text()), "later": 1})
    rules.write_text(text)
    with pytest.raises(TFClusterError, match="of a newer version"):
        LocalNotifications(state).add(RULE)
    assert rules.read_text() == text


def test_a_result_that_is_written_during_a_look_is_seen(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a child process writes its result while a check is in progress, the check does not miss
    the result.
    """
    watch, file = NotificationWatch(state), DeliveryFile(state)
    watch.look([])
    (key,) = (each.key for each in file.load().deliveries)
    file.change(lambda before: attempts.begin(before, key, 0.0))
    load = DeliveryFile.load

    def late(self: DeliveryFile) -> Deliveries:
        found = load(self)
        if self.path == file.path and found.deliveries[0].state is DeliveryState.PENDING:
            monkeypatch.setattr(DeliveryFile, "load", load)
            file.change(lambda before: attempts.sent(before, key, 7.0))
        return found

    monkeypatch.setattr(DeliveryFile, "load", late)
    watch.look([])
    assert watch.look([])[0] == []


def test_a_removed_rule_sends_nothing_more(state: Path) -> None:
    """Removing a rule drops its unsent messages, even if it was the last rule."""
    watch = NotificationWatch(state)
    assert watch.look([])[0] == ["team"]
    LocalNotifications(state).remove("team")
    assert watch.look([]) == ([], None)
    assert [each.state for each in DeliveryFile(state).load().deliveries] == [
        DeliveryState.GIVEN_UP
    ]


def test_the_hubs_policy_counts_and_not_the_users_own(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the hub's administrator allows one host, a user's own policy file cannot allow another."""
    (state / "notifications" / "policy.yaml").write_text("privateNetworks: [10.0.0.0/8]\n")
    policy = parse_policy("notifications: {hosts: [hooks.slack.com]}").notifications
    limits = tmp_path / "limits.json"
    limits.write_bytes(to_json(limits_of(Entitlement(Grant()), policy)))
    assert LocalNotifications(state).policy().private_networks == ("10.0.0.0/8",)
    monkeypatch.setenv("TFCLUSTER_LIMITS", str(limits))
    found = LocalNotifications(state).policy()
    assert (found.hosts, found.private_networks) == (("hooks.slack.com",), ())
    with pytest.raises(InvalidPolicy, match=r"line 2: notifications\.privateNetworks"):
        parse_policy("notifications:\n  privateNetworks: [169.254.0.0/16]\n")


def test_a_deleted_run_is_still_reported(state: Path) -> None:
    """A message about a run is sent even if the run's folder was deleted before that."""
    watch = NotificationWatch(state)
    assert watch.look([])[0] == ["team"]
    shutil.rmtree(Store(state).folder("digits", 1).path)
    assert watch.look([])[0] == ["team"]
