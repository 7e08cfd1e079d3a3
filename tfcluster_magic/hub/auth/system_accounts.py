"""System accounts of this machine, under which the hub's notebooks run.

If root started the hub, every user with a system account of the same name gets a notebook.
Otherwise only the account that started the hub gets one.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ...i18n import VARIABLE, _
from .accounts import normalized_name

CHECK = """
import importlib.util, sys, tfcluster_magic
sys.exit(importlib.util.find_spec("jupyterlab") is None)
"""
WITHIN = 60.0
"""Timeout of `readable`, in seconds."""


def owner() -> str:
    """Return the hub user name of the account that runs the hub."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # in a container, the uid may have no name
        name = os.environ.get("USER") or "me"
    return normalized_name(name)


@dataclass(frozen=True)
class Person:
    """A system account under which a notebook runs."""

    name: str
    home: Path
    uid: int
    gid: int

    @property
    def groups(self) -> list[int]:
        """The ids of all groups of the account, including its primary group."""
        return os.getgrouplist(self.name, self.gid)


class NoServer(Exception):
    """A user cannot have a notebook here; the message says why."""


def account(name: str, uid: int, owner: str) -> Person:
    """Return the system account of a hub user, for a hub that runs as `uid`.

    Raises:
        NoServer: the account does not exist, or must not be used.
    """
    if uid != 0:
        raise NoServer(
            _(
                "Only {owner} can have a notebook here. This hub was started by "
                "{owner}, so every notebook would run as {owner}, with the same "
                "files and with TensorFlow's ports open to the others. For more "
                "people, start the hub as root and give each a system account, or "
                "install it on Kubernetes."
            ).format(owner=owner)
        )
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise NoServer(
            _(
                "This machine has no system account {name} to run the notebook. An "
                "administrator creates one as root: `useradd --create-home {name}`"
            ).format(name=name)
        ) from None
    if found.pw_uid == 0:
        raise NoServer(
            _("{name} can have no notebook, because it would run as root.").format(name=name)
        )
    return Person(name, Path(found.pw_dir), found.pw_uid, found.pw_gid)


HIDDEN = ("JUPYTERHUB_", "JPY_", "CONFIGPROXY_", "TFCLUSTER_HUB", "OIDC_")
"""Prefixes of environment variables that only the hub may see."""


def environment(person: Person | None) -> dict[str, str]:
    """Return the environment of a program that runs as `person`, or as the hub's owner if None."""
    if person is None:
        return {key: text for key, text in os.environ.items() if not key.startswith(HIDDEN)}
    env = {"HOME": str(person.home), "USER": person.name, "LOGNAME": person.name}
    env["PATH"] = os.defpath
    if language := os.environ.get(VARIABLE):
        env[VARIABLE] = language
    return env


def become(person: Person) -> None:
    """Switch this process to a user's account permanently."""
    os.setgroups(person.groups)
    os.setgid(person.gid)
    os.setuid(person.uid)


def why_no_notebook(name: str, owner: str, *, run: bool = True) -> str:
    """Return why a hub user would get no notebook on this machine; empty if they would get one.
    Without `run`, do not check whether the account can run the programs, which takes a second.
    """
    try:
        if name != owner:
            person = account(name, os.geteuid(), owner)
            if run:
                require_programs(person)
    except NoServer as why:
        return str(why)
    return ""


def require_programs(person: Person) -> None:
    """Raise NoServer if this account cannot run the programs installed here."""
    if readable(person):
        return
    text = _(
        "The account {name} cannot run {python} with the packages in {folder}, which its notebook "
        "needs. An administrator has to install both in folders that everybody may read, such as "
        "below /opt."
    )
    python = os.path.realpath(sys.executable)
    raise NoServer(text.format(name=person.name, python=python, folder=sys.prefix))


def readable(person: Person, within: float = WITHIN) -> bool:
    """Return whether this account can run the programs installed here.

    Return True if the check takes too long, because the machine may only be busy. If there is a
    real problem, the start of the notebook reports it.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHECK],
            user=person.uid,
            group=person.gid,
            extra_groups=person.groups,
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=within,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False
    return done.returncode == 0
