"""The command in a shell: Ctrl-C, pipes, terminals, completion, help, and its imports."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command_line import Run, here, run
from support.project import ROOT

from tfcluster_magic import ClusterManager
from tfcluster_magic.cli.group import VERBS
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.errors import sanitize_text
from tfcluster_magic.launch.options import OPTIONS
from tfcluster_magic.notebook.magic_line import completions

__all__ = ["here", "run"]  # fixtures used by the tests below


MAIN = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]


@pytest.mark.parametrize("words", [(), ("admin",), ("admin", "override")])
def test_a_group_without_a_verb_shows_its_help(words: tuple[str, ...]) -> None:
    """Without a verb, a group prints its help with exit code 0 and nothing on stderr."""
    done = subprocess.run([*MAIN, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Verbs:" in done.stdout


def test_ctrl_c_detaches_and_the_run_goes_on(here: Path) -> None:
    """Ctrl-C during `--follow` exits with 130, says how to reconnect, and the run continues."""
    shell = subprocess.Popen(
        [*MAIN, "launch", "sleep.py", "--workers", "1", "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert shell.stdout
    while "worker-0 | up" not in shell.stdout.readline():
        assert shell.poll() is None
    shell.send_signal(signal.SIGINT)
    _, err = shell.communicate(timeout=90)

    assert shell.returncode == 130
    assert "detached; sleep-1 goes on: `tfcluster logs -f sleep-1`" in err
    assert "Traceback" not in err
    assert ClusterManager().status("sleep").active


def test_a_reader_that_has_seen_enough_is_no_error(run: Run, here: Path) -> None:
    """A closed pipe, as by `tfcluster logs … | head -1`, is not an error."""
    (here / "chatty.py").write_text("for i in range(100000): print('line', i)\n")
    run("launch", "chatty.py", "--workers", "1", "--wait")
    script = (
        f"{sys.executable} -c 'from tfcluster_magic.cli import main; main()' logs chatty | head -1"
    )
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=180, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.stdout == "worker-0 | line 0\n"
    assert done.stderr == ""


@pytest.mark.parametrize("verb", [["list"], ["options"], ["logs", "hello"]])
def test_a_full_disk_below_the_output_is_one_message(run: Run, here: Path, verb: list[str]) -> None:
    """An output that cannot be written is reported in one line."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*MAIN, *verb], cwd=here, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert (done.returncode, done.stderr) == (
        1, "the output cannot be written: No space left on device\n",
    )  # fmt: skip


def test_closed_streams_are_no_error(here: Path) -> None:
    """A command works even if standard input, output and error are closed."""
    script = f"{shlex.join(MAIN)} list <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", script], cwd=here, check=False).returncode == 0


def test_an_error_does_nothing_to_the_terminal(run: Run) -> None:
    """Text quoted in an error cannot control the terminal."""
    done = run("status", "\x1b]0;title\x07\x1b[2Jdigits")

    assert done.code == 5
    assert "there is no run digits" in done.err


def _in_terminal(argv: list[str], answer: bytes = b"", **env: str) -> tuple[int, str]:
    """Run `tfcluster` in a terminal, type `answer` at its question, and return the exit code and
    the screen.
    """
    pid, screen = pty.fork()
    if pid == 0:
        os.environ.update(env, PYTHONPATH=str(ROOT), TERM="xterm")
        os.execv(MAIN[0], [*MAIN, *argv])
    shown, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([screen], [], [], 1)[0]:
            try:
                chunk = os.read(screen, 65536)
            except OSError:  # the other end of the terminal is closed
                break
            shown += chunk
            if answer and b"[y/N]" in shown:
                os.write(screen, answer)
                answer = b""
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_colours_are_for_terminals_and_no_color_is_respected(run: Run) -> None:
    """Only a terminal gets colours; NO_COLOR and `--no-color` disable them."""
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert "\x1b[36mworker-0 |\x1b[0m" in _in_terminal(["logs", "hello"])[1]
    assert "\x1b[1;38;5;28mSucceeded\x1b[0m" in _in_terminal(["list"])[1]
    assert "\x1b" not in _in_terminal(["logs", "hello"], NO_COLOR="1")[1]
    assert "\x1b" not in _in_terminal(["logs", "hello", "--no-color"])[1]


HOSTILE = "\x1b]0;title\x07\x1b[2Ja\x1b[31mred\x1b[0m\x9b2J\u202eb\x1b]8;;http://x\x1b\\c"


def test_colours_end_with_the_text_that_has_them() -> None:
    """Sanitized text ends with a reset of its colours."""
    assert sanitize_text("\x1b[8mhidden") == "\x1b[8mhidden\x1b[0m"
    assert sanitize_text("\x1b[31mred\x1b[0m") == "\x1b[31mred\x1b[0m"
    assert sanitize_text("plain\x1b[2J") == "plain"


def test_what_a_task_printed_acts_on_no_terminal(run: Run, here: Path) -> None:
    """`logs --no-prefix` sends only text and colours to a terminal, and every byte to a pipe. A
    stop's reason is shown without control characters.
    """
    (here / "hostile.py").write_text(f"print({HOSTILE!r}, flush=True)\n")
    run("launch", "hostile.py", "--workers", "1", "--wait")
    run("launch", "sleep.py", "--workers", "1")
    run("stop", "sleep", "--reason", HOSTILE)
    lines = ("logs hostile --no-prefix", "status sleep", "list", "list -o json")
    shown = "".join(_in_terminal(words.split())[1] for words in lines)

    assert "a\x1b[31mred\x1b[0m2Jbc" in shown
    for acts in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\x07"):
        assert acts not in shown, repr(acts)
    assert HOSTILE in run("logs", "hostile", "--no-prefix").out


def test_a_terminal_is_asked_and_no_means_no(run: Run) -> None:
    """A terminal is asked for confirmation, and "no" deletes nothing."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    _, screen = _in_terminal(["delete", "hello", "--with-logs"], b"n\n")

    assert "This will delete hello-1, remove the output and checkpoints in" in screen
    assert "nothing was deleted" in screen
    assert run("status", "hello").code == 0
    assert "deleted hello-1" in _in_terminal(["delete", "hello", "--with-logs"], b"y\n")[1]


def test_following_status_in_a_terminal_draws_in_place(run: Run) -> None:
    """The live view ends with the run, and leaves its last state on the screen."""
    run("launch", "hello.py", "--workers", "1")
    code, screen = _in_terminal(["status", "-f", "hello"])

    assert code == 0
    assert "Succeeded" in screen


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sta", {"status", "stack"}),
        ("launch --wor", {"--workers", "--worker-cpu", "--worker-memory", "--worker-gpu"}),
        ("launch --mode ", {"between-graph", "in-graph"}),
        ("status he", {"hello-1"}),
        ("logs hello-1 ", {"worker-0"}),
        ("launch hel", {"hello.py"}),
        ("launch --after he", {"hello-1"}),
        ("launch --after hello-1:", {"hello-1:success", "hello-1:end"}),
        ("list --phase S", {"Starting", "Stopping", "Succeeded", "Stopped"}),
    ],
)
def test_tab_completes_verbs_options_words_runs_and_tasks(
    run: Run, typed: str, offered: set[str]
) -> None:
    """Completion offers verbs, options, values, runs and tasks."""
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert set(completions(typed, Terminal())) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(run: Run, shell: str) -> None:
    """The completion script for each shell calls `tfcluster`."""
    done = run("completion", shell)

    assert done.code == 0
    assert "_TFCLUSTER_COMPLETE" in done.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(run: Run, verb: str) -> None:
    """`--help` of each verb works without a run, and does not import TensorFlow."""
    done = run(verb, "--help")

    assert done.code == 0
    assert done.out.startswith(f"Usage: tfcluster {verb} ")


def test_each_option_of_a_cluster_stands_in_a_section_for_clusters(run: Run) -> None:
    """In the help of `launch`, the first section has only the options of the command itself."""
    own, _title, clusters = run("launch", "--help").out.partition("\nCluster:\n")

    flags = {option.flag for option in OPTIONS}
    assert flags & set(re.findall(r"^  (--[a-z-]+)", own, re.MULTILINE)) == set()
    assert set(re.findall(r"^  (--[a-z-]+)", clusters, re.MULTILINE)) == flags


def test_the_start_of_a_command_imports_nothing_heavy(here: Path) -> None:
    """`tfcluster list` imports only what it needs."""
    script = (
        "import sys\nfrom tfcluster_magic.cli import main\n"
        "try: main(['list'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.argv[1:] if m in sys.modules], file=sys.stderr)"
    )
    heavy = ["IPython", "tensorflow", "jinja2", "yaml", "asyncio", "tfcluster_magic.program"]
    done = subprocess.run(
        [sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.stderr.strip() == "[]"
