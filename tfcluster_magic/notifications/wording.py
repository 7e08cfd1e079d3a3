"""The message of a notification: its text, and what each kind of receiver expects. Pure.

Text of users and programs is data everywhere: no receiver reads it as markup, and nobody is
mentioned by it. Sources for the shapes: docs.slack.dev (incoming webhooks), open.feishu.cn and
open.dingtalk.com (custom bots), developer.work.weixin.qq.com (group bots).
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

from ..errors import last_overwrite, strip_controls
from ..i18n import _, language
from ..spec import API_VERSION, TFCluster
from . import Delivery, NotificationRule, Occasion, Webhook, WebhookFormat

MOST_LINES, LINES_LENGTH = 10, 1500
"""Last lines of output in a message, and their characters."""
MOST_BYTES = {
    WebhookFormat.WECOM: 2048,
    WebhookFormat.SLACK: 8000,
    WebhookFormat.FEISHU: 8000,
    WebhookFormat.DINGTALK: 8000,
}
"""Bytes of a text that a receiver takes; WeCom refuses more, the others take 20 kB at least."""


@dataclass(frozen=True)
class Notification:
    """A message to one receiver.

    `key` is the same for each attempt; receivers may drop what they have by it.
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
        """Return the whole message; with `most` at most so many bytes, by fewer lines of output."""
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


def compose(
    delivery: Delivery,
    rule: NotificationRule,
    cluster: TFCluster | None = None,
    lines: Sequence[str] = (),
    task: str = "",
) -> Notification:
    """Return the message of a delivery.

    Args:
        delivery: what happened.
        rule: whose message it is.
        cluster: the run that it is about, if it is about one.
        lines: the last lines that `task` printed; they are left out if the rule says so.
        task: the task whose lines they are.
    """
    printed = [strip_controls(last_overwrite(line)).rstrip() for line in lines]
    kept = [line[-300:] for line in printed if line.strip()][-MOST_LINES:] if rule.output else []
    while sum(map(len, kept)) > LINES_LENGTH:
        del kept[0]
    link = ""
    if rule.lab and cluster is not None:
        name = urllib.parse.quote(cluster.metadata.name)
        link = f"{rule.lab.rstrip('/')}?tfcluster=run:{name}"
    return Notification(
        key=hashlib.sha256("\0".join((*delivery.key, delivery.about)).encode()).hexdigest()[:32],
        occasion=delivery.occasion.value,
        about=delivery.about,
        title=delivery.title,
        sentence=delivery.sentence,
        at=delivery.at,
        task=task if kept else "",
        lines=tuple(kept),
        link=link or rule.lab,
        command=_command(delivery),
        language=rule.language,
    )


def _command(delivery: Delivery) -> str:
    """Return the command to type next."""
    if delivery.occasion is Occasion.BUDGET:
        return "tfcluster hours"
    if delivery.occasion is Occasion.SCHEDULE_PAUSED:
        return f"tfcluster schedule resume {delivery.about}"
    ended = delivery.event == "end"
    return f"tfcluster {'rerun' if ended else 'status'} {delivery.about}" if delivery.about else ""


# -- webhooks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WebhookRequest:
    """The request for a message: the URL, which is secret, and the body."""

    url: str
    body: bytes

    def __repr__(self) -> str:
        return "WebhookRequest(…)"


def webhook_request(message: Notification, webhook: Webhook, now: float) -> WebhookRequest:
    """Return the request that posts a message; `now` is the time of signatures."""
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
                most -= 32  # the invisible spaces count, too
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
    """Escape what Slack reads as a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unmentioned(text: str) -> str:
    """Part what Feishu (`<at …>`) and WeCom (`<@…>`) read as a mention by an invisible space."""
    return text.replace("<at", "<\u200bat").replace("<@", "<\u200b@")


def refusal(answer: Mapping[str, Any], kind: WebhookFormat) -> str:
    """Return what a receiver says in a successful answer about a message that it did not take;
    empty if it took it.

    Feishu answers `code` and `msg`, older bots `StatusCode`; DingTalk and WeCom answer `errcode`
    and `errmsg`: all with the HTTP status 200.
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
    return " ".join(f"{'' if code is None else code} {said}".split())[:200] or "?"


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
