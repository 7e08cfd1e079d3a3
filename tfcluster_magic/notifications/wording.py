"""The text of a message, and the request that each kind of receiver expects. Pure.

Texts of users and programs are escaped: no receiver interprets them as markup or as a mention that
notifies somebody. Sources for the formats of the requests: docs.slack.dev (incoming webhooks),
open.feishu.cn and open.dingtalk.com (custom bots), developer.work.weixin.qq.com (group bots).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

import msgspec

from ..errors import last_overwrite, program_lines, strip_controls
from ..i18n import _, language
from ..spec import API_VERSION
from . import LAB_ADDRESS, Delivery, NotificationRule, Occasion, Webhook, WebhookFormat

MOST_LINES, LINES_LENGTH = 10, 1500
"""A pair: the maximum number of printed lines in a message, and the maximum number of characters in
these lines.
"""
MOST_BYTES = {
    WebhookFormat.WECOM: 2048,
    WebhookFormat.SLACK: 8000,
    WebhookFormat.FEISHU: 8000,
    WebhookFormat.DINGTALK: 8000,
}
"""Maximum bytes of a message's text for each kind of receiver. WeCom refuses longer texts. The
others would accept 20 kB.
"""


TEST = "test"
"""The occasion of a message that `notify test` sends, so that a receiver does not act on it."""


@dataclass(frozen=True)
class Notification:
    """A message to one receiver. `key` is the same in each attempt, so that a receiver can drop
    repetitions.
    """

    key: str
    occasion: str
    about: str
    title: str
    sentence: str
    at: float
    task: str = ""
    lines: tuple[str, ...] = ()
    link: str = ""
    command: str = ""
    language: str = "en"

    def text(self, most: int | None = None) -> str:
        """Return the whole text of the message. `most` limits its bytes: the oldest printed lines
        are left out, then the sentence is cut.
        """
        lines = list(self.lines)
        while most is not None and lines and len(self._text(lines).encode()) > most:
            del lines[0]
        found = self._text(lines)
        if most is None or len(found.encode()) <= most:
            return found
        rest = self._tail()
        room = max(0, most - len(rest.encode()) - 5)
        head = "\n".join(part for part in (self.title, self.sentence) if part)
        return head.encode()[:room].decode(errors="ignore") + "…\n" + rest

    def _text(self, lines: Sequence[str]) -> str:
        parts = [self.title, self.sentence]
        if lines:
            with language(self.language):
                heading = _("last lines of {task}:") if self.task else _("last lines:")
                parts.append(heading.format(task=self.task))
            parts += [f"  {line}" for line in lines]
        return "\n".join(part for part in (*parts, self._tail()) if part)

    def _tail(self) -> str:
        return "\n".join(part for part in (self.link, self.command) if part)


def printed_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines of a program's output for a message, without TensorFlow's own log."""
    shown = [strip_controls(last_overwrite(line)).rstrip() for line in lines]
    kept = [line[-300:] for line in program_lines(shown) if line.strip()]
    del kept[:-MOST_LINES]
    while sum(map(len, kept)) > LINES_LENGTH:
        del kept[0]
    return tuple(kept)


def compose(delivery: Delivery, rule: NotificationRule) -> Notification:
    """Return the message of a delivery."""
    link = rule.lab if LAB_ADDRESS.fullmatch(rule.lab) else ""
    if link and delivery.uid:
        name = urllib.parse.quote(delivery.about)
        link = f"{link.rstrip('/')}?tfcluster=run:{name}"
    identity = "\0".join((*delivery.key, delivery.about))
    return Notification(
        key=hashlib.sha256(identity.encode()).hexdigest()[:32],
        occasion=TEST if delivery.is_test else delivery.occasion.value,
        about=delivery.about,
        title=delivery.title,
        sentence=delivery.sentence,
        at=delivery.at,
        task=delivery.task,
        lines=delivery.lines if rule.output else (),
        link=link,
        command=_command(delivery),
        language=rule.language,
    )


def _command(delivery: Delivery) -> str:
    """Return the command that the message advises its reader to type."""
    if delivery.occasion is Occasion.BUDGET:
        return "tfcluster hours"
    if delivery.occasion is Occasion.SCHEDULE_PAUSED:
        # the owner cannot resume a schedule that an administrator paused
        verb = "show" if delivery.locked else "resume"
        return f"tfcluster schedule {verb} {delivery.about}"
    if delivery.occasion is Occasion.NOT_LAUNCHED:
        return f"tfcluster schedule history {delivery.about}"
    if not delivery.about:
        return ""
    if delivery.event != "end":
        return f"tfcluster status {delivery.about}"
    return f"tfcluster rerun {delivery.about} {delivery.options}".rstrip()


# -- webhooks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WebhookRequest:
    """The HTTP request that posts a message to a webhook. The URL is secret, so `repr` hides it."""

    url: str
    body: bytes

    def __repr__(self) -> str:
        return "WebhookRequest(…)"


def webhook_request(message: Notification, webhook: Webhook, now: float) -> WebhookRequest:
    """Return the request that posts a message; signatures are made for the time `now`."""
    text, url = message.text(MOST_BYTES.get(webhook.format)), webhook.url
    body: dict[str, Any]
    match webhook.format:
        case WebhookFormat.SLACK:
            body = {"text": _for_slack(text), "mrkdwn": False, "unfurl_links": False}
        case WebhookFormat.FEISHU:
            body = {"msg_type": "text", "content": {"text": _unmentioned(text)}}
            if webhook.secret:
                stamp = f"{now:.0f}"
                sign = _signature(f"{stamp}\n{webhook.secret}".encode(), b"")
                body |= {"timestamp": stamp, "sign": sign}
        case WebhookFormat.DINGTALK:
            body = {
                "msgtype": "text",
                "text": {"content": text},
                "at": {"atMobiles": [], "atUserIds": [], "isAtAll": False},
            }
            if webhook.secret:
                stamp = f"{now * 1000:.0f}"
                sign = _signature(webhook.secret.encode(), f"{stamp}\n{webhook.secret}".encode())
                query = urllib.parse.urlencode({"timestamp": stamp, "sign": sign})
                url += ("&" if urllib.parse.urlsplit(url).query else "?") + query
        case WebhookFormat.WECOM:
            most = MOST_BYTES[WebhookFormat.WECOM]
            while most > 0 and len(_unmentioned(text).encode()) > MOST_BYTES[WebhookFormat.WECOM]:
                most -= 32  # leaves space for the invisible spaces that `_unmentioned` inserts
                text = message.text(most)
            cut = _unmentioned(text).encode()[: MOST_BYTES[WebhookFormat.WECOM]]
            body = {"msgtype": "text", "text": {"content": cut.decode(errors="ignore")}}
        case WebhookFormat.JSON:
            body = _document(message)
    return WebhookRequest(url, msgspec.json.encode(body))


def _document(message: Notification) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Notification",
        "id": message.key,
        "occasion": message.occasion,
        "about": message.about,
        "at": message.at,
        "title": message.title,
        "message": message.sentence,
        "task": message.task,
        "lines": list(message.lines),
        "link": message.link,
        "command": message.command,
        "text": message.text(),
    }


def _signature(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def _for_slack(text: str) -> str:
    """Escape the characters of links and mentions in Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unmentioned(text: str) -> str:
    """Break mentions of Feishu (`<at …>`) and WeCom (`<@…>`) by an invisible space."""
    return text.replace("<at", "<\u200bat").replace("<@", "<\u200b@")


def refusal(answer: Mapping[str, Any], kind: WebhookFormat) -> str:
    """Return a receiver's reason for refusing a message, uncut; empty if it accepted the message.

    A refusal has the HTTP status 200, too. Feishu puts the reason into `code` and `msg` (older bots
    into `StatusCode` and `StatusMessage`), DingTalk and WeCom into `errcode` and `errmsg`.
    """
    names = {
        WebhookFormat.FEISHU: (("code", "StatusCode"), ("msg", "StatusMessage")),
        WebhookFormat.DINGTALK: (("errcode",), ("errmsg",)),
        WebhookFormat.WECOM: (("errcode",), ("errmsg",)),
    }.get(kind)
    if names is None:
        return ""
    code = next((answer[name] for name in names[0] if name in answer), None)
    if code == 0:
        return ""
    said = next((answer[name] for name in names[1] if name in answer), "")
    return " ".join(f"{'' if code is None else code} {said}".split()) or "?"


# -- mail ------------------------------------------------------------------------------------------


def mail(message: Notification, sender: str, recipient: str) -> EmailMessage:
    """Return the mail of a message. Its Message-ID is the same for each attempt."""
    found = EmailMessage(policy=SMTP)
    found["From"], found["To"] = sender, recipient
    found["Subject"] = " ".join(f"TFCluster: {message.title}".split())
    found["Date"] = format_datetime(datetime.fromtimestamp(message.at, timezone.utc))
    found["Message-ID"] = f"<{message.key}@tfcluster.invalid>"
    found["Auto-Submitted"] = "auto-generated"
    found.set_content(message.text())
    return found
