"""Whether a name is there, asked so that no name server keeps "there is no such name" for others.

CoreDNS keeps an answer by name and type of record, with plain `cache 30` for half a minute. So each
question is of another type that nobody has: the answer is empty either way, but its code says
whether the name exists, and the question for the address is asked only once it does.
Standard library only, Python 3.8 syntax.

Ref: https://www.rfc-editor.org/rfc/rfc1035 section 4.1, the message
Ref: https://www.rfc-editor.org/rfc/rfc6895 section 3.1, the types from 61440 on that are not given
Ref: https://coredns.io/plugins/cache/
"""

from __future__ import annotations

import random
import struct

RESOLV = "/etc/resolv.conf"
PORT = 53
SECONDS = 1.0
"""How long an answer may take."""
PATIENCE = 3
"""Questions in a row without an answer, as packets get lost while a pod's network is made, after
which the resolver has to find out itself.
"""
TYPES = (61440, 65534)
NO_ERROR, NO_NAME, SILENCE = 0, 3, -1
ALWAYS = "kubernetes.default"
"""A name that every cluster has: who denies it does not understand the question."""
_understood: dict[str, bool] = {}
"""The name servers of which it is known whether they understand."""
_silent: dict[str, int] = {}
"""How many questions in a row each has not answered."""


def exists(name: str) -> bool | None:
    """Whether a name of this namespace, such as `digits-2-ps-0.digits-2`, has an address; None when
    nobody says so, or when it is another kind of name.
    """
    server, domain = _asked()
    if not server or not domain or name.count(".") > 1:
        return None
    if server not in _understood:
        code = _code(f"{ALWAYS}.{domain.partition('.')[2]}", server)
        if code == SILENCE:
            if _waits(server):
                return False
            _understood[server] = False  # or each name would cost that long
        elif code != NO_ERROR:
            return None
        else:
            _understood[server] = True
    if not _understood[server]:
        return None
    code = _code(f"{name}.{domain}", server)
    if code == SILENCE and _waits(server):
        return False
    return {NO_ERROR: True, NO_NAME: False}.get(code)


def _waits(server: str) -> bool:
    """Whether a server that did not answer is asked again."""
    _silent[server] = _silent.get(server, 0) + 1
    return _silent[server] < PATIENCE


def _asked() -> tuple[str, str]:
    """The first name server, and the domain of the pod's namespace; empty where it is no pod's."""
    server = domain = ""
    try:
        with open(RESOLV) as said:
            lines = [line.split() for line in said]
    except OSError:
        return "", ""
    for word, *values in filter(None, lines):
        if word == "nameserver" and values:
            server = server or values[0]
        elif word == "search":
            domain = next((each for each in values if each.split(".")[1:2] == ["svc"]), "")
    return server, domain


def _code(name: str, server: str) -> int:
    """The code of the answer, SILENCE for none."""
    import socket

    number = random.randrange(1 << 16)
    labels = b"".join(struct.pack("!B", len(each)) + each.encode() for each in name.split("."))
    question = struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + labels
    question += struct.pack("!B2H", 0, random.randint(*TYPES), 1)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.settimeout(SECONDS)
            asking.connect((server, PORT))
            asking.send(question)
            answer = asking.recv(4096)
    except OSError:
        return SILENCE
    if len(answer) < 4 or answer[:2] != question[:2]:
        return SILENCE
    _silent[server] = 0
    return answer[3] & 0xF
