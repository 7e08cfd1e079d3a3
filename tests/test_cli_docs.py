"""The page about the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_about_the_command_line_is_what_the_program_says() -> None:
    """docs/cli.md is current; `python tools/cli_docs.py` makes it so."""
    spec = importlib.util.spec_from_file_location("cli_docs", ROOT / "tools" / "cli_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.PAGE.read_text("utf-8") == module.page()
