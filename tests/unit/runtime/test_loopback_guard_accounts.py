"""A guarded server accepts only the connections of its own account and of root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.guard_clients import BECOME, CLIENT, IMPORTS
from support.loopback_attack import NEIGHBOUR, attack, connect

from tfcluster_magic.spec import task_file

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several accounts")
OWNER = 65534
# The program of a server. Its argument `kind` says how it gets its listening socket, or what it
# lacks: free file descriptors, the right to use netlink, or a name for its account.
SERVER = f"""
{IMPORTS}
address, kind = sys.argv[2:4]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
libc = ctypes.CDLL(None, use_errno=True)
def bound(name):
    made = socket.socket(family)
    assert libc.bind(made.fileno(), name, len(name)) == 0, ctypes.get_errno()
    return made
if kind == "executed" and not sys.argv[4:]:
    made = socket.create_server((address, 0))
    os.dup2(made.fileno(), 100)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", *sys.orig_argv[4:], "again"])
{BECOME}
if kind == "executed":
    server = socket.socket(fileno=100)
elif kind == "without an address":
    server = socket.socket(family)
elif kind == "no family":
    server = bound(struct.pack("=HHI8x", socket.AF_UNSPEC, 0, 0))
elif kind == "short name":
    server = bound(struct.pack("=HHI16x", socket.AF_INET6, 0, 0))
else:
    dual = family == socket.AF_INET6 and kind == "dual"
    server = socket.create_server((address, 0), family=family, dualstack_ipv6=dual)
if kind == "duplicate":
    server = socket.socket(fileno=fcntl.fcntl(server, fcntl.F_DUPFD, 300))
if kind == "passed":
    here, there = socket.socketpair()
    socket.send_fds(here, [b"x"], [server.fileno()])
    server = socket.socket(fileno=socket.recv_fds(there, 1, 1)[1][0])
if kind == "no netlink":  # seccomp: socket(AF_NETLINK) is EPERM
    code = [(0x20, 0, 0, 0), (0x15, 0, 3, {{"x86_64": 41, "aarch64": 198}}[platform.machine()]),
            (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_NETLINK), (0x06, 0, 0, 0x50001),
            (0x06, 0, 0, 0x7FFF0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in code))
    program = struct.pack("@HP", len(code), ctypes.addressof(text))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
    try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    except PermissionError: pass
    else: raise SystemExit("netlink is there")
if kind == "nameless" and libc.unshare(0x10000000):
    raise SystemExit("no user namespaces")
server.listen()
print(server.getsockname()[0], server.getsockname()[1], flush=True)
sys.stdin.readline()
if kind == "one descriptor":
    resource.setrlimit(resource.RLIMIT_NOFILE, (server.fileno() + 2, 4096))
while True:
    try:
        connection, _address = server.accept()
    except OSError:
        print("full", flush=True)
        sys.stdin.readline()
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        continue
    print("served", flush=True)
    try: connection.sendall(b"welcome")
    except OSError: pass
    connection.close()
"""


def python(script: str, account: int, *arguments: str) -> list[str]:
    """Return a command that runs `script` as `account`. Python starts as root, because `account`
    may have no right to read this Python environment; `script` then changes the account.
    """
    return [sys.executable, "-I", "-S", "-c", script, str(account), *arguments]


def said(host: str, port: str, account: int, *half: str) -> str:
    """Return the server's answer to a client of this account; with `half`, the client shuts down
    its sending side first.
    """
    command = python(CLIENT, account, host, port, *half)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout.strip()


@contextmanager
def serving(address: str, kind: str = "single") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start OWNER's guarded server; yield its process and its port. The server accepts connections
    after it has read a line of input.
    """
    guard = task_file.guard_path()
    assert guard, "the package is installed without its guard"
    command = python(SERVER, OWNER, address, kind)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env={"LD_PRELOAD": guard}, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            line = server.stdout.readline().split()
            if not line:
                error = server.stderr.read()
                if "no user namespaces" in error:
                    pytest.skip("an account may not make a user namespace here")
                raise AssertionError(error)
            assert line[0] in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
            yield server, line[1]
        finally:
            server.kill()


def begin(server: subprocess.Popen[str]) -> None:
    """Let the server accept connections."""
    assert server.stdin is not None
    server.stdin.write("go\n")
    server.stdin.flush()


WAYS_IN = [
    ("0.0.0.0", "single", "127.0.0.1"),
    ("::", "dual", "127.0.0.1"),
    ("::", "dual", "::ffff:127.0.0.1"),
    ("::", "single", "::1"),
]


@pytest.mark.parametrize(
    ("address", "kind", "host"),
    [
        *WAYS_IN,
        ("0.0.0.0", "without an address", "127.0.0.1"),
        ("::", "without an address", "127.0.0.1"),
        ("0.0.0.0", "no family", "127.0.0.1"),
        ("::", "short name", "127.0.0.1"),
        ("0.0.0.0", "duplicate", "127.0.0.1"),
        ("0.0.0.0", "executed", "127.0.0.1"),
        ("0.0.0.0", "passed", "127.0.0.1"),
        ("0.0.0.0", "no netlink", "127.0.0.1"),
        ("::", "no netlink", "::1"),
    ],
)
def test_only_its_own_account_and_root_are_let_in(address: str, kind: str, host: str) -> None:
    """A server that asks for every address, however it got its listening socket, listens on
    loopback and answers only its own account and root. A client of another account (NEIGHBOUR) gets
    no answer. The next client of the server's account is served, also if the client has shut down
    its sending side.
    """
    with serving(address, kind) as (server, port):
        begin(server)
        heard = [said(host, port, account) for account in (OWNER, NEIGHBOUR, 0, NEIGHBOUR)]
        assert heard == ["welcome", "", "welcome", ""]
        assert said(host, port, OWNER, "half") == "welcome"
        assert said(host, port, NEIGHBOUR, "half") == ""


@pytest.mark.parametrize("kind", ["single", "duplicate", "passed"])
def test_a_server_that_named_its_address_lets_in_whom_it_likes(kind: str) -> None:
    """A port that a user opens explicitly on 127.0.0.1 stays open to other accounts, however the
    server got the descriptor of its socket.
    """
    with serving("127.0.0.1", kind) as (server, port):
        begin(server)
        assert said("127.0.0.1", port, NEIGHBOUR) == "welcome"


@pytest.mark.parametrize("ending", ["reset", "close"])
@pytest.mark.parametrize(("address", "kind", "host"), [*WAYS_IN, ("::", "no netlink", "::1")])
def test_who_sends_and_is_gone_is_not_let_in(
    address: str, kind: str, host: str, ending: str
) -> None:
    """A neighbour that has disconnected or reset the connection before the accept is refused. The
    bytes that it sent could still be read, but the owner of such a connection is unknown.
    """
    with serving(address, kind) as (server, port):
        connect(NEIGHBOUR, host, int(port), ending, 20, b"code to run")
        begin(server)
        assert said(host, port, OWNER) == "welcome"
        server.kill()
        assert server.stdout is not None
        assert server.stdout.read() == "served\n", "one who was gone was served, too"


def test_nobody_gets_in_while_descriptors_are_used_up() -> None:
    """With only one descriptor left, the guard cannot ask the kernel who has connected. A neighbour
    is refused, and the owner's connection waits until descriptors are free again.
    """
    with serving("0.0.0.0", "one descriptor") as (server, port):
        connect(NEIGHBOUR, "127.0.0.1", int(port), "close", 20, b"code to run")
        begin(server)
        assert server.stdout is not None
        assert server.stdout.readline() == "full\n", "a neighbour was served"
        waiting = subprocess.Popen(
            python(CLIENT, OWNER, "127.0.0.1", port), stdout=subprocess.PIPE, text=True
        )
        with waiting:
            begin(server)
            assert waiting.communicate(timeout=120)[0].strip() == "welcome"
        server.kill()
        assert server.stdout.read() == "served\n"


def test_an_account_without_a_name_here_is_nobody() -> None:
    """In a user namespace that does not map its own account, the kernel reports all accounts by the
    same number (65534). No other account is taken for the server's account.
    """
    with serving("0.0.0.0", "nameless") as (server, port):
        begin(server)
        assert said("127.0.0.1", port, NEIGHBOUR) == ""
        assert said("127.0.0.1", port, OWNER) == ""


@pytest.mark.cluster
def test_no_payload_of_a_neighbour_reaches_tensorflow() -> None:
    """Another account sends gRPC calls `MasterService/Reset` to a real TensorFlow server, in every
    way that `attack` knows. The owner's session survives all of them, and each call of the owner is
    served. `make attack` tries each way a thousand times.
    """
    failed = [tally for tally in attack(20) if tally.failed]
    assert not failed, failed
