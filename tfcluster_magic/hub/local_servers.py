"""Notebooks of the hub on one machine: local processes, each under its own system account.

Users never share a uid: otherwise they would share their files, and the ports of TensorFlow, which
have no authentication. A user who cannot have a notebook sees the reason. A process that has reused
a notebook's pid is not mistaken for the notebook. The number of notebooks that start at once is
limited to the number of cores.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from jupyterhub.spawner import LocalProcessSpawner, set_user_setuid
from jupyterhub.utils import can_connect
from tornado import web
from traitlets import Integer, Unicode

from ..i18n import _, ngettext
from ..quota.limits import LIMITS_VARIABLE as LIMITS
from . import notebook, user_limits
from .auth.system_accounts import HIDDEN, NoServer, Person, account, require_programs

START_SLOTS = asyncio.Semaphore(max(2, os.cpu_count() or 1))
"""Limit of notebooks that start at the same time; the others wait in order of arrival."""
LOOK_SECONDS = 0.2
"""Poll interval while a notebook starts, in seconds."""


class QueuedSpawner(LocalProcessSpawner):
    """A local process that waits for a start slot, and counts as started when it listens."""

    start_timeout = Integer(
        900, help="Timeout of a start in seconds, including the wait for a start slot."
    ).tag(config=True)
    ahead: ClassVar[list[QueuedSpawner]] = []
    """Spawners that wait for a slot, in order."""

    async def start(self) -> Any:
        """Wait for a start slot, and keep it until the notebook listens or has ended."""
        self.ahead.append(self)
        try:
            async with START_SLOTS:
                self.ahead.remove(self)
                place = await super().start()
                await self._listening()
                return place
        finally:
            if self in self.ahead:  # cancelled while it waited
                self.ahead.remove(self)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield messages for the progress page: first the place in the queue, then the start."""
        told = -1
        while self in self.ahead:
            before = self.ahead.index(self)
            if before != told:
                told = before
                yield {"progress": 10, "message": _queue_message(before)}
            await asyncio.sleep(LOOK_SECONDS)
        yield {"progress": 50, "message": _("Starting the notebook.")}

    async def _listening(self) -> None:
        """Wait until the notebook listens or has ended; the hub reports what went wrong."""
        until = time.monotonic() + self.http_timeout
        while time.monotonic() < until and await self.poll() is None:
            if await asyncio.to_thread(can_connect, self.ip, self.port):
                return
            await asyncio.sleep(LOOK_SECONDS)


def _queue_message(before: int) -> str:
    if not before:
        return _("It starts as soon as another notebook has started.")
    return ngettext(
        "{count} notebook starts before this one.",
        "{count} notebooks start before this one.",
        before,
    ).format(count=before)


# -- system accounts


class LocalServer(QueuedSpawner):
    """A notebook as a local process.

    The owner, who runs the hub, gets a notebook with the environment of `make run`. If the hub runs
    as root, every user with a system account of the same name gets a notebook too; root's
    environment is not passed on.
    """

    owner = Unicode(help="Hub user name of the account that runs the hub.").tag(config=True)
    workspace = Unicode(help="The owner's folder.").tag(config=True)
    examples = Unicode(help="The folder of examples to copy; empty for none.").tag(config=True)
    hub_state = Unicode(help="The hub's state folder; empty for no limits.").tag(config=True)
    policy = Unicode(help="The policy file; empty for policy.yaml in that folder.").tag(config=True)
    ip = Unicode("127.0.0.1").tag(config=True)
    pid: Any  # a trait of LocalProcessSpawner
    _limits = ""
    began = Integer(help="Start of the process, in clock ticks since boot; 0 if unknown.")

    async def start(self) -> Any:
        """Start the notebook, or raise HTTPError 403 with the reason."""
        person = None if self.user.name == self.owner else await self._person()
        self._limits = await asyncio.to_thread(self._tell_limits, person)
        folder = "~/tfcluster" if person else self.workspace
        self.notebook_dir = folder
        self.cmd = notebook.command()
        self.args = [f"--examples={self.examples}", f"--workspace={folder}"]
        place = await super().start()
        self.began = _start_time(self.pid)
        return place

    async def poll(self) -> Any:
        """Return None while the notebook runs, otherwise its exit code; update the user's file of
        limits.
        """
        if self.pid:
            with suppress(Exception):  # a notebook also runs without limits
                person = None if self.user.name == self.owner else self._account()
                await asyncio.to_thread(self._tell_limits, person)
        return await super().poll()

    def _tell_limits(self, person: Person | None) -> str:
        """Write the user's limits to a file that their launches read; return its path, empty if
        there are no limits.
        """
        if not self.hub_state:
            return ""
        groups = [group.name for group in self.user.groups]
        try:
            policy = Path(self.policy) if self.policy else None
            told = user_limits.shared_allowances(Path(self.hub_state), policy)
            return str(told.tell(self.user.name, groups, person.gid if person else None))
        except OSError as error:
            self.log.error("The limits of %s cannot be written: %s", self.user.name, error)
            return ""

    async def stop(self, now: bool = False) -> None:  # noqa: ARG002
        """Stop the notebook within seconds.

        SIGTERM lets it stop its kernels first; if it does not end, SIGKILL follows.
        """
        await super().stop(now=True)

    async def get_options_form(self) -> Any:
        """Before anything starts, refuse a user who cannot have a notebook. No form is shown,
        because there is nothing to choose.

        A refusal here shows a page with the reason. If a start fails after more than a second,
        JupyterHub has already shown its progress page instead.
        """
        if self.user.name != self.owner:
            self._account()
        return await super().get_options_form()

    def _account(self) -> Person:
        try:
            return account(self.user.name, os.geteuid(), self.owner)
        except NoServer as why:
            raise _refused(str(why)) from None

    async def _person(self) -> Person:
        person = self._account()
        try:
            await asyncio.to_thread(require_programs, person)
        except NoServer as why:
            raise _refused(str(why)) from None
        return person

    # -- hooks of LocalProcessSpawner --------------------------------------------------------------

    def make_preexec_fn(self, name: str) -> Any:
        """Return a function that switches to the user's account; None for the owner's notebook."""
        return None if name == self.owner else set_user_setuid(name)

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        """Return the environment of the notebook's process."""
        if self._limits:
            env = {**env, LIMITS: self._limits}
        if self.user.name != self.owner:
            own: dict[str, str] = super().user_env(env)
            return own
        kept = {key: text for key, text in os.environ.items() if not key.startswith(HIDDEN)}
        return {**kept, **env, "TFCLUSTER_HOME": self.workspace}

    def get_state(self) -> dict[str, Any]:
        """Return the data that a restarted hub needs to find this process."""
        return {**super().get_state(), "began": self.began}

    def load_state(self, state: dict[str, Any]) -> None:
        """Find the process that an earlier hub started. Ignore its pid if another process has it
        now.
        """
        super().load_state(state)
        self.began = state.get("began", 0)
        if self.pid and _start_time(self.pid) != self.began:
            self.pid = 0


def _refused(why: str) -> web.HTTPError:
    error = web.HTTPError(403, "%s", why)
    error.jupyterhub_message = why  # type: ignore[attr-defined]
    error.no_notebook = True  # type: ignore[attr-defined]  # 403.html has a heading for it
    return error


def _start_time(pid: int) -> int:
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:  # the process has ended, or /proc is missing and pids cannot be verified
        return 0
    return int(stat.rpartition(")")[2].split()[19])
