"""Commands for administrators: names, confirmations and times, without a hub."""

from __future__ import annotations

import re
import shlex

import pytest
from support.command_line import Run, here, run

from tfcluster_magic.cli.admin.hub_api import owner_and_run, owner_and_schedule
from tfcluster_magic.cli.admin.site import _override_row
from tfcluster_magic.errors import UsageError

__all__ = ["here", "run"]  # fixtures used by the tests below


def test_a_name_without_its_owner_is_refused_in_the_words_of_its_kind() -> None:
    """For a name without an owner, the refusal asks for OWNER/RUN, or for OWNER/SCHEDULE."""
    assert owner_and_run("ada/digits-2") == ("ada", "digits-2")
    assert owner_and_schedule("ada/nightly") == ("ada", "nightly")
    for name in ("nightly", "/nightly", "ada/"):
        with pytest.raises(UsageError, match="OWNER/RUN, such as ada/digits-2"):
            owner_and_run(name)
        with pytest.raises(UsageError, match="OWNER/SCHEDULE, such as ada/nightly"):
            owner_and_schedule(name)


@pytest.mark.parametrize(
    "typed",
    [
        "stop kim/long-1 bob/x-2 --reason 'the exam begins'",
        "pause kim/nightly --reason exam -o json",
        "leaks --remove kim/left",
        "users archive kim --remove",
        "users delete-archives kim-1.tar.gz",
        "servers stop kim bob --server gpu",
    ],
)
@pytest.mark.usefixtures("here")
def test_a_confirmation_repeats_the_whole_command(
    run: Run, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nobody can answer, the refusal has the command as it was typed, with `--yes`."""
    monkeypatch.setenv("TFCLUSTER_HUB_TOKEN", "unused")
    refused = run("admin", *shlex.split(typed), "--hub", "http://127.0.0.1:9/")

    assert refused.code == 2
    assert f"`tfcluster admin {typed} --hub http://127.0.0.1:9/ --yes`" in refused.err


def test_the_end_of_an_override_names_its_time_zone() -> None:
    """Reader and hub may be in different time zones."""
    row = {"quota": {}, "storage": {}, "budget": {}, "until": 1.8e9, "by": "root", "reason": ""}
    assert re.fullmatch(r"2027-01-1\d \d\d:\d\d [+-]\d{4}", _override_row("ada", row)[2])
