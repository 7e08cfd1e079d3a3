"""Names of runs and schedules in commands for administrators."""

from __future__ import annotations

import pytest

from tfcluster_magic.cli.admin.hub_api import owner_and_run, owner_and_schedule
from tfcluster_magic.errors import UsageError


def test_a_name_without_its_owner_is_refused_in_the_words_of_its_kind() -> None:
    """For a name without an owner, the refusal asks for OWNER/RUN, or for OWNER/SCHEDULE."""
    assert owner_and_run("ada/digits-2") == ("ada", "digits-2")
    assert owner_and_schedule("ada/nightly") == ("ada", "nightly")
    for name in ("nightly", "/nightly", "ada/"):
        with pytest.raises(UsageError, match="OWNER/RUN, such as ada/digits-2"):
            owner_and_run(name)
        with pytest.raises(UsageError, match="OWNER/SCHEDULE, such as ada/nightly"):
            owner_and_schedule(name)
