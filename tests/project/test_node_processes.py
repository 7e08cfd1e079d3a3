"""Processes of a node that count as ended."""

from __future__ import annotations

import socket
import subprocess
import sys

from kubenode.processes import alive
from support.polling import wait_until

FIRST_THREAD_ENDS = """
import ctypes, os, platform, socket, sys, threading
server = socket.create_server(("127.0.0.1", 0))
def stay():
    print(server.getsockname()[1], flush=True)
    sys.stdin.readline()
    os._exit(0)
threading.Thread(target=stay).start()
exit_thread = 60 if platform.machine() == "x86_64" else 93
ctypes.CDLL(None).syscall(exit_thread, 0)
"""


def test_a_process_whose_first_thread_has_ended_is_alive() -> None:
    """A process does not count as ended while another of its threads holds a port; afterwards it
    does.
    """
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        port = int(process.stdout.readline())

        def is_zombie() -> bool:
            with open(f"/proc/{process.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"

        wait_until(is_zombie, "its first thread has ended")
        with socket.create_connection(("127.0.0.1", port), 5):
            assert alive(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_until(lambda: not alive(process.pid), "its end")
