"""The console as a service in the hub's configuration."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from tfcluster_magic.hub.console import service
from tfcluster_magic.hub.console.routes import ROUTES
from tfcluster_magic.hub.console.routes.base import ConsoleHandler, ConsolePage


@pytest.mark.parametrize("set_before", [{}, {"own_passwords": True}])
def test_the_console_is_added_to_what_is_set_already(
    set_before: dict[str, bool], tmp_path: Path
) -> None:
    """Template variables that are already set, as with the hub's own accounts, are kept."""
    c = Config()
    if set_before:
        c.JupyterHub.template_vars = dict(set_before)
    with held() as (_holder, port):
        pass
    service.configure(c, port=port, owner="ada", state=tmp_path)
    hub = JupyterHub(config=c)

    words = {"console": "services/admin/", "console_pages": service.PAGES}
    assert hub.template_vars == {**set_before, **words}
    process, admin, shell = hub.services
    assert (process["name"], admin["name"]) == ("admin-process", "admin")
    # with both keys in one service, a starting hub would wait for the process
    assert "url" not in process and "command" not in admin
    assert admin["url"] == f"http://127.0.0.1:{port}"
    assert process["environment"]["TFCLUSTER_CONSOLE_TOKEN"] == admin["api_token"]
    for file, one in (("console_token", admin), ("shell_token", shell)):
        assert (tmp_path / file).stat().st_mode & 0o777 == 0o600
        assert (tmp_path / file).read_text() == one["api_token"]
    scopes = {role["services"][0]: role["scopes"] for role in hub.load_roles}
    assert scopes == {"admin": service.SCOPES, "shell": ["access:services!service=admin"]}


def test_every_page_of_the_navigation_is_there() -> None:
    """Each link of the navigation leads to the page with the link's title."""
    pages = {path: one.title for path, one in ROUTES if issubclass(one, ConsolePage)}
    assert {path: title for title, path in service.PAGES} == pages


def test_a_port_that_is_taken_is_not_waited_for(tmp_path: Path) -> None:
    """If the console's port is taken, the console gets another port, which no other program gets.
    It keeps its token; shells get a new token at each start.
    """
    said, of_shell = [], set()
    with held() as (_holder, port):
        for _start in range(2):
            c = Config()
            service.configure(c, port=port, owner="ada", state=tmp_path)
            _process, admin, shell = JupyterHub(config=c).services
            said.append(admin)
            of_shell.add(shell["api_token"])

    ports = [int(one["url"].rpartition(":")[2]) for one in said]
    assert port not in ports
    assert said[0]["api_token"] == said[1]["api_token"]
    assert len(of_shell) == 2
    for one in ports:
        with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
            stranger.bind(("127.0.0.1", one))


def test_a_console_that_cannot_be_told_of_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the console's tokens cannot be stored, the hub starts without a console, and the hub's log
    says why.
    """
    c = Config()
    with held() as (_holder, port):
        service.configure(c, port=port, owner="ada", state=tmp_path / "is-not-there")

    assert not c
    assert "without its admin console" in caplog.text


def test_the_process_is_the_service_that_the_hub_was_told_of() -> None:
    """The process gets the variables that JupyterHub's classes read; their paths are below the
    hub's base_url.
    """
    environ = {"TFCLUSTER_CONSOLE_TOKEN": "hush", "TFCLUSTER_HUB_BASE_URL": "/tf/"}
    environ["JUPYTERHUB_OAUTH_ACCESS_SCOPES"] = '["access:services!service=admin-process"]'
    service.run_as_service(environ)

    assert environ["JUPYTERHUB_API_TOKEN"] == "hush"
    assert "TFCLUSTER_CONSOLE_TOKEN" not in environ
    assert "process" not in str(environ)
    assert environ["JUPYTERHUB_SERVICE_PREFIX"] == "/tf/services/admin/"
    assert environ["JUPYTERHUB_CLIENT_ID"] == "service-admin"
    assert environ["JUPYTERHUB_BASE_URL"] == "/tf/"


def test_a_service_named_shell_is_the_owner_on_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service named shell is shown as the hub's owner only on this machine. On Kubernetes, an
    administrator created a service of this name, so it is shown as a service.
    """
    handler = ConsoleHandler.__new__(ConsoleHandler)
    for owner, kind, who, by_shell in (
        ("ada", "service", "ada", True),
        (None, "service", "service shell", False),
        ("ada", "user", "shell", False),
    ):
        monkeypatch.delenv(service.OWNER, raising=False)
        if owner:
            monkeypatch.setenv(service.OWNER, owner)
        handler._hub_auth_user_cache = {"name": "shell", "kind": kind}
        assert (handler.who, handler.by_shell) == (who, by_shell)


def test_with_hosts_for_notebooks_the_console_is_at_the_hubs_own() -> None:
    """If notebooks have host names, the hub redirects the browser to the address that the console
    registered.
    """
    environ = {"TFCLUSTER_CONSOLE_TOKEN": "hush", "TFCLUSTER_HUB_BASE_URL": "/tf/"}
    environ["TFCLUSTER_HUB_SUBDOMAIN_HOST"] = "https://hub.example.com"
    service.run_as_service(environ)

    assert environ["JUPYTERHUB_HOST"] == "https://hub.example.com"
    callback = "https://hub.example.com/tf/services/admin/oauth_callback"
    assert environ["JUPYTERHUB_OAUTH_CALLBACK_URL"] == callback


def test_without_a_port_there_is_no_console() -> None:
    """Without a port, there is neither the console's service nor a link to it."""
    c = Config()
    service.configure(c, port=0, owner="ada", state=Path("/nowhere"))

    assert not c


@contextmanager
def held() -> Iterator[tuple[socket.socket, int]]:
    """Listen on a free port of the loopback; yield the socket and the port."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder, holder.getsockname()[1]
