"""Write the table of messages for people and for the page: `python tools/message_docs.py`.

docs/messages.md lists the code and the English text of every message about a run's state;
labextension/src/api/messageTable.ts has the same texts for the JupyterLab extension, which makes
the sentence in the reader's language. A test keeps both current.
"""

from __future__ import annotations

import json
from pathlib import Path

from tfcluster_magic.lifecycle.message_table import FULL_STOP, GROUPS, SEPARATORS, TEXTS, Text

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "messages.md"
TABLE = ROOT / "labextension" / "src" / "api" / "messageTable.ts"
_HEAD = """\
# Messages about a run

This page is made by `python tools/message_docs.py` from the table in
`tfcluster_magic/lifecycle/message_table.py`.

A run's status has one `reason` (a closed list: [lifecycle.md](lifecycle.md)), the sentence in
English as `message`, and the same as `messages`: codes with values, from which each view makes the
sentence in its reader's language. A program should act on `reason` and on codes, never on the text:
a text may change, a code keeps its meaning.

```json
"reason": "Starting",
"message": "Waiting for worker-1 to start (2 of 3 ready).",
"messages": [
  {"code": "WaitingForTasks", "params": {"tasks": ["worker-1"], "ready": 2, "total": 3}}
]
```

`{name}` is a value; `{name:format}` says how it is written: `commas`, `and`, `clauses` and
`sentences` join a list, `duration` is a number of seconds, `clock` a time in seconds since 1970. A
value may be a message in turn. What a value quotes stays as it was said: a refusal of the operator
or of the API server in English, the words of a program, a volume or a scheduler in their own.
"""
_BANNER = """\
/* Made by `python tools/message_docs.py`: change the texts in Python, not this file. */
"""


def page() -> str:
    """The reference as it is in the repository."""
    parts = [_HEAD]
    for title, texts in GROUPS.items():
        rows = "\n".join(f"| `{code}` | {_cell(text)} |" for code, text in texts.items())
        parts.append(f"## {title}\n\n| code | text |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _cell(text: Text) -> str:
    forms = (text,) if isinstance(text, str) else text
    return " / ".join(form.replace("|", "\\|").replace("*", "\\*") for form in forms)


def table() -> str:
    """The TypeScript as it is in the repository."""
    entries = "\n".join(
        f"  {code}: {json.dumps(text if isinstance(text, str) else list(text))},"
        for code, text in TEXTS.items()
    )
    return (
        f"{_BANNER}\n"
        "/** The text of each message by its code; both forms where a count chooses one. */\n"
        "export const TEXTS: Readonly<\n  Record<string, string | readonly [string, string]>\n"
        f"> = {{\n{entries}\n}};\n\n"
        "/** The separators of the parts of a list. */\n"
        f"export const SEPARATORS: Readonly<Record<string, string>> = {json.dumps(SEPARATORS)};\n\n"
        f"export const FULL_STOP = {json.dumps(FULL_STOP)};\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    TABLE.write_text(table(), "utf-8")
