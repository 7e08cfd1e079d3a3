"""The state that a hub keeps after Ctrl-C, a restart, a killed proxy or hub, and a second start."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests
from support.hub.console_clients import by_token, opened, shell
from support.hub.make_run import OWNER, ROOT, Hub, Visitor
from support.ui.workspace import SLEEP

from tfcluster_magic.runs.manager import Until

PROXY = "configurable-http-proxy"
NOTEBOOK = "jupyterhub.singleuser"


@pytest.fixture(autouse=True)
def _runs(hub: Hub, admin: Visitor) -> None:
    """Make sure that each test begins with a running hub."""
    if hub.process is None:
        hub.start()


def test_a_second_start_tells_where_the_first_is(hub: Hub, admin: Visitor) -> None:
    """A second start with the same accounts is refused and names the address of the first."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "hub.py"), "--workspace", str(hub.root)],
        env=hub.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert f"your hub is running already: open {hub.url}/" in done.stderr


@dataclass(frozen=True)
class Restart:
    """Observations after Ctrl-C has ended the hub, and after the hub has started again."""

    lab: str
    """URL of the owner's notebook before the restart."""
    token: str
    """The token that commands in a shell used before the restart, when the hub accepted it."""
    ended: str
    """Output of the hub when it ended."""
    left: list[psutil.Process]
    """Processes of the hub that survived its end, except those of clusters."""
    phase: str
    """Phase of the cluster after the hub had ended."""
    files: list[Path]
    """Files with the hub's URL or the token of shells that were left after the hub's end."""
    asked: subprocess.CompletedProcess[str]
    """Result of a command that needed the console, run while the hub was down."""
    invited: str
    """Invitation link made while the hub was down."""
    removed: str
    """Output of removing an administrator while the hub was down."""
    again: str
    """Link for a new account with the name of the removed administrator."""
    started: str
    """Output of the hub when it started again."""


@pytest.fixture(scope="module")
def restart(hub: Hub, admin: Visitor) -> Restart:
    """One restart of the hub, whose effects the tests check."""
    lab = admin.notebook()
    run = hub.launch(SLEEP, "steady", workers=1)
    hub.manager.wait(run.metadata.name, 180, until=Until.READY)
    opened(admin)
    token = _token(hub)
    assert by_token(hub, token).status_code == 200
    hub.visitor().set_password(hub.accounts("invite", "leaver", "--admin").strip())
    ended = hub.end()
    return Restart(
        lab,
        token,
        ended,
        [p for p in hub.processes("") if PROXY in str(p.cmdline())]
        + hub.processes(NOTEBOOK)
        + hub.processes("jupyterhub"),
        hub.manager.status("steady").status.phase.value,
        [file for file in (hub.state / "hub").iterdir() if file.name in ("shell_token", "url")],
        shell(hub, "admin", "clusters"),
        hub.accounts("invite", "meanwhile"),
        hub.accounts("remove", "leaver"),
        hub.accounts("invite", "leaver").strip(),
        hub.start(),
    )


def _token(hub: Hub) -> str:
    return (hub.state / "hub" / "shell_token").read_text()


def test_ctrl_c_ends_all_but_clusters_and_a_restart_finds_them(
    hub: Hub, admin: Visitor, restart: Restart
) -> None:
    """Hub, proxy and notebooks end; browsers stay signed in, and runs continue."""
    assert "Running clusters, if any, go on" in restart.ended
    assert not restart.left
    assert restart.phase == "Running"
    assert f"Sign in as {OWNER}" in restart.started and "set-password" not in restart.started
    assert admin.signed_in
    assert admin.notebook() == restart.lab
    runs = admin.get(f"{restart.lab}/tfcluster/api/clusters").json()
    assert "steady" in str(runs)
    hub.manager.stop("steady", "seen")


def test_the_token_of_a_shell_ends_with_the_hub(hub: Hub, admin: Visitor, restart: Restart) -> None:
    """When the hub ends, it removes the files with its URL and with the token that commands in a
    shell use. After the next start the old token is invalid. Links that were made while the hub was
    down have the hub's old address.
    """
    assert not restart.files
    assert restart.asked.returncode == 2 and "no hub runs on this machine" in restart.asked.stderr
    assert restart.invited.startswith(f"{hub.url}/hub/set-password?code=")
    opened(admin)
    tokens = (restart.token, _token(hub))
    assert [by_token(hub, one).status_code for one in tokens] == [401, 200]


def test_who_is_removed_while_it_is_away_is_none_of_its_users(
    hub: Hub, admin: Visitor, restart: Restart
) -> None:
    """If a user is removed while the hub is down, the next start completes the removal, and keeps a
    new account of the same name.
    """
    assert "at its next start" in restart.removed
    gone = "the user of before"
    hub.until(lambda: admin.api("GET", "users/leaver").status_code == 404, gone, 60)
    hub.visitor().set_password(restart.again)
    assert hub.visitor("leaver").get("admin").status_code == 403


def test_a_killed_proxy_comes_back_with_everything_behind_it(hub: Hub, admin: Visitor) -> None:
    """A killed proxy is back within seconds, with all notebooks. If a shutdown takes long,
    JupyterHub starts another proxy meanwhile; Ctrl-C ends that proxy too.
    """
    lab = admin.notebook()
    hub.one(PROXY).kill()

    def back() -> bool:
        try:
            return admin.get(f"{lab}/api/status").status_code == 200
        except requests.ConnectionError:
            return False

    hub.until(back, "the proxy", 40)
    # This notebook does not end, so JupyterHub checks its proxy again while it still waits for the
    # notebook.
    hub.one(NOTEBOOK).suspend()

    hub.end()

    assert "Starting proxy" in hub.said().partition("Cleaning up proxy")[2]
    assert not hub.processes(PROXY)


def test_a_killed_hub_leaves_nothing_in_the_way_and_keeps_notebooks(
    hub: Hub, admin: Visitor
) -> None:
    """The next start ends the leftover proxy and finds the running notebook."""
    lab = admin.notebook()
    notebook = hub.one(NOTEBOOK)
    assert hub.process is not None
    hub.one("-m jupyterhub -f").kill()

    assert hub.process.wait(30) == 1
    hub.process = None
    assert "The hub has ended by itself" in (hub.folder / "told.txt").read_text()
    assert not hub.processes(PROXY)
    assert notebook.is_running()

    hub.start()

    assert hub.one(NOTEBOOK) == notebook
    assert admin.notebook() == lab
    assert admin.get(f"{lab}/api/status").status_code == 200


def test_both_killed_at_once_is_no_obstacle(hub: Hub, admin: Visitor) -> None:
    """When hub and proxy are killed, as on a machine that is out of memory, the next start ends the
    leftover proxy.
    """
    assert hub.process is not None
    old = hub.one(PROXY)
    inner = hub.one("-m jupyterhub -f")
    inner.suspend()  # otherwise JupyterHub, told that its parent died, would end the proxy
    hub.process.kill()
    inner.kill()
    hub.process.wait(30)
    hub.process = None
    assert old.is_running()

    assert hub.url in hub.start()

    assert not old.is_running()
    assert hub.one(PROXY).is_running()
    assert admin.signed_in


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_closing_the_terminal_ends_it_cleanly(
    hub: Hub, admin: Visitor, number: signal.Signals
) -> None:
    """SIGHUP ends the hub like Ctrl-C does."""
    hub.end(number)

    assert not hub.processes("")


def test_an_administrator_shuts_it_down_from_the_page(hub: Hub, admin: Visitor) -> None:
    """`Shutdown Hub` ends the hub as cleanly as Ctrl-C does, with the same message."""
    assert admin.api("POST", "shutdown", {"proxy": True, "servers": True}).status_code == 202
    assert hub.process is not None and hub.process.wait(60) == 0
    hub.process = None

    assert (
        "The hub has ended. Running clusters, if any, go on"
        in (hub.folder / "told.txt").read_text()
    )
    assert not hub.processes("")


def test_a_failed_start_shows_only_its_own_lines(tmp_path: Path) -> None:
    """`make run` prints why this start failed, without the lines of earlier starts in the log."""
    hub = Hub(tmp_path, environment={"TFCLUSTER_HUB_SIGN_IN": "ldap"})
    (tmp_path / "home").mkdir(exist_ok=True)
    log = hub.state / "hub" / "hub.log"
    log.parent.mkdir(parents=True, mode=0o700)
    log.write_text("an error of an earlier start\n")
    words = [sys.executable, str(ROOT / "tools" / "hub.py"), *hub._words()]
    done = subprocess.run(words, env=hub.environment, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "use accounts or oidc" in done.stderr
    assert "earlier start" not in done.stderr
    assert log.read_text().startswith("an error of an earlier start")
