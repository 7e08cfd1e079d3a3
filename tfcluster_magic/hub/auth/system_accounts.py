"""Accounts of this machine's system, under which the hub's notebooks run.

Whoever started the hub has the notebook of that account. As root, the hub gives one to every user
whose name is a system account.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ...i18n import _
from .accounts import normalized_name

CHECK = """
import importlib.util, sys, tfcluster_magic
sys.exit(importlib.util.find_spec("jupyterlab") is None)
"""
WITHIN = 60.0
"""Seconds for that program."""


def owner() -> str:
    """The hub's account of who runs the hub: the name of the system account."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run as a number that has no name
        name = os.environ.get("USER") or "me"
    return normalized_name(name)


@dataclass(frozen=True)
class Person:
    """The system account under which a notebook runs."""

    name: str
    home: Path
    uid: int
    gid: int

    @property
    def groups(self) -> list[int]:
        """Numbers of all groups of the account, its own among them."""
        return os.getgrouplist(self.name, self.gid)


class NoServer(Exception):
    """Why this person cannot have a notebook here, as a sentence."""


def account(name: str, uid: int, owner: str) -> Person:
    """The system account of a user of the hub, for a hub that runs as `uid`.

    Raises:
        NoServer: there is none that may be used.
    """
    if uid != 0:
        raise NoServer(
            _(
                "This hub was started by {owner}, not by root, so every notebook would run as "
                "{owner}: with the same files, and with TensorFlow's ports open to each other. "
                "There is one for {owner} alone. For more people: start it as root, where each "
                "has a system account, or install it on Kubernetes."
            ).format(owner=owner)
        )
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise NoServer(
            _(
                "This machine has no system account {name}, under which the notebook would run. "
                "Its administrator makes one: useradd --create-home {name}"
            ).format(name=name)
        ) from None
    if found.pw_uid == 0:
        raise NoServer(_("The notebook of {name} would run as root.").format(name=name))
    return Person(name, Path(found.pw_dir), found.pw_uid, found.pw_gid)


def why_no_notebook(name: str, owner: str) -> str:
    """Return why a user of the hub would get no notebook on this machine; empty if they would."""
    try:
        if name != owner:
            account(name, os.geteuid(), owner)
    except NoServer as why:
        return str(why)
    return ""


def readable(person: Person, within: float = WITHIN) -> bool:
    """Whether this account can run what is installed here. A machine that is too busy to tell is no
    reason to refuse anybody: what is wrong then is seen when the notebook starts.
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
