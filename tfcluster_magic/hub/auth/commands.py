"""`python -m tfcluster_magic.hub accounts`: commands that manage the hub's accounts from a shell.

Each link is printed once and not stored. A command changes the account file at once, even if the
hub is down. At its next start, the hub ends sessions before it answers requests, and deletes
removed users soon after. The commands need write access to the hub's state folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode, urlsplit

import click

from ...errors import Conflict, InvalidRequest, NotFound, Problem, TFClusterError
from ...i18n import _
from ...output.text import zoned
from ...paths import private, state_dir
from ...spec import Model
from ..audit import FILE as AUDIT
from ..audit import AuditLog, new_entry
from ..shared_settings import DATABASE, SIGN_IN, base_url, is_open, subdomain_host
from . import FILE
from .accounts import LINK_HOURS, AccountStore, HubAccount, normalized_name
from .system_accounts import owner, why_no_notebook

URL = "url"
"""File in the state folder with the address of a running hub on this machine."""
LAST_URL = "last_url"
"""File with the last address of a stopped hub, for links that are made while it is down."""
PATIENCE = 60.0
"""Maximum seconds to wait for a running hub to stop a notebook, delete a user or end sessions."""


@click.group()
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    envvar="TFCLUSTER_HUB_STATE",
    help="The hub's state folder; by default, that of the hub on this machine.",
)
@click.option(
    "--url",
    envvar="TFCLUSTER_HUB_URL",
    help="The hub's address in a browser; by default, the last one of the hub on this machine.",
)
@click.pass_context
def accounts(ctx: click.Context, state: Path | None, url: str | None) -> None:
    """Manage the accounts that sign in with a password."""
    folder = state or state_dir() / "hub"
    ctx.obj = (folder, url)


@accounts.command("invite")
@click.argument("name")
@click.option("--admin", is_flag=True, help="Make it an administrator when the link is used.")
@click.option(
    "--without-notebook", is_flag=True, help="Invite even somebody who would get no notebook."
)
@click.option("--reset", "replace", is_flag=True, help="Replace the password of the account.")
@click.pass_obj
def invite(
    place: tuple[Path, str | None], name: str, admin: bool, without_notebook: bool, replace: bool
) -> None:
    """Create the account NAME and print a link that sets its password. If NAME already has a
    password, nothing changes unless you add --reset.
    """
    _require_passwords()
    known = normalized_name(name)
    there = _store(place).read().get(known)
    asked = not _on_this_machine() or without_notebook or there is not None
    if not asked and (why := why_no_notebook(known, owner())):
        text = _(
            "{name} would get no notebook. {why} To invite them anyway: `python -m "
            "tfcluster_magic.hub accounts invite {name} --without-notebook`"
        )
        raise Conflict(text.format(name=known, why=why))
    if there is not None and there.password and not replace:
        raise _has_password(known)
    _link(place, name, admin=admin, reset=replace)


@accounts.command("reset")
@click.argument("name")
@click.pass_obj
def reset(place: tuple[Path, str | None], name: str) -> None:
    """Print a link that sets a new password for NAME. The old password, all sessions and all tokens
    stop working. Notebooks and clusters go on.
    """
    _require_passwords()
    if normalized_name(name) not in _store(place).read():
        raise _unknown(name)
    _link(place, name)


@accounts.command("list")
@click.pass_obj
def show(place: tuple[Path, str | None]) -> None:
    """List the accounts."""
    for name, account in sorted(_store(place).read().items()):
        click.echo(f"{name}\t{state_of(account).in_words()}")


@accounts.command("remove")
@click.argument("name")
@click.option("--with-data", is_flag=True, help="On Kubernetes, also delete its data and runs.")
@click.pass_obj
def remove(place: tuple[Path, str | None], name: str, with_data: bool) -> None:
    """Remove the account NAME and its hub user; stop its notebooks, sessions and rights. Its files
    stay. If the hub is down, it completes the removal at its next start.
    """
    known = normalized_name(name)
    if with_data and _on_this_machine():
        allowed = _("omit it: files on this machine are kept. To delete them: `userdel --remove`")
        raise InvalidRequest([Problem("--with-data", known, allowed)])
    store = _store(place)
    if known not in {**store.read(), **store.removed()}:
        raise _unknown(name)
    with _noted(place, "remove account", known):
        store.dismiss(known, with_data=with_data)
    if not _done(place, lambda: known in store.removed()):
        text = _("{name} cannot sign in any more. The hub is still removing its user.")
        click.echo(text.format(name=known))
        return
    if known in store.removed():
        text = _("{name} cannot sign in any more. The hub will remove its user at its next start.")
    else:
        text = _("{name} is removed.")
    click.echo(text.format(name=known))


class AccountState(Model, frozen=True, omit_defaults=False):
    """Whether a person can sign in.

    `state` is `password` (they can), `link` (they can after using their link) or `none`.
    `link_until` is when their link expires, in Unix seconds. Somebody who has a password may also
    have a link that replaces it.
    """

    state: Literal["password", "link", "none"] = "none"
    link_until: float | None = None

    def in_words(self) -> str:
        """Return the state as a short text for people."""
        if self.link_until is None:
            return _("has a password") if self.state == "password" else _("no password")
        until = zoned(self.link_until)
        if self.state == "password":
            return _("has a password; reset link until {time}").format(time=until)
        return _("link until {time}").format(time=until)


def state_of(account: HubAccount | None) -> AccountState:
    """Return whether a person with this account can sign in; None stands for no account."""
    link = account.link if account else None
    until = link.expires if link and link.expires > time.time() else None
    if account and account.password:
        return AccountState(state="password", link_until=until)
    return AccountState(state="none" if until is None else "link", link_until=until)


def link(base: str, code: str) -> str:
    """Return the link that sets a password, below the hub's address."""
    return f"{base.rstrip('/')}/hub/set-password?{urlencode({'code': code})}"


def tell_link(place: tuple[Path, str | None], code: str, name: str) -> None:
    """Print the link at which `name` sets a password."""
    click.echo(
        _(
            "Open this link to set the password of {name}. It works once, within {hours} hours:"
        ).format(name=name, hours=LINK_HOURS),
        err=True,
    )
    click.echo(link(hub_address(*place), code))


def hub_address(folder: Path, url: str | None) -> str:
    """Return the hub's address in a browser, including the hub's base path.

    Args:
        folder: the hub's state folder.
        url: the address if it is known; if None, the address is read from the settings or from the
            state folder. The base path is added to an address without a path.
    """
    written = _written(folder / URL) or _written(folder / LAST_URL)
    path = base_url().rstrip("/") or urlsplit(written).path
    named = url or subdomain_host() or written or "http://<hub>"
    return named if urlsplit(named).path.strip("/") else f"{named.rstrip('/')}{path}"


def _link(
    place: tuple[Path, str | None], name: str, *, admin: bool = False, reset: bool = True
) -> None:
    """End the sessions of an account, then print a link that sets its password. A hub that is down
    ends the sessions at its next start, before it answers requests.

    Raises:
        Conflict: the account has a password, and `reset` is not set.
    """
    store, known = _store(place), normalized_name(name)
    existed = known in store.read()
    what = "new link" if existed else "invite"
    with _noted(place, what, known, "administrator" if admin else ""):
        code = store.invite_all([name], admin=admin, reset=reset).get(name)
        if code is None:  # a password was set a moment ago
            raise _has_password(known)
    if not _done(place, lambda: known in store.resets()):
        text = _(
            "The hub has not ended the sessions and tokens of {name} yet. It keeps "
            "trying; its log says why."
        )
        click.echo(text.format(name=known), err=True)
    elif existed:
        text = _(
            "The old password, all sessions and all tokens of {name} have stopped working: open "
            "pages must sign in again. Notebooks and clusters go on."
        )
        click.echo(text.format(name=known), err=True)
    tell_link(place, code, known)


@contextmanager
def _noted(
    place: tuple[Path, str | None], what: str, name: str, target: str = ""
) -> Iterator[None]:
    """Write an audit log entry before and after a change. On Kubernetes, write nothing: the console
    owns the log there, and Kubernetes' own audit log has who ran a command in a pod.
    """
    if not _on_this_machine():
        yield
        return
    # The log may grow without a limit here: only the console may rename a large log.
    log = AuditLog(private(place[0]) / AUDIT, largest=sys.maxsize)
    entries = [new_entry(owner(), what, name, target, "", "shell")]
    log.asked(entries)
    try:
        yield
    except TFClusterError as error:
        log.ended(entries, [str(error)])
        raise
    log.ended(entries, ["done"])


def _require_passwords() -> None:
    """Raise Conflict if users sign in at a provider, where no link sets a password."""
    if os.environ.get(SIGN_IN) == "oidc":
        raise Conflict(_("this hub has no passwords, because users sign in at a provider"))


def _on_this_machine() -> bool:
    return os.environ.get("TFCLUSTER_HUB") != "on_kubernetes"


def _done(place: tuple[Path, str | None], waits: Callable[[], bool]) -> bool:
    """Wait until `waits` returns False or no hub is running. Return False if that takes longer than
    `PATIENCE` seconds, else True.
    """
    deadline = time.monotonic() + PATIENCE
    while waits() and is_open(place[0] / DATABASE):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)  # the hub reports its progress only in the account file
    return True


def _store(place: tuple[Path, str | None]) -> AccountStore:
    return AccountStore(private(place[0]) / FILE)


def _written(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _has_password(name: str) -> Conflict:
    text = _(
        "{name} already has a password. To replace it: `python -m tfcluster_magic.hub "
        "accounts invite {name} --reset`"
    )
    return Conflict(text.format(name=name))


def _unknown(name: str) -> NotFound:
    return NotFound(
        _(
            "there is no account {name!r}. To list all accounts: `python -m "
            "tfcluster_magic.hub accounts list`"
        ).format(name=os.fsencode(name).decode(errors="replace"))
    )
