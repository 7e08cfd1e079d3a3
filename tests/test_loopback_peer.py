"""A guarded server takes the connections of its own account and of root, and of nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tfcluster_magic import loopback

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several accounts")
OWNER, NEIGHBOUR = 65534, 65533
IMPORTS = "import encodings.idna, os, socket, sys"
BECOME = f"{IMPORTS}; os.geteuid() or os.setgroups([]); os.setresuid(*3 * [int(sys.argv[1])])"
SERVER = f"""
{BECOME}
address, family = sys.argv[2], socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
dual = family == socket.AF_INET6 and sys.argv[3] == "dual"
server = socket.create_server((address, 0), family=family, dualstack_ipv6=dual)
print(server.getsockname()[1], flush=True)
sys.stdin.readline()
while True:
    connection, _address = server.accept()
    connection.sendall(b"welcome")
    print("served", flush=True)
"""
CLIENT = f"""
{BECOME}
with socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=90) as connection:
    try: print(connection.recv(100).decode(errors="replace"))
    except ConnectionResetError: pass
"""
HASTY = f"""
{BECOME}
with socket.create_connection((sys.argv[2], int(sys.argv[3]))) as connection:
    connection.sendall(b"code to run")
"""


def python(script: str, account: int, *arguments: str) -> list[str]:
    """A Python that becomes this account; it starts as root, which can read our environment."""
    return [sys.executable, "-I", "-S", "-c", script, str(account), *arguments]


def said(host: str, port: str, account: int) -> str:
    """What an account hears from the server."""
    command = python(CLIENT, account, host, port)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout.strip()


@contextmanager
def serving(address: str, kind: str = "single") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A guarded server of OWNER and its port; it takes connections after a line on its input."""
    guard = loopback.guard_path()
    assert guard, "the package is installed without its guard"
    command = python(SERVER, OWNER, address, kind)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env={"LD_PRELOAD": guard}, stdin=pipe, stdout=pipe, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server, server.stdout.readline().strip()
        finally:
            server.kill()


def begin(server: subprocess.Popen[str]) -> None:
    """Let it take connections."""
    assert server.stdin is not None
    server.stdin.write("go\n")
    server.stdin.flush()


@pytest.mark.parametrize(
    ("address", "kind", "host"),
    [("0.0.0.0", "single", "127.0.0.1"), ("::", "dual", "127.0.0.1"), ("::", "single", "::1")],
)
def test_only_its_own_account_and_root_are_let_in(address: str, kind: str, host: str) -> None:
    """A server that asked for every address hears its own account and root; a neighbour on the
    machine gets nothing, and the next of its own is served.
    """
    with serving(address, kind) as (server, port):
        begin(server)
        heard = [said(host, port, account) for account in (OWNER, NEIGHBOUR, 0, NEIGHBOUR, OWNER)]
        assert heard == ["welcome", "", "welcome", "", "welcome"]


def test_a_server_that_named_its_address_lets_in_whom_it_likes() -> None:
    """What a user opens on 127.0.0.1 on purpose is as it always was."""
    with serving("127.0.0.1") as (server, port):
        begin(server)
        assert said("127.0.0.1", port, NEIGHBOUR) == "welcome"


def test_who_sends_and_is_gone_is_not_let_in() -> None:
    """A neighbour who has closed its end before the server looks is refused as well: the kernel's
    list does not tell whose such an end was.
    """
    with serving("0.0.0.0") as (server, port):
        command = python(HASTY, NEIGHBOUR, "127.0.0.1", port)
        subprocess.run(command, check=True, timeout=120)
        begin(server)
        assert said("127.0.0.1", port, OWNER) == "welcome"
        server.kill()
        assert server.stdout is not None
        assert server.stdout.read() == "served\n", "the first was served, too"
