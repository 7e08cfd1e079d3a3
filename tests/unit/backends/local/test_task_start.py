"""Starts of tasks by the supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from support.local_runs import Launch, over

import tfcluster_magic
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.spec import Phase

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


BIND = """
    import os, socket
    port = int(os.environ["TFCLUSTER_PORT"])
    assert os.environ["TF_CONFIG"].count(f":{port}") == 1
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), ()):
        server = socket.socket()
        for option in options:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind(("", port))
        server.listen()
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
        server.close()
"""


def test_a_task_can_use_its_port_as_any_other(backend: LocalBackend, launch: Launch) -> None:
    """A program can bind its given port repeatedly and with any socket options, as trackers and
    stores other than TensorFlow servers do.
    """
    launch(textwrap.dedent(BIND), name="tracker", worker=2)
    assert over(backend, "tracker").status.phase is Phase.SUCCEEDED
