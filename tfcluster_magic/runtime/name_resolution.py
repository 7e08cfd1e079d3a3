"""Waiting until the host names of the other tasks have addresses, in spite of DNS caches.

CoreDNS also caches the answer that a name does not exist yet, for each name and record type. With
its usual setting `cache 30`, this answer is repeated for half a minute. So each query asks for a
different unassigned record type. The answer is always empty, but its code says whether the name
exists. The address is asked for only after the name exists. Standard library only, Python 3.8
syntax.

Ref: https://www.rfc-editor.org/rfc/rfc1035 section 4.1, the format of a message
Ref: https://www.rfc-editor.org/rfc/rfc6895 section 3.1, the unassigned types from 61440 on
Ref: https://coredns.io/plugins/cache/
"""

from __future__ import annotations

import random
import struct
import time

from task_config import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds after which a program starts even if names that it does not need are missing, because
# these names may belong to tasks that have ended already.
GO_ON = 30.0
# Seconds before a message about missing names is printed. On Kubernetes, names appear when the last
# task has an address, or ten seconds after the first task has one (`operator/reconcile/`).
NAMES_QUIET_SECONDS = 12.0
SAMPLE = 32
"""Number of names in a random sample. The query for the common parent name (see `UnresolvedNames`)
is sent only after all names of the sample exist. In a smaller cluster, the sample contains all
names.
"""


def wait_for_names(
    hosts: list[str], needed: list[str], patience: float, say: Callable[[str], None]
) -> None:
    """Wait until every host has an address. After GO_ON seconds, wait only until the needed hosts
    have addresses and the common parent name exists.

    Raises ConfigError, with the hosts that have no address, after `patience` seconds.
    """
    names = UnresolvedNames([host for host in hosts if not _is_address(host)], needed)
    if not names.missing:
        return
    started, told = time.monotonic(), False
    while True:
        waited = time.monotonic() - started
        tells = waited > min(NAMES_QUIET_SECONDS, patience / 2) and not told
        late = waited > min(GO_ON, patience)
        names.ask(singly=late, every=tells)
        ends = names.missing and (
            waited > patience or (late and not names.lacks_needed and names.given)
        )
        if ends:
            names.ask(singly=True, every=True)  # the message below lists all missing names
        if not names.missing:
            if told:
                say("every address is there")
            return
        if waited > patience and names.lacks_needed:
            raise ConfigError(f"after {waited:.0f} s there is no address for {names.shown}")
        if ends and not names.lacks_needed:
            say(f"going on without the address of {names.shown}: it has ended, or is not there yet")
            return
        if tells:
            say(f"waiting for the address of {names.shown}")
            told = True
        # A name server does not notify about new names, so ask again after a pause.
        time.sleep(min(2.0, max(0.1, waited / 5)))


class UnresolvedNames:
    """The names that have no address yet.

    If 600 tasks asked for 600 names each, there would be too many queries. The common parent name
    (of a headless Service) has an address for each task, so one answer covers all names. Until the
    parent has all addresses, a task asks only for the first missing name. An incomplete answer may
    be cached as long as an empty one, so the query for the parent is sent only after all names of a
    random sample (SAMPLE names) exist.
    """

    def __init__(self, names: list[str], needed: list[str]) -> None:
        self._needed = set(needed)
        self._count = len(names)
        above = {name.partition(".")[2] for name in names}
        self._above = above.pop() if len(above) == 1 else ""
        self.missing = sorted(names, key=lambda name: name not in self._needed)
        self._sample = random.sample(names, min(SAMPLE, len(names)))

    @property
    def lacks_needed(self) -> bool:
        """Whether a needed name is missing. Needed names come first in `missing`."""
        return bool(self.missing) and self.missing[0] in self._needed

    @property
    def shown(self) -> str:
        """The first three missing names, for a message."""
        more = f" and {len(self.missing) - 3} more" if len(self.missing) > 3 else ""
        return ", ".join(self.missing[:3]) + more

    @property
    def given(self) -> bool:
        """Whether the common parent name exists; also True if the names have no common parent, or
        if nothing is known about it.
        """
        return not self._above or name_exists(self._above) is not False

    def ask(self, singly: bool, every: bool) -> None:
        """Query the addresses of the common parent name if all names of the random sample exist.
        Then ask for the missing names one after the other if `singly` or `every` is true, or if the
        parent has no address. Stop at the first name without an address unless `every` is true.
        """
        together = 0
        if self._above and self._count > 1:
            if self._sampled():
                together = _addresses(self._above)
            elif not singly and not every:
                return
        if together >= self._count:
            self.missing = []
        elif singly or every or not together:
            left = []
            for place, name in enumerate(self.missing):
                if name_exists(name) is not False and _addresses(name):
                    continue
                left.append(name)
                if not every:
                    left += self.missing[place + 1 :]
                    break
            self.missing = left

    def _sampled(self) -> bool:
        while self._sample and name_exists(self._sample[-1]) is not False:
            self._sample.pop()
        return not self._sample


def _addresses(name: str) -> int:
    """Return the number of IPv4 or of IPv6 addresses of a name, whichever is larger."""
    import socket

    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return 0
    kinds = (socket.AF_INET, socket.AF_INET6)
    return max(len({each[4][0] for each in found if each[0] == kind}) for kind in kinds)


def _is_address(host: str) -> bool:
    return host == "localhost" or ":" in host or host.replace(".", "").isdigit()


# ---- whether a name exists ----


RESOLV_CONF = "/etc/resolv.conf"
DNS_PORT = 53
DNS_TIMEOUT = 1.0
"""Maximum seconds to wait for the answer of a name server."""
DNS_TRIES = 3
"""Number of unanswered queries in a row after which only the system's resolver is used. One is not
enough, because packets get lost while a pod's network is being set up.
"""
UNASSIGNED_TYPES = (61440, 65534)
NO_ERROR, NO_NAME, SILENCE = 0, 3, -1
ALWAYS_THERE = "kubernetes.default"
"""A name that exists in every Kubernetes cluster. A name server that does not confirm this name
cannot answer queries for unassigned types.
"""
_understood: dict[str, bool] = {}
"""For each name server: whether it can answer queries for unassigned types."""
_silent: dict[str, int] = {}
"""For each name server: the number of queries in a row without an answer."""


def name_exists(name: str) -> bool | None:
    """Return whether a name of this namespace, such as `digits-2-ps-0.digits-2`, exists; None if
    this is unknown, or if `name` is not such a name.
    """
    server, domain = _name_server()
    if not server or not domain or name.count(".") > 1:
        return None
    if server not in _understood:
        code = _response_code(f"{ALWAYS_THERE}.{domain.partition('.')[2]}", server)
        if code == SILENCE:
            if _asks_again(server):
                return False
            _understood[server] = False  # do not query this server again: each query would time out
        elif code != NO_ERROR:
            return None
        else:
            _understood[server] = True
    if not _understood[server]:
        return None
    code = _response_code(f"{name}.{domain}", server)
    if code == SILENCE and _asks_again(server):
        return False
    return {NO_ERROR: True, NO_NAME: False}.get(code)


def _asks_again(server: str) -> bool:
    """Return whether to ask a server again after it did not answer."""
    _silent[server] = _silent.get(server, 0) + 1
    return _silent[server] < DNS_TRIES


def _name_server() -> tuple[str, str]:
    """Return the first name server and the domain of the pod's namespace; empty outside of pods."""
    server = domain = ""
    try:
        with open(RESOLV_CONF) as said:
            lines = [line.split() for line in said]
    except OSError:
        return "", ""
    for word, *values in filter(None, lines):
        if word == "nameserver" and values:
            server = server or values[0]
        elif word == "search":
            domain = next((each for each in values if each.split(".")[1:2] == ["svc"]), "")
    return server, domain


def _response_code(name: str, server: str) -> int:
    """Ask `server` for `name`; return the code of the answer, or SILENCE if there is no answer."""
    import socket

    number = random.randrange(1 << 16)
    labels = b"".join(struct.pack("!B", len(each)) + each.encode() for each in name.split("."))
    question = struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + labels
    question += struct.pack("!B2H", 0, random.randint(*UNASSIGNED_TYPES), 1)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.settimeout(DNS_TIMEOUT)
            asking.connect((server, DNS_PORT))
            asking.send(question)
            answer = asking.recv(4096)
    except OSError:
        return SILENCE
    if len(answer) < 4 or answer[:2] != question[:2]:
        return SILENCE
    _silent[server] = 0
    return answer[3] & 0xF
