"""Messages about wrong options of a schedule."""

from __future__ import annotations

import pytest

from tfcluster_magic.schedules.options import SCHEDULE_OPTIONS, ScheduleKind, ScheduleOption


@pytest.mark.parametrize(
    "option",
    [o for o in SCHEDULE_OPTIONS if o.kind not in (ScheduleKind.CRON, ScheduleKind.ZONE)],
    ids=lambda option: option.key,
)
def test_each_option_says_what_it_takes(option: ScheduleOption) -> None:
    """Each message about a wrong option says which values the option takes."""
    assert option.allowed.removeprefix("use").strip()
