"""The script behind `make run`. It starts the hub on this machine and says how to use the hub.

The script prints one address; at the first start, the address is a link that sets a password.
Ctrl-C ends hub, proxy and notebooks within seconds; running clusters keep running. Leftovers of a
killed hub are removed. The script owns the hub's state folder and the hub process; the hub's
settings are in tfcluster_magic/hub/embedded.py. It runs in .venv.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from pathlib import Path

import proxy
from lab import BIN, EXAMPLES, GO_ON, ROOT, free_port

from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.hub.auth import FILE
from tfcluster_magic.hub.auth.accounts import AccountStore
from tfcluster_magic.hub.auth.commands import LAST_URL, URL, link
from tfcluster_magic.hub.auth.system_accounts import Person, owner, readable
from tfcluster_magic.hub.console.service import SHELL_TOKEN_FILE
from tfcluster_magic.hub.notebook import FIRST_EXAMPLE
from tfcluster_magic.hub.shared_settings import SUBDOMAIN_HOST, base_url, subdomain_host
from tfcluster_magic.paths import home_dir, private, state_dir

CONFIG = ROOT / "hub_config" / "jupyterhub_config.py"
START = 180.0  # maximum seconds until the hub answers, even on a slow disk
LOG_KEPT = 4_000_000  # size of hub.log in bytes above which the next start rotates it
# Prefixes of variables that the hub must not get: a notebook server may have set them.
FOREIGN = ("JUPYTERHUB_", "JPY_", "CONFIGPROXY_")
PDEATHSIG = 1  # prctl(2)


def main() -> int:
    """Start the hub and wait until it ends."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--port", type=int, default=8888, help="the first port to try")
    parser.add_argument("--base-url", default="", help="the path below which it is served")
    parser.add_argument(
        "--subdomain-host",
        default="",
        help="a name such as hub.localhost, below which each notebook has a host of its own",
    )
    options = parser.parse_args()
    if options.base_url:
        os.environ["TFCLUSTER_HUB_BASE_URL"] = options.base_url
    workspace = options.workspace.expanduser().absolute()
    try:
        proxy.install(BIN.parent)
    except proxy.ProxyError as problem:
        sys.exit(
            f"make run: the hub's proxy is not installed. {problem}\n"
            "      Without a hub: make run HUB=0"
        )
    try:
        workspace.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        sys.exit(
            f"make run: cannot write the workspace {workspace}: {problem.strerror}.\n"
            "      Choose another: make run WORKSPACE=/a/folder"
        )
    try:
        state = private(state_dir() / "hub")
        state.chmod(0o700)
        lock = alone(state)
        end_leftover(state / "proxy.pid")
        port = free_port(options.port)
        if options.subdomain_host:
            os.environ[SUBDOMAIN_HOST] = f"http://{options.subdomain_host}:{port}"
        subdomain_host()  # raises an error if the setting is wrong, before anything starts
        return serve(state, workspace, port, lock)
    except TFClusterError as problem:
        sys.exit(f"make run: {problem}")


def alone(state: Path) -> int:
    """Lock the state folder for one hub; return the lock, which the hub inherits."""
    lock = os.open(state / "hub.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        url = (state / URL).read_text().strip() if (state / URL).exists() else "its address"
        sys.exit(
            f"make run: your hub is running already: open {url}/, or end it first with Ctrl-C in "
            "its terminal.\n      Forgot your password? Run `make password`."
        )
    return lock


def end_leftover(note: Path) -> None:
    """End the proxy of a killed hub. This must run before a new hub starts: JupyterHub
    would end any process that now has the pid in `note`, even if it is not a proxy.
    """
    try:
        pid = int(note.read_text())
        words = Path("/proc", str(pid), "cmdline").read_bytes()
    except (OSError, ValueError):
        words = b""
    if b"configurable-http-proxy" in words:
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + 3
            os.kill(pid, number)
            while running(pid) and time.monotonic() < deadline:
                time.sleep(0.05)  # it is not our child, so we cannot wait for it
    note.unlink(missing_ok=True)


def running(pid: int) -> bool:
    """Return whether a process is alive. A process counts as alive until its last thread has ended,
    because its ports are in use until then.
    """
    process = Path("/proc", str(pid))
    try:
        ended = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not ended or len(list((process / "task").iterdir())) > 1
    except OSError:
        return False


def inner_ports(state: Path) -> list[int]:
    """Return the ports of hub, proxy and console. Notebooks know the ports of the last start, so
    these are reused if free.
    """
    note = state / "ports.json"
    try:
        ports = [int(port) for port in json.loads(note.read_text())]
    except (OSError, ValueError):
        ports = []
    chosen: list[int] = []
    probes = []
    for wanted in [*ports, 0, 0, 0][:3]:
        probe = socket.socket()
        probes.append(probe)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        chosen.append(probe.getsockname()[1])
    for probe in probes:
        probe.close()
    note.write_text(json.dumps(chosen))
    return chosen


def serve(state: Path, workspace: Path, port: int, lock: int) -> int:
    """Run the hub until it ends; Ctrl-C and SIGTERM end it cleanly."""
    # The default URL; a browser may use any other name of this host, too.
    here = f"http://127.0.0.1:{port}"
    url = f"{subdomain_host() or here}{base_url().rstrip('/')}"
    (state / URL).write_text(url)
    invitation = invite(state, url)
    log = state / "hub.log"
    if log.exists() and log.stat().st_size > LOG_KEPT:
        log.replace(log.with_name("hub.log.1"))
    before = log.stat().st_size if log.exists() else 0
    hub_port, proxy_port, console_port = inner_ports(state)
    env = {
        **{key: text for key, text in os.environ.items() if not key.startswith(FOREIGN)},
        "PATH": proxy.search_path(BIN.parent),
        "VIRTUAL_ENV": str(BIN.parent),
        "TFCLUSTER_HOME": str(workspace),
        "TFCLUSTER_HUB": "embedded",
        "TFCLUSTER_HUB_STATE": str(state),
        "TFCLUSTER_HUB_PORT": str(port),
        "TFCLUSTER_HUB_HUB_PORT": str(hub_port),
        "TFCLUSTER_HUB_PROXY_PORT": str(proxy_port),
        "TFCLUSTER_HUB_CONSOLE_PORT": str(console_port),
        "TFCLUSTER_HUB_EXAMPLES": str(EXAMPLES),
    }
    command = [sys.executable, "-m", "jupyterhub", "-f", str(CONFIG)]
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def end_with_us() -> None:
        if prctl is not None:
            prctl(PDEATHSIG, signal.SIGTERM)

    asked: list[int] = []
    with (
        os.fdopen(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "wb") as out,
        subprocess.Popen(
            command,
            cwd=state,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C reaches the hub once, through us
            pass_fds=(lock,),  # held until the hub ends, even if this script dies
            preexec_fn=end_with_us,  # noqa: PLW1509  no thread is running yet
        ) as hub,
    ):
        os.close(lock)

        def end(number: int, _frame: object) -> None:
            asked.append(number)
            (hub.kill if len(asked) > 2 else hub.terminate)()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, end)
        if answers(hub, f"{here}{base_url()}hub/health"):
            print(welcome(workspace, url, invitation, log), flush=True)
            if not asked and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
                webbrowser.open(invitation or f"{url}/")
        elif hub.poll() is None:
            print(f"The hub does not answer at {url}/ after {START:g} s. Log: {log}", flush=True)
        code = hub.wait()
    # From now on, any account may listen on this port, so the URL must not be shown as ours.
    (state / URL).replace(state / LAST_URL)
    (state / SHELL_TOKEN_FILE).unlink(missing_ok=True)
    end_leftover(state / "proxy.pid")  # JupyterHub may have started another proxy while ending
    if code == 0 or (asked and code == -signal.SIGTERM):  # 0 if an administrator shut the hub down
        print(f"The hub has ended. {GO_ON}", flush=True)
        return 0
    last = log.read_bytes()[before:].decode(errors="replace").splitlines()[-12:]
    print(
        "\n".join(
            [
                "",
                *last,
                "",
                f"The hub has ended by itself (exit code {code}). The end of {log} is above.",
                "Notebooks and clusters go on; make run finds them again.",
            ]
        ),
        file=sys.stderr,
    )
    return code if code > 0 else 1


def invite(state: Path, url: str) -> str | None:
    """Return a link that sets the owner's password; None if the owner has a password, or signs in
    without one.
    """
    if elsewhere():
        return None
    store, name = AccountStore(state / FILE), owner()
    if store.password(name) is not None:
        return None
    return link(url, store.invite(name, admin=True))


def elsewhere() -> bool:
    """Return whether users sign in at an identity provider, without passwords of the hub."""
    return os.environ.get("TFCLUSTER_HUB_SIGN_IN") == "oidc"


def answers(hub: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until the hub answers through its proxy; return False if it ended first."""
    deadline = time.monotonic() + START
    while hub.poll() is None and time.monotonic() < deadline:
        if answered(url):
            return True
        time.sleep(0.1)  # two programs are starting, and neither signals that it is ready
    return False


def answered(url: str) -> bool:
    """Return whether this address answers now."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


ANYBODY = Person("nobody", Path("/"), 65534, 65534)
"""An account without any rights of its own."""


def welcome(workspace: Path, url: str, invitation: str | None, log: Path) -> str:
    """Return what to open, who may sign in, and how to end the hub."""
    name = owner()
    home = "" if workspace == home_dir() else f"TFCLUSTER_HOME={shlex.quote(str(workspace))} "
    if invitation:
        opened = [
            "  TFCluster is ready. Open this link in a browser on this machine; it works once:",
            "",
            f"      {invitation}",
            "",
            f"  There you choose a password for {name}, the administrator of this hub. Then",
            f"  examples/{FIRST_EXAMPLE} opens: run its cells with Shift+Enter.",
            f"  Next time, open {url}/",
        ]
    else:
        opened = [
            f"  TFCluster is ready. Sign in as {name} in a browser on this machine:",
            "",
            f"      {url}/",
            "",
            *([] if elsewhere() else ["  Forgot your password? Run `make password`."]),
        ]
    if os.geteuid() == 0:
        people = [
            "  You are root, so your notebook runs as root. Users with a system account here can",
            "  have a notebook under it: invite them by name on the page Users.",
        ]
        if not readable(ANYBODY):
            people = [
                "  You are root, so your notebook runs as root. Nobody else can have one yet:",
                f"  other accounts cannot run {os.path.realpath(sys.executable)} with the",
                f"  packages in {sys.prefix}. docs/how-to/hub.md says how to change that.",
            ]
    else:
        people = [
            f"  Notebooks run as {name}, for {name} alone. To add users, read docs/how-to/hub.md"
        ]
    return "\n".join(
        [
            "",
            *opened,
            *people,
            f"  Your files: {workspace}    Shell: {home}.venv/bin/tfcluster --help",
            f"  Log: {log}    End: Ctrl-C",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
