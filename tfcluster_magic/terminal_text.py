"""What in a text could act on a terminal, and the text without it. Pure.

What a program prints, what it names and why something was stopped comes from other people. Control
characters of it move a cursor, rewrite the line above, set a clipboard or a link; marks of
bidirectional text show a name in another order than it has.
"""

from __future__ import annotations

import re

# Escape sequences (ECMA-48: CSI; OSC and the like with what they carry), control characters of both
# sets (of the 8-bit forms only the first character: text in a wrong encoding has them, too), and
# what changes the direction of text or ends a line where one sees none.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def clean(text: str) -> str:
    """`text` on one line and without what could move a terminal's cursor or change its colours."""
    return stripped(text.replace("\n", " ").replace("\t", " "))


def stripped(text: str) -> str:
    """`text` without what acts on a terminal, its colours included; lines and tabs stay."""
    return _CONTROL.sub("", text)


def tame(text: str) -> str:
    """`text` with its colours, and without what could do anything else to a terminal."""
    return _CONTROL.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text)


def settled(text: str) -> str:
    """What a terminal would show at last of a line that rewrites itself, as progress bars do."""
    if "\r" not in text:
        return text
    parts = [part for part in text.split("\r") if part.strip()]
    return parts[-1] if parts else ""
