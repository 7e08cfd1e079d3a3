"""Limits of a site's users: its policy, its overrides, a file of limits for each user.

The console asks the same questions of this machine and of Kubernetes (`SitePolicy`). On this
machine a mistake in the policy changes nothing but what the log says, overrides are written whole
and by one process at a time, and a user may read their own file of limits (`TFCLUSTER_LIMITS`) and
write none. Without a policy file nobody has limits.
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
from .tenancy.policy import (
    Override,
    encode_overrides,
    entitled,
    limits_of,
    parse_policy,
    read_overrides,
)

POLICY, OVERRIDES, LIMITS = "policy.yaml", "overrides.json", "limits"
VARIABLE = "TFCLUSTER_HUB_POLICY"
OF_ROOT = Path("/run/tfcluster-hub")
"""Where others may look and root alone writes; the hub's own folder is closed to them."""
Stamp = tuple[int, int] | None

log = logging.getLogger(__name__)


class PolicyFile:
    """The policy as it counts; one that is not there allows everything."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: Stamp = None
        self._policy = HubPolicy()

    def load(self) -> HubPolicy:
        """What stands there now. Raises PolicyMistake; TFClusterError: it cannot be read."""
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
        """What counts: the newest that had no mistake."""
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._policy = self.load()
            except TFClusterError as mistake:
                log.warning("%s keeps what it was: %s", self.path, mistake)
        return self._policy


class OverrideFile:
    """The overrides of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> dict[str, Override]:
        """Each by its user. Raises TFClusterError."""
        try:
            return read_overrides(state_files.read_bytes(self.path))
        except FileNotFoundError:
            return {}
        except (state_files.Unreadable, ValueError, RecursionError) as error:
            said = _("the overrides in {file} cannot be read: {why}")
            raise TFClusterError(said.format(file=self.path, why=error)) from None

    def set(self, user: str, override: Override) -> None:
        """Put one in place of what there was; those that have ended for a while go."""
        with self._change() as found:
            found[user] = override

    def clear(self, user: str) -> bool:
        """Take one away; whether there was one."""
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
    """All of it, for one hub.

    Args:
        state: the hub's own folder.
        policy: the policy's file; without it that of the folder.
        clock: Unix seconds.
    """

    def __init__(
        self, state: Path, policy: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.state, self._clock = state, clock
        self.policy = PolicyFile(policy or state / POLICY)
        self.overrides = OverrideFile(state / OVERRIDES)

    def of(self, user: str, groups: Iterable[str]) -> Entitlement:
        """What a user may have now."""
        try:
            override = self.overrides.all().get(user)
        except TFClusterError as error:
            log.warning("%s", error)
            override = None
        return entitled(self.policy.policy, groups, override, self._clock())

    def tell(self, user: str, groups: Iterable[str], gid: int | None = None) -> Path:
        """Write a user's file of limits; `gid` is of the account that reads it, where it is another
        than ours. Raises OSError.
        """
        file = self._folder(of_others=gid is not None) / f"{quote(user, safe='')}.json"
        text = msgspec.json.encode(limits_of(self.of(user, groups)))
        try:
            told: bytes | None = state_files.read_bytes(file)
        except (FileNotFoundError, state_files.Unreadable):
            told = None
        if told != text:
            mode, owner = (0o600, state_files.OURS) if gid is None else (0o640, (-1, gid))
            state_files.write(file, text, durable=True, mode=mode, owner=owner)
        return file

    def tell_again(self, user: str, groups: Iterable[str]) -> None:
        """Bring a user's files up to date where there are any. Raises OSError."""
        name = f"{quote(user, safe='')}.json"
        if (self.state / LIMITS / name).is_file():
            self.tell(user, groups)
        if os.geteuid() == 0 and (there := self.of_others / name).is_file():
            self.tell(user, groups, there.stat().st_gid)

    @property
    def of_others(self) -> Path:
        """The folder of files for other accounts; root alone writes there."""
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
    """The same for all notebooks of one hub: it alone knows the policy that counted before."""
    return Allowances(state, policy)


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# -- what the console asks about users: policy, overrides, namespaces


class SitePolicy(Protocol):
    """One site; every method raises TFClusterErrors only."""

    @property
    def has_claims(self) -> bool:
        """Whether its users have claims, which have a size also where the policy says none."""

    async def policy(self) -> HubPolicy:
        """The policy as it counts."""

    async def overrides(self) -> Mapping[str, Override]:
        """All of them, those that have ended among them."""

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """Set a user's override, or take it away; whether there was one."""

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """Those of them who lack a namespace that could be made beforehand."""

    async def prepare(self, user: str) -> None:
        """Make it."""


class NoSitePolicy:
    """A site that keeps nothing of its users: everybody may have what there is."""

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
        raise TFClusterError(_("this site has no overrides"))

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """See `SitePolicy.unprepared`."""
        del users
        return frozenset()

    async def prepare(self, user: str) -> None:
        """See `SitePolicy.prepare`."""
        del user


class LocalSitePolicy(NoSitePolicy):
    """This machine: files in the hub's own folder."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances

    async def policy(self) -> HubPolicy:
        """See `SitePolicy.policy`."""
        return await asyncio.to_thread(lambda: self._allowances.policy.policy)

    async def overrides(self) -> Mapping[str, Override]:
        """See `SitePolicy.overrides`."""
        return await asyncio.to_thread(self._allowances.overrides.all)

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """See `SitePolicy.override`. A notebook that runs is told at once."""
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
