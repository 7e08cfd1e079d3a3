"""Actions on notification rules, such as add and test: `manager.notifications`. Each action is a
method here and a command.

manager.notifications.add("team", on=["failed"], webhook="https://hooks.slack.com/services/…")
manager.notifications.test("team")
"""

from __future__ import annotations

import os
import time
import urllib.parse
import uuid
from collections.abc import Sequence

from ..backends.base import Backend
from ..errors import InvalidRequest, Problem
from ..i18n import _, current_language
from ..notifications import (
    KNOWN_HOSTS,
    LAB_ADDRESS,
    LAB_LENGTH,
    MAIL_ADDRESS,
    MOST_CLUSTERS,
    SIGNED_FORMATS,
    Delivery,
    NotificationPolicy,
    NotificationRule,
    Occasion,
    PublicRule,
    TestRequest,
    Webhook,
    WebhookFormat,
)
from ..spec import names
from ..spec.quantities import DURATION_RULE, parse_duration


class NotificationVerbs:
    """The actions on the notification rules of one backend.

    Args:
        backend: stores the rules and has the runs about which messages are sent.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def add(
        self,
        name: str,
        *,
        on: Sequence[str] = (Occasion.FAILED.value,),
        webhook: str | None = None,
        mail: str | None = None,
        format: str | None = None,  # noqa: A002 - the option has this name
        secret: str = "",
        clusters: Sequence[str] = (),
        queued_longer_than: float | str | None = None,
        lab: str | None = None,
        output: bool = True,
    ) -> PublicRule:
        """Add a rule, which applies from now on.

        Args:
            name: name of the rule.
            on: the occasions for a message; see `Occasion`.
            webhook: the URL to post to. Give this or `mail`.
            mail: the address to write to.
            format: the format that the receiver expects. By default, it follows from the URL if
                its host is known, such as Slack's; for other hosts, it is `json`.
            secret: the secret by which messages to Feishu or DingTalk are signed.
            clusters: names of runs; by default all.
            queued_longer_than: seconds, or a text such as `30m`; it adds `queued` to `on`.
            lab: address of JupyterLab for links; by default the hub's.
            output: whether messages include the last lines that a task printed.

        Raises:
            InvalidRequest: the rule is invalid; the error has every problem, but no secret.
            NameTaken: there is a rule of this name.
            Conflict: you have as many rules as are allowed.
        """
        from ..notifications.sending import host_mistake, mail_mistake

        store, problems = self._backend.notifications(), list[Problem]()
        if not names.is_valid(name):
            problems.append(Problem("name", name, names.name_rule(name)))
        occasions = _occasions(on, problems)
        after = 3600.0
        if queued_longer_than is not None:
            occasions.add(Occasion.QUEUED)
            after = _seconds(queued_longer_than, problems)
        problems += [
            Problem("--only", each, names.NAME_RULE)
            for each in clusters
            if not names.is_valid(each)
        ]
        if bool(webhook) == bool(mail):
            problems.append(Problem("--webhook", None, _("give either --webhook or --mail")))
        policy = store.policy()
        hook = _webhook(webhook, format, secret, policy, problems) if webhook else None
        why = host_mistake(hook.host, policy) if hook is not None else ""
        if hook is not None and why:
            problems.append(Problem("--webhook", hook.shown, f"{why} ({store.policy_place()})"))
        if mail and (why := mail_mistake(mail, policy)):
            is_address = MAIL_ADDRESS.fullmatch(mail)
            place = f" ({store.policy_place()})" if is_address else ""
            problems.append(Problem("--mail", mail, why + place))
        if len(clusters) > MOST_CLUSTERS:
            allowed = _("at most {most} names").format(most=MOST_CLUSTERS)
            problems.append(Problem("--only", len(clusters), allowed))
        link = _lab(lab)
        if len(link) > LAB_LENGTH:
            allowed = _("at most {most} characters").format(most=LAB_LENGTH)
            problems.append(Problem("--lab", len(link), allowed))
        if problems:
            raise InvalidRequest(problems, _("the rule was refused"))
        rule = NotificationRule(
            name=name,
            uid=str(uuid.uuid4()),
            created_at=time.time(),
            on=tuple(each for each in Occasion if each in occasions),
            clusters=tuple(clusters),
            queued_longer_than=after,
            webhook=hook,
            mail_to=mail or "",
            language=current_language(),
            lab=link,
            output=output,
        )
        store.add(rule)
        return rule.public

    def list(self) -> list[PublicRule]:
        """Return all rules, without secrets."""
        return [rule.public for rule in self._backend.notifications().rules()]

    def remove(self, name: str) -> None:
        """Remove a rule. Its messages that wait for delivery are not sent. Raises NotFound."""
        self._backend.notifications().remove(name)

    def test(self, name: str) -> PublicRule:
        """Send one test message to the receiver of a rule now.

        Raises:
            NotFound: there is no such rule.
            NotDelivered: the receiver did not accept the message; the error says why.
        """
        store = self._backend.notifications()
        rule = store.get(name)
        store.test(rule, TestRequest(id=str(uuid.uuid4()), rule=rule.uid, at=time.time()))
        return rule.public

    def history(self, run: str | None = None) -> Sequence[Delivery]:
        """Return the deliveries, newest first. With `run`, return only those about this run, even
        if it was deleted; the name of a cluster selects all its runs and the schedule of this name.
        Raises NotFound.
        """
        store = self._backend.notifications()
        found = store.history(run)
        if found or run is None:
            return found
        return store.history(self._backend.get(run).metadata.name)


def _occasions(on: Sequence[str], problems: list[Problem]) -> set[Occasion]:
    found = set[Occasion]()
    for word in on:
        try:
            found.add(Occasion(word))
        except ValueError:  # noqa: PERF203 - each wrong word is a problem of its own
            allowed = _("use {words}").format(words=", ".join(each.value for each in Occasion))
            problems.append(Problem("--on", word, allowed))
    return found or {Occasion.FAILED}


def _seconds(said: float | str, problems: list[Problem]) -> float:
    try:
        found = float(parse_duration(said) if isinstance(said, str) else said)
    except ValueError:
        found = 0.0
    if found <= 0:
        problems.append(Problem("--queued-longer-than", said, DURATION_RULE))
    return found


def _webhook(
    url: str,
    kind: str | None,
    secret: str,
    policy: NotificationPolicy,
    problems: list[Problem],
) -> Webhook | None:
    """Return the webhook; None if its URL or format is wrong. Everything that is wrong is added to
    `problems`, without the URL, which is secret.
    """
    rule = _("write a URL such as https://example.com/hook, without a name, password or fragment")
    try:
        parts = urllib.parse.urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        problems.append(Problem("--webhook", "…", rule))
        return None
    odd = not url.isascii() or any(char <= " " for char in url) or len(url) > 2000
    if (
        parts.scheme not in ("http", "https")
        or not host
        or "@" in parts.netloc
        or parts.fragment
        or odd
    ):
        problems.append(Problem("--webhook", "…", rule))
        return None
    try:
        form = WebhookFormat(kind) if kind else KNOWN_HOSTS.get(host, WebhookFormat.JSON)
    except ValueError:
        allowed = _("use {words}").format(words=", ".join(each.value for each in WebhookFormat))
        problems.append(Problem("--format", kind, allowed))
        return None
    if secret and form not in SIGNED_FORMATS:
        allowed = _("only {words} take a secret").format(
            words=", ".join(each.value for each in SIGNED_FORMATS)
        )
        problems.append(Problem("--secret", "…", allowed))
    hook = Webhook(url=url, format=form, secret=secret[:200])
    if not policy.allows_host(hook.host):
        allowed = _("the policy allows {hosts} only").format(hosts=", ".join(policy.hosts))
        problems.append(Problem("--webhook", hook.shown, allowed))
    return hook


def _lab(said: str | None) -> str:
    """Return JupyterLab's address, to which messages link: `said`, else the public address that the
    hub gave to this server. Empty if there is none, or if it is not valid.
    """
    found = os.environ.get("JUPYTERHUB_PUBLIC_URL", "") if said is None else said
    if not LAB_ADDRESS.fullmatch(found):
        return ""
    base = found.split("?")[0].split("#")[0].rstrip("/")
    return base if base.endswith("/lab") else f"{base}/lab"
