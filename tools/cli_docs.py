"""Write docs/reference/cli.md with the help of every verb, and the verb routes in
docs/reference/api.md: `python tools/cli_docs.py`. A test checks that both are current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "cli.md"
API_PAGE = ROOT / "docs" / "reference" / "api.md"
VERB_ROUTE = "| `POST /clusters/{ref}/"
AFTER_VERBS = VERB_ROUTE + "rerun`"
"""The start of the first handwritten row below the generated rows in api.md. Handwritten rows of
POST routes stand below it, because generated rows replace those above.
"""
WIDTH = 96
HEAD = """\
# The command line and `%tfcluster`

This page is generated from the program's own help by `python tools/cli_docs.py`.

Each command works in a shell as `tfcluster VERB …` and in a notebook, after
`%load_ext tfcluster_magic`, as `%tfcluster VERB …`, with the same options and messages. Only in a
notebook:

- `%%tfcluster launch …` runs the rest of the cell as the program.
- `cluster = %tfcluster launch …` returns a handle: `cluster.wait()`, `.status`, `.logs()`,
  `.stop()`, `.tensorboard()`, and for in-graph clusters `.target`, `.session()`, `.strategy()`,
  `.coordinator()`, `.resolver()`.
- `{name}` and `$name` are replaced by the value of the notebook's variable. A handle is replaced by
  the name of its run: `%tfcluster connect $cluster`.
- If you interrupt a cell, the run continues.
- An error makes the cell fail with one message, so that *Run All*, nbconvert and papermill stop.

In Python: `from tfcluster_magic import ClusterManager`; a verb is a method, an option is a keyword:
`run = manager.launch("train.py", ["--epochs", "3"], workers=4, worker_cpu=2)`. It returns the
record of the run; `manager.wait(run.metadata.name)` waits for its end.

Write durations in seconds, or as 30s, 10m, 1h30m, 7d, and memory as 512Mi or 2Gi. `NO_COLOR=1`
turns colours off.
"""


def page() -> str:
    """Return the text of cli.md."""
    sys.path.insert(0, str(ROOT))
    from tfcluster_magic import cli
    from tfcluster_magic.cli.group import VERBS

    root = click.Context(cli.tfcluster, info_name="tfcluster", terminal_width=WIDTH)
    parts = [HEAD, _block("tfcluster", cli.tfcluster.get_help(root))]
    for verb in VERBS:
        command = cli.tfcluster.get_command(root, verb)
        assert command is not None
        context = click.Context(command, info_name=verb, parent=root, terminal_width=WIDTH)
        parts += _blocks(verb, command, context)
    return "\n".join(parts)


def _blocks(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the section of a command, and the sections of its subcommands."""
    yield _block(title, command.get_help(context))
    for name, below in getattr(command, "commands", {}).items():
        inner = click.Context(below, info_name=name, parent=context, terminal_width=WIDTH)
        yield from _blocks(f"{title} {name}", below, inner)


def _takes(fields: Sequence[str]) -> str:
    named = ", ".join(f"`{field}`" for field in fields)
    return f"; takes {named}" if named else ""


def api_page() -> str:
    """Return the REST page, with a row for each verb of `VERB_BODIES`."""
    from tfcluster_magic.server.runs import VERB_BODIES

    rows = [
        f"{VERB_ROUTE}{verb}` | {(body.__doc__ or '').rstrip('.')}"
        f"{_takes(body.__struct_encode_fields__)} |"
        for verb, body in VERB_BODIES.items()
    ]
    above, after, below = API_PAGE.read_text("utf-8").partition(AFTER_VERBS)
    kept = [line for line in above.splitlines() if not line.startswith(VERB_ROUTE)]
    return "\n".join([*kept, *rows, f"{after}{below}"])


def _block(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    API_PAGE.write_text(api_page(), encoding="utf-8")
