"""Run buildah without installing it: in namespaces of its own, on a Debian tree that has it.

Its storage lies in the cache, so that layers are made once. What builds need of the machine goes in
with them and never into an image: the certificates it trusts, its proxies, where its pip and its
npm find packages.
"""

from __future__ import annotations

import configparser
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import debian, paths
from .commands import SYSTEM_PATH, run

SCRIPT = Path(__file__).with_name("buildah.sh")
CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt"  # where Debian, and so every image here, keeps them
)
PIP_CONFIGURATION = "/run/pip.conf"
NPM_CONFIGURATION = "/run/npmrc"
PIP_OPTIONS = (
    *("index-url", "extra-index-url", "no-index", "trusted-host"),  # where packages are
    *("proxy", "default-timeout", "timeout", "retries"),  # how they are reached
)
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "ftp_proxy", "all_proxy")


def storage() -> Path:
    """Where layers and images lie."""
    return paths.cache() / "containers"


def buildah(
    arguments: Sequence[str],
    *,
    binds: Mapping[Path, str] | None = None,
    network_of: int = 0,
    hosts: str = "127.0.0.1 localhost",
) -> str:
    """Run `buildah` with `arguments` to its end and return its stdout.

    Args:
        arguments: a buildah command; paths in it are those of its own root.
        binds: files and folders of the machine, and where they appear there.
        network_of: a process whose network it uses; 0 is the machine's, for package registries.
        hosts: its /etc/hosts.

    Raises:
        NodeError: it failed; the message has what it said last.
    """
    folders = {name: storage() / name for name in ("storage", "cache", "tmp", "root")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    inside = {
        folders["storage"]: "/var/lib/containers/storage",
        folders[
            "cache"
        ]: "/var/lib/containers/cache",  # which layer a registry has, and under which digest
        folders["tmp"]: "/var/tmp",  # layers on their way: too large for memory
        Path("/etc/resolv.conf"): "/etc/resolv.conf",
        **({trusted: CERTIFICATES} if (trusted := certificates()) else {}),
        **(binds or {}),
    }
    with tempfile.NamedTemporaryFile("w") as pip, tempfile.NamedTemporaryFile("w") as npm:
        pip.write(pip_configuration())
        npm.write(npm_configuration())
        for file, at in ((pip, PIP_CONFIGURATION), (npm, NPM_CONFIGURATION)):
            file.flush()
            inside[Path(file.name)] = at
        enter = ["nsenter", f"--target={network_of}", "--net", "--"] if network_of else []
        return run(
            [*enter, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", str(SCRIPT)]
            + [str(debian.tree("builder")), str(folders["root"]), hosts]
            + [f"{source}={target}" for source, target in inside.items()]
            + ["--", "buildah", *arguments],
            env=environment(proxies=not network_of),
            hint=f"Its storage is {storage()}; while nothing is being built it can be removed.",
        )


def environment(*, proxies: bool) -> dict[str, str]:
    """A plain environment, and the machine's proxies if it is to use its network."""
    plain = {"PATH": SYSTEM_PATH, "HOME": "/root", "TMPDIR": "/var/tmp"}
    known = {name: value for name, value in os.environ.items() if name.lower() in PROXIES}
    return plain | (known if proxies else {})


def certificates() -> Path | None:
    """The file with the certificate authorities that this machine trusts."""
    known = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, CERTIFICATES)
    return next((Path(each).resolve() for each in known if each and Path(each).is_file()), None)


def pip_configuration() -> str:
    """The machine's settings of pip that say where packages come from, as a pip.conf."""
    parser = configparser.RawConfigParser()
    home = Path.home()
    own = os.environ.get("PIP_CONFIG_FILE", os.devnull)
    parser.read(
        ["/etc/pip.conf", home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf", own]
    )
    settings = dict(parser["global"]) if parser.has_section("global") else {}
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            settings[name[len("PIP_") :].lower().replace("_", "-")] = value
    lines = [f"{name} = {settings[name]}" for name in PIP_OPTIONS if name in settings]
    return "\n".join(["[global]", f"cert = {CERTIFICATES}", *lines, ""])


def npm_configuration() -> str:
    """The machine's settings of npm that say where packages come from, as an .npmrc."""
    known = {name.lower(): value for name, value in os.environ.items()}
    registry = known.get("npm_config_registry")
    lines = [f"registry={registry}"] if registry else []
    own = Path.home() / ".npmrc"
    if own.is_file():
        lines += [line for line in own.read_text().splitlines() if line.startswith("registry=")]
    return "\n".join([f"cafile={CERTIFICATES}", *lines, ""])
