"""A planted program: asynchronous training over plain sockets, in which each flag makes one thing
the bottleneck. Parameter servers hold bytes instead of variables, and workers count a common step.
"""

import argparse
import contextlib
import json
import os
import socket
import struct
import threading
import time

import tfcluster

HEAD = struct.Struct("!QI")


def burn(seconds):
    """Use the CPU for this many seconds."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def exactly(peer, count):
    """Receive `count` bytes; empty at the end of the connection."""
    parts = []
    while count:
        part = peer.recv(min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Server:
    """A parameter server: each push costs CPU under one lock, as one variable does."""

    def __init__(self, args):
        self.args, self.step, self.lock, self.free_at = args, 0, threading.Lock(), 0.0

    def serve(self, peer):
        """Answer one worker: a push with a count of steps, then the step and the variables."""
        while head := exactly(peer, HEAD.size):
            steps, size = HEAD.unpack(head)
            exactly(peer, size)
            with self.lock:
                if steps:
                    burn(self.args.server_ms / 1000)
                self.step += steps
                self.link(2 * size)
            peer.sendall(HEAD.pack(self.step, size) + bytes(size))

    def link(self, size):
        """Wait as long as a link of `--link` MiB/s takes for these bytes."""
        if self.args.link:
            self.free_at = max(self.free_at, time.monotonic()) + size / (self.args.link << 20)
            time.sleep(max(0.0, self.free_at - time.monotonic()))


def train(args, index, servers):
    """Train as one worker."""
    peers = [connect(address) for address in servers]
    data = connect(args.input) if args.input else None
    kept = [bytearray(os.urandom(1 << 20)) * args.memory]
    slow = args.slow == index
    end, leaked, own = time.monotonic() + args.seconds, time.monotonic(), 0
    while time.monotonic() < end:
        if data is not None:
            exactly(data, args.batch)
        burn(args.worker_ms * (4 if slow else 1) / 1000)
        time.sleep(args.pause_ms / 1000)
        if args.leak and index == args.leaky:
            grown = int((time.monotonic() - leaked) * (args.leak << 20))
            leaked = time.monotonic()
            kept.append(bytearray(b"x") * grown)
        common = 0
        for number, peer in enumerate(peers):
            # With --hot only the first server has a variable that every step changes.
            steps = int(not args.hot or number == 0)
            size = args.size if steps else 0
            peer.sendall(HEAD.pack(steps, size) + bytes(size))
            step, size = HEAD.unpack(exactly(peer, HEAD.size))
            exactly(peer, size)
            common = common or step
        own += 1
        tfcluster.progress(own if args.own_steps else common)


def connect(address):
    """Connect as soon as the other side listens."""
    host, _colon, port = address.rpartition(":")
    while True:
        with contextlib.suppress(OSError):
            return socket.create_connection((host, int(port)))
        time.sleep(0.2)


def main():
    """Be a parameter server or a worker, as TF_CONFIG says."""
    parser = argparse.ArgumentParser()
    for name, kind, default in (
        ("seconds", float, 42.0), ("worker-ms", float, 8.0), ("pause-ms", float, 4.0),
        ("server-ms", float, 1.0), ("size", int, 20_000), ("slow", int, -1), ("input", str, ""),
        ("batch", int, 65536), ("leak", int, 0), ("leaky", int, 0), ("memory", int, 0),
        ("link", int, 0),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--hot", action="store_true")
    parser.add_argument("--own-steps", action="store_true")
    args = parser.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    task, cluster = config["task"], config["cluster"]
    if task["type"] == "ps":
        host, _colon, port = cluster["ps"][task["index"]].rpartition(":")
        server = Server(args)
        with socket.create_server((host, int(port)), reuse_port=True) as listener:
            while True:
                peer, _address = listener.accept()
                threading.Thread(target=server.serve, args=(peer,), daemon=True).start()
    train(args, task["index"], cluster["ps"])


if __name__ == "__main__":
    main()
