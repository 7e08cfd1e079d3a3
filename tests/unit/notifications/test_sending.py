"""Delivery of messages, which go only to receivers that the policy allows, in the receiver's
format.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import ipaddress
import json
import socket
import socketserver
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.message_receiver import LOOPBACK, Receiver, receiver

from tfcluster_magic.notifications import (
    Delivery,
    NotificationPolicy,
    NotificationRule,
    Occasion,
    SmtpServer,
    Webhook,
    WebhookFormat,
)
from tfcluster_magic.notifications.sending import (
    MOST_ADDRESSES,
    NotDelivered,
    address_mistake,
    network_mistake,
    post,
    send_mail,
)
from tfcluster_magic.notifications.wording import Notification, compose, mail, webhook_request

__all__ = ["receiver"]  # a fixture used by the tests below
TOKEN = "tok-1234567"
MESSAGE = Notification(
    key="k1",
    occasion="failed",
    about="digits-2",
    title="digits-2 failed",
    sentence='<at user_id="all"> & <@all> <!channel>',
    at=1.0,
    task="worker-0",
    lines=tuple(f"line {n} " + "x" * 200 for n in range(10)),
    link="https://hub.example/user/me/lab?tfcluster=run:digits-2",
    command="tfcluster rerun digits-2",
)


def body(kind: WebhookFormat, **more: str) -> dict[str, object]:
    hook = Webhook(url="https://example.com/h?access_token=abc", format=kind, **more)
    return json.loads(webhook_request(MESSAGE, hook, 1700000000.0).body)  # type: ignore[no-any-return]


def test_each_receiver_gets_its_shape_and_mentions_nobody() -> None:
    """Slack, Feishu, DingTalk and WeCom each get the text in their own field, and the text mentions
    nobody.
    """
    slack = str(body(WebhookFormat.SLACK)["text"])
    assert "&lt;!channel&gt;" in slack
    feishu = body(WebhookFormat.FEISHU)
    assert feishu["msg_type"] == "text"
    assert "<at" not in feishu["content"]["text"]  # type: ignore[index]
    ding = body(WebhookFormat.DINGTALK)
    assert (ding["msgtype"], ding["at"]["isAtAll"]) == ("text", False)  # type: ignore[index]
    wecom = body(WebhookFormat.WECOM)["text"]["content"]  # type: ignore[index]
    assert "<@" not in wecom
    assert len(wecom.encode()) <= 2048
    assert wecom.endswith(MESSAGE.command)
    document = body(WebhookFormat.JSON)
    assert (document["kind"], document["id"]) == ("Notification", "k1")


def test_a_long_message_for_wecom_is_cut() -> None:
    """A message is quickly shortened to the limit, even if its link is longer than the limit."""
    hook = Webhook(url="https://example.com/h", format=WebhookFormat.WECOM)
    long = dataclasses.replace(MESSAGE, link="https://example.com/" + "x" * 3000)
    made = json.loads(webhook_request(long, hook, 1.0).body)
    assert len(made["text"]["content"].encode()) <= 2048


def test_feishu_and_dingtalk_messages_are_signed() -> None:
    """If a rule has a secret, messages are signed with it as the vendors document: for Feishu, the
    signature is in the body, for DingTalk in the query of the URL.
    """
    feishu = body(WebhookFormat.FEISHU, secret="word")
    right = hmac.new(b"1700000000\nword", b"", hashlib.sha256).digest()
    assert feishu["sign"] == base64.b64encode(right).decode()
    hook = Webhook(
        url="https://example.com/h?access_token=abc", format=WebhookFormat.DINGTALK, secret="word"
    )
    url = webhook_request(MESSAGE, hook, 1700000000.0).url
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
    right = hmac.new(b"word", b"1700000000000\nword", hashlib.sha256).digest()
    assert query["sign"] == base64.b64encode(right).decode()
    assert (query["access_token"], query["timestamp"]) == ("abc", "1700000000000")


def test_a_receiver_on_loopback_takes_a_message(receiver: Receiver) -> None:
    """A receiver in a network that the policy names gets messages, even without TLS."""
    post(MESSAGE, Webhook(url=receiver.url), LOOPBACK, time.time())
    assert receiver.bodies[0]["title"] == "digits-2 failed"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
def test_no_private_address_is_reached_unless_the_policy_names_it(
    receiver: Receiver, host: str
) -> None:
    """No name or form of a loopback address receives a message, and errors contain no secret."""
    url = receiver.url.replace("127.0.0.1", host)
    with pytest.raises(NotDelivered) as told:
        post(MESSAGE, Webhook(url=url), NotificationPolicy(), time.time())
    assert receiver.paths == []
    assert "tok-1234567" not in str(told.value)


def test_addresses_that_stand_for_others_and_metadata_stay_closed() -> None:
    """Mapped, NAT64 and 6to4 forms of private addresses count as private; link-local addresses are
    never allowed.
    """
    for text in ("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "10.0.0.1", "100.64.0.1"):
        assert address_mistake(text, NotificationPolicy()), text
    for text in ("fec0::1", "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "192.0.0.192"):
        assert address_mistake(text, NotificationPolicy()), text
    assert not address_mistake("8.8.8.8", NotificationPolicy())
    assert not address_mistake("2001:4860:4860::8888", NotificationPolicy())
    wide = NotificationPolicy(private_networks=("0.0.0.0/0", "10.0.0.0/8"))
    assert address_mistake("169.254.169.254", wide)
    assert not address_mistake("10.0.0.1", wide)
    shared = NotificationPolicy(private_networks=("100.64.0.0/10",))
    assert address_mistake("100.100.100.200", shared)
    assert not address_mistake("100.64.0.1", shared)
    assert network_mistake("169.254.0.0/16")
    assert network_mistake("0.0.0.0/0")
    assert not network_mistake(str(ipaddress.ip_network("10.0.0.0/8")))


def test_redirects_refusals_and_errors_are_no_delivery(receiver: Receiver) -> None:
    """Redirects are not followed, and an error that a receiver reports with status 200 counts as an
    error.
    """
    hook = Webhook(url=receiver.url)
    receiver.status, receiver.headers = 307, {"Location": receiver.url}
    with pytest.raises(NotDelivered, match="redirects are not followed"):
        post(MESSAGE, hook, LOOPBACK, time.time())
    assert len(receiver.paths) == 1
    receiver.status, receiver.headers, receiver.answer = 500, {}, receiver.url.encode()
    with pytest.raises(NotDelivered, match="answered 500") as told:
        post(MESSAGE, hook, LOOPBACK, time.time())
    assert "tok-1234567" not in str(told.value)
    # A message quotes only the start of an answer; here this start ends within the token.
    receiver.answer = b"x" * 95 + b"tok-1234567"
    with pytest.raises(NotDelivered, match="answered 500") as told:
        post(MESSAGE, hook, LOOPBACK, time.time())
    assert "tok" not in str(told.value)
    receiver.status = 200
    for kind, answer in (
        (WebhookFormat.FEISHU, {"code": 19024, "msg": "Key Words Not Found"}),
        (WebhookFormat.DINGTALK, {"errcode": 310000, "errmsg": "keywords not in content"}),
        (WebhookFormat.WECOM, {"errcode": 45009, "errmsg": "api freq out of limit"}),
    ):
        receiver.answer = json.dumps(answer).encode()
        with pytest.raises(NotDelivered, match="did not accept"):
            post(MESSAGE, Webhook(url=receiver.url, format=kind), LOOPBACK, time.time())
        long = {key: v if isinstance(v, int) else "x" * 187 + TOKEN for key, v in answer.items()}
        # Only the start of the receiver's reason is quoted; here this start ends within the token.
        receiver.answer = json.dumps(long).encode()
        with pytest.raises(NotDelivered, match="did not accept") as told:
            post(MESSAGE, Webhook(url=receiver.url, format=kind), LOOPBACK, time.time())
        assert "tok" not in str(told.value)
        good = {key: 0 if isinstance(value, int) else "ok" for key, value in answer.items()}
        receiver.answer = json.dumps(good).encode()
        post(MESSAGE, Webhook(url=receiver.url, format=kind), LOOPBACK, time.time())


def test_a_receiver_that_never_answers_is_left(receiver: Receiver) -> None:
    """If a receiver accepts the request but does not answer, the attempt ends at its time limit."""
    receiver.silent = True
    began = time.monotonic()
    with pytest.raises(NotDelivered, match=r"did not answer within 0\.5 seconds"):
        post(MESSAGE, Webhook(url=receiver.url), LOOPBACK, time.time(), timeout=0.5)
    assert time.monotonic() - began < 10


def test_few_addresses_are_tried_and_none_after_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All addresses of a host share the time limit of one attempt, so an attempt takes no longer
    for a host with very many addresses.
    """
    tried = 0
    port = int(receiver.url.split(":")[2].partition("/")[0])
    hook = Webhook(url=f"http://many.example:{port}/hook/{TOKEN}")

    def addresses(ports: Sequence[int]) -> Iterator[tuple[object, ...]]:
        nonlocal tried
        for each in ports:
            tried += 1
            address = ("127.0.0.1", each)
            yield socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address

    with socket.socket() as closed, socket.socket() as full, contextlib.ExitStack() as callers:
        closed.bind(("127.0.0.1", 0))
        ports = [closed.getsockname()[1]] * MOST_ADDRESSES + [port]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: addresses(ports))
        with pytest.raises(NotDelivered, match="cannot be reached"):
            post(MESSAGE, hook, LOOPBACK, time.time())
        assert receiver.paths == []
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # fill the queue of waiting connections, so that no further connection is accepted
        for _caller in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        ports, tried = [full.getsockname()[1]] * MOST_ADDRESSES, 0
        with pytest.raises(NotDelivered, match="did not answer within"):
            post(MESSAGE, hook, LOOPBACK, time.time(), timeout=0.3)
        assert tried <= 2


def test_a_rule_written_by_hand_is_checked() -> None:
    """On Kubernetes, users can write rules that no command has checked. Still, a mail has exactly
    one recipient, whose domain is allowed, and a link that is not a plain URL is left out.
    """
    server = SmtpServer(
        host="127.0.0.1", port=9, sender="t@example.com", recipients=("example.com",)
    )
    for two in (
        "victim@other.com, x@example.com",
        "v@other.com\n,x@example.com",
        "a:;@example.com",
    ):
        with pytest.raises(NotDelivered, match="write one address"):
            send_mail(MESSAGE, two, NotificationPolicy(smtp=server))
    told = Delivery(
        rule="r", rule_uid="u", event="end", uid="1", about="digits-2", occasion=Occasion.FAILED,
        title="t", sentence="s", at=1.0, noted_at=1.0,
    )  # fmt: skip
    for lab in ("https://x\nYour password expired: https://evil", "see https://x", "https://x\0y"):
        rule = NotificationRule(name="r", uid="u", created_at=0.0, on=(), mail_to="x", lab=lab)
        assert compose(told, rule).link == ""
    rule = replace(rule, lab="https://hub.example/lab")
    assert compose(told, rule).link == "https://hub.example/lab?tfcluster=run:digits-2"


def test_mail_needs_a_server_and_an_allowed_domain() -> None:
    """No mail is sent without a mail server, or to a domain that is not allowed; a server that does
    not answer is given up.
    """
    with pytest.raises(NotDelivered, match="no mail server"):
        send_mail(MESSAGE, "me@example.com", NotificationPolicy())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = SmtpServer(
            host="127.0.0.1",
            port=silent.getsockname()[1],
            sender="tfcluster@example.com",
            recipients=("example.com",),
        )
        policy = NotificationPolicy(smtp=server)
        with pytest.raises(NotDelivered, match=r"example\.com only"):
            send_mail(MESSAGE, "me@example.org", policy)
        with pytest.raises(NotDelivered, match="did not answer"):
            send_mail(MESSAGE, "me@example.com", policy, timeout=0.5)


def test_a_mail_server_takes_a_message(tmp_path: Path) -> None:
    """A real SMTP server receives the mail. Its refusals are reported, and no password is sent
    without encryption.
    """
    seen: list[str] = []

    class Conversation(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            data = False
            for raw in self.rfile:
                line = raw.decode().rstrip("\r\n")
                seen.append(line)
                if data:
                    data = line != "."
                    answer = "" if data else "250 taken"
                elif line.upper().startswith("RCPT") and "nobody" in line:
                    answer = "550 no such user"
                else:
                    data = line.upper() == "DATA"
                    answer = "354 go on" if data else "250 fine"
                if answer:
                    self.wfile.write(answer.encode() + b"\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Conversation) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        smtp = SmtpServer(
            host="127.0.0.1",
            port=server.server_address[1],
            sender="tfcluster@example.com",
            security="none",
        )
        send_mail(MESSAGE, "me@example.com", NotificationPolicy(smtp=smtp))
        assert "Subject: TFCluster: digits-2 failed" in seen
        assert "rcpt TO:<me@example.com>" in seen
        with pytest.raises(NotDelivered, match="550: no such user"):
            send_mail(MESSAGE, "nobody@example.com", NotificationPolicy(smtp=smtp))
        (tmp_path / "password").write_text("pass-1234567\n")
        guarded = replace(smtp, username="me", password_file=str(tmp_path / "password"))
        with pytest.raises(NotDelivered, match="without encryption"):
            send_mail(MESSAGE, "me@example.com", NotificationPolicy(smtp=guarded))
        strict = replace(guarded, security="starttls")
        with pytest.raises(NotDelivered, match="STARTTLS"):
            send_mail(MESSAGE, "me@example.com", NotificationPolicy(smtp=strict))
        assert not any("pass-1234567" in line for line in seen)
        server.shutdown()
        thread.join()


def test_a_mail_is_the_same_for_each_attempt() -> None:
    """A mail has one subject line, and an id that is the same for each attempt, so that a second
    copy can be recognized.
    """
    found = mail(MESSAGE, "tfcluster@example.com", "me@example.com")
    assert found["Subject"] == "TFCluster: digits-2 failed"
    assert found["Message-ID"] == "<k1@tfcluster.invalid>"
    assert "tfcluster rerun digits-2" in found.get_content()
