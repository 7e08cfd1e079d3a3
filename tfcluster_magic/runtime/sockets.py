"""TCP sockets as the kernel lists them: listeners, connections and owners.

Ports are not checked by connecting: an attempt to connect to a port without a listener can connect
to itself, and then the server cannot get its port. Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED = "01"
LISTEN = "0A"
# <linux/netlink.h>, <linux/sock_diag.h>, <net/tcp_states.h>
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR = 2
NLMSG_DONE = 3
TCP_LISTEN = 10
# Bit mask of all states except TIME_WAIT, SYN_RECV and LISTEN (and bit 0, which is no state).
CONNECTED = 0xFFF & ~(1 | 1 << 3 | 1 << 6 | 1 << TCP_LISTEN)
# <linux/inet_diag.h>: the attribute with struct tcp_info, and the size of struct inet_diag_msg
INET_DIAG_INFO = 2
INET_DIAG_MSG = 72
V4_IN_V6 = bytes(10) + b"\xff\xff"


class Socket:
    """One row of the kernel's tables: addresses (4 or 16 bytes) and ports of both ends, state,
    owner and inode of a socket.
    """

    __slots__ = ("inode", "local", "local_address", "remote", "remote_port", "state", "uid")

    def __init__(self, row: str) -> None:
        part = row.split()
        local, _, local_port = part[1].rpartition(":")
        remote, _, remote_port = part[2].rpartition(":")
        self.local_address = _address(local)
        self.local = int(local_port, 16)
        self.remote = _address(remote)
        self.remote_port = int(remote_port, 16)
        self.state = part[3]
        self.uid = int(part[7])
        self.inode = part[9]


def _address(hexadecimal: str) -> bytes:
    # The kernel writes an address in hexadecimal, as words of 32 bits in this machine's byte order.
    # An IPv4 address that is mapped to IPv6 is returned as IPv4.
    words = [hexadecimal[i : i + 8] for i in range(0, len(hexadecimal), 8)]
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return packed[12:] if packed.startswith(V4_IN_V6) else packed


def touching(port: int) -> list[Socket]:
    """Return every TCP socket with this port at either end; for port 0, every listening socket."""
    found: list[Socket] = []
    end = f":{port:04X} "  # a listening socket has port 0 at its other end
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as file:
                found += [Socket(row) for row in file if end in row]
        except OSError:
            # this machine has no v6
            continue
    return found


def visible() -> bool:
    """Return whether this system has the kernel's tables of sockets (/proc/net/tcp)."""
    return os.path.exists(TABLES[0])


def owners(connected: socket.socket) -> set[int]:
    """Return the ids of the users whose programs may read what is sent on a connection to this
    machine's loopback address.

    These are the owners of the listeners at the peer's address, and the owner of the process that
    accepted the connection. The set is empty if the kernel does not list them. Call this after
    connecting. Each table of the kernel lists listeners before connections. So a connection that is
    accepted during the search is found in the row of its listener or in a row of its own.
    """
    peer, here = connected.getpeername(), connected.getsockname()
    address, ours = (_packed(end[0]) for end in (peer, here))
    found: set[int] = set()
    listens = False
    for row in touching(peer[1]):
        if row.local != peer[1]:
            continue
        if row.state == LISTEN and row.local_address in (address, bytes(4), bytes(16)):
            listens = True
            found.add(row.uid)
        elif (row.remote, row.remote_port) == (ours, here[1]):
            found.add(row.uid)
    return found if listens else set()


def _packed(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    return packed[12:] if packed.startswith(V4_IN_V6) else packed


def listeners(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on a port."""
    return {inode for inode, at in _every_listener(port).items() if at == port}


def listening(pids: list[int]) -> set[int]:
    """Return the ports on which these processes listen."""
    owned = {inode for pid in pids for inode in inodes(pid)}
    return {port for inode, port in _every_listener(0).items() if inode in owned}


def _every_listener(port: int) -> dict[str, int]:
    """Return the sockets that listen on `port`, or on any port if it is 0: the ports by inode."""
    try:
        return {
            inode: at
            for family in (socket.AF_INET, socket.AF_INET6)
            for inode, at in _listening(family, port)
        }
    except (OSError, AttributeError):
        # This system lacks the netlink family. The tables in /proc have the same data, but take 30
        # times longer to read.
        return {each.inode: each.local for each in touching(port) if each.state == LISTEN}


def _listening(family: int, port: int) -> list[tuple[str, int]]:
    """Return (inode, port) of each socket that listens on `port`, or on any port if it is 0.
    `family` is IPv4 or IPv6. sock_diag(7) lists only listening sockets, which takes 0.3 ms.
    """
    # Offsets in struct inet_diag_msg: the port at 4, the inode at 68.
    found = []
    for message in _diagnosed(family, port, 1 << TCP_LISTEN, 0):
        at = struct.unpack_from(">H", message, 4)[0]
        if port in (0, at):
            found.append((str(struct.unpack_from("=I", message, 68)[0]), at))
    return found


def _diagnosed(family: int, port: int, states: int, extensions: int) -> Iterator[bytes]:
    """Yield a `struct inet_diag_msg` with its attributes for each TCP socket in these states.
    Raises OSError or AttributeError if this system lacks sock_diag(7).
    """
    # struct inet_diag_req_v2: family, protocol, extensions, padding, states, id of the socket
    wanted = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, extensions, states)
    wanted += struct.pack(">HH", port, 0) + bytes(44)
    header = struct.pack("=IHHII", 16 + len(wanted), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as asked:
        asked.send(header + wanted)
        while True:
            answer = asked.recv(1 << 16)
            while answer:
                length, kind = struct.unpack_from("=IH", answer)
                if kind == NLMSG_ERROR:
                    raise OSError("sock_diag refused")
                if kind == NLMSG_DONE:
                    return
                yield answer[16:length]
                answer = answer[(length + 3) & ~3 :]


def traffic(inodes: set[str]) -> dict[str, tuple[int, int]]:
    """Return (received, sent) bytes of TCP sockets by inode. Sent bytes count once the peer has
    acknowledged them. Raises OSError or AttributeError if the kernel does not report these numbers.
    """
    found: dict[str, tuple[int, int]] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        for message in _diagnosed(family, 0, CONNECTED, 1 << (INET_DIAG_INFO - 1)):
            inode = str(struct.unpack_from("=I", message, 68)[0])
            if inode in inodes:
                found[inode] = _tcp_bytes(message)
    return found


def _tcp_bytes(message: bytes) -> tuple[int, int]:
    """Return tcpi_bytes_received and tcpi_bytes_acked of the `struct tcp_info` in a message."""
    at = INET_DIAG_MSG
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == INET_DIAG_INFO and length >= 4 + 136:
            acked, received = struct.unpack_from("=QQ", message, at + 4 + 120)
            return received, acked
        at += max(4, (length + 3) & ~3)
    return 0, 0


def inodes(pid: int) -> set[str]:
    """Return the inodes of the sockets that a process has open; empty if reading them is not
    permitted.
    """
    found: set[str] = set()
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        # The process has ended, or belongs to another user.
        return found
    for name in names:
        try:
            link = os.readlink(os.path.join(folder, name))
        except OSError:
            # The descriptor was closed after the listing.
            continue
        if link.startswith("socket:["):
            found.add(link[8:-1])
    return found
