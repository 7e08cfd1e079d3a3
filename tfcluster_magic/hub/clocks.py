"""The clocks of schedules on one machine: a service of the hub that keeps them running.

A clock is the process that launches a user's schedules when they are due. It runs under the user's
account, and root's processes never open the account's folders. To check an account, the service
starts a child process that switches to the account. If the account has schedules or rules for
notifications but no running clock, the child starts a clock. Each account is checked when the hub
starts, and then every minute. A clock that dies is restarted at once. If the hub runs as root, it
starts no clock for root. When a user is removed from the hub, their clock is ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from traitlets.config import Config

from .. import paths
from ..backends.local import schedule_store
from ..errors import InvalidRequest, Problem, TFClusterError
from ..i18n import _
from ..quota.limits import LIMITS_VARIABLE
from . import user_limits
from .auth.system_accounts import NoServer, Person, account, become, environment

SERVICE = "clocks"
SCOPES = ["list:users", "read:users:groups"]
EVERY = "TFCLUSTER_HUB_CLOCKS"
"""Variable with the seconds between two checks of an account; with 0, the hub starts no clocks."""
CHECK_SECONDS = 60
OWNER, STATE = "TFCLUSTER_CLOCKS_OWNER", "TFCLUSTER_CLOCKS_STATE"
PEOPLE_SECONDS = 300.0
"""Minimum seconds between two requests for the list of the hub's users."""
UNANSWERED_SECONDS = 2.0
"""Seconds after which a hub that does not answer is asked for its users again."""
PAGE = 50
"""Maximum number of users in one answer of the hub. The hub answers no other request while it
writes such an answer.
"""
AT_ONCE = 4
"""Maximum number of accounts that are checked at the same time."""
STUCK_SECONDS = 30.0
"""Seconds after which a check no longer counts towards AT_ONCE, because access to the user's home
folder may hang.
"""
RESTART_SECONDS = 5.0
"""Minimum seconds between two checks of an account whose clock keeps dying."""
_START_SECONDS = 10.0
"""Maximum seconds to wait for the pid of a clock that was just started."""
KEPT = ("TFCLUSTER_", "XDG_", "HOME", "LANG", "LC_", "USER", "LOGNAME")
"""Prefixes of the hub's environment variables that a clock needs to find its owner's runs."""

People = Mapping[str, tuple[str, ...]]
"""The users of the hub, each with the names of their groups."""

log = logging.getLogger(__name__)


def configure(c: Config, *, owner: str, state: Path, environ: Mapping[str, str]) -> None:
    """Configure the service, unless TFCLUSTER_HUB_CLOCKS is 0. Raises InvalidRequest."""
    every = environ.get(EVERY) or str(CHECK_SECONDS)
    if not (every.isascii() and every.isdigit()):
        problem = Problem(EVERY, every, _("use a whole number of at least 0"))
        raise InvalidRequest([problem], _("the hub cannot be set up"))
    if int(every) == 0:
        return
    kept = {key: text for key, text in environ.items() if key.startswith(KEPT)}
    service = {
        "name": SERVICE,
        "command": [sys.executable, "-m", "tfcluster_magic.hub.clocks"],
        "environment": {**kept, EVERY: every, OWNER: owner, STATE: str(state)},
    }
    c.JupyterHub.services.append(service)
    c.JupyterHub.load_roles.append({"name": SERVICE, "services": [SERVICE], "scopes": SCOPES})


# -- the service


@dataclass
class _Account:
    """The state of one user's account."""

    groups: tuple[str, ...] = ()
    check_at: float = 0.0
    """Monotonic time of the next check."""
    checked_at: float = float("-inf")
    child: int = 0
    """The pid of the child that checks the account; 0 for none."""
    answer: int = -1
    """The descriptor of the pipe on which the child reports the pid of the clock; -1 for none."""
    clock: int = -1
    """A pidfd of the clock process; -1 if no clock is known."""


@dataclass
class ClockKeeper:
    """Keeps the clocks of all users running.

    Args:
        owner: the hub's user name of the account that runs the hub.
        people: returns the users of the hub. Raises OSError or ValueError.
        tell_limits: writes the file of a user's limits, and returns its path. Raises OSError.
        every: seconds between two checks of an account.
    """

    owner: str
    people: Callable[[], People]
    tell_limits: Callable[[str, tuple[str, ...], Person | None], Path]
    every: float = CHECK_SECONDS
    people_every: float = PEOPLE_SECONDS
    _accounts: dict[str, _Account] = field(default_factory=dict)
    _ask_at: float = 0.0

    def turn(self) -> None:
        """Start the checks that are due, then wait for the next event, at most a second."""
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask(now)
        due = sorted(
            (each.check_at, name)
            for name, each in self._accounts.items()
            if each.check_at <= now and not each.child
        )
        room = AT_ONCE - sum(
            1
            for each in self._accounts.values()
            if each.child and now - each.checked_at < STUCK_SECONDS
        )
        for _at, name in due[: max(0, room)]:
            self._check(name, now)
        self._wait(0.0 if due and room > len(due) else 1.0)

    def close(self) -> None:
        """Stop watching the clocks, which keep running."""
        for each in self._accounts.values():
            self._unwatch(each)

    def _ask(self, now: float) -> None:
        """Update the list of users, and end the clocks of removed users."""
        try:
            found = self.people()
        except (OSError, ValueError) as error:
            log.info("the users of the hub cannot be read: %s", error)
            self._ask_at = now + UNANSWERED_SECONDS
            return
        self._ask_at = now + self.people_every
        for name in self._accounts.keys() - found.keys():
            if not self._accounts[name].child:
                self._end(name)
        for name, groups in found.items():
            self._accounts.setdefault(name, _Account()).groups = groups

    def _end(self, name: str) -> None:
        """End the clock of a user who was removed from the hub."""
        gone = self._accounts.pop(name)
        if gone.clock >= 0:
            log.warning("%s is no user of the hub any more: ending the clock", name)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(gone.clock, signal.SIGTERM)
            self._unwatch(gone)

    def _check(self, name: str, now: float) -> None:
        """Start a child that starts the clock of an account if the account needs one."""
        each = self._accounts[name]
        each.check_at, each.checked_at = now + self.every, now
        try:
            person = None if name == self.owner else account(name, os.geteuid(), self.owner)
        except NoServer:
            return
        if person is None and os.geteuid() == 0:
            return
        try:
            limits = self.tell_limits(name, each.groups, person)
        except (OSError, TFClusterError) as error:
            log.error("The limits of %s cannot be written, so no clock is started: %s", name, error)
            return
        env = {**environment(person), LIMITS_VARIABLE: str(limits)}
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            _run_check(person, env, writing)
        os.close(writing)
        each.child, each.answer = pid, reading

    def _wait(self, seconds: float) -> None:
        """Wait at most `seconds` for the answer of a child or the end of a clock."""
        answers = {each.answer: name for name, each in self._accounts.items() if each.child}
        clocks = {each.clock: name for name, each in self._accounts.items() if each.clock >= 0}
        polling = select.poll()
        for fd in (*answers, *clocks):
            polling.register(fd, select.POLLIN)
        for fd, _event in polling.poll(seconds * 1000):
            if fd in answers:
                self._learn(answers[fd])
            else:
                name = clocks[fd]
                each = self._accounts[name]
                self._unwatch(each)
                each.check_at = max(time.monotonic(), each.checked_at + RESTART_SECONDS)
                log.info("the clock of %s has ended", name)

    def _learn(self, name: str) -> None:
        """Read the answer of a child, and watch the clock process that it names."""
        each = self._accounts[name]
        said = os.read(each.answer, 100)
        os.close(each.answer)
        os.kill(each.child, signal.SIGKILL)  # the child may hang: its user can send it SIGSTOP
        os.waitpid(each.child, 0)
        each.child, each.answer = 0, -1
        if not said.isdigit() or each.clock >= 0:
            return
        try:
            fd = os.pidfd_open(int(said))
        except OSError:  # the clock has ended meanwhile, or this system has no pidfds
            return
        try:
            uid = os.geteuid() if name == self.owner else account(name, 0, self.owner).uid
            is_theirs = Path("/proc", said.decode()).stat().st_uid == uid
        except (OSError, NoServer):  # the clock or the account is gone meanwhile
            is_theirs = False
        if is_theirs:  # never end a process of another account
            each.clock = fd
        else:
            os.close(fd)

    @staticmethod
    def _unwatch(each: _Account) -> None:
        if each.clock >= 0:
            os.close(each.clock)
            each.clock = -1


def _run_check(person: Person | None, env: dict[str, str], out: int) -> None:
    """Run as the child that checks one account: start a clock if the account needs one, and write
    the pid of the account's clock to `out`. Does not return.
    """
    try:
        if person is not None:
            become(person)
        os.environ.clear()
        os.environ.update(env)
        os.chdir("/")
        if os.geteuid() == 0:  # a last check: no clock may run as root
            os._exit(1)
        state_dir = paths.state_dir()
        schedule_store.keep_time(state_dir)
        until = time.monotonic() + _START_SECONDS
        while (pid := schedule_store.clock_pid(state_dir)) is None:
            # A clock that was just started writes its pid within milliseconds.
            if not schedule_store.needs_clock(state_dir) or time.monotonic() > until:
                break
            time.sleep(0.02)
        os.write(out, str(pid or "").encode())
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - the child must end, whatever fails
        log.warning("the clock of %s cannot be started: %s", env.get("USER", ""), error)
    finally:
        os._exit(1)


def users_of_hub(environ: Mapping[str, str]) -> People:
    """Return the hub's users, from its API. Raises OSError or ValueError."""
    found: dict[str, tuple[str, ...]] = {}
    while True:
        request = urllib.request.Request(  # noqa: S310 - the hub's own address
            f"{environ['JUPYTERHUB_API_URL']}/users?limit={PAGE}&offset={len(found)}",
            headers={"Authorization": f"token {environ['JUPYTERHUB_API_TOKEN']}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=20) as answer:
            page = json.load(answer)
        found |= {str(one["name"]): tuple(one.get("groups") or ()) for one in page}
        if len(page) < PAGE:
            return found


def main() -> None:
    """Keep the clocks running until the hub ends."""
    logging.basicConfig(level=logging.INFO, format="[clocks] %(message)s")
    environ, hub = dict(os.environ), os.getppid()
    state, file = Path(environ[STATE]), environ.get(user_limits.VARIABLE)
    allowances = user_limits.Allowances(state, Path(file) if file else None)

    def tell_limits(name: str, groups: tuple[str, ...], person: Person | None) -> Path:
        return allowances.tell(name, groups, person.gid if person else None)

    every = float(environ[EVERY])
    keeper = ClockKeeper(
        environ[OWNER],
        lambda: users_of_hub(environ),
        tell_limits,
        every,
        min(PEOPLE_SECONDS, 5 * every),
    )
    ended: list[int] = []
    # JupyterHub ends a service by SIGINT, and only ten seconds later by SIGTERM.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, _frame: ended.append(number))
    while os.getppid() == hub and not ended:
        keeper.turn()


if __name__ == "__main__":
    main()
