"""Terminals of a server that runs without a terminal, as a hub's notebook does."""

from __future__ import annotations

import json
import os
import pty
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPResponse
from traitlets.config import Config

from tfcluster_magic.server.app import BASH_LOGIN_FILE, login_shell

PROFILE = "export PATH=/usr/local/bin:/usr/bin:/bin FROM_PROFILE=yes\n"
"""A profile that replaces PATH, as /etc/profile does."""


@pytest.fixture(autouse=True, params=["bash", "sh"])
def no_terminal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, jp_home_dir: Path
) -> None:
    """Let the server run without a terminal, with a profile that replaces PATH."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    jp_home_dir.mkdir(parents=True, exist_ok=True)
    (jp_home_dir / ".profile").write_text(PROFILE)
    monkeypatch.setenv("HOME", str(jp_home_dir))
    monkeypatch.setenv("SHELL", str(shutil.which(request.param)))


async def test_a_terminal_finds_the_programs_after_its_profile(
    jp_fetch: Callable[..., Awaitable[HTTPResponse]], jp_ws_fetch: Any
) -> None:
    """A terminal reads the profile, and the server's `tfcluster` and `python` are on its PATH."""
    made = json.loads((await jp_fetch("api", "terminals", method="POST", body="")).body)
    socket = await jp_ws_fetch("terminals", "websocket", made["name"])

    typed = 'echo "<$FROM_PROFILE $(command -v tfcluster) $(command -v python)>"\r'
    await socket.write_message(json.dumps(["stdin", typed]))
    bin_folder = Path(sys.executable).parent
    wanted = f"<yes {bin_folder / 'tfcluster'} {bin_folder / 'python'}>"
    seen = ""
    while wanted not in seen.replace("\r", "").replace("\n", ""):
        kind, *words = json.loads(await socket.read_message())
        assert kind != "disconnect", seen
        seen += words[0] if kind == "stdout" else ""
    socket.close()
    await jp_fetch("api", "terminals", made["name"], method="DELETE")


@pytest.mark.parametrize("no_terminal", ["bash"], indirect=True)
@pytest.mark.usefixtures("own_shell")
async def test_a_shell_that_somebody_chose_stays(jp_serverapp: Any) -> None:
    """A configured shell is kept."""
    assert jp_serverapp.terminado_settings["shell_command"] == ["/bin/cat"]


@pytest.fixture
def own_shell(jp_server_config: Config) -> None:
    """Configure a shell for terminals."""
    jp_server_config.ServerApp.terminado_settings = {"shell_command": ["/bin/cat"]}


@pytest.mark.parametrize("no_terminal", ["bash"], indirect=True)
def test_a_shell_with_rules_of_its_own_is_left_to_jupyter(tmp_path: Path) -> None:
    """A shell that `-l -c` does not make a login shell, such as the C shell, is started as Jupyter
    does by default. An account without a shell gets the default shell.
    """
    assert login_shell({"SHELL": "/usr/bin/tcsh"}, tmp_path) is None
    before = tmp_path / "local"
    command = login_shell({"SHELL": "/bin/zsh", "PATH": f"{before}:{tmp_path}:/bin"}, tmp_path)
    assert command == [
        "/bin/zsh",
        "-l",
        "-c",
        f'exec env PATH={before}:{tmp_path}:"$PATH" /bin/zsh',
    ]


PERSONAL = """echo read >> ~/reads
alias ll='echo an alias'
hello() { echo a function; }
PS1='mine> '
export PATH=/usr/local/bin:/usr/bin:/bin
"""
"""A profile with settings that only an interactive shell keeps."""


def in_bash(home: Path, typed: str, **environ: str) -> str:
    """Type `typed` into the bash of a terminal with this home folder; return everything that it
    prints until it ends.
    """
    environ = {"SHELL": str(shutil.which("bash")), "HOME": str(home), "TERM": "dumb"} | environ
    command = login_shell(environ, home / "programs")
    assert command is not None
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, {"PATH": os.environ["PATH"], **environ})
    os.write(terminal, f"{typed}; exit\n".encode())
    printed = b""
    try:
        while some := os.read(terminal, 4096):
            printed += some
    except OSError:  # this is how Linux reports the end of a terminal
        pass
    os.close(terminal)
    os.waitpid(child, 0)
    return printed.decode()


@pytest.mark.parametrize("no_terminal", ["bash"], indirect=True)
@pytest.mark.parametrize("name", [".bash_profile", ".bash_login", ".profile", ".bashrc"])
def test_bash_keeps_all_of_the_profile(tmp_path: Path, name: str) -> None:
    """The profile's aliases, functions and prompt are set, PATH begins with the server's own
    folders, and the profile is read once.
    """
    later = [".bash_profile", ".bash_login", ".profile", ".bashrc"]
    for other in later[later.index(name) :]:
        (tmp_path / other).write_text(PERSONAL)
    said = in_bash(tmp_path, 'll; hello; echo "<$PATH>"')
    for wanted in ("an alias\r\n", "a function\r\n", "mine> ", f"<{tmp_path}/programs:/usr/local"):
        assert wanted in said
    assert (tmp_path / "reads").read_text() == "read\n"


@pytest.mark.parametrize("no_terminal", ["bash"], indirect=True)
def test_bash_is_a_login_shell_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The shell is a login shell; the server's variable ENV and bash's history file are
    unchanged.
    """
    (tmp_path / ".bash_profile").write_text("shopt -q login_shell && echo a login shell\n")
    typed = 'echo "<$ENV $HISTFILE $(shopt -o posix)>"; set | grep -ci ^_*tfcluster'
    said = in_bash(tmp_path, typed, ENV="production")
    assert "a login shell\r\n" in said
    assert f"<production {tmp_path}/.bash_history posix          \toff>\r\n0\r\n" in said
    assert BASH_LOGIN_FILE.name not in in_bash(tmp_path, "env")
