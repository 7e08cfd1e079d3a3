"""Pages that are generated from the code."""

from __future__ import annotations

import click
import pytest
from support.project_tools import tool

from tfcluster_magic.cli.group import Command

OLD = "out of date: run `make docs`"


def test_the_page_about_the_command_line_is_what_the_program_says() -> None:
    """docs/reference/cli.md is current; `python tools/cli_docs.py` updates it."""
    made = tool("cli_docs")

    assert made.PAGE.read_text("utf-8") == made.page(), OLD


def test_the_page_about_rest_has_the_verbs_of_runs() -> None:
    """docs/reference/api.md lists each verb with its fields; `python tools/cli_docs.py`
    updates it.
    """
    made = tool("cli_docs")
    page = made.api_page()

    assert made.API_PAGE.read_text("utf-8") == page, OLD
    assert (
        "`POST /clusters/{ref}/stop` | Stop a run; answers before it has ended; takes `reason`"
        in page
    )


def test_the_tables_of_messages_are_those_of_the_code() -> None:
    """docs/reference/messages.md, and the table of messages of the JupyterLab extension, are
    current; `python tools/message_docs.py` updates them.
    """
    made = tool("message_docs")

    assert made.PAGE.read_text("utf-8") == made.page(), OLD
    assert made.TABLE.read_text("utf-8") == made.table(), OLD


@pytest.mark.parametrize(
    "name",
    ["record.md", "rest.md", "launch-options.md", "reasons.md", "metrics.md", "policy.md"],
)
def test_a_reference_page_lists_what_the_code_has(name: str) -> None:
    """docs/reference/<name> is current; `python tools/reference_docs.py` updates it."""
    made = tool("reference_docs")

    assert (made.FOLDER / name).read_text("utf-8") == made.pages()[name], OLD


def test_the_exported_schema_is_the_one_of_the_models() -> None:
    """docs/reference/tfcluster.schema.json is current; `python tools/schema.py` updates it."""
    made = tool("schema")

    assert made.FILE.read_text("utf-8") == made.text(), OLD


def test_the_custom_resources_are_those_of_the_models() -> None:
    """The files in k8s/crds, and the variables of the admission policy for records, are current;
    `python tools/crd.py` updates them.
    """
    made = tool("crd")

    for file, text in made.texts().items():
        assert file.read_text("utf-8") == text, OLD
    assert made.POLICY.read_text("utf-8") == made.policy(), OLD


def test_a_command_takes_h_however_it_was_first_used() -> None:
    """Click caches the help option of a command on first use. This option includes `-h`, even if
    the command is used without its group.
    """
    command = Command("verb")

    option = command.get_help_option(click.Context(command))

    assert option is not None
    assert option.opts == ["-h", "--help"]
