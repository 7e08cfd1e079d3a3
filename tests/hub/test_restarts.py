"""What ends and what goes on: Ctrl-C, a restart, a killed proxy, a killed hub, a second start."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import requests
from support.hub.console_clients import by_token, opened, shell
from support.hub.make_run import OWNER, ROOT, Hub, Visitor
from support.ui.workspace import SLEEP

from tfcluster_magic.runs.manager import Until

PROXY = "configurable-http-proxy"
NOTEBOOK = "jupyterhub.singleuser"


def test_a_second_start_tells_where_the_first_is(hub: Hub, admin: Visitor) -> None:
    """Nobody has two hubs on one set of accounts."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "hub.py"), "--workspace", str(hub.root)],
        env=hub.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert f"your hub is running already: open {hub.url}/" in done.stderr


def test_ctrl_c_ends_all_but_clusters_and_a_restart_finds_them(hub: Hub, admin: Visitor) -> None:
    """Hub, proxy and notebooks end; browsers stay signed in, runs go on."""
    lab = admin.notebook()
    run = hub.launch(SLEEP, "steady", workers=1)
    hub.manager.wait(run.metadata.name, 180, until=Until.READY)

    told = hub.end()

    assert "Running clusters go on" in told
    assert not [p for p in hub.processes("") if PROXY in str(p.cmdline())]
    assert not hub.processes(NOTEBOOK) and not hub.processes("jupyterhub")
    assert hub.manager.status("steady").status.phase == "Running"

    told = hub.start()

    assert f"Sign in as {OWNER}" in told and "set-password" not in told
    assert admin.signed_in
    assert admin.notebook() == lab
    runs = admin.get(f"{lab}/tfcluster/api/clusters").json()
    assert "steady" in str(runs)
    hub.manager.stop("steady", "seen")


def test_the_token_of_a_shell_ends_with_the_hub(hub: Hub, admin: Visitor) -> None:
    """Nothing of a hub that has ended leads to its port; its token is void at the next start, and
    links that are made meanwhile lead to where it was.
    """
    opened(admin)
    folder = hub.state / "hub"
    before = (folder / "shell_token").read_text()
    assert by_token(hub, before).status_code == 200

    hub.end()

    assert not (folder / "shell_token").exists() and not (folder / "url").exists()
    asked = shell(hub, "admin", "clusters")
    assert asked.returncode == 2 and "none runs here" in asked.stderr
    assert hub.accounts("invite", "meanwhile").startswith(f"{hub.url}/hub/set-password?code=")

    hub.start()

    opened(admin)
    after = (folder / "shell_token").read_text()
    assert [by_token(hub, one).status_code for one in (before, after)] == [401, 200]


def test_a_killed_proxy_comes_back_with_everything_behind_it(hub: Hub, admin: Visitor) -> None:
    """A killed proxy is back within seconds, with all notebooks. If a later shutdown takes long,
    JupyterHub starts another proxy; Ctrl-C ends this one, too.
    """
    lab = admin.notebook()
    hub.one(PROXY).kill()

    def back() -> bool:
        try:
            return admin.get(f"{lab}/api/status").status_code == 200
        except requests.ConnectionError:
            return False

    hub.until(back, "the proxy", 40)
    hub.one(NOTEBOOK).suspend()  # the hub waits for it longer than its proxy check interval

    hub.end()

    assert "Starting proxy" in hub.said().partition("Cleaning up proxy")[2]
    assert not hub.processes(PROXY)
    hub.start()


def test_a_killed_hub_leaves_nothing_in_the_way_and_keeps_notebooks(
    hub: Hub, admin: Visitor
) -> None:
    """The next start ends the proxy that was left, and finds the notebook that goes on."""
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
    """As by a machine that runs out of memory: the proxy that was left is ended."""
    assert hub.process is not None
    old = hub.one(PROXY)
    inner = hub.one("-m jupyterhub -f")
    inner.suspend()  # else it would be told that its parent died, and end the proxy itself
    hub.process.kill()
    inner.kill()
    hub.process.wait(30)
    hub.process = None
    assert old.is_running()

    assert hub.url in hub.start()

    assert not old.is_running()
    assert hub.one(PROXY).is_running()
    assert admin.signed_in


def test_who_is_removed_while_it_is_away_is_none_of_its_users(hub: Hub, admin: Visitor) -> None:
    """The next start makes up for it, and leaves a new account of that name alone."""
    hub.visitor().set_password(hub.accounts("invite", "leaver", "--admin").strip())
    hub.end()
    assert "at its next start" in hub.accounts("remove", "leaver")
    link = hub.accounts("invite", "leaver").strip()

    hub.start()

    gone = "the user of before"
    hub.until(lambda: admin.api("GET", "users/leaver").status_code == 404, gone, 60)
    hub.visitor().set_password(link)
    assert hub.visitor("leaver").get("admin").status_code == 403


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_closing_the_terminal_ends_it_cleanly(
    hub: Hub, admin: Visitor, number: signal.Signals
) -> None:
    """As Ctrl-C does."""
    hub.end(number)

    assert not hub.processes("")
    hub.start()


def test_an_administrator_shuts_it_down_from_the_page(hub: Hub, admin: Visitor) -> None:
    """`Shutdown Hub` is an end like Ctrl-C, and told as one."""
    assert admin.api("POST", "shutdown", {"proxy": True, "servers": True}).status_code == 202
    assert hub.process is not None and hub.process.wait(60) == 0
    hub.process = None

    assert "The hub has ended. Running clusters go on" in (hub.folder / "told.txt").read_text()
    assert not hub.processes("")
    hub.start()
