"""The TensorBoard process: a script that `process.py` starts, and that may outlive its starter.

  python child_process.py '{"folder": ..., "shown": ..., "empty": page, "idle": seconds,
           "register": path, "lock": fd, "report": fd, "startTimeout": seconds,
           "until": [pid, start time] or null}'

The process has its own session, and init is its parent. It does not load TensorFlow. It listens on
127.0.0.1, on a port that the kernel chose, and answers only below a secret path. It changes its
working directory to the folder and then shows the event files in the working directory. So it keeps
showing this folder, even if a link later replaces the folder's path. When the process listens, it
writes its registry file, and only then releases the starter's lock. It ends after `idle` seconds
without a connection, or when the process `until` ends; then it removes its registry file. The
script imports nothing of this package, because Python runs it by its path. It uses only
TensorBoard's public API and the module name `tensorboard.compat.notf`.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # import no module from this file's folder or from the folder that TensorBoard shows
    _here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry) and entry != _here]

import atexit
import contextlib
import fcntl
import json
import secrets
import signal
import threading
import time
import types
from typing import Any

HOST = "127.0.0.1"


def start_time(pid: int) -> str | None:
    """Return when process `pid` started, in the kernel's ticks. Pid and start time together
    identify a process. Returns None if there is no such process or it is a zombie; "" if there is
    no /proc.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except ProcessLookupError:
        return None
    except OSError:
        if os.path.exists("/proc/self/stat"):
            return None
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            return ""
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def main(options: dict[str, Any]) -> int:
    """Serve until idle or stopped; return the exit status."""
    if os.fork():
        os._exit(0)  # the starter waits for this process; init becomes the parent of the board
    os.setsid()
    # If the start hangs, the alarm ends this process, which releases the lock.
    signal.alarm(int(options["startTimeout"]))
    os.chdir(options["folder"])
    if os.getcwd() != options["folder"]:
        os.write(options["report"], b"changed")
        return 1
    # TensorBoard does not import TensorFlow if this module exists
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    try:
        import tensorboard  # noqa: F401 - raises an error if it is not installed
    except ModuleNotFoundError:
        os.write(options["report"], b"missing")
        return 1
    from tensorboard import default, main_lib, program

    class Server(program.WerkzeugServer):  # type: ignore[misc] # TensorBoard has no types
        """TensorBoard's server, which counts its connections and reports when it listens."""

        def __init__(self, wsgi_app: Any, flags: Any) -> None:
            self._connections = 0
            self._used_at = time.monotonic()
            self._counting = threading.Lock()
            app = _named(wsgi_app, options["shown"])
            super().__init__(_or_empty(app, f"{prefix}/", options["empty"]), flags)

        def _count(self, change: int) -> None:
            with self._counting:
                self._connections += change
                self._used_at = time.monotonic()

        def get_request(self) -> Any:
            request = super().get_request()
            self._count(1)
            return request

        def shutdown_request(self, request: Any) -> None:
            self._count(-1)
            super().shutdown_request(request)

        def service_actions(self) -> None:
            super().service_actions()
            with self._counting:
                idle = not self._connections and time.monotonic() - self._used_at
            if why := _over(idle, options):
                print(why, flush=True)
                raise SystemExit(0)

        def serve_forever(self, poll_interval: float = 0.5) -> None:
            del poll_interval  # the default checks for a shutdown twice a second, more than needed
            super().serve_forever(poll_interval=min(5.0, options["idle"] / 4))

        def print_serving_message(self) -> None:
            _announce(options, self.server_port, prefix)

    # The secret is made here and not passed to this process, because other accounts can read a
    # process's arguments.
    prefix = f"/{secrets.token_urlsafe(16)}"
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=Server)
    arguments = ["--logdir", ".", "--host", HOST, "--port", "0", "--path_prefix", prefix]
    board.configure(["tensorboard", *arguments])
    main_lib.global_init()
    status: int = board.main()
    return status


def _over(idle: float, options: dict[str, Any]) -> str:
    """Return why the board must end now; empty if it continues."""
    if idle > options["idle"]:
        return f"ends after {idle:.0f} s without a connection"
    until = options["until"]
    if until is not None and start_time(until[0]) != until[1]:
        return f"ends with process {until[0]}"
    return ""


def _named(app: Any, shown: str) -> Any:
    """Return TensorBoard's application, changed so that it shows `shown` as the location of its
    data instead of ".".
    """
    from werkzeug.wrappers import Response

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        if not environ.get("PATH_INFO", "").endswith("/data/environment"):
            return app(environ, start_response)
        answer = Response.from_app(app, environ | {"HTTP_ACCEPT_ENCODING": "identity"})
        if answer.status_code == 200:
            facts = json.loads(answer.get_data())
            answer.set_data(json.dumps({**facts, "data_location": shown}))
        return answer(environ, start_response)

    return serve


def _or_empty(app: Any, index: str, page: str) -> Any:
    """Return TensorBoard's application, changed so that its first page is `page` while there is no
    event file.
    """
    from werkzeug.wrappers import Response

    found: list[bool] = []

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        if found or environ.get("PATH_INFO") not in (index, f"{index}index.html"):
            return app(environ, start_response)
        if has_event_files("."):
            found.append(True)
            return app(environ, start_response)
        answer = Response(page, mimetype="text/html")
        answer.headers["Cache-Control"] = "no-store"
        answer.headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'"
        return answer(environ, start_response)

    return serve


MOST_ENTRIES = 20_000
"""Maximum file names that `has_event_files` checks; a larger folder counts as one with event files.
"""


def has_event_files(folder: str) -> bool:
    """Return whether a folder contains an event file, up to five levels deep. Links to folders are
    followed.
    """
    level, left = [folder], MOST_ENTRIES
    for _depth in range(6):
        below: list[str] = []
        for parent in level:
            with contextlib.suppress(OSError), os.scandir(parent) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or ".tfevents." in entry.name:
                        return True
                    if entry.is_dir():
                        below.append(entry.path)
        level = below
    return False


def _announce(options: dict[str, Any], port: int, prefix: str) -> None:
    """Write the registry file first, then report to the starter that the board listens."""
    path = options["register"]
    facts = {
        "folder": options["folder"],
        "prefix": prefix,
        "port": port,
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
    }
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.new")
    private = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(private, "w", encoding="utf-8") as file:
        json.dump(facts, file)
    os.replace(f"{path}.new", path)
    atexit.register(_leave, path)
    signal.alarm(0)
    os.close(options["lock"])
    with contextlib.suppress(BrokenPipeError):  # the starter may have ended; the board continues
        os.write(options["report"], b"ready")
    os.close(options["report"])


def _leave(path: str) -> None:
    """Remove this board's registry file, unless another process is replacing it at this moment."""
    how = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        lock = os.open(f"{path[:-5]}.lock", os.O_WRONLY | how)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if json.loads(os.read(os.open(path, os.O_RDONLY | how), 65536))["pid"] == os.getpid():
            os.unlink(path)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
