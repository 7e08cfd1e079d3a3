"""Text from other people, without what could act on a terminal. Pure.

A program's output, the names it gives and the reason for a stop come from other people. Control
characters in them move a cursor, rewrite the line above, or set a clipboard or a link; marks of
bidirectional text show a name in another order than it has.
"""

from __future__ import annotations

import re

# Escape sequences (ECMA-48: CSI; OSC and similar with their content), control characters of both
# sets (of the 8-bit forms only the first character: wrongly encoded text has them, too), and
# characters that change the direction of text or end a line invisibly.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_PLAIN = "\x1b[0m"


def clean(text: str) -> str:
    """Return `text` on one line, without what could move a cursor or change colours."""
    return stripped(text.replace("\n", " ").replace("\t", " "))


def stripped(text: str) -> str:
    """Return `text` without what acts on a terminal, its colours included; lines and tabs stay."""
    return _CONTROL.sub("", text)


def tame(text: str) -> str:
    """Return `text` with its colours, and without anything else that acts on a terminal.

    Its colours end with it: text could otherwise hide what is printed after it.
    """
    found = _CONTROL.sub(lambda each: each[0] if _COLOUR.fullmatch(each[0]) else "", text)
    return found if "\x1b" not in found or found.endswith(_PLAIN) else found + _PLAIN


def settled(text: str) -> str:
    """Return what a terminal shows at last of a line that rewrites itself, as progress bars do."""
    if "\r" not in text:
        return text
    parts = [part for part in text.split("\r") if part.strip()]
    return parts[-1] if parts else ""
