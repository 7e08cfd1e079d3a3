"""An attack on a guarded TensorFlow server from another account of the machine.

`attack(tries)` is for the suite (few tries) and for `make attack` (many). Only root can act as two
accounts. The server is started like a task's, with the guard preloaded; its owner is root.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.tf_servers import Servers

NEIGHBOUR = 65533
STATUS, RESET = "/tensorflow.WorkerService/GetStatus", "/tensorflow.MasterService/Reset"
SESSION, DEVICES = (
    "/tensorflow.MasterService/CreateSession",
    "/tensorflow.MasterService/ListDevices",
)
# Become an account, connect repeatedly, send the bytes and close in the given way; print how many
# connections were answered. `reset` sets SO_LINGER to 0; the server can still read what was sent.
CLIENT = r"""
import os, socket, struct, sys
account, host, port, ending, tries, want = sys.argv[1:7]
payload = bytes.fromhex(sys.argv[7])
os.geteuid() or os.setgroups([])
os.setresuid(*3 * [int(account)])
family, answered = socket.AF_INET6 if ":" in host else socket.AF_INET, 0
for tried in range(int(tries)):
    with socket.socket(family) as client:
        client.settimeout(90)
        try:
            client.connect((host, int(port)))
            client.sendall(payload)
            if ending == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if ending in ("reset", "close"):
                continue
            if ending == "shutdown":
                client.shutdown(socket.SHUT_WR)
            heard = b""
            while part := client.recv(65536):
                heard += part
                if bytes.fromhex(want) in heard:
                    break
            answered += heard != b"" and bytes.fromhex(want) in heard
        except OSError as error:  # refused: reset, a broken pipe, not connected
            if isinstance(error, TimeoutError):
                break
else:
    tried += 1
print(answered, tried)
"""
ENDINGS = ("wait", "reset", "close", "shutdown")
ANY = b""  # any answer
STATUS_OK = b"grpc-status\x010"  # the status OK in the trailers of an answer, as gRPC writes them


@dataclass(frozen=True)
class Tally:
    """Attempts of one form: `tried`, and those that did not end as required (`failed`)."""

    form: str
    tried: int
    failed: int


def grpc_call(path: str, message: bytes = b"") -> bytes:
    """Return the bytes that a gRPC client sends for one call, from the preface of HTTP/2 on."""

    def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
        head = len(data).to_bytes(3, "big") + bytes([kind, flags])
        return head + stream.to_bytes(4, "big") + data

    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    headers = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    body = b"\0" + len(message).to_bytes(4, "big") + message
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    return preface + frame(4, 0, 0, b"") + frame(1, 4, 1, headers) + frame(0, 1, 1, body)


def connect(
    account: int, host: str, port: int, ending: str, tries: int, payload: bytes, want: bytes = ANY
) -> int:
    """Connect `tries` times as an account; return how many connections received `want`."""
    arguments = [account, host, port, ending, tries, want.hex(), payload.hex()]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CLIENT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=500,
    )
    answered, tried = map(int, done.stdout.split())
    assert tried == tries or want, f"the server hangs after {tried} of a neighbour's connections"
    return answered


@contextmanager
def descriptors_left(pid: int, count: int) -> Iterator[None]:
    """Let a process open only `count` more descriptors."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = (number for number in range(before[0]) if number not in used)
    limit = next(number for place, number in enumerate(free) if place == count)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stop a process during the block, so that it accepts connections only after the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Victim:
    """A TensorFlow server, and its owner's session, which `MasterService/Reset` would end."""

    def __init__(self, cluster: Servers) -> None:
        import grpc

        self.port = int(cluster.addresses["worker"][0].rpartition(":")[2])
        self.pid = cluster.pids["worker-0"]
        self._error = grpc.RpcError
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{self.port}", options=[("grpc.enable_http_proxy", 0)]
        )
        self.renew()

    def _call(self, path: str, message: bytes) -> bytes:
        answer = self._channel.unary_unary(path)(message, timeout=90)
        assert isinstance(answer, bytes)
        return answer

    def renew(self) -> None:
        """Create the session. Its handle is the first field of the answer and of later requests."""
        answer = self._call(SESSION, b"")
        self._handle = answer[: 2 + answer[1]]

    def lives(self) -> bool:
        """Return whether the session is unchanged."""
        try:
            self._call(DEVICES, self._handle)
        except self._error:
            return False
        return True

    def close(self) -> None:
        """Close the session."""
        self._channel.close()


@contextmanager
def victim() -> Iterator[Victim]:
    """Start a server as tasks do, and its owner's session."""
    cluster = Servers({"worker": 1})
    try:
        cluster.start("worker-0")
        made = Victim(cluster.wait())
        try:
            yield made
        finally:
            made.close()
    finally:
        cluster.close()


def attack(tries: int, server: Victim | None = None) -> list[Tally]:
    """Try each form `tries` times; every `Tally.failed` must be 0.

    In most forms another account sends a Reset to the v4 or to the mapped v6 address. It then
    waits, resets or closes the connection, or shuts down its own side. In some of these forms the
    server is paused meanwhile, or has at most two file descriptors left. In the other forms the
    owner makes calls, which must all be served.
    """
    if server is None:
        with victim() as own:
            return attack(tries, own)
    reset, status, tallies = grpc_call(RESET), grpc_call(STATUS), []

    def told(form: str, tried: int, answered: int) -> None:
        # The server answers this call after all earlier connections, so the attack is over then.
        connect(0, "127.0.0.1", server.port, "wait", 1, status, STATUS_OK)
        ended = not server.lives()
        if ended:
            server.renew()
        tallies.append(Tally(form, tried, answered + ended))

    connect(0, "127.0.0.1", server.port, "wait", 1, reset, STATUS_OK)
    tallies.append(Tally("owner's own Reset, which does end the session", 1, int(server.lives())))
    server.renew()
    for host in ("127.0.0.1", "::ffff:127.0.0.1"):
        for ending in ENDINGS:
            answered = connect(NEIGHBOUR, host, server.port, ending, tries, reset)
            told(f"neighbour, {host}, {ending}", tries, answered)
        for ending in ("reset", "close"):
            with paused(server.pid):
                connect(NEIGHBOUR, host, server.port, ending, tries, reset)
            told(f"neighbour, {host}, {ending} before the server looks", tries, 0)
        served = connect(0, host, server.port, "wait", tries, status, STATUS_OK)
        told(f"owner, {host}", tries, tries - served)
    for left in (0, 1, 2):
        with descriptors_left(server.pid, left):
            for ending in ("reset", "close"):
                connect(NEIGHBOUR, "127.0.0.1", server.port, ending, tries, reset)
        told(f"neighbour, {left} descriptors left", 2 * tries, 0)
        served = connect(0, "127.0.0.1", server.port, "wait", tries, status, STATUS_OK)
        told(f"owner, after {left} descriptors were left", tries, tries - served)
    return tallies


if __name__ == "__main__":
    found = attack(int(sys.argv[1]) if sys.argv[1:] else 1000)
    for tally in found:
        print(f"{tally.form}: {tally.tried} tried, {tally.failed} failed")
    sys.exit(any(tally.failed for tally in found))
