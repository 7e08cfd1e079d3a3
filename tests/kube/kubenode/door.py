"""A door into a node: forwards connections from this machine's loopback into the node's network
namespace.

Through a door, kubectl, pytest and a browser reach the cluster without root and without entering a
namespace. A door is a separate process (`python -m kubenode.door`). A socket belongs to the
namespace in which it was created, so the door listens first and enters the node's network
afterwards.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import subprocess
import sys

from . import paths
from .commands import wait_until
from .errors import NodeError
from .node import Node
from .processes import note, started_at

CLONE_NEWNET = 0x40000000
CHUNK = 1 << 16


def open_door(node: Node, name: str, target_port: int, port: int = 0) -> int:
    """Open a door into `node` and return its port on 127.0.0.1. The door closes with the node.

    Args:
        node: the node into which the door leads.
        name: a name for the door; the door's log file contains it.
        target_port: the port in the node to which connections are forwarded.
        port: the port of this machine at which the door listens; 0 takes a free one.

    Raises:
        NodeError: the port is taken.
    """
    log = node.log(f"door-{name}")
    with listening(port) as listener, log.open("w") as output:
        words = [
            sys.executable,
            "-m",
            "kubenode.door",
            str(listener.fileno()),
            str(node.pid),
            node.ip,
            str(target_port),
        ]
        process = subprocess.Popen(
            words, cwd=paths.KUBE, pass_fds=[listener.fileno()], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
        taken = int(listener.getsockname()[1])
    note(node.folder / "servers" / f"door-{name}", process.pid)
    wait_until(log.read_text, f"the door {name}", seconds=90)
    if not log.read_text().startswith("open"):
        raise NodeError(f"The door {name} cannot be opened:\n{log.read_text()}")
    return taken


def listening(port: int) -> socket.socket:
    """Return a socket that listens on a port of 127.0.0.1; 0 takes a free one.

    Raises:
        NodeError: the port is taken.
    """
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise NodeError(
            f"Port {port} of 127.0.0.1 is taken ({error.strerror}): "
            "choose another, or 0 for any free one."
        ) from error


def enter_network(pid: int) -> None:
    """Move this process into another's network namespace.

    Raises:
        OSError: this process is not root, or there is no such process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(namespace)


async def serve(listener: socket.socket, pid: int, host: str, port: int) -> None:
    """Forward connections until process `pid`, the node, has ended."""

    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()  # the caller sees a closed connection, as when a server is down
            return
        await asyncio.gather(passing(reader, inner_writer), passing(inner_reader, writer))
        for each in (writer, inner_writer):
            each.close()

    server = await asyncio.start_server(connected, sock=listener)
    print("open", flush=True)
    node = os.pidfd_open(pid)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(node, gone.set)
    await gone.wait()
    server.close()


def main() -> None:
    """The program `python -m kubenode.door LISTENER PID HOST PORT`, which `open_door` starts."""
    descriptor, pid, host, port = sys.argv[1:]
    listener = socket.socket(fileno=int(descriptor))
    started = started_at(int(pid))
    enter_network(int(pid))
    if started_at(int(pid)) == started:
        asyncio.run(serve(listener, int(pid), host, int(port)))


if __name__ == "__main__":
    main()
