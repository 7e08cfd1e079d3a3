"""Passwords of the hub: what is stored of one, and whether one that was typed is it.

It promises scrypt with OWASP's least cost (16 MiB, five passes, about 0.2 s) and the same work when
there is nothing to compare with, so that time does not tell which names exist. What is stored says
how it was made, so that the cost may rise later. Pure; a caller on an event loop uses a thread.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import unicodedata

from ...i18n import _

SHORTEST, LONGEST = 8, 1000
"""Characters of a password; the upper bound only keeps the work small."""
LOG_N, R, P = 14, 8, 5
"""ref: https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html"""


def problem(password: str) -> str | None:
    """Why this password is not taken, None for one that is; there are no rules but its length."""
    if len(password) < SHORTEST:
        return _("A password has {least} characters at least; any will do.").format(least=SHORTEST)
    if len(password) > LONGEST:
        return _("A password has {most} characters at most.").format(most=LONGEST)
    return None


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
