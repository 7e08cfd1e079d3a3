"""The notification rules and deliveries of a user on this machine.

`<state>/notifications/rules.json` holds the rules with their secrets, readable only by the user.
`deliveries.json` in the same folder holds the messages and their states. This module sends a
message only if `test` or `send` is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ... import paths, state_files
from ...errors import TFClusterError
from ...i18n import _
from ...notifications import (
    Deliveries,
    Delivery,
    NotificationPolicy,
    NotificationRule,
    NotificationRules,
    TestRequest,
)
from ...quota.policy_file import InvalidPolicy, PolicyText, wrong_types
from ...spec import conversion, to_json
from ..base import Notifications
from . import quota


def rules_file(state_dir: Path) -> Path:
    """Return the file of rules."""
    return state_dir / "notifications" / "rules.json"


def policy_file(state_dir: Path) -> Path:
    """Return the policy file of this account."""
    return state_dir / "notifications" / "policy.yaml"


def has_rules(state_dir: Path) -> bool:
    """Return whether there is a rule, so that the clock process is needed."""
    found = state_files.read(rules_file(state_dir), NotificationRules)
    return found is not None and bool(found.rules)


class DeliveryFile:
    """The file of deliveries in a state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "notifications" / "deliveries.json"

    def load(self) -> Deliveries:
        """Return the deliveries; none if there is no file. If the file is damaged, events before
        its last change count as handled, so that nothing is sent again.

        Raises:
            OSError: the file cannot be read, or a newer version wrote it. Then the messages
                sent so far are unknown.
        """
        try:
            text = state_files.read_bytes(self.path)
        except FileNotFoundError:
            return Deliveries()
        except state_files.Unreadable as why:
            raise OSError(str(why)) from None
        try:
            return state_files.decode(text, Deliveries, exact=True)
        except state_files.Unreadable as why:
            if _is_json(text):
                raise OSError(str(why)) from None
            return Deliveries(forgotten_until=self.path.stat().st_mtime)

    def change(self, change: Callable[[Deliveries], Deliveries]) -> Deliveries:
        """Replace the deliveries by what `change` returns, under a lock. Raises OSError."""
        with state_files.locked(self.path):
            before = self.load()
            after = change(before)
            if after != before:
                state_files.write(self.path, to_json(after), durable=True)
        return after


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


class LocalNotifications(Notifications):
    """The rules and deliveries in a state folder.

    Args:
        state_dir: the folder of records.
        wake: called after each change; it starts or wakes the process that sends messages.
    """

    def __init__(self, state_dir: Path, wake: Callable[[], None] = lambda: None) -> None:
        self.state_dir = state_dir
        self._wake = wake

    def rules(self) -> list[NotificationRule]:
        """See `Notifications.rules`."""
        file = rules_file(self.state_dir)
        try:
            return list(state_files.load(file, NotificationRules, exact=True).rules)
        except FileNotFoundError:
            return []
        except state_files.Unreadable:  # the error's text may contain parts of a secret
            text = _(
                "the rules of notifications in {file} are damaged, or of a newer version: "
                "remove the file, and add the rules again"
            )
            raise TFClusterError(text.format(file=file)) from None

    def change(self, change: Callable[[list[NotificationRule]], list[NotificationRule]]) -> None:
        """See `Notifications.change`."""
        file = rules_file(self.state_dir)
        paths.private(file.parent)
        try:
            if file.parent.stat().st_mode & 0o077:
                # the user made the folder, for the policy
                file.parent.chmod(0o700)
            with state_files.locked(file):
                after = NotificationRules(rules=tuple(change(self.rules())))
                state_files.write(file, to_json(after), durable=True)
        except OSError as error:
            text = _("the rules of notifications could not be written in {folder}: {why}")
            raise TFClusterError(text.format(folder=file.parent, why=error.strerror)) from None
        self._wake()

    def policy(self) -> NotificationPolicy:
        """Return the hub's policy for this user, else the policy in this account's file (see
        `Notifications.policy`).
        """
        limits = quota.hub_limits()
        if limits is not None and limits.notifications is not None:
            return _hub_policy(limits.notifications)
        file = policy_file(self.state_dir)
        try:
            text = state_files.read_bytes(file)
        except FileNotFoundError:
            return NotificationPolicy()
        except state_files.Unreadable as why:
            raise _unusable(str(file), str(why)) from None
        return read_policy(text, file)

    def policy_place(self) -> str:
        """See `Notifications.policy_place`."""
        limits = quota.hub_limits()
        if limits is not None and limits.notifications is not None:
            return super().policy_place()
        return str(policy_file(self.state_dir))

    def deliveries(self) -> Sequence[Delivery]:
        """See `Notifications.deliveries`."""
        found = state_files.read(DeliveryFile(self.state_dir).path, Deliveries)
        return found.deliveries if found is not None else ()

    def test(self, rule: NotificationRule, request: TestRequest) -> None:
        """See `Notifications.test`: the message is sent from this process."""
        from ...notifications import attempts

        self.send(attempts.make_test(rule, request, time.time()), rule)

    def send(self, delivery: Delivery, rule: NotificationRule) -> None:
        """Send a message. Raises NotDelivered, or TFClusterError if the policy is unreadable."""
        from ...notifications.sending import ReceiverRefused, deliver
        from ...notifications.wording import compose

        try:
            deliver(compose(delivery, rule), rule, self.policy(), time.time())
        except ReceiverRefused as why:
            raise ReceiverRefused(f"{why} ({self.policy_place()})") from None


def _hub_policy(said: object) -> NotificationPolicy:
    if wrong := list(wrong_types(said, NotificationPolicy)):  # written by a hub of another release
        raise _unusable(_("of the hub"), "; ".join(f"{each.field}: {each.what}" for each in wrong))
    return conversion.convert(said, NotificationPolicy)


def read_policy(text: bytes, file: Path) -> NotificationPolicy:
    """Return the policy in a file. Raises TFClusterError, which names the mistake."""
    from ...notifications.sending import private_network_mistakes  # slow; few accounts have a file

    try:
        said = text.decode()
    except UnicodeDecodeError as error:
        raise _unusable(str(file), str(error)) from None
    try:
        return PolicyText(said).read(
            NotificationPolicy, lambda policy, _data: private_network_mistakes(policy)
        )
    except InvalidPolicy as error:
        raise _unusable(str(file), "; ".join(map(str, error.mistakes))) from None


def _unusable(file: str, why: str) -> TFClusterError:
    text = _("the policy of notifications {file} cannot be used: {why}")
    return TFClusterError(text.format(file=file, why=" ".join(why.split())))
