"""Passwords of the hub: which are accepted, how they are stored, and how one is checked.

Passwords are hashed by scrypt with OWASP's minimum cost (16 MiB, five passes, about 0.2 s), and the
same work is done for an unknown name, so that time does not show which names exist. A stored hash
names its parameters, so that the cost may rise later. The rules follow NIST SP 800-63B: a minimum
length and a list of common passwords, and no rules about kinds of characters. Call it in a thread
from an event loop.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import unicodedata
from functools import cache
from pathlib import Path

from ...i18n import _

SHORTEST, SHORTEST_OF_ADMIN, LONGEST = 8, 12, 1000
"""Characters of a password; the upper bound only keeps the work small."""
LOG_N, R, P = 14, 8, 5
"""ref: https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html"""
COMMON = Path(__file__).with_name("common_passwords.txt")
PRODUCT = ("tfcluster", "tensorflow", "jupyterhub", "jupyter")
ROWS = (
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


def asked(*, admin: bool) -> dict[str, object]:
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


def problem(password: str, name: str = "", *, admin: bool = False) -> str | None:
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
    for row in ROWS:
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
    lines = COMMON.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def hashed(password: str) -> str:
    """What to store of a password."""
    salt = os.urandom(16)
    digest = _digest(password, salt, LOG_N, R, P)
    words = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "$".join(["scrypt", str(LOG_N), str(R), str(P), *words])


def matches(password: str, stored: str | None) -> bool:
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
