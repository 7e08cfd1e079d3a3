"""Refusals of the command line, which have one message and an exit code, and leave nothing
behind.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import HELLO, Run, here, left_behind, run

__all__ = ["here", "run"]  # fixtures used by the tests below


class _Server(http.server.BaseHTTPRequestHandler):
    """A web server with one program and one page that is too large."""

    def do_GET(self) -> None:
        """Serve /hello.py; for /large.py, send only headers with a large size."""
        size = 300_000_000 if self.path == "/large.py" else len(HELLO)
        self.send_response(200 if self.path in ("/hello.py", "/large.py") else 404)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.path == "/hello.py":
            self.wfile.write(HELLO.encode())

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of a running `_Server`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("lunch", 2, "did you mean launch?"),
        ("frobnicate", 2, "the verbs are launch, project, list"),
        ("launch --worker 3 hello.py", 2, "did you mean --workers?"),
        ("launch --epochs 3 hello.py", 2, "the program's own arguments follow ` -- `"),
        ("launch hello.py epochs", 2, "the program's own arguments follow ` -- `"),
        ("launch --workers -1 hello.py", 2, "--workers: got -1; "),
        ("launch --workers two hello.py", 2, "--workers: got 'two'; write a whole number"),
        ("launch --workers 0 hello.py", 2, "--workers: got 0; at least 1 worker"),
        ("launch --workers 5000 hello.py", 2, "5000"),
        ("launch --name Bad_Name hello.py", 2, "--name: got 'Bad_Name'; try bad-name: up to 40"),
        ("launch --name run-2 hello.py", 2, "got 'run-2'; try run2: "),
        ("launch --mode sideways hello.py", 2, "use one of between-graph, in-graph"),
        ("launch --cpu lots hello.py", 2, "--cpu: got 'lots'; write a number"),
        ("launch --cpu 1e400 hello.py", 2, "--cpu: got '1e400'; write a number"),
        ("launch --workers " + "9" * 5000 + " hello.py", 2, "write a whole number"),
        ("launch --grace " + "9" * 400 + " hello.py", 2, "--grace: got '999"),
        ("launch --file infinite.yaml hello.py", 2, "cpu: got 'inf'; use a finite number"),
        ("launch --file digits.yaml hello.py", 2, "it is not YAML"),
        ("launch --memory 2Gb hello.py", 2, "--memory: got '2Gb'"),
        ("launch --grace soon hello.py", 2, "--grace: got 'soon'; write seconds"),
        ("launch --env 1A=b hello.py", 2, "--env: got '1A=b'; write NAME=VALUE"),
        ("launch --gpu 64 hello.py", 3, "GPU"),
        ("launch --memory 100Ti hello.py", 3, "is free"),
        ("launch", 2, "refused: program: got nothing; there is no program: name a file"),
        ("launch helo.py", 2, "did you mean hello.py?"),
        ("launch empty.py", 2, "is empty"),
        ("launch large.py", 2, "MiB"),
        ("launch broken.py", 2, "line 2"),
        ("launch ftp://example.org/a.py", 2, "ftp:// is not supported"),
        ("launch {site}/nothing.py", 2, "404"),
        ("launch {site}/large.py", 2, "the limit is"),
        ("launch {site}/hello.py --sha256 " + "0" * 64, 2, "checksum"),
        ("launch --file nowhere.yaml", 2, "cannot be read"),
        ("launch --file lost.yaml", 7, "/digits/train.py, from which tasks would read the program"),
        ("launch --mode in-graph hello.py", 2, "in-graph runs no program"),
        ("launch --follow -o json hello.py", 2, "cannot be used with -o"),
        ("launch --timeout 3 hello.py", 2, "--max-duration"),
        ("launch --dry-run --wait hello.py", 2, "creates no run"),
        ("launch -o xml hello.py", 2, "'xml'"),
        ("launch --backend cloud hello.py", 2, "'cloud'"),
        ("status nothing", 5, "there is no run nothing"),
        ("logs nothing", 5, "there is no run nothing"),
        ("launch hello.py --worker-memory 9999Ti", 3, "--worker-memory: got '9999Ti'"),
        ("launch hello.py --memory 9999Ti", 3, "cluster: --memory: got '9999Ti'"),
        ("stop", 2, "name the runs, or use --all"),
        ("stop nothing", 5, "there is no run nothing"),
        ("delete nothing --yes", 5, "there is no run nothing"),
        ("rerun nothing", 5, "there is no run nothing"),
        ("connect nothing", 5, "there is no run nothing"),
    ],
)
def test_bad_input_gets_one_clear_message_and_leaves_nothing_behind(
    run: Run, here: Path, own_folders: Path, site: str, line: str, code: int, said: str
) -> None:
    """The message about wrong input has the entered value and the allowed values. The command exits
    with the code for this kind of error, and leaves no run and no file behind.
    """
    (here / "empty.py").write_text("\n# nothing\n")
    infinite = "replicas: {worker: {count: 1, resources: {cpu: .inf}}}\n"
    (here / "infinite.yaml").write_text(f"{infinite}program: {{source: hello.py}}\n")
    (here / "digits.yaml").write_text("schedule: " + "9" * 5000)
    (here / "lost.yaml").write_text("program: {path: digits/train.py}\n")
    (here / "broken.py").write_text("x = 1\nif x\n")
    if "large.py" in line:
        with open(here / "large.py", "wb") as large:
            large.truncate(200 * 2**20)
    done = run(*line.format(site=site).split())

    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert left_behind(own_folders) == []


def test_a_log_folder_that_cannot_be_written_is_refused(
    run: Run, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the log folder cannot be created, the launch is refused. The message names the folder, and
    the variable that sets another folder.
    """
    (own_folders / "file").write_text("")
    monkeypatch.setenv("TFCLUSTER_LOG_DIR", str(own_folders / "file" / "log"))
    done = run("launch", "hello.py")

    assert done.code == 7
    assert "no room" not in done.err
    assert "file/log" in done.err
    assert "TFCLUSTER_LOG_DIR" in done.err
    assert left_behind(own_folders) == []


def test_a_taken_name_is_refused_with_the_command_that_frees_it(run: Run) -> None:
    """A second running cluster of the same name is refused."""
    run("launch", "sleep.py", "--name", "mine", "--workers", "1")
    done = run("launch", "sleep.py", "--name", "mine", "--workers", "1")

    assert done.code == 4
    assert "tfcluster stop mine" in done.err


def test_every_problem_of_a_launch_is_told_at_once(run: Run) -> None:
    """Four mistakes are reported in one message."""
    done = run("launch", "no.py", "--workers", "x", "--grace", "y", "--name", "Z")

    assert "refused for 4 reasons" in done.err
    for flag in ("program", "--workers", "--grace", "--name"):
        assert f"- {flag}: got" in done.err
