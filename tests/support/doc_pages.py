"""Markdown pages of the project: headings, links and fenced blocks, with the comment above each
block.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.project import ROOT

FENCE = re.compile(r"^( *)(`{3,})([\w{}-]*)\s*$")
HEADING = re.compile(r"^#+ +(.*?) *$")
LINK = re.compile(r"!?\[(?:[^\]\\`]|\\.|`[^`]*`)*\]\(([^)\s]*)\)")
COMMENT = re.compile(r"^<!-- (.*) -->$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the line of its fence and the comment above it."""

    page: Path
    line: int
    language: str
    text: str
    comment: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page that is tracked or new in Git, without ignored files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).exists()]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    opened, language, start, comment, said = "", "", 0, "", ""
    inside: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if opened:
            if fence and fence[2] == opened and not fence[3]:
                yield Block(page, start, language, "\n".join(inside) + "\n", said)
                opened, comment = "", ""
            else:
                inside.append(line)
        elif fence:
            opened, language, start, said = fence[2], fence[3], number, comment
            inside = []
        elif found := COMMENT.match(line):
            comment = found[1]
        elif line.strip():
            comment = ""


def prose(page: Path) -> list[str]:
    """Return the lines of a page; those of fenced blocks are empty."""
    opened, told = "", []
    for line in page.read_text("utf-8").splitlines():
        fence = FENCE.match(line)
        inside = bool(opened)
        if fence and not opened:
            opened = fence[2]
        elif fence and fence[2] == opened and not fence[3]:
            opened = ""
        told.append("" if inside or fence else line)
    return told


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links and pictures."""
    text = re.sub(r"(?<!\[)`[^`\n]*`(?!\])", "", "\n".join(prose(page)))
    yield from (found[1] for found in LINK.finditer(text))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as on GitHub and on the site."""
    names: dict[str, int] = {}
    told = set()
    for line in prose(page):
        if not (found := HEADING.match(line)):
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found[1]).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = names.get(name, 0)
        names[name] = count + 1
        told.add(f"{name}-{count}" if count else name)
    return told
