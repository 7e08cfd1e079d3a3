"""Accounts of the hub's own: their file, their links, and the rules for passwords.

Passwords are hashed with scrypt and never stored. The file is written whole, by one process at a
time; who has the hub's folder may write it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from ... import state_files
from ...errors import InvalidRequest, NotFound, Problem, TFClusterError
from ...i18n import _

SHORTEST, SHORTEST_OF_ADMIN, LONGEST = 8, 12, 1000
"""Characters of a password; the upper bound only keeps the work small."""
LOG_N, R, P = 14, 8, 5
"""ref: https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html"""
COMMON_PASSWORDS = Path(__file__).with_name("common_passwords.txt")
PRODUCT = ("tfcluster", "tensorflow", "jupyterhub", "jupyter")
KEYBOARD_ROWS = (
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890",
    "`1234567890-=",
    "qwertyuiop[]",
    "asdfghjkl;'",
    "zxcvbnm,./",
    "qwertzuiop",
    "azertyuiop",
    "qsdfghjklm",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik,9ol.0p;/",
)
"""Alphabet, digits, and rows and columns of keyboards: characters along them form a sequence."""
RUN = 3
"""Steps in one direction that make characters a sequence."""
BESIDE = 4
"""Other characters that a common word needs to be accepted; with fewer it is still guessed early.
"""


def password_rules(*, admin: bool) -> dict[str, object]:
    """Return what the page says about a new password before one is typed."""
    least = SHORTEST_OF_ADMIN if admin else SHORTEST
    if admin:
        rule = _(
            "At least {least} characters of any kind, because this account is an administrator's; "
            "not a common password, a name or a sequence."
        )
    else:
        rule = _(
            "At least {least} characters of any kind; not a common password, a name or a sequence."
        )
    return {"least": least, "rule": rule.format(least=least)}


def password_problem(password: str, name: str = "", *, admin: bool = False) -> str | None:
    """Return why this password is refused for the account of this name; None if it is accepted."""
    if admin and len(password) < SHORTEST_OF_ADMIN:
        text = _(
            "An administrator's password has at least {least} characters: choose a longer one."
        )
        return text.format(least=SHORTEST_OF_ADMIN)
    if len(password) < SHORTEST:
        text = _("A password has at least {least} characters: choose a longer one.")
        return text.format(least=SHORTEST)
    if len(password) > LONGEST:
        return _("A password has {most} characters at most.").format(most=LONGEST)
    typed = unicodedata.normalize("NFKC", password).casefold()
    if _is_common(typed):
        return _("This password is among the most common, which are guessed first: choose another.")
    if _is_sequence(typed):
        return _(
            "This password repeats a few characters or follows the keyboard or the alphabet: "
            "choose another."
        )
    if _is_name(typed, name):
        return _(
            "This password is little more than the name of the account or the product: choose "
            "another."
        )
    return None


def _is_common(typed: str) -> bool:
    """Return whether it is on the list, alone or with a few digits and signs around it."""
    if typed in _common():
        return True
    stem = re.sub(r"^[\W\d_]+|[\W\d_]+$", "", typed)
    return stem in _common() and len(typed) - len(stem) < 2 * BESIDE


def _is_sequence(typed: str) -> bool:
    """Return whether it is a repetition, or has few characters once each sequence counts as one."""
    for size in range(1, len(typed) // 2 + 1):
        if size <= BESIDE and typed == (typed[:size] * len(typed))[: len(typed)]:
            return True
    left, at = 0, 0
    while at < len(typed):
        at += max(_run(typed, at), 1)
        left += 1
    return left < BESIDE


def _run(typed: str, at: int) -> int:
    """Return how many characters from `at` on are the same, or neighbours in one direction."""
    longest = 1
    while typed[at + longest : at + longest + 1] == typed[at]:
        longest += 1
    for row in KEYBOARD_ROWS:
        for line in (row, row[::-1]):
            size = 1
            while at + size < len(typed) and typed[at : at + size + 1] in line:
                size += 1
            longest = max(longest, size)
    return longest if longest > RUN else 1


def _is_name(typed: str, name: str) -> bool:
    """Return whether hardly anything is left without the names of the account and the product."""
    words = [unicodedata.normalize("NFKC", name).casefold(), *PRODUCT]
    left = typed
    for word in words:
        if len(word) >= 3:
            left = left.replace(word, "")
    letters = sum(one.isalpha() for one in left)
    return left != typed and letters < BESIDE and len(left) < 2 * BESIDE


@cache
def _common() -> frozenset[str]:
    lines = COMMON_PASSWORDS.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def hash_password(password: str) -> str:
    """What to store of a password."""
    salt = os.urandom(16)
    digest = _digest(password, salt, LOG_N, R, P)
    words = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "$".join(["scrypt", str(LOG_N), str(R), str(P), *words])


def password_matches(password: str, stored: str | None) -> bool:
    """Whether this is the password that was stored; never for None, after the same work.

    Raises:
        ValueError: what is stored is not ours.
    """
    if stored is None or len(password) > LONGEST:
        _digest(password[:LONGEST], b"\0" * 16, LOG_N, R, P)
        return False
    kind, log_n, r, p, salt, digest = stored.split("$")
    if kind != "scrypt":
        raise ValueError(kind)
    made = _digest(password, base64.b64decode(salt), int(log_n), int(r), int(p))
    return hmac.compare_digest(made, base64.b64decode(digest))


def _digest(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    # One keyboard sends é as one character, another as two.
    typed = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(typed, salt=salt, n=2**log_n, r=r, p=p, maxmem=256 * 2**20)


# -- the file of accounts

LINK_HOURS = 24
"""How long a link works."""
LONGEST_NAME = 64


class Link(msgspec.Struct, forbid_unknown_fields=True):
    """A link that sets a password once: sha256 of its code, Unix seconds, and a right it brings."""

    code: str
    expires: float
    admin: bool = False


class HubAccount(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is kept of one account; without a password nobody signs in yet."""

    password: str | None = None
    link: Link | None = None


class Accounts(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file, of version 1."""

    version: int
    accounts: dict[str, HubAccount] = {}
    removed: dict[str, bool] = {}
    """Users that the hub has to forget, and whether with their data: see `revoking`."""
    resets: dict[str, str] = {}
    """Accounts whose sessions and tokens the hub has to end, and the mark of the reset."""


class AccountsUnreadable(TFClusterError):
    """The file is there, but cannot be read or understood."""


class LinkRefused(TFClusterError):
    """A code that sets no password: used, replaced, expired, or never given out."""


class PasswordReplaced(TFClusterError):
    """The account has another password than the one that was checked."""


class AccountStore:
    """Accounts in one file.

    Args:
        path: the file; its folder exists and is the hub's own.
        clock: Unix seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock

    def read(self) -> dict[str, HubAccount]:
        """Every account by name.

        Raises:
            AccountsUnreadable: see there; a file that is not there yet is no error.
        """
        return self._read().accounts

    def removed(self) -> dict[str, bool]:
        """Whom the hub has yet to forget, and whether with their data. Raises as `read`."""
        return self._read().removed

    def resets(self) -> dict[str, str]:
        """Return the mark of each unfinished reset, by account. Raises as `read`."""
        return self._read().resets

    def _read(self) -> Accounts:
        try:
            return state_files.load(self.path, Accounts, exact=True)
        except FileNotFoundError:
            return Accounts(version=1)
        except state_files.Unreadable as error:
            raise AccountsUnreadable(
                _(
                    "the accounts in {file} cannot be read: {why}. Restore the file from a backup, "
                    "or move it away and invite everybody again."
                ).format(file=self.path, why=error)
            ) from None

    def password(self, name: str) -> str | None:
        """What is stored of a name's password. Raises as `read`."""
        account = self.read().get(name)
        return account.password if account else None

    def invite(
        self, name: str, *, admin: bool = False, keep: bool = False, only_if: str | None = None
    ) -> str:
        """A new code with which this account gets a password, and the account if there is none.

        An earlier code of the account no longer works. Neither does its password, and the hub ends
        what is signed in with it: somebody else who knows it could set a new one before the owner
        does. `keep` leaves both valid until the code is used. `only_if` is the stored password
        that the account must still have.

        Raises:
            InvalidRequest: no account can have this name.
            PasswordReplaced: the account has another password than `only_if`.
        """
        return self.invite_all([name], admin=admin, keep=keep, only_if=only_if)[name]

    def invite_all(
        self,
        names: Collection[str],
        *,
        admin: bool = False,
        keep: bool = False,
        reset: bool = True,
        only_if: str | None = None,
    ) -> dict[str, str]:
        """The same for several at once, by name: the file is written for all of them or for none.

        Without `reset` an account that has a password stays as it is, and has no code.

        Raises:
            InvalidRequest: no account can have one of the names.
            PasswordReplaced: one has another password than `only_if`.
        """
        allowed = {name: allowed_name(name) for name in names}
        codes = {name: secrets.token_urlsafe(32) for name in names}
        expires = self._clock() + LINK_HOURS * 3600
        with self._change() as file:
            for name, code in list(codes.items()):
                account = file.accounts.setdefault(allowed[name], HubAccount())
                if account.password and not reset:
                    del codes[name]
                    continue
                _unchanged(account, only_if)
                account.link = Link(_hash(code), expires, admin)
                if account.password and not keep:
                    account.password = None
                    file.resets[allowed[name]] = secrets.token_hex(8)
        return codes

    def invited(self, code: str) -> tuple[str, bool]:
        """Return whose password this code sets, and whether it makes them an administrator.

        Raises:
            LinkRefused: nobody's.
        """
        name, link = self._holder(self.read(), code)
        return name, link.admin

    def redeem(self, code: str, password: str) -> tuple[str, bool]:
        """Store a password, as `hash_password` made it, and use up the code.

        The hub ends all access to this account: `resets` names it until that is done.

        Returns:
            The account's name, and whether the link makes it an administrator.

        Raises:
            LinkRefused: the code sets nobody's password.
        """
        with self._change() as file:
            name, link = self._holder(file.accounts, code)
            file.accounts[name] = HubAccount(password)
            file.resets[name] = secrets.token_hex(8)
        return name, link.admin

    def set_password(self, name: str, password: str, *, instead_of: str | None = None) -> None:
        """Store another password, as `hash_password` made it; a link that waited is void.

        The hub ends all access, as for `redeem`. `instead_of` is the stored password that the
        account must still have: a reset may have come between its check and this.

        Raises:
            PasswordReplaced: it has another one.
            NotFound: there is no such account.
        """
        with self._change() as file:
            if name not in file.accounts:
                raise NotFound(_("there is no account {name!r}").format(name=name))
            _unchanged(file.accounts[name], instead_of)
            file.accounts[name] = HubAccount(password)
            file.resets[name] = secrets.token_hex(8)

    def remove(self, name: str) -> bool:
        """Forget an account; whether there was one. Its user in the hub is left alone."""
        with self._change() as file:
            return file.accounts.pop(name, None) is not None

    def dismiss(self, name: str, *, with_data: bool = False) -> bool:
        """Forget an account, and have the hub forget its user; whether there was one.

        An account of that name that is made afterwards is a new one, and stays.
        """
        with self._change() as file:
            if file.accounts.pop(name, None) is None and name not in file.removed:
                return False
            file.removed[name] = with_data or file.removed.get(name, False)
            file.resets.pop(name, None)  # they go with the user
            return True

    def forgotten(self, name: str) -> None:
        """The hub has forgotten the user."""
        with self._change() as file:
            file.removed.pop(name, None)

    def reset_done(self, name: str, mark: str) -> None:
        """Forget a reset that the hub has carried out; a later one has another mark, and stays."""
        with self._change() as file:
            if file.resets.get(name) == mark:
                del file.resets[name]

    def _holder(self, accounts: dict[str, HubAccount], code: str) -> tuple[str, Link]:
        wanted = _hash(code)
        for name, account in accounts.items():
            link = account.link
            if link and secrets.compare_digest(link.code, wanted):
                if link.expires > self._clock():
                    return name, link
                break
        raise LinkRefused(
            _(
                "This link does not work any more: each works once, for {hours} hours, and a newer "
                "one replaces it. Ask for another."
            ).format(hours=LINK_HOURS)
        )

    @contextmanager
    def _change(self) -> Iterator[Accounts]:
        with state_files.locked(self.path):
            file = self._read()
            yield file
            self._write(file)

    def _write(self, accounts: Accounts) -> None:
        text = msgspec.json.format(msgspec.json.encode(accounts), indent=1)
        if len(text) > state_files.MOST_BYTES:  # nobody could read it any more
            raise TFClusterError(
                _(
                    "{file} has no room for more accounts. Remove accounts that nobody uses on the "
                    "hub's admin page."
                ).format(file=self.path)
            )
        owner = state_files.OURS
        if os.geteuid() == 0 and self.path.exists():  # root helps a hub of somebody else
            there = self.path.stat()
            owner = (there.st_uid, there.st_gid)
        state_files.write(self.path, text, durable=True, alone=True, owner=owner)


def _unchanged(account: HubAccount, checked: str | None) -> None:
    if checked is not None and account.password != checked:
        raise PasswordReplaced(_("That is not your present password."))


def normalized_name(name: str) -> str:
    """A name as accounts have it: lower case, and one way to write each letter."""
    return unicodedata.normalize("NFC", name.strip()).lower()


def allowed_name(name: str) -> str:
    """A name in its normal form.

    Raises:
        InvalidRequest: no account can have it.
    """
    made = normalized_name(name)
    path = not made or "/" in made or set(made) == {"."}
    if path or not made.isprintable() or len(made) > LONGEST_NAME:
        rule = _("a user name has 1 to {most} characters that can be printed, and no /").format(
            most=LONGEST_NAME
        )
        raise InvalidRequest([Problem("name", name, rule)])
    return made


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
