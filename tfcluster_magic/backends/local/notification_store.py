"""Notifications on one machine: the rules of a user, the policy, and the deliveries of each run.

`<state>/notifications/rules.json` holds the rules with their secrets, private to the user.
`notifications.json` in a run's folder says what became of each message about it, `other.json`
beside the rules of what is about no run. Nothing here sends anything.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ... import paths, state_files
from ...errors import Conflict, NameTaken, NotFound, TFClusterError
from ...i18n import _
from ...notifications import (
    MOST_RULES,
    Deliveries,
    Delivery,
    NotificationPolicy,
    NotificationRule,
    NotificationRules,
)
from ...spec import names, to_json
from ..base import Notifications
from .store import RunFolder, Store


def rules_file(state_dir: Path) -> Path:
    """Return the file of rules."""
    return state_dir / "notifications" / "rules.json"


def policy_file(state_dir: Path) -> Path:
    """Return the policy file of this account."""
    return state_dir / "notifications" / "policy.yaml"


def has_rules(state_dir: Path) -> bool:
    """Return whether somebody may have to be told of something."""
    found = state_files.read(rules_file(state_dir), NotificationRules)
    return found is not None and bool(found.rules)


class DeliveryFile:
    """What became of the messages about one run, or about everything else."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Deliveries:
        """Return the deliveries; none if there is no file, or one that is damaged.

        Raises:
            OSError: it cannot be read, or a newer version wrote it. What was sent is unknown then.
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
            return Deliveries()

    def peek(self) -> Deliveries:
        """Return the deliveries; none if they cannot be read."""
        try:
            return self.load()
        except OSError:
            return Deliveries()

    def change(self, change: Callable[[Deliveries], Deliveries]) -> Deliveries:
        """Change the deliveries, alone among all processes. Raises OSError."""
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


def deliveries_of(folder: RunFolder) -> DeliveryFile:
    """Return the file of a run's deliveries."""
    return DeliveryFile(folder.path / "notifications.json")


def other_deliveries(state_dir: Path) -> DeliveryFile:
    """Return the file of deliveries about schedules and budgets."""
    return DeliveryFile(state_dir / "notifications" / "other.json")


class LocalNotifications(Notifications):
    """The rules and deliveries in a state folder.

    Args:
        state_dir: the folder of records.
        wake: called after each change; it starts or wakes the process that sends.
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
        except state_files.Unreadable:  # its own text may have parts of a secret
            text = _(
                "the rules of notifications in {file} are damaged, or of a newer version: "
                "remove it, and add them"
            )
            raise TFClusterError(text.format(file=file)) from None

    def add(self, rule: NotificationRule) -> None:
        """See `Notifications.add`."""

        def more(before: list[NotificationRule]) -> list[NotificationRule]:
            if any(each.name == rule.name for each in before):
                text = _("there is a rule {name}: choose another name, or remove it first")
                raise NameTaken(text.format(name=rule.name))
            if len(before) >= MOST_RULES:
                text = _("you have {most} rules, the maximum: remove one first")
                raise Conflict(text.format(most=MOST_RULES))
            return [*before, rule]

        self._change(more)

    def remove(self, name: str) -> None:
        """See `Notifications.remove`."""

        def fewer(before: list[NotificationRule]) -> list[NotificationRule]:
            found = [each for each in before if each.name != name]
            if len(found) == len(before):
                raise self._unknown(name, before)
            return found

        self._change(fewer)

    def get(self, name: str) -> NotificationRule:
        """See `Notifications.get`."""
        there = self.rules()
        for rule in there:
            if rule.name == name:
                return rule
        raise self._unknown(name, there)

    def _unknown(self, name: str, there: list[NotificationRule]) -> NotFound:
        if close := difflib.get_close_matches(name, [each.name for each in there], 1):
            text = _("there is no rule {name}; did you mean {close}?")
            return NotFound(text.format(name=name, close=close[0]))
        text = _("there is no rule {name}; `tfcluster notify list` shows all rules")
        return NotFound(text.format(name=name))

    def _change(self, change: Callable[[list[NotificationRule]], list[NotificationRule]]) -> None:
        file = rules_file(self.state_dir)
        paths.private(file.parent)
        try:
            with state_files.locked(file):
                after = NotificationRules(rules=tuple(change(self.rules())))
                state_files.write(file, to_json(after), durable=True)
        except OSError as error:
            text = _("the rules of notifications could not be written in {folder}: {why}")
            raise TFClusterError(text.format(folder=file.parent, why=error.strerror)) from None
        self._wake()

    def policy(self) -> NotificationPolicy:
        """See `Notifications.policy`: what this account has written; the user is its own
        administrator here.
        """
        file = policy_file(self.state_dir)
        try:
            text = state_files.read_bytes(file)
        except FileNotFoundError:
            return NotificationPolicy()
        except state_files.Unreadable as why:
            raise _unusable(file, str(why)) from None
        return read_policy(text, file)

    def history(self, run: str | None = None) -> list[Delivery]:
        """See `Notifications.history`."""
        store = Store(self.state_dir)
        if run is not None:
            cluster, number = names.parse_ref(run)
            files = [deliveries_of(store.folder(cluster, number or 0))]
        else:
            files = [other_deliveries(self.state_dir), *map(deliveries_of, store.folders())]
        found = [each for file in files for each in _read(file)]
        return sorted(found, key=lambda each: (each.noted_at, each.about), reverse=True)


def _read(file: DeliveryFile) -> Iterator[Delivery]:
    found = state_files.read(file.path, Deliveries)
    return iter(found.deliveries if found is not None else ())


def read_policy(text: bytes, file: Path) -> NotificationPolicy:
    """Return the policy in a file. Raises TFClusterError, which names the mistake."""
    import yaml  # few accounts have such a file

    from ...notifications.delivery import network_mistake

    try:
        found = msgspec.convert(yaml.safe_load(text) or {}, NotificationPolicy)
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise _unusable(file, str(error)) from None
    for network in found.private_networks:
        if why := network_mistake(network):
            raise _unusable(file, f"privateNetworks: {why}")
    return found


def _unusable(file: Path, why: str) -> TFClusterError:
    text = _("the policy of notifications {file} cannot be used: {why}")
    return TFClusterError(text.format(file=file, why=" ".join(why.split())))
