"""Limits of a site's users: the policy, overrides, and a file of limits for each user.

The console reads policy and overrides through `SitePolicy`, on one machine and on Kubernetes. On
one machine, a mistake in the policy is logged and the last valid policy stays in force. Overrides
are written atomically by one process at a time. Users can read but not write their own file of
limits (`TFCLUSTER_LIMITS`). Without a policy file nobody has limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from .. import state_files
from ..errors import TFClusterError
from ..i18n import _
from .tenancy.entitlements import Entitlement, HubPolicy
from .tenancy.overrides import Override, encode_overrides, entitled, read_overrides
from .tenancy.policy import limits_of, parse_policy

POLICY, OVERRIDES, LIMITS = "policy.yaml", "overrides.json", "limits"
VARIABLE = "TFCLUSTER_HUB_POLICY"
OF_ROOT = Path("/run/tfcluster-hub")
"""Folder with the files of limits that are read by accounts other than the hub's own, because these
accounts cannot open the hub's own folder. Only root writes in this folder.
"""
Stamp = tuple[int, int] | None

log = logging.getLogger(__name__)


class PolicyFile:
    """The policy file; a missing file allows everything."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: Stamp = None
        self._policy = HubPolicy()

    def load(self) -> HubPolicy:
        """Parse the file. Raises InvalidPolicy, or TFClusterError if the file cannot be read."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return HubPolicy()
        except (OSError, UnicodeDecodeError) as error:
            said = _("the policy {file} cannot be read: {why}")
            raise TFClusterError(said.format(file=self.path, why=error)) from None
        return parse_policy(text)

    @property
    def policy(self) -> HubPolicy:
        """The policy in force: the newest one without a mistake."""
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._policy = self.load()
            except TFClusterError as mistake:
                log.warning(
                    "%s is invalid, and the last policy stays in force: %s", self.path, mistake
                )
        return self._policy


class OverrideFile:
    """The file with the overrides of users, for a hub on one machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> dict[str, Override]:
        """Return the overrides by user, expired ones included. Raises TFClusterError."""
        try:
            return read_overrides(state_files.read_bytes(self.path))
        except FileNotFoundError:
            return {}
        except (state_files.Unreadable, ValueError, RecursionError) as error:
            said = _("the overrides in {file} cannot be read: {why}")
            raise TFClusterError(said.format(file=self.path, why=error)) from None

    def set(self, user: str, override: Override) -> None:
        """Set a user's override, and remove the expired overrides of all users."""
        with self._change() as found:
            found[user] = override

    def clear(self, user: str) -> bool:
        """Remove a user's override; return whether the user had one."""
        with self._change() as found:
            return found.pop(user, None) is not None

    @contextlib.contextmanager
    def _change(self) -> Iterator[dict[str, Override]]:
        with state_files.locked(self.path):
            now = time.time()
            found = {name: each for name, each in self.all().items() if each.until > now}
            yield found
            state_files.write(self.path, encode_overrides(found), durable=True)


class Allowances:
    """The policy, overrides and files of limits of one hub.

    Args:
        state: the hub's own folder.
        policy: the policy file; the default is policy.yaml in `state`.
        clock: returns Unix seconds.
    """

    def __init__(
        self, state: Path, policy: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.state, self._clock = state, clock
        self.policy = PolicyFile(policy or state / POLICY)
        self.overrides = OverrideFile(state / OVERRIDES)

    def of(self, user: str, groups: Iterable[str]) -> Entitlement:
        """Return the current entitlement of a user."""
        try:
            override = self.overrides.all().get(user)
        except TFClusterError as error:
            log.warning("%s", error)
            override = None
        return entitled(self.policy.policy, groups, override, self._clock())

    def tell(self, user: str, groups: Iterable[str], gid: int | None = None) -> Path:
        """Write a user's file of limits and return its path. Raises OSError. `gid` is the group of
        the account that reads the file; None if the hub's own account reads it.
        """
        file = self._folder(of_others=gid is not None) / f"{quote(user, safe='')}.json"
        limits = limits_of(self.of(user, groups), self.policy.policy.notifications)
        text = msgspec.json.encode(limits)
        try:
            told: bytes | None = state_files.read_bytes(file)
        except (FileNotFoundError, state_files.Unreadable):
            told = None
        if told != text:
            mode, owner = (0o600, state_files.OURS) if gid is None else (0o640, (-1, gid))
            state_files.write(file, text, durable=True, mode=mode, owner=owner)
        return file

    def tell_again(self, user: str, groups: Iterable[str]) -> None:
        """Update the user's existing files of limits. Raises OSError."""
        name = f"{quote(user, safe='')}.json"
        if (self.state / LIMITS / name).is_file():
            self.tell(user, groups)
        if os.geteuid() == 0 and (there := self.of_others / name).is_file():
            self.tell(user, groups, there.stat().st_gid)

    @property
    def of_others(self) -> Path:
        """The folder of this hub in OF_ROOT, in which only root writes."""
        return OF_ROOT / hashlib.sha256(os.fsencode(self.state)).hexdigest()[:12]

    def _folder(self, *, of_others: bool) -> Path:
        if not of_others:
            folder = self.state / LIMITS
            folder.mkdir(mode=0o700, exist_ok=True)
            return folder
        for folder in (OF_ROOT, self.of_others):
            folder.mkdir(mode=0o711, exist_ok=True)
            there = folder.lstat()
            if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid():
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
            folder.chmod(0o711)
        return folder


@functools.cache
def shared_allowances(state: Path, policy: Path | None) -> Allowances:
    """Return the `Allowances` of a hub: one object for all notebooks, because it keeps the last
    valid policy.
    """
    return Allowances(state, policy)


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# -- policy, overrides and namespaces, as the console sees them


class SitePolicy(Protocol):
    """Policy and overrides of a site; every method raises only TFClusterError."""

    @property
    def has_claims(self) -> bool:
        """Whether users have volume claims. A claim has a size even if the policy sets none."""

    async def policy(self) -> HubPolicy:
        """Return the policy in force."""

    async def overrides(self) -> Mapping[str, Override]:
        """Return the overrides by user, expired ones included."""

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """Set the override of a user; if `override` is None, remove the user's override. Return
        whether the user had one before.
        """

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """Return the users whose namespace can be prepared but does not exist yet."""

    async def prepare(self, user: str) -> None:
        """Prepare the namespace of a user."""


class NoSitePolicy:
    """A site without policy or overrides: everybody may use everything."""

    has_claims = False

    async def policy(self) -> HubPolicy:
        """See `SitePolicy.policy`."""
        return HubPolicy()

    async def overrides(self) -> Mapping[str, Override]:
        """See `SitePolicy.overrides`."""
        return {}

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """See `SitePolicy.override`."""
        del user, groups, override
        raise TFClusterError(_("this site does not support overrides"))

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """See `SitePolicy.unprepared`."""
        del users
        return frozenset()

    async def prepare(self, user: str) -> None:
        """See `SitePolicy.prepare`."""
        del user


class LocalSitePolicy(NoSitePolicy):
    """The policy and the overrides in the hub's folder on this machine."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances

    async def policy(self) -> HubPolicy:
        """See `SitePolicy.policy`."""
        return await asyncio.to_thread(lambda: self._allowances.policy.policy)

    async def overrides(self) -> Mapping[str, Override]:
        """See `SitePolicy.overrides`."""
        return await asyncio.to_thread(self._allowances.overrides.all)

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """See `SitePolicy.override`. Running notebooks get the new limits at once."""
        return await asyncio.to_thread(self._override, user, groups, override)

    def _override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        overrides = self._allowances.overrides
        try:
            if override is None:
                there = overrides.clear(user)
            else:
                there = user in overrides.all()
                overrides.set(user, override)
            self._allowances.tell_again(user, groups)
        except OSError as error:
            raise TFClusterError(str(error)) from None
        return there
