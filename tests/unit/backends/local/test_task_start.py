"""How the supervisor starts a task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import tfcluster_magic

SCRIPT = """
    import os, signal, sys, time
    from pathlib import Path
    from tfcluster_magic.backends.local.task_processes import spawn

    signal.signal(signal.SIGTERM, lambda *_: None)
    here = Path(sys.argv[1])
    for attempt in range(30):
        pid = spawn(["/bin/sleep", "30"], dict(os.environ), here / "log", here, 2, None)
        os.kill(pid, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
    print("all ended")
"""


def test_a_stop_that_comes_with_the_start_is_not_lost(tmp_path: Path) -> None:
    """A task that is asked to end while it is being started ends at once."""
    package = Path(tfcluster_magic.__file__).parent.parent
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.stdout == "all ended\n", ended.stderr
    assert ended.returncode == 0, signal.Signals(-ended.returncode)
