"""The data of notifications: rules, the administrator's policy, and deliveries.

A rule names the occasions and the receiver of a user's messages. `occasions` finds what to report.
`attempts` decides which deliveries there are and when each is tried again. `wording` writes the
message, and `sending` sends it. A delivery never contains a secret.
"""

from __future__ import annotations

import enum
import re
import urllib.parse
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from ..i18n import mark
from ..quota.policy_file import Network
from ..spec import NAME_PATTERN, Model, PositiveSeconds

MOST_RULES = 20
"""Maximum rules of one user."""
MOST_KEPT = 200
"""Maximum deliveries that are kept for one user."""
MOST_BYTES_KEPT = 384 * 1024
"""Maximum bytes of one user's deliveries as JSON; a Secret of Kubernetes holds 1 MiB of base64."""
TITLE_LENGTH, SENTENCE_LENGTH, PROBLEM_LENGTH, LAB_LENGTH = 200, 2000, 300, 500
MOST_CLUSTERS = 50
"""Maximum names of runs in one rule."""
# Patterns of the addresses in a rule. Addresses are compared with them not only when a command adds
# a rule, but also when a message is sent, because on Kubernetes users can edit the Secret with the
# rules. The fields of `NotificationRule` do not use the patterns, because one bad rule must not
# make all rules unreadable.
_SPECIALS = r"@\s<>,;:\"()\[\]\\\x00-\x1f\x7f"
MAIL_ADDRESS = re.compile(rf"[^{_SPECIALS}]{{1,64}}@[^{_SPECIALS}]{{1,189}}")
"""A single mail address, without a display name."""
LAB_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")
"""The URL of a user's JupyterLab, to which messages link."""


class Occasion(str, enum.Enum):
    """Reasons to send a message."""

    FAILED = "failed"
    """A run failed."""
    FINISHED = "finished"
    """A run ended, with success or without."""
    QUEUED = "queued"
    """A run has been queued for longer than the rule says."""
    STALLED = "stalled"
    """No task of a run shows a sign of work."""
    OUT_OF_MEMORY = "out-of-memory"
    """A task of a run used more memory than its limit."""
    SCHEDULE_PAUSED = "schedule-paused"
    """A schedule paused itself, or an administrator paused it."""
    NOT_LAUNCHED = "not-launched"
    """A due time of a schedule was missed, or its launch was refused or finds no room."""
    BUDGET = "budget"
    """80 % of a budget of hours are used."""


class WebhookFormat(str, enum.Enum):
    """The JSON that a receiver of webhooks expects."""

    JSON = "json"
    SLACK = "slack"
    FEISHU = "feishu"
    DINGTALK = "dingtalk"
    WECOM = "wecom"


SIGNED_FORMATS = (WebhookFormat.FEISHU, WebhookFormat.DINGTALK)
"""Formats that can be signed with a secret."""
KNOWN_HOSTS = {
    "hooks.slack.com": WebhookFormat.SLACK,
    "open.feishu.cn": WebhookFormat.FEISHU,
    "open.larksuite.com": WebhookFormat.FEISHU,
    "oapi.dingtalk.com": WebhookFormat.DINGTALK,
    "qyapi.weixin.qq.com": WebhookFormat.WECOM,
}
"""The webhook formats of known hosts, by host."""


class Webhook(Model, frozen=True, kw_only=True):
    """A URL to which messages are posted. URL and secret are never shown, not even by `repr`."""

    url: Annotated[str, Meta(max_length=2000)]
    format: WebhookFormat = WebhookFormat.JSON
    secret: Annotated[str, Meta(max_length=200)] = ""

    @property
    def host(self) -> str:
        """The host of the URL, which is no secret."""
        return urllib.parse.urlsplit(self.url).hostname or ""

    @property
    def shown(self) -> str:
        """The URL without its path and query, which hold the token."""
        parts = urllib.parse.urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{self.host}{port}/…"

    @property
    def secrets(self) -> tuple[str, ...]:
        """All texts that must not be shown, the longest first."""
        parts = urllib.parse.urlsplit(self.url)
        words = {self.url, parts.path, parts.query, self.secret, *parts.path.split("/")[1:]}
        words |= {value for _key, value in urllib.parse.parse_qsl(parts.query)}
        return tuple(sorted((word for word in words if len(word) > 5), key=len, reverse=True))

    def __repr__(self) -> str:
        return f"Webhook({self.shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return what a rich console shows."""
        return [("url", self.shown)]


class NotificationRule(Model, frozen=True, kw_only=True):
    """The occasions that a user wants to know about, and the receiver: a webhook or an address."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    uid: str
    created_at: float
    on: tuple[Occasion, ...]
    clusters: Annotated[
        tuple[str, ...],
        Meta(max_length=MOST_CLUSTERS, description="only runs of these names; empty: all"),
    ] = ()
    queued_longer_than: PositiveSeconds = 3600.0
    webhook: Webhook | None = None
    mail_to: Annotated[str, Meta(max_length=254)] = ""
    language: str = "en"
    lab: Annotated[
        str,
        Meta(max_length=LAB_LENGTH, description="address of JupyterLab, for links; empty: none"),
    ] = ""
    output: Annotated[bool, Meta(description="whether messages have the last printed lines")] = True

    @property
    def receiver(self) -> str:
        """The receiver, without secrets."""
        return self.webhook.shown if self.webhook else self.mail_to

    @property
    def public(self) -> PublicRule:
        """The rule without secrets."""
        return PublicRule(
            name=self.name,
            created_at=self.created_at,
            on=self.on,
            clusters=self.clusters,
            queued_longer_than=self.queued_longer_than if Occasion.QUEUED in self.on else None,
            receiver=self.receiver,
            format=self.webhook.format if self.webhook else None,
            signed=bool(self.webhook and self.webhook.secret),
            language=self.language,
            lab=self.lab,
            output=self.output,
        )


class PublicRule(Model, frozen=True, kw_only=True, omit_defaults=False):
    """A rule without its secrets, as `notify list -o json` prints it."""

    name: str
    created_at: float
    on: tuple[Occasion, ...]
    clusters: tuple[str, ...]
    queued_longer_than: float | None
    receiver: str
    format: WebhookFormat | None
    signed: bool
    language: str
    lab: str
    output: bool


class NotificationRules(Model, frozen=True):
    """All rules of a user."""

    rules: Annotated[tuple[NotificationRule, ...], Meta(max_length=MOST_RULES)] = ()


# The administrator's policy.


class SmtpServer(Model, frozen=True, kw_only=True):
    """The mail server of a site."""

    host: Annotated[
        str, Meta(min_length=1, max_length=253, description=mark("a host name or an address"))
    ]
    """The name or address of the server."""
    port: Annotated[int, Meta(ge=1, le=65535, description=mark("a port from 1 to 65535"))] = 587
    """Its port: usually 587 with starttls, 465 with tls."""
    security: Annotated[
        str, Meta(pattern="^(starttls|tls|none)$", description=mark("use starttls, tls or none"))
    ] = "starttls"
    """How the connection is encrypted: `starttls`, `tls` or `none`."""
    sender: Annotated[
        str, Meta(pattern=r"^[^@\s<>]+@[^@\s<>]+$", description=mark("a mail address"))
    ]
    """The address from which mail comes."""
    username: str = ""
    """The account on the server. Empty: none."""
    password_file: str = ""
    """A file with the account's password on its first line. On Kubernetes
    `/etc/tfcluster-smtp/password`, from the Secret `tfcluster-smtp` of `tfcluster-system`."""
    recipients: tuple[str, ...] = ()
    """Domains to which mail may go, such as `example.com`. Empty: any."""


class NotificationPolicy(Model, frozen=True, kw_only=True):
    """The receivers that an administrator allows."""

    hosts: tuple[str, ...] = ("*",)
    """Hosts of webhooks, such as `hooks.slack.com` or `*.example.com`. `*` allows any."""
    private_networks: tuple[Network, ...] = ()
    """Private networks that webhooks may reach, such as `10.1.2.0/24`; plain http is allowed
    there."""
    smtp: SmtpServer | None = None
    """The mail server. Without one, no mail is sent."""

    def allows_host(self, host: str) -> bool:
        """Return whether the policy allows webhooks to a host of this name; the host's IP addresses
        are checked when a message is sent.
        """
        for allowed in map(str.lower, self.hosts):
            suffix = allowed.removeprefix("*")
            if allowed == host or (allowed != suffix and host.endswith(suffix)):
                return True
        return False

    def allows_recipient(self, address: str) -> bool:
        """Return whether `address` is a single mail address to which the policy allows mail."""
        if self.smtp is None or not MAIL_ADDRESS.fullmatch(address):
            return False
        domain = address.rpartition("@")[2].lower()
        return not self.smtp.recipients or domain in map(str.lower, self.smtp.recipients)


# Deliveries.


class DeliveryState(str, enum.Enum):
    """The state of a delivery."""

    PENDING = "Pending"
    SENT = "Sent"
    GIVEN_UP = "GivenUp"


class Delivery(Model, frozen=True, kw_only=True):
    """One message of one rule: its content and its state.

    The content is complete, so that the message can be sent after the run was deleted. The lines
    that the task printed are dropped as soon as the delivery is settled (sent or given up).
    """

    rule: Annotated[str, Meta(description="the rule's name")]
    rule_uid: Annotated[str, Meta(description="the rule's uid")]
    event: Annotated[str, Meta(description="the event; it is reported once for each uid")]
    uid: Annotated[
        str, Meta(description="the uid of the run; empty if the event is not about a run")
    ] = ""
    about: Annotated[
        str, Meta(description="the run, the schedule or the kind of hours that the event is about")
    ]
    occasion: Occasion
    title: str
    sentence: str
    locked: Annotated[
        bool, Meta(description="whether only an administrator can resume the schedule")
    ] = False
    task: Annotated[str, Meta(description="the task that printed the lines")] = ""
    lines: Annotated[tuple[str, ...], Meta(description="the last printed lines")] = ()
    options: Annotated[str, Meta(description="options of the rerun that it advises")] = ""
    at: Annotated[float, Meta(description="when it happened")]
    noted_at: Annotated[float, Meta(description="when it was seen")]
    state: DeliveryState = DeliveryState.PENDING
    attempts: Annotated[int, Meta(ge=0, description="number of attempts to send it")] = 0
    next_at: Annotated[float, Meta(description="time of the next attempt")] = 0.0
    settled_at: (
        Annotated[float, Meta(description="time at which it was sent or given up")] | None
    ) = None
    problem: Annotated[str, Meta(description="why the last attempt failed")] = ""

    @property
    def key(self) -> DeliveryKey:
        """The key that identifies the message among all messages."""
        return self.rule_uid, self.uid, self.event

    @property
    def is_test(self) -> bool:
        """Whether a user requested this delivery with `notify test`; it is tried only once."""
        return self.event.startswith(TEST_EVENT)


DeliveryKey = tuple[str, str, str]
"""The identity of a delivery: the uid of the rule, the uid of the run, and the key of the event."""
TEST_EVENT = "test-"


class TestRequest(Model, frozen=True, kw_only=True):
    """A user's request to test a rule, for the process that sends messages."""

    __test__: ClassVar[bool] = False  # pytest collects nothing here

    id: Annotated[str, Meta(max_length=36, description="a random id; empty: no test")] = ""
    rule: Annotated[str, Meta(description="the rule's uid")] = ""
    at: Annotated[float, Meta(description="when it was asked for")] = 0.0


class Deliveries(Model, frozen=True, kw_only=True):
    """All deliveries of one user."""

    deliveries: tuple[Delivery, ...] = ()
    forgotten_until: Annotated[
        float, Meta(description="events up to this time are handled and no longer kept")
    ] = 0.0
    high: Annotated[
        dict[str, float],
        Meta(description="kinds of hours that are nearly used up, with the time since when"),
    ] = field(default_factory=dict)
