"""Another account of this machine attacks the ports of somebody's guarded servers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from support.loopback_attack import attack

from tfcluster_magic.spec import task_file

from .cases import Attempt, NotTried
from .target import Target

OWNER, NEIGHBOUR = 65534, 65533
TRIES = 10
BOUND = (("127.0.0.1", "4"), ("::1", "6"), ("127.0.0.1", "6 mapped"))
"""Pairs: the address to which an intruder connects, and how the server listens: with an IPv4
socket, an IPv6 socket, or an IPv6 socket that also accepts IPv4 (mapped addresses).
"""
WAITING = ("half-closed", "patient")
"""The ways in which an intruder waits for an answer."""
BECOME = """
import encodings.idna, os, socket, struct, sys, threading
os.geteuid() or os.setgroups([])
os.setresuid(*3 * [int(sys.argv[1])])
"""
SERVER = f"""{BECOME}
form = sys.argv[2]
family = socket.AF_INET6 if "6" in form else socket.AF_INET
server = socket.socket(family, socket.SOCK_STREAM)
if family == socket.AF_INET6:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int("mapped" not in form))
if "unbound" not in form:
    server.bind(("::" if "6" in form else "0.0.0.0", 0))
server.listen(128)
print(server.getsockname()[1], flush=True)
def serve(connection):
    try:
        connection.settimeout(1)
        heard = b""
        while part := connection.recv(100):
            heard += part
            if heard.startswith(b"mine"):
                connection.sendall(b"welcome")
                break
    except OSError:
        pass
    finally:
        if heard:
            print(heard.decode(errors="replace")[:20], flush=True)
        connection.close()
sys.stdin.readline()
while True:
    try:
        connection, _address = server.accept()
    except OSError:
        continue
    threading.Thread(target=serve, args=(connection,)).start()
"""
INTRUDER = f"""{BECOME}
host, port, form, tries = sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
for number in range(tries):
    try:
        with socket.create_connection((host, port), timeout=20) as connection:
            connection.sendall(b"code to run " + str(number).encode())
            if form == "reset":
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            elif form == "half-closed":
                connection.shutdown(socket.SHUT_WR)
                connection.recv(100)
            elif form == "patient":
                connection.recv(100)
            elif form == "forked" and not os.fork():
                connection.recv(100)
                os._exit(0)
    except OSError:
        pass
"""
OWN = f"""{BECOME}
with socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=60) as connection:
    connection.sendall(b"mine")
    print(connection.recv(100).decode())
"""


def _python(script: str, account: int, *words: str) -> list[str]:
    """Return a command that runs a Python script as this account. Python starts as root and then
    becomes the account, which may be unable to read Python's files.
    """
    return [sys.executable, "-I", "-S", "-c", script, str(account), *words]


@contextmanager
def _serving(form: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    guard = task_file.guard_path()
    if guard is None:
        raise NotTried("the package is installed without its guard")
    pipe = subprocess.PIPE
    command = _python(SERVER, OWNER, form)
    with subprocess.Popen(
        command, env={"LD_PRELOAD": guard}, stdin=pipe, stdout=pipe, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server, server.stdout.readline().strip()
        finally:
            server.kill()


def _begin(server: subprocess.Popen[str]) -> None:
    """Let the server accept connections."""
    assert server.stdin is not None
    server.stdin.write("go\n")
    server.stdin.flush()


def _intrude(form: tuple[str, str], way: str, drawn: random.Random) -> None:
    """Check that no byte of another account's connections is read, and that the owner is served."""
    if os.geteuid() != 0:
        raise NotTried("only root can be another account")
    host, server_form = form
    late = way not in WAITING and drawn.random() < 0.8
    with _serving(server_form) as (server, port):
        assert port, "the guarded server did not start"
        if not late:
            _begin(server)
        attacks = _python(INTRUDER, NEIGHBOUR, host, port, way, str(TRIES))
        subprocess.run(attacks, timeout=200, check=True)
        if late:  # the server accepts connections only after the intruders have left
            _begin(server)
        command = _python(OWN, OWNER, host, port)
        served = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=90, check=False)
        assert served.stdout.strip() == "welcome", f"the owner is locked out ({form}, {way})"
        server.kill()
        assert server.stdout is not None
        read = [line for line in server.stdout.read().splitlines() if line != "mine"]
        told = f"{len(read)} of {TRIES} payloads of another account were read ({form}, {way})"
        assert not read, told


def reset(target: Target, drawn: random.Random) -> None:
    """The server reads no byte from an intruder that sends and at once resets the connection."""
    _intrude(drawn.choice(BOUND), "reset", drawn)


def connected(target: Target, drawn: random.Random) -> None:
    """The server reads no byte from an intruder that keeps its connection open, closes one half of
    it, hands it to a child process, or exits at once.
    """
    _intrude(drawn.choice(BOUND), drawn.choice((*WAITING, "at-once", "forked")), drawn)


def unbound(target: Target, drawn: random.Random) -> None:
    """A server that listens without bind() is guarded too."""
    _intrude(("127.0.0.1", "4 unbound"), drawn.choice(("reset", *WAITING)), drawn)


def tensorflow(target: Target, drawn: random.Random) -> None:
    """A real TensorFlow server reads nothing from another account, and serves its own account."""
    del target
    if os.geteuid() != 0:
        raise NotTried("only root can be another account")
    tallies = attack(drawn.randint(10, 40))
    failed = [f"{one.form}: {one.failed} of {one.tried}" for one in tallies if one.failed]
    assert not failed, "; ".join(failed)


CASES: Mapping[str, Attempt] = {
    "sent-and-reset": reset,
    "another-account": connected,
    "unbound-port": unbound,
    "tensorflow-server": tensorflow,
}
