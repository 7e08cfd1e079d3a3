"""Translation of the command line's texts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from support.project_tools import tool
from support.translated_commands import ROOT, here, said_by_each

__all__ = ["here"]  # a fixture used by the test below

ASKED: Sequence[Sequence[str]] = (
    ["--help"],
    *([verb, "--help"] for verb in ("launch", "list", "status", "logs", "stop", "delete", "rerun")),
    *([verb, "--help"] for verb in ("connect", "tensorboard", "render", "options", "completion")),
    ["list"],
    ["options"],
    ["stop", "--all"],
    ["launch"],
    ["launch", "missing.py"],
    ["launch", "fail.py", "--workers", "0"],
    ["launch", "fail.py", "--workers", "many", "--memory", "much", "--start-timeout", "soon"],
    ["launch", "fail.py", "--workers", "3", "--worker-memory", "9000Gi"],
    ["launch", "fail.py", "--name", "Not_Good"],
    ["launch", "fail.py", "--follow", "-o", "json"],
    ["launch", "fail.py", "--wrokers", "2"],
    ["launch", "fail.py", "more"],
    ["launch", "ftp://host/x.py"],
    ["launch", "--mode", "in-graph", "--chief", "fail.py"],
    ["launch", "-f", "missing.yaml"],
    ["launch", "fail.py", "--workers", "2", "--ps", "0", "--wait"],
    ["list"],
    ["list", "-o", "what"],
    ["status", "fail"],
    ["status"],
    ["status", "fial-1"],
    ["logs", "fail", "worker-9"],
    ["logs", "fail", "--tail", "-1"],
    ["connect", "fail"],
    ["rerun", "fail", "--cpu", "x"],
    ["delete", "fail", "--with-logs"],
    ["delete", "fail"],
    ["what"],
)


def test_no_text_of_the_command_line_is_left_untranslated(here: Path, tmp_path: Path) -> None:
    """With a catalog that puts every message in brackets, no text of the output is outside of
    brackets.
    """
    package = tmp_path / "package"
    shutil.copytree(
        ROOT / "tfcluster_magic",
        package / "tfcluster_magic",
        ignore=shutil.ignore_patterns("labextension"),
    )
    bracketed(package / "tfcluster_magic" / "locale" / "xx" / "LC_MESSAGES")
    told = said_by_each(here, "xx", ASKED, package)
    outside = {
        " ".join(words): left
        for words, text in zip(ASKED, told, strict=True)
        if (left := untranslated(text))
    }
    assert "⟦" in told[0]
    assert outside == {}


def bracketed(folder: Path) -> None:
    """Write a catalog that puts each message in brackets."""
    made = tool("translations")
    catalog = made.template(made.PYTHON)
    for message in catalog:
        if isinstance(message.id, str):
            message.string = f"⟦{message.id}⟧" if message.id else ""
        else:
            message.string = tuple(f"⟦{form}⟧" for form in message.id)
    folder.mkdir(parents=True)
    (folder / "tfcluster_magic.mo").write_bytes(made.mo(catalog))


def untranslated(text: str) -> list[str]:
    """Return the lines of `text` that have two adjacent English words outside of messages."""
    while "⟦" in text:
        text, found = re.subn(r"⟦[^⟦⟧]*⟧", "¤", text)
        assert found, f"brackets that do not fit: {text}"
    text = re.sub(r"--[a-z-]+ [a-z-]+\|[a-z|-]+", "¤", text)  # an option and its values
    text = re.sub(r"%?tfcluster( (-f|[a-z]+|[a-z]+-\d+))*|\[OPTIONS\].*|\"[^\"]*\"", "¤", text)
    return [line for line in text.splitlines() if re.search(r"[a-z]{2,} [a-z]{2,}", line)]
