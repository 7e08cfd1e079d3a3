"""Due times of cron expressions over clock changes and leap days, and invalid expressions."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.schedules.cron import CronTimes, machine_zone

ZONES = (
    "UTC",
    "Asia/Shanghai",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # summer time shifts the clock by half an hour
    "Pacific/Apia",  # once skipped a whole day
    "Africa/Casablanca",  # changes its clocks around Ramadan
    "America/Sao_Paulo",  # changed its clocks at midnight
)
CRONS = (
    "0 2 * * *",
    "30 2 * * *",
    "0,30 2,3 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "59 23 31 * *",
    "0 0 29 2 *",
    "0 3 * * MON-FRI",
    "0 12 1 */3 *",
    "5 0 L * *",
)
times = st.floats(min_value=1_200_000_000, max_value=2_400_000_000)


def texts(cron: str, zone: str, after: datetime, count: int) -> list[str]:
    moments = islice(CronTimes(cron, zone).after(after.timestamp()), count)
    return [datetime.fromtimestamp(at, ZoneInfo(zone)).isoformat() for at in moments]


def test_a_time_that_is_skipped_is_due_right_after() -> None:
    """A night job at 02:30 runs at 03:00 where the clocks jump from 02:00 to 03:00."""
    before = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert texts("30 2 * * *", "Europe/Berlin", before, 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_comes_twice_is_due_once() -> None:
    """A night job at 02:30 runs once in the night in which 02:30 comes twice."""
    before = datetime(2026, 10, 24, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert texts("30 2 * * *", "Europe/Berlin", before, 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_an_hourly_job_runs_each_hour_of_either_night() -> None:
    """On a day on which the clocks change, an hourly job is due 23 or 25 times."""
    for month, day, hours in ((3, 29, 23), (10, 25, 25)):
        start = datetime(2026, month, day, tzinfo=ZoneInfo("Europe/Berlin"))
        found = CronTimes("0 * * * *", "Europe/Berlin").count(
            start.timestamp() - 1, (start + timedelta(days=1)).timestamp() - 1, 100
        )
        assert found == hours


def test_a_leap_day_is_due_every_four_years() -> None:
    """29 February is due only in leap years; 2100 is no leap year."""
    found = texts("0 0 29 2 *", "UTC", datetime(2095, 1, 1, tzinfo=timezone.utc), 2)
    assert found == ["2096-02-29T00:00:00+00:00", "2104-02-29T00:00:00+00:00"]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(CRONS), st.sampled_from(ZONES), times)
def test_times_increase_and_do_not_depend_on_where_one_begins(
    cron: str, zone: str, at: float
) -> None:
    """The due times after a given due time are always the same, so a restart neither loses nor
    repeats a due time.
    """
    found = CronTimes(cron, zone)
    whole = [*islice(found.after(at), 12)]
    assert all(a < b for a, b in pairwise(whole))
    step, again = at, []
    for _ in whole:
        step = found.next(step) or 0.0
        again.append(step)
    assert again == whole
    middle = (whole[3] + whole[4]) / 2
    assert found.next(middle) == whole[4]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(CRONS), st.sampled_from(ZONES), times, st.floats(0, 40 * 86400))
def test_the_last_is_that_of_all(cron: str, zone: str, until: float, back: float) -> None:
    """The last due time of a period equals the last due time that is found by counting forwards."""
    found = CronTimes(cron, zone)
    inside = []
    for moment in found.after(until - back):
        if moment > until:
            break
        inside.append(moment)
    assert found.last(until - back, until) == (inside[-1] if inside else None)
    assert found.count(until - back, until, 10_000) == len(inside)


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("", "write minute"),
        ("every night", "write minute"),
        ("0 2 * *", "write minute"),
        ("0 0 2 * * *", "write minute"),
        ("61 2 * * *", "the field minute is invalid"),
        ("0 2 * * FUNDAY", "the field day-of-week is invalid"),
        ("0 2 32 * *", "the field day-of-month is invalid"),
        ("*/0 * * * *", "the field minute is invalid"),
        ("0 0 30 2 *", "it never matches a date"),
        ("0 0 31 2,4,6 *", "it never matches a date"),
        ("0 " * 300, "write minute"),
    ],
)
def test_nonsense_is_refused_with_what_is_right(cron: str, why: str) -> None:
    """An invalid expression, or an expression that is never due, is refused with a reason."""
    with pytest.raises(InvalidRequest, match="--cron") as refused:
        CronTimes(cron, "UTC")
    assert why in str(refused.value)


@pytest.mark.parametrize("zone", ["Asia/Shanghia", "Asia", "", "../../etc/passwd", "/etc/passwd"])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    """An unknown time zone is refused, and the refusal suggests a similar time zone."""
    with pytest.raises(InvalidRequest, match="--time-zone") as refused:
        CronTimes("0 2 * * *", zone)
    assert "Asia/Shanghai" in str(refused.value) or "such as" in str(refused.value)


@settings(deadline=None)
@given(st.text("0123456789*/-,L#WMONSU @", max_size=40))
def test_any_text_is_read_or_refused(cron: str) -> None:
    """Any text is read or refused in a short time, without another error."""
    began = time.process_time()
    try:
        found = CronTimes(cron, "Europe/Berlin")
    except InvalidRequest:
        return
    found.next(1_780_000_000.0)
    found.last(0.0, 1_780_000_000.0)
    assert time.process_time() - began < 5


def test_the_machine_has_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable TZ sets the machine's time zone; an invalid TZ is ignored."""
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert machine_zone() == "Asia/Tokyo"
    monkeypatch.setenv("TZ", "nowhere")
    assert ZoneInfo(machine_zone())
