"""TCP as the kernel shows it: who listens on a port, who is connected to it, and which processes own sockets.

Reads /proc only; opens no connection (a connection attempt to a port in the ephemeral range can connect to
itself and then keeps the port from its server). Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os

ESTABLISHED = "01"
LISTEN = "0A"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
# The last 4 bytes of an address are the whole of a v4 one; v4-mapped v6 ones end alike.
ANY = "00000000"


def entries() -> list:
    """(local port, remote address, remote port, state, inode) of every TCP socket in hexadecimal."""
    found = []
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as file:
                rows = file.read().split("\n")[1:-1]
        except OSError:
            continue
        for row in rows:
            part = row.split()
            local, remote = part[1].rpartition(":"), part[2].rpartition(":")
            found.append((int(local[2], 16), remote[0], int(remote[2], 16), part[3], part[9]))
    return found


def can_look() -> bool:
    """Whether this system shows its sockets."""
    return os.path.exists(TABLES[0])


def listeners(port: int) -> set:
    """Inodes of the sockets that listen on a port."""
    return {entry[4] for entry in entries() if entry[0] == port and entry[3] == LISTEN}


def inodes(pid: int) -> set:
    """Inodes of the sockets that a process has open; empty when it may not be looked at."""
    found = set()
    folder = "/proc/%d/fd" % pid
    try:
        for name in os.listdir(folder):
            link = os.readlink(os.path.join(folder, name))
            if link.startswith("socket:["):
                found.add(link[8:-1])
    except OSError:
        # Ended, or another user's.
        pass
    return found


def address(hexadecimal: str) -> str:
    """The last 8 digits of an address of /proc/net/tcp as 127.0.0.1; '' for a real v6 address."""
    if len(hexadecimal) == 32 and not hexadecimal.startswith("0" * 16 + "FFFF0000"):
        return "127.0.0.1" if hexadecimal == "0" * 24 + "01000000" else ""
    tail = hexadecimal[-8:]
    return ".".join(str(int(tail[i : i + 2], 16)) for i in (6, 4, 2, 0))
