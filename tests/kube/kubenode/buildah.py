"""Run buildah without installing it, in its own namespaces on a Debian tree that contains it.

Its storage is in the cache, so that layers are built once. Builds use the machine's trusted
certificates, its proxies, and the package sources of the machine's pip and npm; none of these
settings gets into an image.
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
    "/etc/ssl/certs/ca-certificates.crt"  # Debian's path, and so the path in every image here
)
PIP_CONFIGURATION = "/run/pip.conf"
NPM_CONFIGURATION = "/run/npmrc"
PIP_OPTIONS = (
    *("index-url", "extra-index-url", "no-index", "trusted-host"),  # package sources
    *("proxy", "default-timeout", "timeout", "retries"),  # how pip connects to them
)
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "ftp_proxy", "all_proxy")


def storage() -> Path:
    """Return the folder of layers and images."""
    return paths.cache() / "containers"


def buildah(
    arguments: Sequence[str],
    *,
    binds: Mapping[Path, str] | None = None,
    network_of: int = 0,
    hosts: str = "127.0.0.1 localhost",
) -> str:
    """Run `buildah` with `arguments` and return its stdout.

    Args:
        arguments: the words after `buildah`. Paths in them refer to buildah's own root.
        binds: files and folders of the machine, each with its path in buildah's root.
        network_of: id of a process whose network buildah uses; 0: the machine's network, which
            reaches package registries.
        hosts: the content of /etc/hosts during the build.

    Raises:
        NodeError: buildah failed; the message has its last lines.
    """
    folders = {name: storage() / name for name in ("storage", "cache", "tmp", "root")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    inside = {
        folders["storage"]: "/var/lib/containers/storage",
        # This folder records which layers the registries have already.
        folders["cache"]: "/var/lib/containers/cache",
        folders["tmp"]: "/var/tmp",  # on disk, because layers in transit are too large for memory
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
    """Return a minimal environment; `proxies` adds the machine's proxy settings."""
    plain = {"PATH": SYSTEM_PATH, "HOME": "/root", "TMPDIR": "/var/tmp"}
    known = {name: value for name, value in os.environ.items() if name.lower() in PROXIES}
    return plain | (known if proxies else {})


def certificates() -> Path | None:
    """Return the file of certificate authorities that this machine trusts."""
    known = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, CERTIFICATES)
    return next((Path(each).resolve() for each in known if each and Path(each).is_file()), None)


def pip_configuration() -> str:
    """Return the machine's pip settings for package sources as a pip.conf."""
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
    """Return the machine's npm settings for package sources as an .npmrc."""
    known = {name.lower(): value for name, value in os.environ.items()}
    registry = known.get("npm_config_registry")
    lines = [f"registry={registry}"] if registry else []
    own = Path.home() / ".npmrc"
    if own.is_file():
        lines += [line for line in own.read_text().splitlines() if line.startswith("registry=")]
    return "\n".join([f"cafile={CERTIFICATES}", *lines, ""])
