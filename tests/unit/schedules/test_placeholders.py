"""Placeholders of a due time, which are a closed list; no text of a user is evaluated."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfcluster_magic.schedules.placeholders import problems, substitute

AT = datetime(2026, 11, 27, 2, 0, tzinfo=ZoneInfo("Asia/Shanghai"))
TIMES = {"scheduled_for": AT, "previous_success": None}


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("{scheduled_for}", "2026-11-27T02:00:00+08:00"),
        ("--date={scheduled_for:%Y-%m-%d}", "--date=2026-11-27"),
        ("/data/{scheduled_for:%Y/%m/%d}/{scheduled_for:%H%M}", "/data/2026/11/27/0200"),
        ("since={previous_success:%Y}", "since="),
        ('{"rate": 0.1}', '{"rate": 0.1}'),
        ("{scheduled_for.__class__}", "{scheduled_for.__class__}"),
        ("{scheduled_for!r}", "{scheduled_for!r}"),
        (
            "{{ config }} {% if x %} ${HOME} $(id) `id`",
            "{{ config }} {% if x %} ${HOME} $(id) `id`",
        ),
    ],
)
def test_only_the_closed_list_is_replaced(text: str, becomes: str) -> None:
    """The two placeholders are replaced, and every other text in braces stays as it is."""
    assert substitute(text, TIMES) == becomes


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_any_other_text_stays(text: str) -> None:
    """No text without a placeholder's name changes."""
    if "scheduled_for" not in text and "previous_success" not in text:
        assert substitute(text, TIMES) == text


def test_a_directive_that_is_none_is_refused() -> None:
    """A format with an unknown directive is refused before anything is launched, and the message
    names the directive.
    """
    found = problems(["{scheduled_for:%Q}", "{scheduled_for:%}"], {"DAY": "{scheduled_for:%c}"})
    assert len(found) == 3
    assert not problems(["{scheduled_for:%Y-%m-%d %H:%M:%S %j %%}", "{nothing:%Q}"], {})
