"""The hub's own accounts: their file, the links that set a password, and the rules for passwords.

Passwords are stored only as scrypt hashes. The account file is written atomically, by one process
at a time. Commands in a shell write the file too.
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
"""Password lengths in characters; the upper limit only bounds the cost of hashing."""
LOG_N, R, P = 14, 8, 5
"""Parameters of scrypt.

ref: https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html
"""
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
"""Alphabet, digits, and keyboard rows and columns; neighbours in them form a sequence."""
RUN = 3
"""Maximum number of neighbouring characters that do not yet count as a sequence."""
BESIDE = 4
"""Minimum number of characters that a password must have if each sequence in it counts as one
character. A password that contains the name of the account or the product needs this many letters
besides the name, or twice this many characters of any kind besides the name. A password that is a
common word with digits and signs around it needs twice this many digits and signs.
"""


def password_rules(*, admin: bool) -> dict[str, object]:
    """Return the minimum length, and the rule to show beside a field for a new password."""
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
    """Return the reason why this password is refused for the account `name`; None if it is
    accepted.
    """
    if admin and len(password) < SHORTEST_OF_ADMIN:
        text = _(
            "An administrator's password has at least {least} characters: choose a longer one."
        )
        return text.format(least=SHORTEST_OF_ADMIN)
    if len(password) < SHORTEST:
        text = _("A password has at least {least} characters: choose a longer one.")
        return text.format(least=SHORTEST)
    if len(password) > LONGEST:
        return _("A password has at most {most} characters: choose a shorter one.").format(
            most=LONGEST
        )
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
    """Return whether a password is common, alone or with a few digits and signs around it."""
    if typed in _common():
        return True
    stem = re.sub(r"^[\W\d_]+|[\W\d_]+$", "", typed)
    return stem in _common() and len(typed) - len(stem) < 2 * BESIDE


def _is_sequence(typed: str) -> bool:
    """Return whether a password only repeats a few characters, or has too few characters if each
    sequence in it counts as one character.
    """
    for size in range(1, len(typed) // 2 + 1):
        if size <= BESIDE and typed == (typed[:size] * len(typed))[: len(typed)]:
            return True
    left, at = 0, 0
    while at < len(typed):
        at += max(_run(typed, at), 1)
        left += 1
    return left < BESIDE


def _run(typed: str, at: int) -> int:
    """Return the length of the sequence of equal or neighbouring characters at `at`; 1 if there is
    none.
    """
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
    """Return whether a password consists mostly of the names of the account and the product."""
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
    """Return the salted scrypt hash to store for a password."""
    salt = os.urandom(16)
    digest = _digest(password, salt, LOG_N, R, P)
    words = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "$".join(["scrypt", str(LOG_N), str(R), str(P), *words])


def password_matches(password: str, stored: str | None) -> bool:
    """Return whether the password matches the stored hash.

    If `stored` is None, return False after as much work: the time taken must not reveal whether the
    account exists.

    Raises:
        ValueError: `stored` is no hash of `hash_password`.
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
    # Normalize: some keyboards send é as one character, others as two.
    typed = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(typed, salt=salt, n=2**log_n, r=r, p=p, maxmem=256 * 2**20)


# -- account file

LINK_HOURS = 24
"""Hours for which a link that sets a password is valid."""
LONGEST_NAME = 64


class Link(msgspec.Struct, forbid_unknown_fields=True):
    """A one-time link that sets a password: the sha256 of its code, its expiry in Unix seconds, and
    whether the account becomes an administrator's account.
    """

    code: str
    expires: float
    admin: bool = False


class HubAccount(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One account; nobody can sign in to it before it has a password."""

    password: str | None = None
    link: Link | None = None


class Accounts(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Content of the account file, format version 1."""

    version: int
    accounts: dict[str, HubAccount] = {}
    removed: dict[str, bool] = {}
    """Users that the hub must delete, and whether to delete their data too (see `revocation`)."""
    resets: dict[str, str] = {}
    """Accounts whose sessions and tokens the hub must end, with the id of the reset."""


class AccountsUnreadable(TFClusterError):
    """The account file exists, but cannot be read or decoded."""


class LinkRefused(TFClusterError):
    """The code of a link was used or replaced, has expired, or was never issued."""


class PasswordReplaced(TFClusterError):
    """The password of the account has changed since it was checked."""


class AccountStore:
    """Accounts in one file.

    Args:
        path: the account file. Its folder, which is the hub's private folder, must exist.
        clock: returns Unix seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock

    def read(self) -> dict[str, HubAccount]:
        """Return all accounts by name; empty if there is no file yet.

        Raises:
            AccountsUnreadable: the file cannot be read or decoded.
        """
        return self._read().accounts

    def removed(self) -> dict[str, bool]:
        """Return the users that the hub must delete, and whether to delete their data too. Raises
        AccountsUnreadable.
        """
        return self._read().removed

    def resets(self) -> dict[str, str]:
        """Return the id of each unfinished reset, by account. Raises AccountsUnreadable."""
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
        """Return the stored password hash of an account; None if it has none. Raises
        AccountsUnreadable.
        """
        account = self.read().get(name)
        return account.password if account else None

    def invite(
        self, name: str, *, admin: bool = False, keep: bool = False, only_if: str | None = None
    ) -> str:
        """Return the code of a new link that sets the password of an account. Create the account if
        it does not exist.

        Earlier codes and the password of the account stop working, and the hub ends the account's
        sessions. Otherwise somebody else who knows the password could set a new one first. `keep`
        leaves password and sessions valid until the code is used. `only_if` is the stored hash that
        the account must still have.

        Raises:
            InvalidRequest: the name is not allowed.
            PasswordReplaced: the stored hash is not `only_if`.
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
        """Return the codes of new links for several accounts, by name; after an error, no code is
        stored.

        Without `reset`, an account that has a password keeps it and gets no code.

        Raises:
            InvalidRequest: a name is not allowed.
            PasswordReplaced: a stored hash is not `only_if`.
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
        """Return the account whose link has this code, and whether the link makes it an
        administrator's.

        Raises:
            LinkRefused: the code is not valid.
        """
        name, link = self._holder(self.read(), code)
        return name, link.admin

    def redeem(self, code: str, password: str) -> tuple[str, bool]:
        """Store `password`, a hash from `hash_password`, in the account of a link, and invalidate
        the link's code.

        The hub then ends all sessions and tokens of the account. Until the hub has done so,
        `resets` contains the account.

        Returns:
            The account's name, and whether the link makes it an administrator's account.

        Raises:
            LinkRefused: the code is not valid.
        """
        with self._change() as file:
            name, link = self._holder(file.accounts, code)
            file.accounts[name] = HubAccount(password)
            file.resets[name] = secrets.token_hex(8)
        return name, link.admin

    def set_password(self, name: str, password: str, *, instead_of: str | None = None) -> None:
        """Store a new password hash from `hash_password`; the account's link stops working.

        The hub then ends all sessions and tokens of the account, as it does after `redeem`.
        `instead_of` is the stored hash that was checked; the account must still have it.

        Raises:
            PasswordReplaced: the account has another hash.
            NotFound: there is no such account.
        """
        with self._change() as file:
            if name not in file.accounts:
                raise NotFound(_("there is no account {name!r}").format(name=name))
            _unchanged(file.accounts[name], instead_of)
            file.accounts[name] = HubAccount(password)
            file.resets[name] = secrets.token_hex(8)

    def remove(self, name: str) -> bool:
        """Delete an account but not its hub user; return whether it existed."""
        with self._change() as file:
            return file.accounts.pop(name, None) is not None

    def dismiss(self, name: str, *, with_data: bool = False) -> bool:
        """Delete an account, and have the hub delete its user later. If a new account of the same
        name is created before the hub has done so, the new account is not deleted.

        Returns:
            False if there is no such account and the hub is not deleting its user either.
        """
        with self._change() as file:
            if file.accounts.pop(name, None) is None and name not in file.removed:
                return False
            file.removed[name] = with_data or file.removed.get(name, False)
            file.resets.pop(name, None)  # not needed: the sessions end with the user
            return True

    def forgotten(self, name: str) -> None:
        """Record that the hub has deleted a user."""
        with self._change() as file:
            file.removed.pop(name, None)

    def reset_done(self, name: str, mark: str) -> None:
        """Remove the finished reset with the id `mark`; a later reset has another id and stays."""
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
                "This link is no longer valid. A link works once, within {hours} "
                "hours, and a newer link replaces it. Ask for a new one."
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
        if len(text) > state_files.MOST_BYTES:  # larger files cannot be read
            raise TFClusterError(
                _("{file} is full. Remove unused accounts on the hub's admin page.").format(
                    file=self.path
                )
            )
        owner = state_files.OURS
        if os.geteuid() == 0 and self.path.exists():  # the hub's account must stay the owner
            there = self.path.stat()
            owner = (there.st_uid, there.st_gid)
        state_files.write(self.path, text, durable=True, alone=True, owner=owner)


def _unchanged(account: HubAccount, checked: str | None) -> None:
    if checked is not None and account.password != checked:
        raise PasswordReplaced(_("That is not your current password."))


def normalized_name(name: str) -> str:
    """Return a name in lower case and in Unicode normal form C."""
    return unicodedata.normalize("NFC", name.strip()).lower()


def allowed_name(name: str) -> str:
    """Return a name in its normal form.

    Raises:
        InvalidRequest: the name is not allowed.
    """
    made = normalized_name(name)
    path = not made or "/" in made or set(made) == {"."}
    if path or not made.isprintable() or len(made) > LONGEST_NAME:
        rule = _("a user name has 1 to {most} printable characters and no /").format(
            most=LONGEST_NAME
        )
        raise InvalidRequest([Problem("name", name, rule)])
    return made


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
