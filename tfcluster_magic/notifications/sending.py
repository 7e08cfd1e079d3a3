"""Delivery of one message, by one POST or one mail, to an address that the policy allows.

The check covers the address of the connection itself, so a name that later resolves to another
address does no harm. Redirects are not followed and proxies are not used. Of the receiver's answer,
only the status and the reason are kept. After the host's name is resolved, an attempt ends within
`TIMEOUT`, whatever the receiver does. The time to resolve the name is limited only by the system.
The text of an error contains no secret.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import smtplib
import socket
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import cast

from .. import state_files
from ..errors import TFClusterError, one_line, strip_controls
from ..i18n import _
from ..program.download import Deadline
from ..quota.policy_file import Wrong
from . import (
    MAIL_ADDRESS,
    NotificationPolicy,
    NotificationRule,
    SmtpServer,
    Webhook,
    WebhookFormat,
)
from .wording import Notification, mail, refusal, webhook_request

TIMEOUT = 20.0
"""Maximum seconds of one attempt to send a message."""
MOST_ADDRESSES = 16
"""Maximum number of a host's IP addresses to which a connection is tried."""
_MOST_ANSWER = 64 * 1024
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_CLOSED = (
    *(ipaddress.ip_network(each) for each in ("169.254.0.0/16", "fe80::/10")),
    *(ipaddress.ip_network(each) for each in ("224.0.0.0/4", "ff00::/8", "fd00:ec2::254/128")),
)
"""Networks that no policy can allow: link-local and multicast networks, and AWS's metadata server.
"""
_METADATA = frozenset(
    ipaddress.ip_address(each)
    for each in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd20:ce::254")
)
"""Metadata servers of other clouds. No policy can allow these addresses, but it may allow a network
that contains them."""
_EMBEDDED = tuple(
    ipaddress.IPv6Network(each)
    for each in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")
)
"""IPv6 networks whose last 32 bits are an IPv4 address."""
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")


class NotDelivered(TFClusterError):
    """A message was not accepted; the text says why, without secrets."""

    http_status = 502


class ReceiverRefused(NotDelivered):
    """The policy does not allow the receiver."""


def network_mistake(text: str) -> str:
    """Return why a policy cannot name this network; empty if it can."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        return str(error)
    for closed in _CLOSED:
        if network.version == closed.version and network.overlaps(closed):
            return _("{network} cannot be allowed: it overlaps with {closed}").format(
                network=text, closed=closed
            )
    return ""


def private_network_mistakes(policy: NotificationPolicy) -> Iterator[Wrong]:
    """Yield the private networks that a policy cannot name."""
    for place, network in enumerate(policy.private_networks):
        if why := network_mistake(network):
            yield Wrong(("privateNetworks", place), why)


def address_mistake(text: str, policy: NotificationPolicy) -> str:
    """Return why a connection to this address is not allowed; empty if it is."""
    found = ipaddress.ip_address(text.partition("%")[0])
    for address in _meant(found):
        closed = address in _METADATA or any(
            address.version == net.version and address in net for net in _CLOSED
        )
        public = address.is_global and (address.version == 4 or address in _PUBLIC_6)
        if closed or not (public or is_private_allowed(address, policy)):
            said = _(
                "{address} is not a public address, and privateNetworks of the policy does not "
                "name its network"
            )
            return said.format(address=found)
    return ""


def host_mistake(host: str, policy: NotificationPolicy) -> str:
    """Return why a webhook cannot go to `host`, if this is an IP address or `localhost`; empty if
    it can. Any other name is checked at each delivery, when it is resolved.
    """
    with contextlib.suppress(ValueError):
        return address_mistake("127.0.0.1" if host == "localhost" else host, policy)
    return ""


def is_private_allowed(address: Address, policy: NotificationPolicy) -> bool:
    """Return whether a private network of the policy contains this address."""
    for text in policy.private_networks:
        with contextlib.suppress(ValueError):
            network = ipaddress.ip_network(text)
            if network.version == address.version and address in network:
                return True
    return False


def _meant(address: Address) -> Iterator[Address]:
    """Yield the address; for an IPv6 address that stands for an IPv4 address, yield the IPv4
    address.
    """
    embedded = None
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if embedded is None and any(address in network for network in _EMBEDDED):
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is None and address.teredo:
            embedded = address.teredo[1]
    if embedded is None:
        yield address
    else:
        yield embedded


def deliver(
    message: Notification,
    rule: NotificationRule,
    policy: NotificationPolicy,
    now: float,
    timeout: float = TIMEOUT,
) -> None:
    """Send a message to the receiver of a rule.

    Raises:
        NotDelivered: the message was not accepted, or the policy does not allow the receiver.
    """
    if rule.webhook is not None:
        post(message, rule.webhook, policy, now, timeout)
    else:
        send_mail(message, rule.mail_to, policy, timeout)


# -- webhooks --------------------------------------------------------------------------------------


def post(
    message: Notification,
    webhook: Webhook,
    policy: NotificationPolicy,
    now: float,
    timeout: float = TIMEOUT,
) -> None:
    """Post a message to a webhook. Raises NotDelivered."""
    with _explained(webhook.shown, webhook.secrets, timeout) as deadline:
        if not policy.allows_host(webhook.host):
            raise ReceiverRefused(
                _("the policy does not allow the host {host}").format(host=webhook.host)
            )
        request = webhook_request(message, webhook, now)
        parts = urllib.parse.urlsplit(request.url)
        secure = parts.scheme == "https"
        sock = _connect(webhook.host, parts.port or (443 if secure else 80), policy, timeout)
        with contextlib.closing(sock):
            deadline.watch(sock)
            if secure:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=webhook.host)
                deadline.watch(sock)
            elif not is_private_allowed(_peer(sock), policy):
                raise NotDelivered(
                    _("with http:// everybody on the network path can read the URL: use https://")
                )
            status, body = _exchange(sock, parts, request.body, message.key)
        _check_answer(status, body, webhook)


def _exchange(
    sock: socket.socket, parts: urllib.parse.SplitResult, body: bytes, key: str
) -> tuple[int, bytes]:
    """Send one request over a connection; return the status and the start of the answer."""
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.sock = sock
    target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    connection.putrequest("POST", target, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", f"{host}:{parts.port}" if parts.port else f"{host}")
    connection.putheader("User-Agent", "tfcluster")
    connection.putheader("Content-Type", "application/json; charset=utf-8")
    connection.putheader("Content-Length", str(len(body)))
    connection.putheader("Idempotency-Key", key)
    connection.putheader("Connection", "close")
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read(_MOST_ANSWER)


def _check_answer(status: int, body: bytes, webhook: Webhook) -> None:
    kind = webhook.format
    if status in range(300, 400):
        raise NotDelivered(
            _("it answered {status} and redirects; redirects are not followed").format(
                status=status
            )
        )
    said = ""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        said = refusal(answer, kind)
        # Cut the text only after removing secrets: a secret that is cut would not be recognized.
        said = scrubbed(said, webhook.secrets)[:200]
    elif kind in (WebhookFormat.FEISHU, WebhookFormat.DINGTALK, WebhookFormat.WECOM):
        said = _("the answer is not a JSON object")
    if status not in range(200, 300):
        said = said or scrubbed(body.decode("utf-8", "replace"), webhook.secrets)[:100]
        raise NotDelivered(
            _("it answered {status}: {said}").format(status=status, said=said)
            if said.strip()
            else _("it answered {status}").format(status=status)
        )
    if said:
        raise NotDelivered(_("it did not accept the message: {said}").format(said=said))


# -- mail ------------------------------------------------------------------------------------------


def send_mail(
    message: Notification, recipient: str, policy: NotificationPolicy, timeout: float = TIMEOUT
) -> None:
    """Send a message through the mail server of the policy. Raises NotDelivered."""
    server = policy.smtp
    if server is None or not policy.allows_recipient(recipient):
        raise ReceiverRefused(mail_mistake(recipient, policy))
    password = _password(server)
    with _explained(f"{server.host}:{server.port}", (password,), timeout) as deadline:
        context = ssl.create_default_context()
        with contextlib.closing(_MailClient(server, deadline, timeout, context)) as client:
            if server.security == "starttls":
                client.starttls(context=context)
                deadline.watch(cast("socket.socket", client.sock))
            client.ehlo_or_helo_if_needed()
            if server.username:
                client.login(server.username, password)
            text = mail(message, server.sender, recipient)
            # Send only to `recipient`, even if the headers contain other addresses.
            client.send_message(text, to_addrs=[recipient])
            with contextlib.suppress(smtplib.SMTPException, OSError):
                client.quit()  # the mail was accepted, so an error here must not send it again


def mail_mistake(recipient: str, policy: NotificationPolicy) -> str:
    """Return why mail cannot go to this address; empty if it can."""
    if not MAIL_ADDRESS.fullmatch(recipient):
        return _("write one address, name@example.com")
    if policy.smtp is None:
        return _("the policy names no mail server (smtp)")
    if not policy.allows_recipient(recipient):
        allowed = ", ".join(policy.smtp.recipients)
        return _("the policy allows mail to {domains} only").format(domains=allowed)
    return ""


def _password(server: SmtpServer) -> str:
    if not server.username or not server.password_file:
        return ""
    if server.security == "none":
        raise NotDelivered(
            _("the policy names a password for a mail server without encryption; use starttls")
        )
    try:
        text = state_files.read_bytes(Path(server.password_file), 4096).decode()
    except (FileNotFoundError, state_files.Unreadable, UnicodeDecodeError):
        raise NotDelivered(_("the password file of the mail server cannot be read")) from None
    return text.partition("\n")[0].rstrip("\r")


class _MailClient(smtplib.SMTP):
    """A connected mail client whose connection ends at the deadline."""

    def __init__(
        self, server: SmtpServer, deadline: Deadline, timeout: float, context: ssl.SSLContext
    ) -> None:
        self._deadline = deadline
        self._tls = context if server.security == "tls" else None
        # By default, smtplib asks DNS for the full name of this machine, which may take long.
        own_name = socket.gethostname()
        super().__init__(server.host, server.port, local_hostname=own_name, timeout=timeout)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        sock = _connect(host, port, None, timeout)
        self._deadline.watch(sock)
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_hostname=host)
            self._deadline.watch(sock)
        return sock


# -- connections and errors ------------------------------------------------------------------------


def _connect(
    host: str, port: int, policy: NotificationPolicy | None, timeout: float
) -> socket.socket:
    """Try the IP addresses of a host in order; connect to the first that the policy allows and that
    answers. Without a policy, every address is allowed. Raises NotDelivered, OSError.
    """
    end = time.monotonic() + timeout
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: Exception = NotDelivered(_("{host} has no address").format(host=host))
    for family, kind, protocol, _name, address in islice(found, MOST_ADDRESSES):
        if time.monotonic() >= end:
            raise TimeoutError
        if policy is not None and (why := address_mistake(str(address[0]), policy)):
            problem = ReceiverRefused(why)
            continue
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(max(0.1, end - time.monotonic()))
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            problem = error
            continue
        sock.settimeout(timeout)
        return sock
    raise problem


def _peer(sock: socket.socket) -> Address:
    found = ipaddress.ip_address(str(sock.getpeername()[0]).partition("%")[0])
    return next(_meant(found))


@contextlib.contextmanager
def _explained(receiver: str, secrets: Sequence[str], timeout: float) -> Iterator[Deadline]:
    """Yield the deadline of an attempt, and convert errors into NotDelivered."""
    deadline, problem = Deadline(timeout), NotDelivered
    try:
        yield deadline
    except NotDelivered as error:
        why, problem = str(error), type(error)
    except ssl.SSLCertVerificationError as error:
        why = _("its certificate is not trusted: {why}").format(why=error.verify_message)
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error
        words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        words = scrubbed(words, secrets)[:200]
        why = _("it answered {status}: {said}").format(status=error.smtp_code, said=words)
    except smtplib.SMTPRecipientsRefused as error:
        code, said = next(iter(error.recipients.values()))
        words = scrubbed(said.decode("utf-8", "replace"), secrets)[:200]
        why = _("it answered {status}: {said}").format(status=code, said=words)
    except (smtplib.SMTPException, http.client.HTTPException, OSError, ValueError) as error:
        if deadline.passed or isinstance(error, TimeoutError):
            why = _("it did not answer within {seconds:g} seconds").format(seconds=timeout)
        else:
            text = str(getattr(error, "strerror", None) or "")
            if isinstance(error, smtplib.SMTPNotSupportedError):
                text = str(error)
            why = _("it cannot be reached: {why}").format(why=text or type(error).__name__)
    else:
        why = ""
    finally:
        deadline.cancel()
    if why:
        raise problem(f"{receiver}: {scrubbed(why, secrets)}")


def scrubbed(text: str, secrets: Sequence[str]) -> str:
    """Return a receiver's text on one line, without secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "…")
            for written in (urllib.parse.quote(secret, safe=""), urllib.parse.unquote(secret)):
                text = text.replace(written, "…")
    return one_line(strip_controls(text))
