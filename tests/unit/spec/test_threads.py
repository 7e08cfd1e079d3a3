"""Records that many threads read right after the start of a process."""

from __future__ import annotations

import subprocess
import sys

READ_AT_ONCE = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from tfcluster_magic.spec import Spec, Status
begin = threading.Barrier(8)
def read():
    begin.wait()
    msgspec.convert({"replicas": {"worker": {"count": 1}}, "lifecycle": {"grace": 1.0}}, Spec)
    msgspec.convert({"phase": "Queued", "reason": "Queued"}, Status)
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
TIMES = 5  # without the protection that is tested here, about four of five processes crash


def test_the_first_records_may_be_read_in_many_threads() -> None:
    """A process does not crash if several threads at once read its first records."""
    for _ in range(TIMES):
        done = subprocess.run(
            [sys.executable, "-c", READ_AT_ONCE], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (done.returncode, done.stderr)
