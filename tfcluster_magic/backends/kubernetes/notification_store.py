"""The notification rules of a namespace, in one Secret that the notifier reads.

A user's account may read and change only this Secret, and may not create it: the Secret is created
with the namespace. For a test, this module only writes a request into the Secret, because a
notebook cannot connect to receivers. The notifier sends the test message and writes the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import BackendUnavailable, Conflict, TFClusterError
from ...i18n import _
from ...kube.api import access, labels
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.objects import notification_secret
from ...kube.objects.notification_secret import UnreadableSecret
from ...notifications import (
    TEST_EVENT,
    Delivery,
    DeliveryState,
    NotificationPolicy,
    NotificationRule,
    TestRequest,
)
from ..base import Notifications

T = TypeVar("T")
TRIES = 10
"""Maximum attempts to write the Secret while others change it."""
ANSWER_SECONDS = 60.0
"""Maximum seconds that a test waits for the notifier's answer. The notifier needs at most 20
seconds for one attempt to send a message.
"""
POLL_SECONDS = 0.3
"""Seconds between two reads of the Secret during a test, because the account may not watch it."""


class KubernetesNotifications(Notifications):
    """The rules and deliveries of a namespace.

    Args:
        api: the connection to the API server.
        namespace: the namespace.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._where = path("secrets", namespace, labels.NOTIFICATIONS)

    def rules(self) -> list[NotificationRule]:
        """See `Notifications.rules`."""
        return list(_readable(notification_secret.read_rules, self._secret()))

    def change(self, change: Callable[[list[NotificationRule]], list[NotificationRule]]) -> None:
        """See `Notifications.change`."""

        def changed(found: Object) -> Object:
            before = list(_readable(notification_secret.read_rules, found))
            return notification_secret.write_rules(found, change(before))

        self._write(changed)

    def policy(self) -> NotificationPolicy:
        """Return the policy that the operator published (see `Notifications.policy`)."""
        try:
            options = self._api.get(path("configmaps", self._namespace, labels.OPTIONS))
        except ApiError as error:
            if error.gone:
                return NotificationPolicy()
            raise access.explain_api_error(error, server=self._api.server) from None
        return notification_secret.read_published_policy(options)

    def deliveries(self) -> Sequence[Delivery]:
        """See `Notifications.deliveries`."""
        return _readable(notification_secret.read_deliveries, self._secret()).deliveries

    def test(self, rule: NotificationRule, request: TestRequest) -> None:
        """Ask the notifier to send the test message; see `Notifications.test`.

        Raises:
            BackendUnavailable: the notifier did not answer.
        """
        from ...notifications.sending import NotDelivered

        self._write(lambda found: notification_secret.write_test(found, request))
        key = (rule.uid, "", f"{TEST_EVENT}{request.id}")
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until:
            for each in self.deliveries():
                if each.key == key and each.state is DeliveryState.SENT:
                    return
                if each.key == key and each.state is DeliveryState.GIVEN_UP:
                    raise NotDelivered(each.problem)
            time.sleep(POLL_SECONDS)
        text = _(
            "the notifier did not answer within {seconds:g} seconds; an administrator finds the "
            "reason by `kubectl -n {home} logs deployment/notifier`"
        )
        home = labels.OPERATOR[0]
        raise BackendUnavailable(text.format(seconds=ANSWER_SECONDS, home=home))

    def _secret(self) -> Object:
        try:
            return self._api.get(self._where)
        except ApiError as error:
            raise self._explained(error) from None

    def _write(self, changed: Callable[[Object], Object]) -> None:
        for _try in range(TRIES):
            body = changed(self._secret())
            try:
                self._api.merge(self._where, body)
            except ApiError as error:
                if error.status == 409:  # the notifier changed the Secret: try again
                    continue
                raise self._explained(error) from None
            return
        text = _("somebody else is changing {name}: try again")
        raise Conflict(text.format(name=labels.NOTIFICATIONS))

    def _explained(self, error: ApiError) -> TFClusterError:
        may_not = error.status == 403 and "cannot" in error.message
        if (error.gone and error.details.get("kind") != "namespaces") or may_not:
            text = _(
                "notifications are not set up in namespace {namespace}: ask an administrator to "
                "run `kubectl apply -k` with the manifests of this version, and `{command}`"
            )
            command = notification_secret.setup_command(self._namespace)
            return BackendUnavailable(text.format(namespace=self._namespace, command=command))
        return access.explain_api_error(error, labels.NOTIFICATIONS, server=self._api.server)


def _readable(read: Callable[[Object], T], found: Object) -> T:
    try:
        return read(found)
    except UnreadableSecret as error:
        text = _(
            "{key} in the Secret {name} is damaged, or of a newer version; `{command}` removes it"
        )
        value = "null"
        if error.key == notification_secret.DELIVERIES_KEY:
            value = '""'
            text = _(
                "{key} in the Secret {name} is damaged, or of a newer version. To empty it, so "
                "that waiting messages are dropped and old ones are not sent again, run `{command}`"
            )
        command = (
            f"kubectl patch secret {labels.NOTIFICATIONS} --type=merge "
            f'-p \'{{"data":{{"{error.key}":{value}}}}}\''
        )
        told = text.format(key=error.key, name=labels.NOTIFICATIONS, command=command)
        raise TFClusterError(told) from None
