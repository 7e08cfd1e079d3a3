"""The Secret with a user's notification rules and deliveries on Kubernetes. Pure.

Each user's namespace has one such Secret, `labels.NOTIFICATIONS`. The user writes into it the
rules, with the URLs and secrets of receivers. To test a rule, the user adds a request for a test.
The notifier alone writes the deliveries, so that nobody can forge an event
(k8s/base/admission-notifier.yaml). Each patch carries the version of the Secret that it is based
on, so that the API server refuses the patch if the Secret has changed. No error message contains
any part of the Secret's content.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ...notifications import (
    Deliveries,
    NotificationPolicy,
    NotificationRule,
    NotificationRules,
    TestRequest,
)
from ...spec import Model, conversion
from ..api import labels
from ..api.client import Object

RULES_KEY, TEST_KEY, DELIVERIES_KEY = "rules.json", "test.json", "deliveries.json"
MOST_BYTES = 700 * 1024
"""Maximum characters of the Secret in base64; see k8s/base/admission-notifier.yaml."""
POLICY_KEY = "notifications.json"
"""Key in the ConfigMap `labels.OPTIONS`. Its value is the policy of notifications, without the mail
server's account.
"""
MANAGER = "tfcluster-notifier"
"""The name under which the notifier writes fields (its field manager)."""
RECORD = f"{labels.GROUP}/notifications"
"""Annotation of a run. Its value is the state of each message about the run."""

_RULES = conversion.decoder(NotificationRules)
_DELIVERIES = conversion.decoder(Deliveries)
_TEST = conversion.decoder(TestRequest)
_POLICY = conversion.decoder(NotificationPolicy)
_M = TypeVar("_M", bound=Model)


class UnreadableSecret(ValueError):
    """A key of the Secret is damaged, or of a newer version."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"{key} is damaged, or of a newer version")


def read_rules(found: Object) -> tuple[NotificationRule, ...]:
    """Return the rules; an empty tuple if there are none yet. Raises UnreadableSecret."""
    return _read(found, RULES_KEY, _RULES, NotificationRules()).rules


def read_deliveries(found: Object) -> Deliveries:
    """Return the deliveries; empty if none were written yet. Raises UnreadableSecret."""
    return _read(found, DELIVERIES_KEY, _DELIVERIES, Deliveries())


def has_emptied_deliveries(found: Object) -> bool:
    """Return whether the user emptied the deliveries. If so, the notifier forgets all events until
    now. The key is then present and empty; a Secret whose deliveries were never written lacks the
    key.
    """
    return (found.get("data") or {}).get(DELIVERIES_KEY) == ""


def read_test(found: Object) -> TestRequest | None:
    """Return the test that the user asked for last, if there is one. Raises UnreadableSecret."""
    test = _read(found, TEST_KEY, _TEST, TestRequest())
    return test if test.id else None


def trim(found: Object) -> Object:
    """Return a Secret with only the keys that this module reads; if their values are too large, the
    result has no data.
    """
    head, data = found["metadata"], found.get("data") or {}
    names = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    kept = {key: data[key] for key in (RULES_KEY, TEST_KEY, DELIVERIES_KEY) if key in data}
    if sum(map(len, kept.values())) > MOST_BYTES:
        kept = {}
    return {"metadata": {name: head[name] for name in names if name in head}, "data": kept}


def _read(found: Object, key: str, decoder: msgspec.json.Decoder[_M], default: _M) -> _M:
    text = (found.get("data") or {}).get(key)
    if not text:
        return default
    try:
        return decoder.decode(base64.b64decode(text, validate=True))
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError):
        raise UnreadableSecret(key) from None


def write_rules(found: Object, rules: Sequence[NotificationRule]) -> Object:
    """Return a patch of the Secret `found` that replaces the rules. The API server refuses the
    patch if the Secret has changed since it was read.
    """
    return _patch(found, RULES_KEY, NotificationRules(rules=tuple(rules)))


def write_test(found: Object, test: TestRequest) -> Object:
    """Return a patch of the Secret `found` that asks for a test of a rule."""
    return _patch(found, TEST_KEY, test)


def write_deliveries(found: Object, deliveries: Deliveries) -> Object:
    """Return a patch of the Secret `found` that replaces the deliveries. The API server refuses the
    patch if the Secret has changed since it was read.
    """
    return _patch(found, DELIVERIES_KEY, deliveries)


def _patch(found: Object, key: str, value: Model) -> Object:
    head = found["metadata"]
    text = base64.b64encode(msgspec.json.encode(value)).decode()
    version = {"uid": head["uid"], "resourceVersion": head["resourceVersion"]}
    return {"metadata": version, "data": {key: text}}


def empty_secret(marks: dict[str, str]) -> Object:
    """Return a new Secret without rules."""
    head = {"name": labels.NOTIFICATIONS, "labels": {**marks, labels.NOTIFIED: "true"}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": head}


def setup_command(namespace: str) -> str:
    """Return the command by which an administrator creates the Secret."""
    return f"kubectl -n {namespace} create secret generic {labels.NOTIFICATIONS}"


def published_policy(policy: NotificationPolicy) -> str:
    """Return the value of `POLICY_KEY`: the policy without the parts that users may not know."""
    smtp = policy.smtp
    if smtp is not None:
        smtp = msgspec.structs.replace(smtp, username="", password_file="")
    shown = msgspec.structs.replace(policy, smtp=smtp)
    return msgspec.json.encode(shown, order="deterministic").decode()


def read_published_policy(options: Object) -> NotificationPolicy:
    """Return the policy in the ConfigMap of options. If another release wrote an unreadable policy,
    return the default policy: the notifier checks against its own policy anyway.
    """
    try:
        return _POLICY.decode((options.get("data") or {}).get(POLICY_KEY, "{}"))
    except msgspec.MsgspecError:
        return NotificationPolicy()
